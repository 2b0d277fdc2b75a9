//! A back end and a front end in one process over a real socket, with peers that restart, stop, and
//! write random bytes.

mod conformance;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use carina_ring::Refused;
use carina_sys::{EventFd, Memory, monotonic_ns};
use carina_vhost_user::{FrontEnd, FrontEndConfig, Port, PortConfig, RingPlace, Role};

use super::front_end::front_end_of;
use super::{FROM_GUEST, OFFER, TO_GUEST, back_end};
use crate::ll::{DownReason, LinkState, VmpiImpl};

type Dev = Box<dyn VmpiImpl + Send>;

const PIPE: usize = 64 << 10;
/// The tests judge nothing by this time; it only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A socket in a directory of its own, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("carina-virtqueue-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    fn port(&self) -> Arc<Port> {
        let config = PortConfig {
            path: self.socket(),
            role: Role::Server,
            offer: OFFER,
        };
        Arc::new(Port::new(&config).unwrap())
    }

    fn guest(&self) -> Dev {
        front_end_of(&self.socket(), PIPE).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Sides {
    host: Dev,
    guest: Dev,
    place: Place,
}

impl Sides {
    fn new() -> Sides {
        let place = Place::new();
        Sides {
            host: back_end(place.port(), PIPE).unwrap(),
            guest: place.guest(),
            place,
        }
    }

    fn up() -> Sides {
        let mut sides = Sides::new();
        sides.run_until(|host, guest| *host == LinkState::Up && *guest == LinkState::Up);
        sides
    }

    /// Lets both sides look until their links have the wanted states.
    fn run_until(&mut self, wanted: impl Fn(&LinkState, &LinkState) -> bool) {
        let begin = Instant::now();
        loop {
            let now_ns = monotonic_ns();
            let (host, guest) = (self.host.link(now_ns), self.guest.link(now_ns));
            if wanted(&host, &guest) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{host:?} {guest:?}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn send(device: &mut Dev, bytes: &[u8]) {
    let mut slot = device.reserve(bytes.len()).unwrap();
    slot.write_at(0, bytes);
    slot.commit(false);
    device.publish();
}

fn receive(device: &mut Dev) -> Option<Vec<u8>> {
    let lease = device.next().unwrap()?;
    let bytes = lease.to_vec();
    device.release();
    Some(bytes)
}

#[test]
fn sides_find_each_other_and_records_cross() {
    let mut sides = Sides::up();
    send(&mut sides.host, b"down");
    send(&mut sides.guest, b"up");
    assert_eq!(receive(&mut sides.guest).as_deref(), Some(&b"down"[..]));
    assert_eq!(receive(&mut sides.host).as_deref(), Some(&b"up"[..]));
    assert_eq!(receive(&mut sides.host), None);
    assert_eq!(receive(&mut sides.guest), None);
}

#[test]
fn nothing_passes_before_the_peer_attaches() {
    let place = Place::new();
    let mut guest = place.guest();
    assert_eq!(guest.link(1), LinkState::Down(DownReason::Detached));
    assert!(matches!(guest.reserve(1), Err(Refused::Full)));
    assert!(guest.next().unwrap().is_none());
    let mut host = back_end(place.port(), PIPE).unwrap();
    assert_eq!(host.link(1), LinkState::Down(DownReason::Detached));
    assert!(matches!(host.reserve(1), Err(Refused::Full)));
}

/// The `n`-th record. Lengths reach from 0 to more than a guest's buffer.
fn record(n: u32) -> Vec<u8> {
    let len = (n as usize).wrapping_mul(7919) % 12_000;
    vec![n as u8; len]
}

#[test]
fn records_of_all_lengths_stay_in_order_both_ways() {
    const RECORDS: u32 = 3000;
    let mut sides = Sides::up();
    let begin = Instant::now();
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    while got != [RECORDS; 2] {
        let now_ns = monotonic_ns();
        let states = [sides.host.link(now_ns), sides.guest.link(now_ns)];
        assert_eq!(states, [LinkState::Up, LinkState::Up]);
        for (side, device) in [&mut sides.host, &mut sides.guest].into_iter().enumerate() {
            // The reader takes only some records at a time, so that pipes and rings fill up.
            for _ in 0..sent[side] % 7 {
                let Some(bytes) = receive(device) else { break };
                assert_eq!(bytes, record(got[side]), "record {} of {side}", got[side]);
                got[side] += 1;
            }
            while sent[side] < RECORDS {
                let bytes = record(sent[side]);
                let Ok(mut slot) = device.reserve(bytes.len()) else {
                    break;
                };
                slot.write_at(0, &bytes);
                slot.commit(false);
                sent[side] += 1;
                if sent[side].is_multiple_of(5) {
                    break;
                }
            }
            device.publish();
            if sent[side] == RECORDS {
                while let Some(bytes) = receive(device) {
                    assert_eq!(bytes, record(got[side]));
                    got[side] += 1;
                }
            }
        }
        assert!(begin.elapsed() < PATIENCE, "sent {sent:?}, got {got:?}");
    }
}

#[test]
fn a_restarted_guest_begins_anew() {
    let mut sides = Sides::up();
    for _ in 0..3 {
        send(&mut sides.host, b"lost");
        send(&mut sides.guest, b"lost");
        let place = &sides.place;
        let old = std::mem::replace(&mut sides.guest, place.guest());
        drop(old);
        sides.run_until(|host, _| *host != LinkState::Up);
        sides.run_until(|host, guest| *host == LinkState::Up && *guest == LinkState::Up);
        send(&mut sides.host, b"new");
        send(&mut sides.guest, b"new");
        assert_eq!(receive(&mut sides.guest).as_deref(), Some(&b"new"[..]));
        assert_eq!(receive(&mut sides.host).as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn a_restarted_host_begins_anew() {
    let mut sides = Sides::up();
    for _ in 0..3 {
        send(&mut sides.host, b"lost");
        send(&mut sides.guest, b"lost");
        // The old node must end before the new one begins.
        sides.host = crate::ll::memfd::pair(PIPE).unwrap().0;
        sides.host = back_end(sides.place.port(), PIPE).unwrap();
        sides.run_until(|_, guest| *guest != LinkState::Up);
        sides.run_until(|host, guest| *host == LinkState::Up && *guest == LinkState::Up);
        send(&mut sides.host, b"new");
        send(&mut sides.guest, b"new");
        assert_eq!(receive(&mut sides.guest).as_deref(), Some(&b"new"[..]));
        assert_eq!(receive(&mut sides.host).as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn a_failed_link_is_held_off_and_comes_back() {
    let mut sides = Sides::up();
    let violation = DownReason::Violation {
        code: "test",
        reason: "a test".into(),
    };
    let now_ns = monotonic_ns();
    assert_eq!(sides.host.fail(now_ns, violation.clone()), violation);
    assert_eq!(sides.host.link(now_ns), LinkState::Down(violation));
    sides.run_until(|_, guest| *guest == LinkState::Down(DownReason::PeerLeft));
    sides.run_until(|host, guest| *host == LinkState::Up && *guest == LinkState::Up);
    assert!(monotonic_ns() - now_ns >= 500_000_000, "held off");
    assert_eq!(sides.host.stats().violations, 1);
}

#[test]
fn a_reader_that_stops_holds_the_writer_back_and_loses_nothing() {
    let mut sides = Sides::up();
    for from_host in [true, false] {
        let mut sent = 0;
        let begin = Instant::now();
        let mut quiet = 0;
        // Continues until nothing has moved for 50 rounds.
        while quiet < 50 {
            let (writer, reader) = if from_host {
                (&mut sides.host, &mut sides.guest)
            } else {
                (&mut sides.guest, &mut sides.host)
            };
            let before = sent;
            while let Ok(mut slot) = writer.reserve(1000) {
                slot.write_at(0, &[sent as u8; 1000]);
                slot.commit(false);
                sent += 1;
            }
            writer.publish();
            let now_ns = monotonic_ns();
            let _ = (writer.link(now_ns), reader.link(now_ns));
            quiet = if sent == before { quiet + 1 } else { 0 };
            assert!(begin.elapsed() < PATIENCE);
        }
        assert!(sent >= 2 * PIPE / 1100, "both pipes are full: {sent}");
        let mut got = 0;
        while got < sent {
            let (writer, reader) = if from_host {
                (&mut sides.host, &mut sides.guest)
            } else {
                (&mut sides.guest, &mut sides.host)
            };
            let now_ns = monotonic_ns();
            let _ = (writer.link(now_ns), reader.link(now_ns));
            while let Some(bytes) = receive(reader) {
                assert_eq!(bytes, [got as u8; 1000]);
                got += 1;
            }
            assert!(begin.elapsed() < PATIENCE, "{got} of {sent}");
        }
    }
}

/// A driver that breaks the rules, over its own front end.
struct Rude {
    memory: Memory,
    front_end: FrontEnd,
    next: u16,
}

const FIRST: u64 = 0x10_0000;
const SIZE: u16 = 64;
/// Offset in the memory at which buffers begin, behind the rings.
const BUFFERS: usize = 0x8000;
const BYTES: usize = 1 << 20;

impl Rude {
    fn connect(place: &Place) -> Rude {
        let memory = Memory::anonymous("rude", BYTES).unwrap();
        let rings = [TO_GUEST, FROM_GUEST].map(|ring| {
            let at = FIRST + 0x4000 * ring as u64;
            RingPlace {
                size: SIZE,
                descriptors: at,
                driver: at + 0x1000,
                device: at + 0x2000,
            }
        });
        let fd = memory.try_clone().unwrap().into_fd();
        let config = FrontEndConfig {
            features: OFFER.features,
            memory: std::os::fd::AsFd::as_fd(&fd),
            first: FIRST,
            bytes: BYTES as u64,
            rings: &rings,
        };
        let call = EventFd::new().unwrap();
        let begin = Instant::now();
        let front_end = loop {
            match FrontEnd::connect(&place.socket(), &config, &call) {
                Ok(front_end) => break front_end,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Rude {
            memory,
            front_end,
            next: 0,
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.map().unwrap().write(at, bytes);
    }

    /// Makes a buffer available for the host to read. Its descriptor may be false.
    fn send(&mut self, address: u64, len: u32) {
        let (table, driver) = (0x4000 * FROM_GUEST, 0x4000 * FROM_GUEST + 0x1000);
        let index = self.next % SIZE;
        let descriptor = [address, u64::from(len)].map(u64::to_le_bytes).concat();
        self.write(table + 16 * usize::from(index), &descriptor);
        self.write(driver + 4 + 2 * usize::from(index), &index.to_le_bytes());
        self.next += 1;
        self.write(driver + 2, &self.next.to_le_bytes());
        self.front_end.kick(FROM_GUEST);
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.write(BUFFERS, bytes);
        self.send(FIRST + BUFFERS as u64, bytes.len() as u32);
    }
}

/// Lets the host look until `wanted` returns true.
fn look_until(host: &mut Dev, mut wanted: impl FnMut(&mut Dev, &LinkState) -> bool) {
    let begin = Instant::now();
    loop {
        let state = host.link(monotonic_ns());
        let _ = host.next();
        if wanted(host, &state) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{state:?} {:?}", host.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn frames_of_a_network_driver_are_counted_and_ignored() {
    let place = Place::new();
    let mut host = back_end(place.port(), PIPE).unwrap();
    let mut rude = Rude::connect(&place);
    rude.send_bytes(&[0; 54]);
    look_until(&mut host, |host, state| {
        *state == LinkState::Down(DownReason::NoPeer) && host.stats().foreign_blocks == 1
    });
    assert!(rude.front_end.is_connected());
}

#[test]
fn a_block_of_another_version_is_named() {
    let place = Place::new();
    let mut host = back_end(place.port(), PIPE).unwrap();
    let mut rude = Rude::connect(&place);
    rude.send_bytes(b"VMPI\x07\0\0\0\x01\0\0\0\0\0\0\0");
    look_until(&mut host, |_, state| {
        *state == LinkState::Down(DownReason::WrongVersion { peer: 7 })
    });
}

#[test]
fn a_guest_that_lies_in_its_ring_is_cut_off_alone() {
    let place = Place::new();
    let mut host = back_end(place.port(), PIPE).unwrap();
    let mut rude = Rude::connect(&place);
    rude.send(FIRST + BYTES as u64 - 8, 4096);
    look_until(&mut host, |host, _| host.stats().corrupt == 1);
    look_until(&mut host, |_, state| {
        *state == LinkState::Down(DownReason::Detached)
    });
    let begin = Instant::now();
    while rude.front_end.is_connected() {
        assert!(begin.elapsed() < PATIENCE, "the connection is kept");
    }
    // Afterwards the host serves a correct guest.
    drop(rude);
    let guest = place.guest();
    let mut sides = Sides { host, guest, place };
    sides.run_until(|host, guest| *host == LinkState::Up && *guest == LinkState::Up);
}

#[test]
fn records_that_lie_fail_the_link_with_a_reason() {
    let place = Place::new();
    let mut host = back_end(place.port(), PIPE).unwrap();
    let mut rude = Rude::connect(&place);
    // The driver attaches. Its epoch is 5, and it learns the host's epoch from a block of the host.
    let (table, driver) = (0, 0x1000);
    let to = FIRST + 0x2_0000;
    let descriptor = [to, 4096 | 2 << 32].map(u64::to_le_bytes).concat();
    for index in 0..SIZE {
        rude.write(table + 16 * usize::from(index), &descriptor);
        rude.write(driver + 4 + 2 * usize::from(index), &index.to_le_bytes());
    }
    rude.write(driver + 2, &SIZE.to_le_bytes());
    let memory = rude.memory.map().unwrap();
    let epoch = || {
        let mut block = [0; 16];
        memory.read(0x2_0000, &mut block);
        carina_wire::vmpi::BlockHeader::decode(block).map_or(0, |header| header.epoch)
    };
    let block = |epoch: u32| {
        let header = carina_wire::vmpi::BlockHeader {
            epoch: 5,
            seen: epoch,
        };
        header.encode()
    };
    look_until(&mut host, |_, state| {
        rude.send_bytes(&block(epoch()));
        *state == LinkState::Up
    });
    // A record that claims a length of 2^32 - 1 bytes.
    let lie = [&block(epoch())[..], &[0xff; 4], &[0; 4]].concat();
    rude.send_bytes(&lie);
    let begin = Instant::now();
    let corrupt = loop {
        let _ = host.link(monotonic_ns());
        match host.next() {
            Ok(found) => assert!(found.is_none()),
            Err(corrupt) => break corrupt,
        }
        assert!(begin.elapsed() < PATIENCE);
    };
    let reason = DownReason::Corrupt(corrupt);
    assert_eq!(host.fail(monotonic_ns(), reason.clone()), reason);
    assert_eq!(host.stats().corrupt, 1);
    assert!(rude.front_end.is_connected(), "its rings were in order");
}
