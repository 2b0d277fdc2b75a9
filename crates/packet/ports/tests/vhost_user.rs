//! The cards of guests that follow the protocol, and of guests that violate it.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use carina_sys::{Mapping, Memory};

use crate::front_end::*;
use crate::room::Room;
use crate::running::Running;
use crate::traffic::PATIENCE;

/// Two cards whose ports are linked with each other.
pub(crate) struct Wire {
    pub graph: Running,
    pub sockets: [PathBuf; 2],
    _directory: tempfile::TempDir,
}

pub(crate) fn wire(more: &str) -> Option<Wire> {
    let directory = tempfile::tempdir().unwrap();
    let sockets = ["a", "b"].map(|name| directory.path().join(name));
    let mut text = "links = [\"a.output -> b.input\", \"b.output -> a.input\"]\n".to_owned();
    for (name, socket) in ["a", "b"].iter().zip(&sockets) {
        text += &format!("[apps.{name}]\nkind = \"vhost_user\"\nsocket = {socket:?}\n{more}\n");
    }
    let room = Room::new()?;
    let graph = Running::new(&room, &text);
    Some(Wire {
        graph,
        sockets,
        _directory: directory,
    })
}

fn running(socket: &Path, features: u64) -> FrontEnd {
    FrontEnd::running(socket, FEATURES | features)
}

