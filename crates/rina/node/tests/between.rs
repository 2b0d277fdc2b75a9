//! An attacker between two systems replays and changes datagrams, and cuts the path.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use carina_api::FlowSpec;
use carina_api::control::{DifCreate, DifRole, EventKind};
use carina_api::ipc::Mode;
use serde_json::{Value, json};

use crate::support::members::{enrolled, member, routed};
use crate::support::*;

/// What the attacker does to datagrams.
#[derive(Default)]
struct Doings {
    /// No datagram passes.
    is_cut: AtomicBool,
    /// Every eighth datagram with data is sent again a little later.
    repeats: AtomicBool,
    /// Every eighth datagram with data is preceded by a copy with one bit changed.
    damages: AtomicBool,
    repeated: AtomicU64,
    damaged: AtomicU64,
    is_over: AtomicBool,
}

/// Two nodes that are connected only through the attacker.
struct Between {
    near: House,
    far: House,
    doings: Arc<Doings>,
    threads: Vec<JoinHandle<()>>,
}

/// A datagram of at least this length is a PDU with data of these tests.
const DATA_BYTES: usize = 200;

/// Forwards what arrives at socket `from`, by sending it from socket `into` to `to`.
fn carry(doings: &Doings, from: &UdpSocket, into: &UdpSocket, to: SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut seen = 0_u64;
    while !doings.is_over.load(Relaxed) {
        let Ok((bytes, _)) = from.recv_from(&mut buffer) else {
            continue;
        };
        if doings.is_cut.load(Relaxed) {
            continue;
        }
        let datagram = &buffer[..bytes];
        seen += 1;
        let is_chosen = bytes > DATA_BYTES && seen.is_multiple_of(8);
        if is_chosen && doings.damages.load(Relaxed) {
            let mut other = datagram.to_vec();
            other[bytes / 2] ^= 4;
            doings.damaged.fetch_add(1, Relaxed);
            let _ = into.send_to(&other, to);
        }
        let _ = into.send_to(datagram, to);
        if is_chosen && doings.repeats.load(Relaxed) {
            kept.push(datagram.to_vec());
        }
        if kept.len() > 2 {
            doings.repeated.fetch_add(1, Relaxed);
            let _ = into.send_to(&kept.remove(0), to);
        }
    }
}

impl Between {
    fn new(name: &str) -> Between {
        let own: [SocketAddr; 2] = addresses();
        let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
        // What one house sends to its socket is forwarded from the other house's socket.
        let doors = [socket(), socket()].map(Arc::new);
        let house = |side: usize| {
            let door = doors[side].local_addr().unwrap();
            let peer = |name: &str| format!("{{ name = \"{name}\", address = \"{door}\" }}");
            let peers: Vec<String> = ["net", "net.here", "net.there"].map(peer).into();
            let toml = format!(
                "[[ipcp]]\nname = \"u\"\ntype = \"udp\"\ndif = \"wire\"\nlisten = \"{}\"\n\
                 sdu_max = 1400\npeers = [{}]\n",
                own[side],
                peers.join(", ")
            );
            House::new(&format!("{name}-{side}"), &toml)
        };
        let doings = Arc::new(Doings::default());
        let threads = [0, 1].map(|side| {
            let (doings, doors) = (Arc::clone(&doings), doors.clone());
            let (from, into) = (side, 1 - side);
            let often = Some(Duration::from_millis(20));
            doors[from].set_read_timeout(often).unwrap();
            std::thread::spawn(move || carry(&doings, &doors[from], &doors[into], own[into]))
        });
        Between {
            near: house(0),
            far: house(1),
            doings,
            threads: threads.into(),
        }
    }

    /// Creates the DIF `net`, with a member on each side.
    fn with_dif(name: &str, config: Value, password: Option<&str>) -> Between {
        let between = Between::new(name);
        let auth = |house: &House| {
            let path = house.scratch.0.join("password");
            std::fs::write(&path, password?).unwrap();
            Some(format!("password:{}", path.display()))
        };
        let sides = [
            (&between.near, DifRole::Create, "net.here", config),
            (&between.far, DifRole::Join, "net.there", Value::Null),
        ];
        for (house, role, own, config) in sides {
            let value = json!({
                "name": "net", "role": role, "over": ["wire"], "ipcp": own, "auth": auth(house),
                "config": config,
            });
            let request: DifCreate = serde_json::from_value(value).unwrap();
            house.control().create_dif(&request).unwrap();
            enrolled(house, own);
        }
        between
    }

