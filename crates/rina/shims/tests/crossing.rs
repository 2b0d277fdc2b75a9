//! An N-1 flow of a datagram shim whose user runs on another worker, which is busy.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use carina_api::IpcpId;
use carina_dataplane::{
    AppContext, BuildError, Command, DataPlane, IpcpBuilder, MemberRequest, Request, RequestQueue,
    Workers,
};
use carina_engine::counters::{Kind, Snapshot, Table, Value, read};
use carina_engine::{App, AppId, Links, Packet, record_cost};
use carina_ipcp::N1Port;
use carina_wire::Payload;

use crate::pair::{IPCP, PATIENCE};
use crate::udp_peer::{accept, offered, receive, request, shim_and_peer};

/// The IPCP that uses the N-1 flow.
const USER: IpcpId = IpcpId(2);

/// Bytes that a crossing holds (`carina_dataplane`'s `crossing.rs`).
const CROSSING_BYTES: u64 = 4 << 20;
const PDU_BYTES: usize = 1000;

/// Builds an IPCP that uses N-1 flows. After the first PDU its thread blocks until the gate opens.
struct UserBuilder {
    gate: Receiver<()>,
    attached: Sender<()>,
    seen: Arc<Seen>,
}

/// What the user has received.
#[derive(Default)]
struct Seen {
    pdus: AtomicU64,
    /// Number in the last PDU.
    last: AtomicU64,
}

struct User {
    id: AppId,
    requests: RequestQueue,
    made: UserBuilder,
    /// Ring bytes read from the N-1 flow.
    taken: u64,
}

impl IpcpBuilder for UserBuilder {
    fn label(&self) -> String {
        "user".to_owned()
    }

    fn enforces_credit(&self) -> bool {
        true
    }

    fn uses_n1_flows(&self) -> bool {
        true
    }

    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError> {
        Ok(Box::new(User {
            id: context.id,
            requests: context.requests,
            made: *self,
            taken: 0,
        }))
    }
}

impl App for User {
    fn name(&self) -> &str {
        "user"
    }

    fn prepare(&mut self, _now: carina_time::Instant, _links: &mut Links) {
        while let Some(request) = self.requests.pop() {
            if let Request::Member(MemberRequest::Attach { .. }) = request {
                self.made.attached.send(()).unwrap();
            }
        }
    }

    fn push(&mut self, _now: carina_time::Instant, links: &mut Links) -> bool {
        let mut moved = false;
        while let Some(link) = links.next_ready(self.id) {
            while let Some(packet) = links.pop(link) {
                moved = true;
                self.taken += record_cost(packet.len());
                self.see(&packet);
            }
            links.report(link, self.taken);
        }
        moved
    }
}

impl User {
    fn see(&self, packet: &Packet) {
        let seen = &self.made.seen;
        let mut number = [0; 8];
        packet.copy_prefix(&mut number);
        let number = u64::from_be_bytes(number);
        let before = seen.last.swap(number, Ordering::Relaxed);
        assert!(before < number || seen.pdus.load(Ordering::Relaxed) == 0);
        if seen.pdus.fetch_add(1, Ordering::Relaxed) == 0 {
            self.made.gate.recv_timeout(PATIENCE).unwrap();
        }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Number of PDUs that the shim accepted for its flow, and number that found no room.
fn counted(table: &Path) -> (u64, u64) {
    let rows = read(table).unwrap();
    let of_shim = |row: &&Snapshot| row.kind == Kind::Ipcp && row.id == u64::from(IPCP.0);
    let shim = rows.iter().find(of_shim).unwrap();
    (shim.get(Value::SdusIn), shim.get(Value::DropRingFull))
}

/// Sends a numbered PDU to the shim.
fn send(peer: &UdpSocket, flow: [u8; 2], number: u64) {
    let mut datagram = vec![0, 1, flow[0], flow[1]];
    datagram.extend(number.to_be_bytes());
    datagram.resize(4 + PDU_BYTES, 7);
    peer.send(&datagram).unwrap();
}

#[test]
fn busy_user_on_another_worker_loses_pdus_that_are_counted() {
    let path = std::env::temp_dir().join(format!("carina-crossing-{}", std::process::id()));
    let workers = Workers {
        count: 2,
        cpus: Vec::new(),
    };
    let table = Table::create(&path).unwrap();
    let mut plane = DataPlane::spawn_workers(&workers, table).unwrap();
    plane.place(IPCP, Some(0), &[]);
    plane.place(USER, Some(1), &[]);
    let (open, gate) = channel();
    let (attached, is_attached) = channel();
    let seen = Arc::new(Seen::default());
    let user = UserBuilder {
        gate,
        attached,
        seen: Arc::clone(&seen),
    };
    plane.add_ipcp(USER, Box::new(user));
    let peer = shim_and_peer(&plane, &["one"]);
    request(&peer, 1, "one");
    let port = offered(&plane, "one");
    let end = plane.n1_end(IPCP, USER, N1Port(0), port).unwrap();
    accept(&plane, port, end);
    let accepted = receive(&peer);
    let flow = [accepted[4], accepted[5]];
    is_attached.recv_timeout(PATIENCE).unwrap();

    let counted = || counted(&path);
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        send(&peer, flow, sent);
        sent
    };
    let taken = || seen.pdus.load(Ordering::Relaxed);
    send();
    until("the user to stand still", || taken() == 1);
    // The test sends no faster than the shim receives, because losses in the kernel's socket are
    // not its subject.
    for _ in 0..8000 / 50 {
        let mut sent = 0;
        (0..50).for_each(|_| sent = send());
        until("the shim", || {
            let (came, dropped) = counted();
            came + dropped == sent
        });
    }
    let (came, dropped) = counted();
    assert!(dropped > 0, "a bound is a bound");
    assert!(
        came * PDU_BYTES as u64 <= CROSSING_BYTES,
        "{came} PDUs wait"
    );
    assert!(
        came * 2 * PDU_BYTES as u64 > CROSSING_BYTES,
        "only {came} PDUs wait"
    );
    // All accepted PDUs are there, in order, and the flow continues without a loss.
    open.send(()).unwrap();
    until("what had come", || taken() == came);
    for more in 1..=200 {
        send();
        until("what comes behind", || taken() == came + more);
    }
    assert_eq!(counted(), (came + 200, dropped));
    plane.send(Command::RemoveIpcp { ipcp: IPCP });
    drop(plane);
    std::fs::remove_file(&path).unwrap();
}
