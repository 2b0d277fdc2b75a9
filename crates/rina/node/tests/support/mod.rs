//! A node in a temporary directory, and applications that use `ipc.sock` directly.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub(crate) mod members;
pub(crate) mod networks;
pub(crate) mod pair;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use carina_api::control::Client;
use carina_api::ipc::{self, Flow, FlowNotice, FlowRequest, Mode, Reply, Request};
use carina_api::paths::RunDir;
use carina_api::{AppName, DifName, ErrorBody, FlowSpec};
use carina_node::{Config, Node, NodeHandle};
use carina_random::SplitMix;
use carina_ring::WakeMode;
use carina_ring::channel::{Endpoint, Side};
use carina_sys::{connect_seqpacket, recv_with_fds, send_with_fds};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A directory for one test, removed on drop.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // In memory, as the run directory usually is: VM regions need a tmpfs.
        let base = PathBuf::from("/dev/shm");
        let base = if base.is_dir() {
            base
        } else {
            std::env::temp_dir()
        };
        let path = base.join(format!("cnt-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        RunDir::new(self.0.join("run"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running node and its directory.
pub(crate) struct House {
    pub node: Option<NodeHandle>,
    pub scratch: Scratch,
}

impl House {
    pub(crate) fn new(name: &str, toml: &str) -> Self {
        let scratch = Scratch::new(name);
        let node = Some(start(&scratch, toml));
        Self { node, scratch }
    }

    pub(crate) fn dir(&self) -> RunDir {
        self.scratch.run_dir()
    }

    pub(crate) fn control(&self) -> Client {
        Client::new(self.dir().control_sock())
    }

    pub(crate) fn conn(&self) -> Conn {
        Conn::open(&self.dir())
    }

    pub(crate) fn register(&self, name: &str) -> Conn {
        let conn = self.conn();
        let difs = conn.register(name, None).unwrap();
        assert!(!difs.is_empty());
        conn
    }
}

pub(crate) fn start(scratch: &Scratch, toml: &str) -> NodeHandle {
    let mut node = None;
    eventually_or("the node starts", || {
        let mut config = Config::parse(toml, None).unwrap();
        config.node.run_dir = Some(scratch.run_dir().path().into());
        // A process started by another test inherits what an earlier node held, until it executes
        // its program.
        let is_held = |said: &str| said.contains("already runs") || said.contains("in use");
        match Node::spawn(config) {
            Ok(started) => node = Some(started),
            Err(error) if is_held(&error.to_string()) => return Err(error.to_string()),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    });
    node.unwrap()
}

/// Addresses for nodes to listen on. Each is an own address of the loopback network, so no other
/// process is given its port before the node opens it.
pub(crate) fn addresses<const N: usize>() -> [SocketAddr; N] {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    [(); N].map(|()| {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let [_, b, c, d] = (std::process::id() << 9 | count).to_be_bytes();
        SocketAddr::from(([127, b | 0x80, c, d], 7000))
    })
}

pub(crate) fn app(text: &str) -> AppName {
    AppName::new(text).unwrap()
}

pub(crate) fn dif(text: &str) -> DifName {
    DifName::new(text).unwrap()
}

/// A connection to `ipc.sock`.
pub(crate) struct Conn(pub OwnedFd);

impl Conn {
    pub(crate) fn open(dir: &RunDir) -> Self {
        Self(connect_seqpacket(&dir.ipc_sock(), Duration::from_secs(60)).unwrap())
    }

    pub(crate) fn say(&self, request: &Request) {
        self.say_attaching(request, &[]);
    }

    pub(crate) fn say_attaching(&self, request: &Request, fds: &[BorrowedFd<'_>]) {
        send_with_fds(&self.0, &ipc::encode(request).unwrap(), fds).unwrap();
    }

    /// The next message; `None` when the node has closed the connection.
    pub(crate) fn hear(&self) -> Option<(Reply, Vec<OwnedFd>)> {
        assert!(readable(&self.0, PATIENCE_MS), "the node was silent");
        let mut buffer = vec![0; ipc::MESSAGE_BYTES_MAX];
        let datagram = recv_with_fds(&self.0, &mut buffer).ok()?;
        (datagram.bytes > 0).then(|| {
            (
                ipc::decode(&buffer[..datagram.bytes]).unwrap(),
                datagram.fds,
            )
        })
    }

    pub(crate) fn error(&self) -> ErrorBody {
        match self.hear() {
            Some((Reply::Error(refusal), _)) => refusal.error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    pub(crate) fn register(
        &self,
        name: &str,
        in_dif: Option<&str>,
    ) -> Result<Vec<DifName>, ErrorBody> {
        let (name, dif) = (app(name), in_dif.map(dif));
        self.say(&Request::Register {
            version: ipc::VERSION,
            name,
            dif,
            streams: false,
            shared: false,
        });
        match self.hear() {
            Some((Reply::Registered(registered), _)) => Ok(registered.difs),
            Some((Reply::Error(refusal), _)) => Err(refusal.error),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn ask(&self, remote: &str) {
        self.ask_with(remote, None, FlowSpec::reliable(), Mode::Ring);
    }

    pub(crate) fn ask_with(&self, remote: &str, in_dif: Option<&str>, spec: FlowSpec, mode: Mode) {
        self.say(&allocate(remote, in_dif, spec, mode));
    }

    pub(crate) fn flow_request(&self) -> FlowRequest {
        match self.hear() {
            Some((Reply::FlowRequest(request), _)) => request,
            other => panic!("expected a flow request, got {other:?}"),
        }
    }

    /// The flow request that `caller` has made. Fails at once if the request is refused instead.
    pub(crate) fn flow_request_of(&self, caller: &Conn) -> FlowRequest {
        eventually("the request has come, or a refusal", || {
            readable(&self.0, 0) || readable(&caller.0, 0)
        });
        if !readable(&self.0, 0) {
            panic!("refused: {}", caller.error());
        }
        self.flow_request()
    }

    pub(crate) fn accept(&self, request: u32, mode: Mode) {
        self.say(&accepted(request, mode));
    }

    pub(crate) fn deny(&self, request: u32, reason: &str) {
        let (mode, reason) = (Mode::Ring, Some(reason.to_owned()));
        self.say(&Request::Respond {
            request,
            accept: false,
            reason,
            mode,
            membarrier: false,
        });
    }

    pub(crate) fn flow(&self) -> Taken {
        match self.hear() {
            Some((Reply::Flow(flow), fds)) => Taken::new(flow, fds),
            other => panic!("expected a flow, got {other:?}"),
        }
    }
}

/// A request for a flow.
pub(crate) fn allocate(remote: &str, in_dif: Option<&str>, spec: FlowSpec, mode: Mode) -> Request {
    Request::Allocate {
        version: ipc::VERSION,
        local: app("caller"),
        remote: app(remote),
        dif: in_dif.map(dif),
        spec,
        mode,
        membarrier: false,
        ring_bytes: Some(65536),
        filler: 0,
        detached: false,
    }
}

/// An answer that accepts.
pub(crate) fn accepted(request: u32, mode: Mode) -> Request {
    Request::Respond {
        request,
        accept: true,
        reason: None,
        mode,
        membarrier: false,
    }
}

fn taken_from(end: &mut Endpoint) -> Option<Vec<u8>> {
    let lease = end.rx.next().unwrap()?;
    let mut sdu = vec![0; lease.len()];
    lease.copy_to(&mut sdu);
    drop(lease);
    end.release();
    Some(sdu)
}

/// An end of a flow that the node has delivered.
pub(crate) struct Taken {
    pub flow: Flow,
    /// The control socket in ring mode, the data socket in the others.
    pub socket: Option<OwnedFd>,
    pub end: Option<Endpoint>,
}

impl Taken {
    pub(crate) fn new(flow: Flow, mut fds: Vec<OwnedFd>) -> Self {
        let expected = match flow.mode {
            Mode::Ring => ipc::RING_FDS..=ipc::RING_FDS,
            Mode::Socket => ipc::SOCKET_FDS..=ipc::SOCKET_FDS,
            // Without one this end attached a socket.
            Mode::Stream => 0..=ipc::SOCKET_FDS,
        };
        assert!(expected.contains(&fds.len()), "{} descriptors", fds.len());
        let socket = (!fds.is_empty()).then(|| fds.remove(0));
        let end = (flow.mode == Mode::Ring).then(|| {
            let side = Side::from_tx_ring(flow.tx_ring.into()).unwrap();
            let wake = if flow.light_wake {
                WakeMode::Light
            } else {
                WakeMode::Fence
            };
            let fds: [OwnedFd; 5] = fds.try_into().unwrap();
            Endpoint::from_fds(flow.ring_bytes as usize, side, wake, fds).unwrap()
        });
        Self { flow, socket, end }
    }

    pub(crate) fn send(&mut self, sdu: &[u8]) {
        match &mut self.end {
            Some(end) => {
                end.tx.push(&[sdu], false).unwrap();
                end.publish();
            }
            None => send_with_fds(self.socket.as_ref().unwrap(), sdu, &[]).unwrap(),
        }
    }

    /// The next SDU, which is one piece; `None` at the end of the flow.
    pub(crate) fn recv(&mut self) -> Option<Vec<u8>> {
        let Some(end) = &mut self.end else {
            let socket = self.socket.as_ref().unwrap();
            assert!(readable(socket, PATIENCE_MS), "no SDU for two minutes");
            let mut buffer = vec![0; 65536];
            let bytes = recv_with_fds(socket, &mut buffer).ok()?.bytes;
            return (bytes > 0).then(|| buffer[..bytes].to_vec());
        };
        let mut silence_ms = 0;
        loop {
            if let Some(sdu) = taken_from(end) {
                return Some(sdu);
            }
            if end.rx.ended().unwrap().is_some() {
                return None;
            }
            assert!(silence_ms < PATIENCE_MS, "no SDU for two minutes");
            if end.rx.arm() {
                if !readable(&end.my_rx_doorbell, SLICE_MS) {
                    silence_ms += SLICE_MS;
                }
                end.my_rx_doorbell.drain();
            }
            end.rx.disarm();
        }
    }

    /// The next SDU of one piece, if it is already in the ring.
    pub(crate) fn recv_now(&mut self) -> Option<Vec<u8>> {
        taken_from(self.end.as_mut().expect("a ring"))
    }

    /// Sends an SDU as soon as the ring has room for it.
    pub(crate) fn send_patiently(&mut self, sdu: &[u8]) {
        let end = self.end.as_mut().expect("a ring");
        let patience = Instant::now() + PATIENCE;
        while end.tx.push(&[sdu], false).is_err() {
            end.publish();
            assert!(Instant::now() < patience, "no room for two minutes");
            std::thread::yield_now();
        }
        end.publish();
    }

    /// Sends an SDU of any length, in pieces of at most `piece` bytes.
    pub(crate) fn send_in_pieces(&mut self, sdu: &[u8], piece: usize) {
        let end = self.end.as_mut().expect("a ring");
        let patience = Instant::now() + PATIENCE;
        let mut rest = sdu;
        loop {
            let (now, later) = rest.split_at(rest.len().min(piece));
            while end.tx.push(&[now], !later.is_empty()).is_err() {
                end.publish();
                assert!(Instant::now() < patience, "no room for two minutes");
                std::thread::yield_now();
            }
            if later.is_empty() {
                return end.publish();
            }
            rest = later;
        }
    }

    /// The next SDU, of any number of pieces; `None` at the end of the flow.
    pub(crate) fn recv_whole(&mut self) -> Option<Vec<u8>> {
        let mut sdu = Vec::new();
        loop {
            let end = self.end.as_mut().expect("a ring");
            match end.rx.next().unwrap() {
                Some(lease) => {
                    let more = lease.more();
                    sdu.extend_from_slice(&lease.to_vec());
                    drop(lease);
                    end.release();
                    if !more {
                        return Some(sdu);
                    }
                }
                None if end.rx.ended().unwrap().is_some() => return None,
                None => self.wait_for_piece(),
            }
        }
    }

    fn wait_for_piece(&mut self) {
        let end = self.end.as_mut().expect("a ring");
        if end.rx.arm() {
            assert!(
                readable(&end.my_rx_doorbell, PATIENCE_MS),
                "no piece for two minutes"
            );
            end.my_rx_doorbell.drain();
        }
        end.rx.disarm();
    }

    /// Closes as an application should: first its stream, then its descriptors.
    pub(crate) fn close(mut self) {
        if let Some(end) = &mut self.end {
            end.close(carina_ring::State::Closed);
        }
    }

    /// The node's notice of the flow's end; `None` when the node just closed the socket.
    pub(crate) fn notice(&self) -> Option<(String, bool)> {
        let socket = self.socket.as_ref().unwrap();
        assert!(
            readable(socket, PATIENCE_MS),
            "the node said nothing of the flow for two minutes"
        );
        let mut buffer = vec![0; 4096];
        let datagram = recv_with_fds(socket, &mut buffer).ok()?;
        if datagram.bytes == 0 {
            return None;
        }
        let FlowNotice::Closed { reason, graceful } =
            ipc::decode(&buffer[..datagram.bytes]).unwrap();
        Some((reason, graceful))
    }
}

/// True when a descriptor becomes readable within `ms` milliseconds.
///
/// The time is counted in polls: if the whole process, nodes included, is not scheduled for a
/// while, that costs one poll only, and not the whole time.
pub(crate) fn readable(fd: impl AsFd, ms: i64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    let mut left = ms;
    loop {
        let slice = left.min(SLICE_MS);
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: slice * 1_000_000,
        };
        if poll(&mut fds, Some(&limit)).unwrap() > 0 {
            return true;
        }
        left -= slice;
        if left <= 0 {
            return false;
        }
    }
}

/// Time limit for waits. Results do not depend on it; it only ends a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_MS: i64 = 120_000;

/// Duration of one poll, in milliseconds.
const SLICE_MS: i64 = 100;

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    eventually_or(what, || holds().then_some(()).ok_or_else(String::new));
}

/// Waits until a condition holds. The error of `holds` is shown if it never does.
pub(crate) fn eventually_or(what: &str, mut holds: impl FnMut() -> Result<(), String>) {
    let mut looks = 0;
    while let Err(state) = holds() {
        looks += 1;
        assert!(looks < LOOKS_MAX, "not within two minutes: {what}: {state}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Pause between two checks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Number of checks that take two minutes; time in which the process is not scheduled does not
/// count.
const LOOKS_MAX: u32 = 24_000;

/// Both ends of a flow within one node.
pub(crate) fn local_flow(house: &House, modes: [Mode; 2]) -> (Conn, Taken, Taken) {
    let server = house.register("echo");
    let caller = house.conn();
    caller.ask_with("echo", None, FlowSpec::reliable(), modes[0]);
    let request = server.flow_request();
    assert_eq!(
        (request.local.as_str(), request.remote.as_str()),
        ("echo", "caller")
    );
    server.accept(request.request, modes[1]);
    let theirs = server.flow();
    assert_eq!(theirs.flow.request, Some(request.request));
    (server, caller.flow(), theirs)
}

/// Bytes without a regular pattern, so that mistakes are detected; `seed` selects them.
pub(crate) fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; bytes];
    SplitMix::new(seed).fill(&mut content);
    content
}
