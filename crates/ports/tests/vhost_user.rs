//! The card of a guest, and guests that do what no correct one does.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use carina_sys::Memory;

use crate::front_end::*;
use crate::room::Room;
use crate::running::Running;

/// Two cards with a wire between them.
struct Wire {
    graph: Running,
    sockets: [PathBuf; 2],
    _directory: tempfile::TempDir,
}

fn wire(more: &str) -> Option<Wire> {
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
fn passes(from: &mut FrontEnd, to: &mut FrontEnd, frame: &[u8]) {
    to.gives_buffer(0, 2048);
    from.sends(0, frame);
    from.returned(1);
    let used = to.returned(0);
    assert_eq!(used.written as usize, 12 + frame.len());
    let bytes = to.bytes(0, 12 + frame.len());
    assert_eq!(bytes[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(&bytes[12..], frame);
}

fn frame(len: usize) -> Vec<u8> {
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
        // Two small buffers hold one frame.
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
    // A checksum over the last 4 bytes, which goes in front of them.
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
    // One whose place lies outside of the frame is dropped.
    header[6] = 200;
    a.sends_with(header, 1, &unfinished);
    wire.graph.until("a/drop_unsupported", |count| count == 1);
    // Shorter than a MAC header, and longer than frames of the pool.
    a.sends(2, &frame(13));
    wire.graph.until("a/drop_length", |count| count == 1);
    a.sends(3, &frame(3000));
    wire.graph.until("a/drop_length", |count| count == 2);
}

/// Has guests do what no correct one does, one after the other, while two others exchange frames.
#[test]
fn hostile_guests_are_cut_off_and_others_go_on() {
    let Some(wire) = wire("") else { return };
    let Some(other) = self::wire("") else { return };
    let mut c = running(&other.sockets[0], 0);
    let mut d = running(&other.sockets[1], PACKED);
    type Attack = fn(&mut FrontEnd);
    let attacks: [(&str, Attack); 5] = [
        ("a loop", |guest| descriptor(guest, GUEST, 64, 1, 0)),
        ("out of range", |guest| {
            descriptor(guest, GUEST + BYTES as u64 - 1, 2, 0, 0)
        }),
        ("beyond the table", |guest| {
            descriptor(guest, GUEST, 64, 1, 999)
        }),
        ("an index far ahead", |guest| {
            let at = parts(1)[1] as usize + 2;
            guest.mapping.write(at, &500u16.to_ne_bytes());
        }),
        ("a table that was not negotiated", |guest| {
            descriptor(guest, GUEST, 16, 4, 0)
        }),
    ];
    for (number, (name, attack)) in attacks.iter().enumerate() {
        let mut guest = running(&wire.sockets[0], 0);
        attack(&mut guest);
        guest.kicks[1].signal();
        assert!(guest.is_cut_off(), "{name}");
        let faults = number as u64 + 1;
        wire.graph.until("a/ring_faults", |count| count == faults);
        passes(&mut c, &mut d, &frame(100));
        passes(&mut d, &mut c, &frame(100));
    }
    // A correct guest is served after that.
    let mut a = running(&wire.sockets[0], 0);
    let mut b = running(&wire.sockets[1], 0);
    passes(&mut a, &mut b, &frame(100));
}

/// Makes available a chain that begins with this descriptor.
fn descriptor(guest: &mut FrontEnd, address: u64, len: u32, flags: u16, next: u16) {
    let at = parts(1).map(|part| part as usize);
    guest.mapping.write(at[0], &address.to_ne_bytes());
    guest.mapping.write(at[0] + 8, &len.to_ne_bytes());
    guest.mapping.write(at[0] + 12, &flags.to_ne_bytes());
    guest.mapping.write(at[0] + 14, &next.to_ne_bytes());
    guest.mapping.write(at[1] + 4, &[0, 0]);
    guest.mapping.write(at[1] + 2, &1u16.to_ne_bytes());
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
    // Messages before those that they build on.
    let mut front = FrontEnd::connect(&wire.sockets[0]);
    front.says_state(SET_VRING_ENABLE, 1, 1);
    front.says_state(GET_VRING_BASE, 0, 0);
    front.asks_base();
    // Half a message stalls this port's control thread, and no frame of another.
    front.socket.write_all(&[1, 0, 0]).unwrap();
    let mut b = running(&wire.sockets[1], 0);
    b.sends(0, &frame(100));
    b.returned(1);
    wire.graph.until("a/drop_no_guest", |count| count == 1);
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
            // What is sent meanwhile waits.
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