/// Sends a frame from one guest to another, and checks what arrives.
pub(crate) fn passes(from: &mut FrontEnd, to: &mut FrontEnd, frame: &[u8]) {
    to.gives_buffer(0, 2048);
    from.sends(0, frame);
    from.returned(1);
    let used = to.returned(0);
    assert_eq!(used.written as usize, 12 + frame.len());
    let bytes = to.bytes(0, 12 + frame.len());
    assert_eq!(bytes[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(&bytes[12..], frame);
}

pub(crate) fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

#[test]
fn frames_of_a_guest_reach_another_with_any_layout() {
    for features in [0, PACKED] {
        let Some(wire) = wire("") else { return };
        let mut a = running(&wire.sockets[0], features);
        let mut b = running(&wire.sockets[1], PACKED - features);
        wire.graph.until("a/is_connected", |count| count == 1);
        for len in [14, 60, 64, 1500, 2000] {
            passes(&mut a, &mut b, &frame(len));
            passes(&mut b, &mut a, &frame(len));
        }
        // Two small buffers together hold one frame.
        b.gives_buffer(1, 100);
        b.gives_buffer(2, 100);
        a.sends(0, &frame(150));
        assert_eq!(b.returned(0).written, 100);
        assert_eq!(b.returned(0).written, 62);
        assert_eq!(b.bytes(1, 12)[10], 2);
        let both = [&b.bytes(1, 100)[12..], &b.bytes(2, 62)].concat();
        assert_eq!(both, frame(150));
        assert_eq!(wire.graph.counter("a/ring_faults"), 0);
    }
}

#[test]
fn frames_that_a_guest_left_unfinished_are_made_whole() {
    for more in ["", "offload = true"] {
        let Some(wire) = wire(more) else { return };
        unfinished_frames_are_made_whole(&wire);
    }
}

fn unfinished_frames_are_made_whole(wire: &Wire) {
    let mut a = running(&wire.sockets[0], 1);
    let mut b = running(&wire.sockets[1], 0);
    // A pending checksum over the last 4 bytes, to be stored in front of them.
    let mut unfinished = frame(40);
    unfinished[34..36].fill(0);
    let mut whole = unfinished.clone();
    let sum = !(0x2425u16.wrapping_add(0x2627));
    whole[34..36].copy_from_slice(&sum.to_be_bytes());
    b.gives_buffer(0, 2048);
    let mut header = [0; 12];
    header[0] = 1;
    header[6] = 34;
    a.sends_with(header, 0, &unfinished);
    b.returned(0);
    assert_eq!(b.bytes(0, 52)[12..], whole);
    // A checksum position outside the frame: the frame is dropped.
    header[6] = 200;
    a.sends_with(header, 1, &unfinished);
    wire.graph.until("a/drop_unsupported", |count| count == 1);
    // A frame shorter than a MAC header, and a frame longer than those of the pool.
    a.sends(2, &frame(13));
    wire.graph.until("a/drop_length", |count| count == 1);
    a.sends(3, &frame(3000));
    wire.graph.until("a/drop_length", |count| count == 2);
}

/// One guest after the other violates the protocol, while two others exchange frames.
#[test]
fn hostile_guests_are_cut_off_and_others_go_on() {
    let Some(wire) = wire("") else { return };
    let Some(other) = self::wire("") else { return };
    let mut c = running(&other.sockets[0], 0);
    let mut d = running(&other.sockets[1], PACKED);
    type Attack = fn(&mut FrontEnd);
    const NEXT: u16 = 1;
    const TABLE: u16 = 4;
    let attacks: [(&str, u64, Attack); 9] = [
        ("a loop", 0, |guest| descriptor(guest, 0, GUEST, 64, NEXT)),
        ("out of range", 0, |guest| {
            descriptor(guest, 0, GUEST + BYTES as u64 - 1, 2, 0);
        }),
        ("beyond the table", 0, |guest| {
            descriptor(guest, 999, GUEST, 64, NEXT);
        }),
        ("an index far ahead", 0, |guest| {
            let at = parts(1)[1] as usize + 2;
            guest.mapping.write(at, &500u16.to_ne_bytes());
        }),
        ("a table that was not negotiated", 0, |guest| {
            descriptor(guest, 0, GUEST, 16, TABLE);
        }),
        ("a packed loop", PACKED, |guest| {
            // Writes the first descriptor last. The back end also polls rings without a kick, and
            // might take half a chain for a valid one.
            for at in (0..SIZE).rev() {
                packed_descriptor(guest, at, GUEST, 64, NEXT);
            }
        }),
        ("a packed chain out of range", PACKED, |guest| {
            packed_descriptor(guest, 0, GUEST - 1, 2, 0);
        }),
        ("a packed table that was not negotiated", PACKED, |guest| {
            packed_descriptor(guest, 0, GUEST, 16, TABLE);
        }),
        ("a packed buffer longer than memory", PACKED, |guest| {
            packed_descriptor(guest, 0, GUEST, u32::MAX, 0);
        }),
    ];
    for (number, (name, features, attack)) in attacks.iter().enumerate() {
        let mut guest = running(&wire.sockets[0], *features);
        attack(&mut guest);
        guest.kicks[1].signal();
        assert!(guest.is_cut_off(), "{name}");
        let faults = number as u64 + 1;
        wire.graph.until("a/ring_faults", |count| count == faults);
        passes(&mut c, &mut d, &frame(100));
        passes(&mut d, &mut c, &frame(100));
    }
    // Afterwards the port serves a correct guest.
    let mut a = running(&wire.sockets[0], 0);
    let mut b = running(&wire.sockets[1], 0);
    passes(&mut a, &mut b, &frame(100));
}

/// Makes a chain of one descriptor available, whose successor is `next`.
fn descriptor(guest: &mut FrontEnd, next: u16, address: u64, len: u32, flags: u16) {
    let at = parts(1).map(|part| part as usize);
    guest.mapping.write(at[0], &address.to_ne_bytes());
    guest.mapping.write(at[0] + 8, &len.to_ne_bytes());
    guest.mapping.write(at[0] + 12, &flags.to_ne_bytes());
    guest.mapping.write(at[0] + 14, &next.to_ne_bytes());
    guest.mapping.write(at[1] + 4, &[0, 0]);
    guest.mapping.write(at[1] + 2, &1u16.to_ne_bytes());
}

/// Makes a descriptor of a packed ring available, in the first lap of the ring.
fn packed_descriptor(guest: &mut FrontEnd, index: u16, address: u64, len: u32, flags: u16) {
    const AVAILABLE: u16 = 1 << 7;
    let at = parts(1)[0] as usize + 16 * usize::from(index);
    guest.mapping.write(at, &address.to_ne_bytes());
    guest.mapping.write(at + 8, &len.to_ne_bytes());
    guest.mapping.write(at + 12, &index.to_ne_bytes());
    guest
        .mapping
        .write(at + 14, &(flags | AVAILABLE).to_ne_bytes());
}

/// A guest keeps writing right and wrong values into its rings while the back end reads them.
#[test]
fn guests_that_race_with_the_back_end_disturb_no_other() {
    let Some(wire) = wire("") else { return };
    let Some(other) = self::wire("") else { return };
    let mut c = running(&other.sockets[0], 0);
    let mut d = running(&other.sockets[1], PACKED);
    for features in [0, PACKED] {
        let guest = running(&wire.sockets[0], features);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 1..3_u64 {
                let (mapping, is_over) = (Arc::clone(&guest.mapping), &is_over);
                scope.spawn(move || scribble(&mapping, seed, is_over));
            }
            for number in 0..50 {
                guest.kicks[1].signal();
                passes(&mut c, &mut d, &frame(60 + number));
                passes(&mut d, &mut c, &frame(60 + number));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
    // Whether the connection was closed depends on timing. In any case the port serves the next
    // guest.
    let mut a = running(&wire.sockets[0], 0);
    let mut b = running(&wire.sockets[1], 0);
    passes(&mut a, &mut b, &frame(100));
    passes(&mut c, &mut d, &frame(100));
}

/// Writes random values into the descriptors and the available index of the ring from the guest.
fn scribble(mapping: &Mapping, seed: u64, is_over: &AtomicBool) {
    let [descriptors, driver, _] = parts(1).map(|part| part as usize);
    let addresses = [
        GUEST,
        GUEST + 0x1_0000,
        GUEST + BYTES as u64 - 8,
        0,
        u64::MAX,
    ];
    let lengths = [0_u32, 16, 64, 1500, 1 << 20, u32::MAX];
    let mut word = seed;
    let mut next = |below: usize| {
        // xorshift64 (Marsaglia, 2003)
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word % below as u64) as usize
    };
    while !is_over.load(Ordering::Relaxed) {
        let at = descriptors + 16 * next(SIZE.into());
        match next(5) {
            0 => mapping.write(at, &addresses[next(5)].to_ne_bytes()),
            1 => mapping.write(at + 8, &lengths[next(6)].to_ne_bytes()),
            2 => mapping.write(at + 12, &(next(8) as u16).to_ne_bytes()),
            3 => mapping.write(at + 14, &(next(1 << 16) as u16).to_ne_bytes()),
            _ => mapping.write(driver + 2, &(next(32) as u16).to_ne_bytes()),
        }
    }
}

#[test]
fn messages_that_lie_end_the_connection() {
    let Some(wire) = wire("") else { return };
    type Lie = fn(&mut FrontEnd);
    let lies: [(&str, Lie); 9] = [
        ("a region beyond its file", |front| {
            front.gives_memory(&[(GUEST, 2 * BYTES as u64, USER, 0)]);
        }),
        ("regions that overlap", |front| {
            front.gives_memory(&[(GUEST, 8192, USER, 0), (GUEST + 4096, 8192, USER + 8192, 0)]);
        }),
        ("a region that wraps", |front| {
            front.gives_memory(&[(u64::MAX - 4096, 8192, USER, 0)]);
        }),
        ("a ring that there is not", |front| {
            front.says_state(SET_VRING_NUM, 2, 16)
        }),
        ("a ring outside of memory", |front| {
            front.says_state(SET_VRING_NUM, 0, 16);
            let kick = carina_sys::EventFd::new().unwrap().into_fd();
            front.says(SET_VRING_KICK, &0u64.to_ne_bytes(), &[kick.as_fd()]);
            front.says(SET_VRING_ADDR, &[0; 40], &[]);
        }),
        ("a file in place of an eventfd", |front| {
            let memory = Memory::anonymous("no eventfd", 4096).unwrap();
            front.says(SET_VRING_KICK, &0u64.to_ne_bytes(), &[memory.as_fd()]);
        }),
        ("features that were not offered", |front| {
            front.says_u64(SET_FEATURES, 1 << 60);
        }),
        ("a message that there is not", |front| {
            front.says(200, &[], &[])
        }),
        ("a body of the wrong length", |front| {
            front.says(SET_VRING_BASE, &[1, 2, 3], &[])
        }),
    ];
    for (number, (name, lie)) in lies.iter().enumerate() {
        let mut front = FrontEnd::connect(&wire.sockets[0]);
        front.asks(GET_FEATURES);
        front.negotiate(FEATURES);
        lie(&mut front);
        assert!(front.is_cut_off(), "{name}");
        let refused = number as u64 + 1;
        wire.graph
            .until("a/refused_messages", |count| count == refused);
    }
    // Messages that refer to earlier ones which were never sent.
    let mut front = FrontEnd::connect(&wire.sockets[0]);
    front.says_state(SET_VRING_ENABLE, 1, 1);
    front.says_state(GET_VRING_BASE, 0, 0);
    front.asks_base();
    // Half a message stalls the control thread of this port, but no frame of another port.
    front.socket.write_all(&[1, 0, 0]).unwrap();
    let mut b = running(&wire.sockets[1], 0);
    b.sends(0, &frame(100));
    b.returned(1);
    wire.graph.until("a/drop_no_guest", |count| count == 1);
}

/// QEMU removes the eventfd of a ring when it takes over a masked interrupt for a driver that
/// polls.
#[test]
fn ring_without_an_eventfd_signals_by_the_one_before() {
    let Some(wire) = wire("") else { return };
    let mut a = running(&wire.sockets[0], 0);
    let mut b = running(&wire.sockets[1], 0);
    const NO_FD: u64 = 1 << 8;
    b.says(SET_VRING_CALL, &NO_FD.to_ne_bytes(), &[]);
    b.asks(GET_FEATURES);
    b.calls[0].drain();
    assert!(b.rings[0].arm());
    b.gives_buffer(0, 2048);
    a.sends(0, &frame(100));
    b.returned(0);
    let end = std::time::Instant::now() + PATIENCE;
    while b.calls[0].drain() == 0 {
        assert!(std::time::Instant::now() < end, "no signal");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn guest_that_came_by_migration_is_announced() {
    let Some(wire) = wire("") else { return };
    let mut a = running(&wire.sockets[0], 0);
    let mut b = running(&wire.sockets[1], PACKED);
    b.gives_buffer(0, 2048);
    let mac = [0x52, 0x54, 0, 1, 2, 3];
    let body = [&mac[..], &[0, 0]].concat();
    a.says(SEND_RARP, &body, &[]);
    assert_eq!(b.returned(0).written, 12 + 60);
    let frame = b.bytes(0, 72).split_off(12);
    // RFC 903: to all stations, "request reverse", for the guest's own address.
    assert_eq!((&frame[..6], &frame[6..12]), (&[0xff; 6][..], &mac[..]));
    assert_eq!(frame[12..22], [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    assert_eq!((&frame[22..28], &frame[32..38]), (&mac[..], &mac[..]));
    wire.graph.until("a/announcements", |count| count == 1);
    // The connection stays open. A group address is not a guest's, so announcing one is refused.
    passes(&mut a, &mut b, &self::frame(99));
    a.says(SEND_RARP, &[1; 8], &[]);
    assert!(a.is_cut_off());
}

#[test]
fn stopped_ring_goes_on_and_back_end_that_was_replaced_too() {
    for features in [0, PACKED] {
        let Some(wire) = wire("") else { return };
        let mut a = running(&wire.sockets[0], features);
        let mut b = running(&wire.sockets[1], features);
        for round in 0..5 {
            passes(&mut a, &mut b, &frame(60 + round));
            a.says_state(GET_VRING_BASE, 1, 0);
            let base = a.asks_base();
            if features == 0 {
                assert_eq!(base as usize, 3 * round + 1);
            }
            // Frames that are sent meanwhile wait.
            b.gives_buffer(1, 2048);
            a.sends(1, &frame(99));
            a.kicks.pop();
            a.calls.pop();
            a.start_ring(1, base);
            a.returned(1);
            assert_eq!(b.returned(0).written, 12 + 99);
            passes(&mut a, &mut b, &frame(61));
            a.says_state(GET_VRING_BASE, 1, 0);
            let base = a.asks_base();
            a.kicks.pop();
            a.calls.pop();
            a.start_ring(1, base);
            if features == 0 {
                assert_eq!(base as usize, 3 * round + 3);
            }
        }
    }
}

/// Sends a message that requests an acknowledgement, and returns the status.
fn asks_with(front: &mut FrontEnd, request: u32, value: u64) -> u64 {
    let header = [request, 1 | 1 << 3, 8].map(u32::to_ne_bytes);
    let message = [header.as_flattened(), &value.to_ne_bytes()].concat();
    front.socket.write_all(&message).unwrap();
    front.answer(request)
}

#[test]
fn mtu_set_by_the_front_end_holds_for_its_guest() {
    const MTU: u64 = 1 << 3;
    for features in [MTU, MTU | PACKED] {
        let Some(wire) = wire("") else { return };
        let mut a = running(&wire.sockets[0], 0);
        let mut b = FrontEnd::connect(&wire.sockets[1]);
        assert_eq!(b.asks(GET_PROTOCOL_FEATURES) & 1 << 4, 1 << 4);
        // MTUs below the minimum of IPv4, and above what frames of the pool can hold.
        assert_eq!(asks_with(&mut b, NET_SET_MTU, 67), 1);
        assert_eq!(asks_with(&mut b, NET_SET_MTU, 1 << 32 | 1500), 1);
        assert_eq!(asks_with(&mut b, NET_SET_MTU, 65_535), 1);
        assert_eq!(asks_with(&mut b, NET_SET_MTU, 1000), 0);
        let mut b = b.set_up(FEATURES | features);
        wire.graph.until("b/is_connected", |count| count == 1);
        // 1000 bytes of MTU, a MAC header, and the tag, which the MTU does not include.
        passes(&mut a, &mut b, &frame(1018));
        b.gives_buffer(0, 2048);
        a.sends(0, &frame(1019));
        wire.graph.until("b/drop_too_long", |count| count == 1);
        a.returned(1);
        // The buffer is used for the next frame.
        a.sends(0, &frame(60));
        a.returned(1);
        assert_eq!(b.returned(0).written, 12 + 60);
        assert_eq!(b.bytes(0, 72)[12..], frame(60));
        // The MTU does not limit frames from the guest.
        passes(&mut b, &mut a, &frame(1500));
        // Without a requested acknowledgement, the back end can only close the connection.
        b.says_u64(NET_SET_MTU, 67);
        assert!(b.is_cut_off());
    }
}

#[test]
fn rings_that_nothing_kicks_are_looked_at_by_time() {
    for features in [0, PACKED] {
        let Some(wire) = wire("") else { return };
        let mut a = running(&wire.sockets[0], features);
        let mut b = FrontEnd::connect(&wire.sockets[1]);
        b.negotiate(FEATURES | features);
        for ring in 0..2 {
            b.add_ring(ring);
            b.start_polled_ring(ring);
        }
        b.asks(GET_FEATURES);
        for round in 0..20 {
            // The worker is asleep by now.
            std::thread::sleep(std::time::Duration::from_millis(20));
            passes(&mut b, &mut a, &frame(60 + round));
            passes(&mut a, &mut b, &frame(61 + round));
        }
        // First a ring with a file descriptor instead, then an index that no ring has.
        b.says_state(GET_VRING_BASE, 1, 0);
        let base = b.asks_base();
        b.kicks.truncate(1);
        b.calls.truncate(1);
        b.start_ring(1, base);
        passes(&mut b, &mut a, &frame(99));
        b.says_u64(SET_VRING_KICK, 9 | 1 << 8);
        assert!(b.is_cut_off());
        assert_eq!(wire.graph.counter("b/ring_faults"), 0);
    }
}
