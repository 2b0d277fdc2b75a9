//! VMPI-HL over virtqueues between two processes of one host. The back end is in this process and
//! the front end in another, which is killed and restarted; then the other way round.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_sys::monotonic_ns;
use carina_time::Instant as Moment;
use carina_vhost_user::{Port, PortConfig, Role};
use carina_vmpi::hl::{Config, Endpoint, Event, Rx, Side};
use carina_vmpi::ll::virtqueue::{OFFER, back_end, front_end};
use carina_vmpi::ll::{LinkState, VmpiImpl};
use carina_wire::FlowSpec;
use carina_wire::vmpi::{Channel, DataHeader, HEADER_BYTES};

/// The tests judge nothing by this time; it only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const PIPE: usize = 4 << 20;
const WINDOW: u32 = 1 << 20;

/// A device with VMPI-HL above it, as in a shim, but without an application.
struct Node {
    device: Box<dyn VmpiImpl + Send>,
    endpoint: Endpoint,
    is_up: bool,
    /// Bytes received so far of the SDU that is arriving.
    part: Vec<u8>,
    sdus: Vec<(Channel, Vec<u8>)>,
    consumed: u64,
    /// Pieces that wait to be sent: channel and bytes.
    outgoing: Vec<(Channel, Vec<u8>)>,
}

impl Node {
    fn new(device: Box<dyn VmpiImpl + Send>, name: &str) -> Node {
        let config = Config::new(device.side(), name, device.record_bytes_max());
        Node {
            device,
            endpoint: Endpoint::new(config).unwrap(),
            is_up: false,
            part: Vec::new(),
            sdus: Vec::new(),
            consumed: 0,
            outgoing: Vec::new(),
        }
    }

    fn host(place: &Path) -> Node {
        let port = Port::new(&PortConfig {
            path: place.to_owned(),
            role: Role::Server,
            offer: OFFER,
        });
        let device = back_end(Arc::new(port.unwrap()), PIPE).unwrap();
        Node::new(device, "host")
    }

    fn guest(place: &Path) -> Node {
        Node::new(front_end(place).unwrap(), "guest")
    }

    /// Moves all records and messages that can move. Returns the events.
    fn step(&mut self) -> Vec<Event> {
        let now_ns = monotonic_ns();
        match self.device.link(now_ns) {
            LinkState::Up if !self.is_up => {
                self.is_up = true;
                self.endpoint.link_up(Moment::from_nanos(now_ns));
            }
            LinkState::Down(reason) if self.is_up => {
                self.is_up = false;
                self.outgoing.clear();
                self.endpoint.link_down(reason.code(), &reason.to_string());
            }
            _ => {}
        }
        if self.is_up {
            self.receive();
            self.send();
        }
        std::iter::from_fn(|| self.endpoint.poll_event()).collect()
    }

    fn receive(&mut self) {
        while let Some(lease) = self.device.next().unwrap() {
            let header = lease.copy_prefix::<HEADER_BYTES>().unwrap();
            let record = lease.to_vec();
            match self.endpoint.on_rx(header, record.len()).unwrap() {
                Rx::Control => self
                    .endpoint
                    .handle_control(&record[HEADER_BYTES..])
                    .unwrap(),
                Rx::Discard => {}
                Rx::Deliver { channel, more } => {
                    self.part.extend(&record[HEADER_BYTES..]);
                    if !more {
                        self.sdus.push((channel, std::mem::take(&mut self.part)));
                    }
                    self.consumed += carina_vmpi::hl::record_cost(record.len() - HEADER_BYTES);
                    self.endpoint.consumed(channel, self.consumed);
                }
            }
        }
        self.device.release();
    }

    fn send(&mut self) {
        let mut control = Vec::new();
        while self.device.free_bytes().unwrap() >= 2048 && self.endpoint.poll_control(&mut control)
        {
            self.put(Channel::CONTROL, false, &control);
        }
        while let Some((channel, mut bytes)) = self.outgoing.pop() {
            let piece = self.endpoint.next_piece_bytes(channel, bytes.len());
            let room = self.device.free_bytes().unwrap();
            let Some(piece) = piece.filter(|piece| piece + 64 <= room) else {
                self.outgoing.push((channel, bytes));
                break;
            };
            let rest = bytes.split_off(piece);
            self.put(channel, !rest.is_empty(), &bytes);
            self.endpoint.on_tx(channel, piece);
            if !rest.is_empty() {
                self.outgoing.push((channel, rest));
            }
        }
        self.device.publish();
    }