    /// A reliable flow from `far` to `near`.
    fn flow(&self) -> (Conn, Taken, Taken) {
        let server = self.near.conn();
        server.register("sink", Some("net")).unwrap();
        eventually("the name is known", || {
            let difs = self.far.control().difs().unwrap();
            let net = difs.into_iter().find(|found| found.name == dif("net"));
            net.is_some_and(|net| net.names.contains(&app("sink")))
        });
        routed(&self.far, "net", "net.here");
        routed(&self.near, "net", "net.there");
        let caller = self.far.conn();
        caller.ask_with("sink", Some("net"), FlowSpec::reliable(), Mode::Ring);
        server.accept(server.flow_request().request, Mode::Ring);
        let theirs = server.flow();
        (server, theirs, caller.flow())
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.doings.is_over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn sdu(n: u32) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[n as u8; 1_000]].concat()
}

/// Sends the SDUs with these numbers, and checks that all arrive once and in order.
fn all_arrive(mine: &mut Taken, theirs: &mut Taken, numbers: std::ops::Range<u32>) {
    std::thread::scope(|scope| {
        let sent = numbers.clone();
        scope.spawn(|| sent.for_each(|n| mine.send_patiently(&sdu(n))));
        for n in numbers {
            assert_eq!(theirs.recv_whole().unwrap(), sdu(n), "SDU {n}");
        }
    });
}

/// The value of a member's counter; 0 if the member has no such counter.
fn count(house: &House, name: &str) -> u64 {
    let objects = house
        .control()
        .rib(Some("net"), None, "/counters", 0)
        .unwrap();
    let field = objects[0].fields.get(name);
    field.and_then(Value::as_u64).unwrap_or(0)
}

/// Number of events of a node that contain these words.
fn notices(house: &House, words: &str) -> usize {
    let (mut since, mut found) = (0, 0);
    loop {
        let events = house.control().events(since, Duration::ZERO).unwrap();
        if events.events.is_empty() {
            return found;
        }
        since = events.next;
        let notices = events.events.iter();
        found += notices
            .filter(|event| event.kind == EventKind::Notice && event.detail.contains(words))
            .count();
    }
}

#[test]
fn replays_and_forgeries_are_counted_and_disturb_nothing() {
    let config = json!({
        "policies": { "sdu-protection": { "name": "aead" } },
    });
    let between = Between::with_dif("replay", config, Some("open sesame"));
    let (_server, mut theirs, mut mine) = between.flow();
    all_arrive(&mut mine, &mut theirs, 0..500);
    assert_eq!(count(&between.near, "dropped-protection-replayed"), 0);
    for (doing, done, reason, from) in [
        (
            &between.doings.repeats,
            &between.doings.repeated,
            "protection-replayed",
            500,
        ),
        (
            &between.doings.damages,
            &between.doings.damaged,
            "protection-forged",
            3_500,
        ),
    ] {
        doing.store(true, Relaxed);
        all_arrive(&mut mine, &mut theirs, from..from + 3_000);
        doing.store(false, Relaxed);
        // The other side's acknowledgements pass too, and some of them are long enough.
        assert!(done.load(Relaxed) > 100, "{done:?}");
        let counter = format!("dropped-{reason}");
        // A socket that is full drops some datagrams before they are checked.
        eventually_or("nearly all of them are counted", || {
            let counted = count(&between.near, &counter) + count(&between.far, &counter);
            let done = done.load(Relaxed);
            if counted <= done && counted * 10 >= done * 9 {
                Ok(())
            } else {
                Err(format!("{counted} of {done} as {reason}"))
            }
        });
        assert_eq!(notices(&between.near, reason), 1, "{reason}");
        assert!(notices(&between.far, reason) <= 1, "{reason}");
    }
    let info = member(&between.near, "net.here");
    assert_eq!(info.neighbours, [app("net.there")]);
    // The other direction works as well.
    theirs.send(b"thanks");
    assert_eq!(mine.recv().unwrap(), b"thanks");
}

#[test]
fn a_flow_survives_a_cut_of_its_path() {
    let config = json!({ "keepalive_ms": 1000 });
    let between = Between::with_dif("cut", config, None);
    let (_server, mut theirs, mut mine) = between.flow();
    all_arrive(&mut mine, &mut theirs, 0..200);
    between.doings.is_cut.store(true, Relaxed);
    // What is written now waits.
    for n in 200..220 {
        mine.send_patiently(&sdu(n));
    }
    for (house, own) in [(&between.near, "net.here"), (&between.far, "net.there")] {
        eventually("the neighbour is missed", || {
            member(house, own).neighbours.is_empty()
        });
    }
    between.doings.is_cut.store(false, Relaxed);
    for n in 200..220 {
        assert_eq!(theirs.recv_whole().unwrap(), sdu(n), "SDU {n}");
    }
    all_arrive(&mut mine, &mut theirs, 220..400);
    for (house, own, other) in [
        (&between.near, "net.here", "net.there"),
        (&between.far, "net.there", "net.here"),
    ] {
        eventually_or(&format!("{own} has {other}"), || {
            let found = member(house, own).neighbours;
            let is_right = found == [app(other)];
            is_right.then_some(()).ok_or(format!("{found:?}"))
        });
    }
}
