//! A node in a temporary directory, and what tests wait for.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub(crate) mod flow_end;
pub(crate) mod ipc_conn;
pub(crate) mod members;
pub(crate) mod networks;
pub(crate) mod pair;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use carina_api::control::Client;
use carina_api::ipc::Mode;
use carina_api::paths::RunDir;
use carina_api::{AppName, DifName, FlowSpec};
use carina_node::{Config, Node, NodeHandle};
use carina_random::SplitMix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) use self::flow_end::Taken;
pub(crate) use self::ipc_conn::{Conn, accepted, allocate};

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
        let is_held =
            |message: &str| message.contains("already runs") || message.contains("in use");
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
