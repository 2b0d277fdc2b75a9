//! The attach handshake and the rings over memfd, with peers that restart, stop, and write random
//! bytes.

mod conformance;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carina_sys::monotonic_ns;

use super::memfd::{MemfdRegion, pair};
use super::*;
use crate::hl::Side;

type Dev = Box<dyn VmpiImpl + Send>;

const REGION: usize = 64 << 10;
const MS: u64 = 1_000_000;

/// Two sides and one simulated clock.
struct Sides {
    region: MemfdRegion,
    host: Dev,
    guest: Dev,
    now_ns: u64,
}

impl Sides {
    fn new() -> Sides {
        let region = MemfdRegion::create(REGION).unwrap();
        let (host, guest) = (
            region.device(Side::Host).unwrap(),
            region.device(Side::Guest).unwrap(),
        );
        Sides {
            region,
            host,
            guest,
            now_ns: 1,
        }
    }

    fn up() -> Sides {
        let mut sides = Sides::new();
        assert_eq!(sides.run(5), (LinkState::Up, LinkState::Up));
        sides
    }

    /// Lets both sides look every millisecond. Returns the state of both links at the end.
    fn run(&mut self, looks: usize) -> (LinkState, LinkState) {
        for _ in 0..looks {
            self.now_ns += MS;
            let _ = (self.host.link(self.now_ns), self.guest.link(self.now_ns));
        }
        (self.host.link(self.now_ns), self.guest.link(self.now_ns))
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
}

#[test]
fn nothing_passes_before_the_peer_attaches() {
    let region = MemfdRegion::create(REGION).unwrap();
    let mut guest = region.device(Side::Guest).unwrap();
    assert_eq!(guest.link(1), LinkState::Down(DownReason::NoPeer));
    assert!(matches!(guest.reserve(1), Err(Refused::Full)));
    assert!(guest.next().unwrap().is_none());
    assert!(guest.arm(1));
}

#[test]
fn restart_of_either_side_is_seen_once_and_resets_the_rings() {
    for side in [Side::Host, Side::Guest] {
        let mut sides = Sides::up();
        for _ in 0..100 {
            send(&mut sides.host, &[1; 300]);
            receive(&mut sides.guest).unwrap();
        }
        send(&mut sides.host, b"lost");
        send(&mut sides.guest, b"lost");
        // The old device is forgotten without its destructor, as if its process was killed.
        let new = sides.region.device(side).unwrap();
        let (dead, other) = match side {
            Side::Host => (std::mem::replace(&mut sides.host, new), &mut sides.guest),
            Side::Guest => (std::mem::replace(&mut sides.guest, new), &mut sides.host),
        };
        std::mem::forget(dead);
        let now_ns = sides.now_ns;
        assert_eq!(other.link(now_ns), LinkState::Up);
        let _ = match side {
            Side::Host => sides.host.link(now_ns + 1),
            Side::Guest => sides.guest.link(now_ns + 1),
        };
        let other = match side {
            Side::Host => &mut sides.guest,
            Side::Guest => &mut sides.host,
        };
        assert_eq!(
            other.link(now_ns + 2),
            LinkState::Down(DownReason::PeerRestarted)
        );
        assert_eq!(sides.run(10), (LinkState::Up, LinkState::Up));
        send(&mut sides.host, b"new");
        send(&mut sides.guest, b"new");
        assert_eq!(receive(&mut sides.guest).as_deref(), Some(&b"new"[..]));
        assert_eq!(receive(&mut sides.host).as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn peer_that_ends_in_order_is_missed_at_once() {
    let mut sides = Sides::up();
    sides.guest = sides.region.device(Side::Guest).unwrap();
    assert_eq!(
        sides.host.link(sides.now_ns),
        LinkState::Down(DownReason::PeerLeft)
    );
    assert_eq!(sides.run(10), (LinkState::Up, LinkState::Up));
}

#[test]
fn silent_peer_is_dead_after_600_ms_and_may_come_back() {
    let mut sides = Sides::up();
    let start = sides.now_ns;
    let (silent_ns, told_ms) = loop {
        sides.now_ns += MS;
        if let LinkState::Down(reason) = sides.host.link(sides.now_ns) {
            let DownReason::PeerSilent { silent_ms } = reason else {
                panic!("{reason:?}");
            };
            break (sides.now_ns - start, silent_ms);
        }
    };
    assert!(
        (SILENCE_NS_MAX - HEARTBEAT_NS..=SILENCE_NS_MAX).contains(&silent_ns),
        "{silent_ns}"
    );
    assert_eq!(told_ms * MS, SILENCE_NS_MAX, "from its last heartbeat on");
    let guest = sides.guest.link(sides.now_ns);
    assert_eq!(guest, LinkState::Down(DownReason::PeerRestarted));
    assert_eq!(sides.run(10), (LinkState::Up, LinkState::Up));
}

#[test]
fn killed_peer_is_missed_within_700_ms_by_a_lazy_side() {
    // Tests each phase of the killed side's heartbeat and of the watching side's heartbeat.
    for phase_ms in 0..HEARTBEAT_NS / MS {
        let mut sides = Sides::up();
        let mut guest_beats_at = sides.guest.next_deadline_ns() + phase_ms * MS;
        let mut last_beat_ns = 0;
        let killed_ns = sides.now_ns + 500 * MS;
        let missed_ns = loop {
            let host_looks_at = sides.host.next_deadline_ns();
            if guest_beats_at < host_looks_at && guest_beats_at < killed_ns {
                assert_eq!(sides.guest.link(guest_beats_at), LinkState::Up);
                last_beat_ns = guest_beats_at;
                guest_beats_at = sides.guest.next_deadline_ns();
                continue;
            }
            if sides.host.link(host_looks_at) != LinkState::Up {
                break host_looks_at;
            }
        };
        assert!(
            missed_ns > killed_ns && missed_ns - last_beat_ns <= 700 * MS,
            "phase {phase_ms} ms: missed after {} ms",
            (missed_ns - last_beat_ns) / MS
        );
    }
}

#[test]
fn time_in_which_the_observer_did_not_run_does_not_count() {
    let mut sides = Sides::up();
    for _ in 0..3 {
        // Both sides were stopped for an hour, as when a laptop is suspended.
        sides.now_ns += 3_600_000 * MS;
        assert_eq!(sides.host.link(sides.now_ns), LinkState::Up);
        assert_eq!(sides.guest.link(sides.now_ns), LinkState::Up);
    }
}

#[test]
fn failed_link_is_held_off_and_comes_back() {
    let mut sides = Sides::up();
    let reason = DownReason::Violation {
        code: "test",
        reason: "because".into(),
    };
    assert_eq!(sides.host.fail(sides.now_ns, reason.clone()), reason);
    assert_eq!(
        sides.host.link(sides.now_ns),
        LinkState::Down(reason.clone())
    );
    assert_eq!(
        sides.guest.link(sides.now_ns),
        LinkState::Down(DownReason::PeerLeft)
    );
    let (host, _) = sides.run(400);
    assert_eq!(host, LinkState::Down(reason));
    assert_eq!(sides.run(200), (LinkState::Up, LinkState::Up));
    assert_eq!(sides.host.stats().violations, 1);
}

#[test]
fn rings_of_a_restarting_peer_are_not_a_violation() {
    let mut sides = Sides::up();
    send(&mut sides.guest, b"first");
    receive(&mut sides.host).unwrap();
    let mut new = sides.region.device(Side::Guest).unwrap();
    std::mem::forget(std::mem::replace(
        &mut sides.guest,
        sides.region.device(Side::Guest).unwrap(),
    ));
    let _ = new.link(sides.now_ns + 1);
    // The new guest has zeroed its indices. For the host, they have decreased.
    let corrupt = sides.host.next().unwrap_err();
    let reason = sides
        .host
        .fail(sides.now_ns + 2, DownReason::Corrupt(corrupt));
    assert_eq!(reason, DownReason::PeerRestarted);
    assert_eq!(sides.host.stats().corrupt, 0);
}

#[test]
fn region_of_another_version_is_refused_by_name() {
    let region = MemfdRegion::create(REGION).unwrap();
    let mut host = region.device(Side::Host).unwrap();
    let _ = host.link(1);
    region.memory().map().unwrap().write(8, &7u32.to_le_bytes());
    let mut guest = region.device(Side::Guest).unwrap();
    assert_eq!(
        guest.link(2),
        LinkState::Down(DownReason::WrongVersion { peer: 7 })
    );
}

#[test]
fn header_on_the_ring_is_four_bytes_per_record() {
    use carina_wire::vmpi::{Channel, DataHeader};
    let mut sides = Sides::up();
    let header = DataHeader {
        channel: Channel::new(0x0102),
        more: false,
    }
    .encode();
    send(&mut sides.host, &[&header[..], b"payload"].concat());
    let mut ring = [0; 24];
    let at = Layout::new(REGION).unwrap().ring_from(Side::Host) + carina_ring::HEADER_BYTES;
    sides.region.memory().map().unwrap().read(at, &mut ring);
    assert_eq!(
        &ring[..8],
        [11, 0, 0, 0, 0, 0, 0, 0],
        "length and flags of the record"
    );
    assert_eq!(&ring[8..19], b"\x02\x01\0\0payload");
    let lease = sides.guest.next().unwrap().unwrap();
    assert_eq!(lease.len() - b"payload".len(), 4);
}

/// Echoes until told to stop. Sleeps on the doorbell alone.
fn echo(mut device: Dev, stop: &AtomicBool) -> Stats {
    while !stop.load(Ordering::Relaxed) {
        if device.link(monotonic_ns()) == LinkState::Up {
            while let Some(bytes) = receive(&mut device) {
                send(&mut device, &bytes);
            }
        }
        sleep(&mut device);
    }
    device.stats()
}

/// Sleeps until the doorbell rings or the deadline passes, as an engine does.
fn sleep(device: &mut Dev) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now_ns = monotonic_ns();
    if device.arm(now_ns) {
        let wait_ns = device.next_deadline_ns().saturating_sub(now_ns);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: wait_ns.min(999 * MS) as i64,
        };
        let fd = device.wait_fd().unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
    }
    device.disarm();
}

#[test]
fn threads_exchange_records_and_survive_restarts_of_both_sides() {
    let region = MemfdRegion::create(REGION).unwrap();
    let stop = AtomicBool::new(false);
    // The test judges nothing by this time; it only ends a test that hangs.
    let deadline = Instant::now() + Duration::from_secs(600);
    thread::scope(|scope| {
        for round in 0..4u32 {
            let stop = &stop;
            stop.store(false, Ordering::Relaxed);
            let guest = region.device(Side::Guest).unwrap();
            let thread = scope.spawn(move || echo(guest, stop));
            let mut host = region.device(Side::Host).unwrap();
            let mut answers = 0;
            let mut asked = false;
            while answers < 2000 {
                assert!(
                    Instant::now() < deadline,
                    "round {round}: {answers} answers"
                );
                if host.link(monotonic_ns()) != LinkState::Up {
                    asked = false;
                } else if !asked {
                    send(&mut host, &u32::to_le_bytes(answers));
                    asked = true;
                } else if let Some(answer) = receive(&mut host) {
                    assert_eq!(answer, u32::to_le_bytes(answers));
                    answers += 1;
                    asked = false;
                    continue;
                }
                sleep(&mut host);
            }
            assert!(host.stats().kicks > 0);
            stop.store(true, Ordering::Relaxed);
            if round % 2 == 0 {
                // In every other round the host ends without a message.
                std::mem::forget(host);
            }
            assert!(thread.join().unwrap().records_in >= 2000);
        }
    });
}

#[test]
fn scribbled_region_fails_the_link_with_a_counted_reason() {
    let mut seed = 0x1234_5678_9abc_def0_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut corrupt_links, mut cut_links) = (0, 0);
    for round in 0..60 {
        let mut sides = Sides::up();
        let memory = sides.region.memory().map().unwrap();
        for _ in 0..50 {
            send(&mut sides.guest, &[3; 40]);
        }
        // Overwrites every byte, every byte except the station block's, or a few words anywhere.
        let (from, words) = match round % 3 {
            0 => (0, REGION / 8),
            1 => (4096, (REGION - 4096) / 8),
            _ => (0, 1 << (random() % 10)),
        };
        for n in 0..words {
            let word = if round % 3 == 2 {
                random() as usize % (REGION / 8)
            } else {
                n
            };
            memory.write(from + 8 * word, &random().to_le_bytes());
        }
        for _ in 0..200 {
            sides.now_ns += MS;
            let _ = sides.host.link(sides.now_ns);
            if sides
                .host
                .reserve(random() as usize % 4000)
                .is_ok_and(|slot| {
                    slot.commit(false);
                    true
                })
            {
                sides.host.publish();
            }
            match sides.host.next() {
                Ok(_) => sides.host.release(),
                Err(corrupt) => {
                    sides.host.fail(sides.now_ns, DownReason::Corrupt(corrupt));
                    assert!(sides.host.next().unwrap().is_none());
                }
            }
            let _ = (sides.host.arm(sides.now_ns), sides.host.arm_space(4000));
            sides.host.disarm();
        }
        let stats = sides.host.stats();
        corrupt_links += stats.corrupt;
        cut_links += u64::from(stats.corrupt + stats.downs > 0);
        // A correct guest replaces the faulty one.
        sides.guest = sides.region.device(Side::Guest).unwrap();
        assert_eq!(sides.run(2000), (LinkState::Up, LinkState::Up));
        send(&mut sides.guest, b"well");
        assert_eq!(receive(&mut sides.host).as_deref(), Some(&b"well"[..]));
    }
    // An overwritten station block looks like a restart. A few words may not hit anything
    // important.
    assert!(
        cut_links >= 40 && corrupt_links >= 20,
        "cut {cut_links}, corrupt {corrupt_links}"
    );
}

/// The host sends nothing, and the ring has room for everything. Only a look at the index finds the
/// fault.
#[test]
fn corrupt_head_of_a_quiet_link_resets_it() {
    for side in [Side::Host, Side::Guest] {
        let mut sides = Sides::up();
        let map = sides.region.memory().map().unwrap();
        let layout = layout::Layout::new(REGION).unwrap();
        let head = layout.ring_from(side) + 0x180;
        map.write(head, &0xdead_0000_0001_u64.to_le_bytes());
        let device = match side {
            Side::Host => &mut sides.host,
            Side::Guest => &mut sides.guest,
        };
        assert!(device.arm_space(1000).is_err());
        let corrupt = device.free_bytes().unwrap_err();
        let reason = device.fail(sides.now_ns, DownReason::Corrupt(corrupt));
        assert_eq!(reason, DownReason::Corrupt(corrupt));
        assert_eq!((device.free_bytes(), device.stats().corrupt), (Ok(0), 1));
        assert_eq!(sides.run(2000), (LinkState::Up, LinkState::Up));
        send(&mut sides.host, b"down");
        send(&mut sides.guest, b"up");
        assert_eq!(receive(&mut sides.guest).as_deref(), Some(&b"down"[..]));
        assert_eq!(receive(&mut sides.host).as_deref(), Some(&b"up"[..]));
    }
}

/// QEMU also has the file of a region open, and could shorten it.
#[test]
fn region_that_was_cut_short_ends_its_link_and_not_the_process() {
    for left in [0, 4096, 8192, 16384] {
        let file = std::env::temp_dir().join(format!("carina-cut-{}-{left}", std::process::id()));
        let memory = carina_sys::Memory::file(&file, REGION).unwrap();
        let region = MemfdRegion::over(memory).unwrap();
        let mut host = region.device(Side::Host).unwrap();
        let mut guest = region.device(Side::Guest).unwrap();
        for now_ns in 1..10 {
            let _ = (host.link(now_ns * MS), guest.link(now_ns * MS));
        }
        assert_eq!(host.link(10 * MS), LinkState::Up);
        let other = std::fs::File::options().write(true).open(&file).unwrap();
        other.set_len(left as u64).unwrap();
        let lost = DownReason::Corrupt(Corrupt::MemoryLost);
        for now_ns in 11..3000 {
            let _ = (host.link(now_ns * MS), guest.link(now_ns * MS));
            while let Ok(slot) = host.reserve(4000) {
                slot.commit(false);
            }
            host.publish();
            let _ = (guest.next(), host.free_bytes(), host.arm(now_ns * MS));
            guest.release();
        }
        assert_eq!(
            host.link(3000 * MS),
            LinkState::Down(lost),
            "{left} bytes left"
        );
        assert_eq!(host.stats().corrupt, 1);
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn too_small_a_region_is_refused_with_the_rule() {
    let error = pair(4096).err().unwrap();
    assert_eq!(
        error.to_string(),
        "a region of 4096 bytes: must be a power of two from 65536 to 1073741824"
    );
}
