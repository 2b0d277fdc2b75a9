//! Links over streams: both sides over a pair of sockets, and the host's port against a process
//! that plays the vsock device of Firecracker.

mod conformance;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use carina_sys::monotonic_ns;

use super::frame::{Frame, PREFACE_BYTES, beat, parse, parse_preface, preface, record_header};
use super::*;
use crate::ll::{DownReason, LinkState};

type Dev = Box<dyn VmpiImpl + Send>;

fn pair() -> (Dev, Dev) {
    let (host, guest) = UnixStream::pair().unwrap();
    let side = |side, socket: UnixStream| {
        socket.set_nonblocking(true).unwrap();
        over(side, OwnedFd::from(socket)).unwrap()
    };
    (side(Side::Host, host), side(Side::Guest, guest))
}

/// Lets both sides look until both links are up.
fn up() -> (Dev, Dev) {
    let (mut host, mut guest) = pair();
    for now_ns in 1..10 {
        let states = (host.link(now_ns), guest.link(now_ns));
        if states == (LinkState::Up, LinkState::Up) {
            return (host, guest);
        }
    }
    panic!("the links do not come up");
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
fn records_cross_in_order_and_more_of_them_than_a_window_holds() {
    let (mut host, mut guest) = up();
    let (mut sent, mut received) = (0_u32, 0_u32);
    while received < 2000 {
        while sent < 2000 && host.free_bytes().unwrap() > 9000 {
            let mut record = vec![0; 1 + (sent as usize * 37) % 8000];
            record.extend(sent.to_le_bytes());
            send(&mut host, &record);
            sent += 1;
        }
        while let Some(record) = receive(&mut guest) {
            assert_eq!(record[record.len() - 4..], received.to_le_bytes());
            assert_eq!(record.len(), 5 + (received as usize * 37) % 8000);
            received += 1;
        }
        // The sender learns what the reader has taken.
        assert_eq!(receive(&mut host), None);
        host.publish();
    }
    assert_eq!(guest.stats().records_in, 2000);
    assert!(guest.arm(20) && host.arm(20));
}

#[test]
fn reader_that_stops_holds_the_sender_at_the_window() {
    let (mut host, mut guest) = up();
    let mut sent = 0;
    while host.free_bytes().unwrap() > 9000 {
        send(&mut host, &[7; 8000]);
        sent += 8000;
        assert!(sent < 1 << 20, "the window does not hold the sender");
    }
    assert_eq!(host.arm_space(1 << 14), Ok(true));
    assert_eq!(guest.link(20), LinkState::Up);
    while receive(&mut guest).is_some() {}
    assert_eq!(host.link(21), LinkState::Up);
    assert_eq!(receive(&mut host), None);
    host.publish();
    assert!(host.free_bytes().unwrap() > 9000);
}

#[test]
fn end_of_either_side_takes_the_link_down_at_the_next_look() {
    let (mut host, guest) = up();
    drop(guest);
    assert_eq!(host.link(20), LinkState::Down(DownReason::PeerLeft));
    assert_eq!(host.free_bytes(), Ok(0));
    assert!(host.next().unwrap().is_none());
    let (host, mut guest) = up();
    drop(host);
    assert_eq!(guest.link(20), LinkState::Down(DownReason::PeerLeft));
}

#[test]
fn silence_of_a_peer_that_does_not_run_takes_the_link_down() {
    let (mut host, guest) = up();
    let mut now_ns = 100;
    let state = loop {
        now_ns += 10_000_000;
        let state = host.link(now_ns);
        if state != LinkState::Up {
            break state;
        }
        assert!(now_ns < 6_000_000_000, "the silence is not noticed");
    };
    assert!(matches!(
        state,
        LinkState::Down(DownReason::PeerSilent { .. })
    ));
    assert!(
        now_ns > 4_000_000_000,
        "a VM that waits for a processor is not dead"
    );
    drop(guest);
}

/// A new directory, which the test removes.
fn directory(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("carina-vsock-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A host's port in a directory of its own, with its device.
fn port(name: &str) -> (std::path::PathBuf, HostPort, Dev) {
    let dir = directory(name);
    let port = HostPort::open(&dir, "fc", Some(&dir.join("v.sock"))).unwrap();
    let device = port.device().unwrap();
    (dir, port, device)
}

/// Lets the device look until `is_done`.
fn look(device: &mut Dev, mut is_done: impl FnMut(&mut Dev, &LinkState) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let state = device.link(monotonic_ns());
        if is_done(device, &state) {
            return;
        }
        assert!(Instant::now() < deadline, "the last state is {state:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Connects as Firecracker does when its guest connects to port 1110 of CID 2.
fn firecracker(dir: &std::path::Path) -> UnixStream {
    let stream = UnixStream::connect(dir.join("v.sock_1110")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

#[test]
fn firecrackers_device_attaches_its_guest_again_and_again() {
    let (dir, mut port, mut host) = port("again");
    assert_eq!(port.qemu_pid(), None);
    for round in 0..3 {
        let mut vmm = firecracker(&dir);
        vmm.write_all(&preface(1 << 16)).unwrap();
        vmm.write_all(&record_header(5)).unwrap();
        vmm.write_all(b"hello").unwrap();
        look(&mut host, |_, state| *state == LinkState::Up);
        assert_eq!(receive(&mut host).as_deref(), Some(&b"hello"[..]));
        // A second connection while the link is up is closed, and the link stays.
        let mut other = firecracker(&dir);
        look(&mut host, |_, _| {
            other.read(&mut [0; 16]).is_ok_and(|read| read == 0)
        });
        send(&mut host, b"answer");
        let mut bytes = [0; PREFACE_BYTES];
        vmm.read_exact(&mut bytes).unwrap();
        assert!(parse_preface(&bytes).unwrap().is_some());
        let mut rest = Vec::new();
        loop {
            let mut part = [0; 64];
            let read = vmm.read(&mut part).unwrap();
            rest.extend_from_slice(&part[..read]);
            let mut at = 0;
            let mut is_answered = false;
            while let Some((frame, len)) = parse(&rest[at..]).unwrap() {
                is_answered |= frame == Frame::Record(6);
                at += len;
            }
            if is_answered {
                break;
            }
        }
        port.on_tick(0);
        assert_eq!(port.qemu_pid(), Some(std::process::id() as i32));
        // The VMM is killed: its end of the stream closes.
        drop(vmm);
        look(&mut host, |_, state| {
            *state == LinkState::Down(DownReason::PeerLeft)
        });
        assert_eq!(host.stats().downs, round + 1);
    }
    drop(host);
    port.destroy();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir(dir).unwrap();
}

#[test]
fn guests_that_lie_lose_only_their_own_connection() {
    let (dir, port, mut host) = port("lies");
    let lies: [(&[u8], &str); 3] = [
        (b"GET / HTTP/1.1\r\n\r\n", "bad-frame"),
        (b"VMPI\x02\0\0\0\0\0\x01\0", "wrong-region-version"),
        (b"VMPI\x01\0\0\0\0\0\0\0", "bad-frame"),
    ];
    for (bytes, code) in lies {
        // While the host holds off, it closes what connects.
        look(&mut host, |_, state| {
            let _ = firecracker(&dir).write_all(bytes);
            matches!(state, LinkState::Down(why) if why.code() == code)
        });
    }
    assert!(host.stats().ups == 0 && host.stats().violations >= 3);
    // Connections that told a lie still wait at this port, so another one follows.
    drop(host);
    port.destroy();
    std::fs::remove_dir_all(dir).unwrap();
    let (dir, port, mut host) = self::port("counts");
    let mut vmm = firecracker(&dir);
    vmm.write_all(&preface(1 << 16)).unwrap();
    look(&mut host, |_, state| *state == LinkState::Up);
    // A count of bytes that were never sent, then a frame of no kind.
    vmm.write_all(&super::frame::taken(1 << 40)).unwrap();
    vmm.write_all(&beat()).unwrap();
    look(
        &mut host,
        |_, state| matches!(state, LinkState::Down(why) if why.code() == "bad-count"),
    );
    port.destroy();
    std::fs::remove_dir_all(dir).unwrap();
}