    fn put(&mut self, channel: Channel, more: bool, payload: &[u8]) {
        let header = DataHeader { channel, more }.encode();
        let len = HEADER_BYTES + payload.len();
        let mut slot = self.device.reserve(len).unwrap();
        slot.write_at(0, &header);
        slot.write_at(HEADER_BYTES, payload);
        slot.commit(false);
    }

    /// Steps until an event of interest occurs.
    fn until<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            let events = self.step();
            if let Some(found) = events.iter().find_map(&mut wanted) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "events: {events:?}");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Sends an SDU on a new flow to `echo`, and checks the echo.
    fn pings(&mut self, bytes: usize) {
        let flow = self
            .endpoint
            .allocate("ping", "echo", FlowSpec::reliable(), WINDOW);
        let channel = flow.unwrap();
        self.consumed = 0;
        self.until(|event| matches!(event, Event::Allocated { .. }).then_some(()));
        let sdu: Vec<u8> = (0..bytes).map(|at| (at * 31 + bytes) as u8).collect();
        self.outgoing.push((channel, sdu.clone()));
        let begin = Instant::now();
        while self.sdus.is_empty() {
            let _ = self.step();
            assert!(begin.elapsed() < PATIENCE, "no answer of {bytes} bytes");
        }
        assert!(self.sdus.pop().unwrap() == (channel, sdu), "another answer");
        self.endpoint.deallocate(channel, "");
    }

    /// Runs the application `echo` until the process is killed.
    fn serves(mut self) -> ! {
        self.endpoint.register("echo").unwrap();
        loop {
            for event in self.step() {
                if let Event::Incoming { channel, .. } = event {
                    self.consumed = 0;
                    self.endpoint.respond(channel, Ok(WINDOW)).unwrap();
                }
            }
            self.outgoing.append(&mut self.sdus);
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A process that runs `echo`. It is killed when this value is dropped.
struct Other(Child);

impl Other {
    fn start(side: Side, place: &Path) -> Other {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command
            .args(["--exact", "other_process", "--ignored", "--nocapture"])
            .env("CARINA_TEST_SIDE", format!("{side:?}"))
            .env("CARINA_TEST_PLACE", place)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        carina_sys::end_with_parent(&mut command);
        Other(command.spawn().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "part of another test"]
fn other_process() {
    let place = PathBuf::from(std::env::var_os("CARINA_TEST_PLACE").unwrap());
    match std::env::var("CARINA_TEST_SIDE").unwrap().as_str() {
        "Host" => Node::host(&place).serves(),
        _ => Node::guest(&place).serves(),
    }
}

fn echo_registered(event: &Event) -> Option<()> {
    matches!(event, Event::PeerRegistered { name } if &**name == "echo").then_some(())
}

/// A path in the system's directory of temporary files. The test removes what it created.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("carina-vmpi-{name}-{}", std::process::id());
        Place(std::env::temp_dir().join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn survives_kills(mut node: Node, other: Side, place: &Place) {
    for _ in 0..3 {
        let process = Other::start(other, &place.0);
        node.until(echo_registered);
        // The longest SDU takes many pieces and more than one window.
        for bytes in [0, 1, 64, 1500, 65_536, 3 << 20] {
            node.pings(bytes);
        }
        // The process is killed by SIGKILL.
        drop(process);
        node.until(|event| matches!(event, Event::Down { .. }).then_some(()));
    }
}

#[test]
fn host_talks_with_a_front_end_that_is_killed() {
    let place = Place::new("front");
    survives_kills(Node::host(&place.0), Side::Guest, &place);
}

#[test]
fn front_end_talks_with_a_host_that_is_killed() {
    let place = Place::new("back");
    survives_kills(Node::guest(&place.0), Side::Host, &place);
}
