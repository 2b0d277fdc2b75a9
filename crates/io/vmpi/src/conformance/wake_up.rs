//! Cases of sleeping sides: a record or room that appears while a side falls asleep wakes it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use carina_sys::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Deadline, Device, Fixture, Random, Sides, put, receive, send};
use crate::hl::Side;
use crate::ll::LinkState;

/// Two threads send each other one record after the other. Each side goes to sleep right after its
/// record, at about the time at which the answer is sent. A sleeper that finds a record although
/// its descriptor does not become readable has missed a wake-up.
pub fn sleeper_misses_no_record<F: Fixture>(make: impl Fn() -> F) {
    let sides = Sides::up(make());
    let has_wake_ups = sides.fixture.has_wake_ups();
    let rounds = if has_wake_ups { 4000 } else { 300 };
    on_threads(sides, |device, clock| {
        let starts = device.side() == Side::Host;
        let mut random = Random::new(u64::from(starts));
        let deadline = Deadline::new();
        let mut next = 0_u32;
        if starts {
            assert!(send(device, &next.to_le_bytes()));
        }
        while next < rounds {
            assert_eq!(device.link(clock.now_ns()), LinkState::Up);
            let mut found = receive(device);
            if found.is_none() {
                found = sleep(device, clock, has_wake_ups);
            }
            if let Some(bytes) = found {
                assert_eq!(bytes, next.to_le_bytes());
                next += 1;
                for _ in 0..random.below(2000) {
                    std::hint::spin_loop();
                }
                let answer = if starts { next } else { next - 1 };
                if answer < rounds {
                    assert!(send(device, &answer.to_le_bytes()));
                }
            }
            deadline.check("a record does not arrive");
        }
        finish(device, clock);
    });
}

/// A writer that finds no room sleeps until the reader has released some. All records arrive.
pub fn released_space_wakes_the_writer<F: Fixture>(make: impl Fn() -> F) {
    const LEN: usize = 2000;
    let sides = Sides::up(make());
    let has_wake_ups = sides.fixture.has_wake_ups();
    let records = if has_wake_ups { 4000_u32 } else { 500 };
    on_threads(sides, |device, clock| {
        let deadline = Deadline::new();
        let mut random = Random::new(3);
        let mut bytes = [0; LEN];
        let mut next = 0_u32;
        while next < records {
            assert_eq!(device.link(clock.now_ns()), LinkState::Up);
            if device.side() == Side::Host {
                bytes[..4].copy_from_slice(&next.to_le_bytes());
                if put(device, &bytes) {
                    next += 1;
                    continue;
                }
                device.publish();
                let may_sleep = device.arm_space(LEN + 16).expect("the peer is correct");
                if may_sleep {
                    assert_eq!(
                        sleep(device, clock, false),
                        None,
                        "the reader sends nothing"
                    );
                } else {
                    device.disarm();
                }
            } else {
                match receive(device) {
                    Some(got) => {
                        assert_eq!((got.len(), &got[..4]), (LEN, &next.to_le_bytes()[..]));
                        next += 1;
                    }
                    None => drop(sleep(device, clock, false).map(|_| next += 1)),
                }
                if random.below(50) == 0 {
                    thread::sleep(Duration::from_micros(300));
                }
            }
            deadline.check("the writer is not woken");
        }
        device.publish();
        finish(device, clock);
    });
}

/// The clock of both sides, and how many have finished.
struct Clock {
    ahead_ns: u64,
    finished: AtomicU32,
}

impl Clock {
    fn now_ns(&self) -> u64 {
        monotonic_ns() + self.ahead_ns
    }
}

/// Plays both sides, each on a thread of its own, and serves the fixture meanwhile.
fn on_threads<F: Fixture>(sides: Sides<F>, play: impl Fn(&mut Device, &Clock) + Sync) {
    let Sides {
        mut fixture,
        host,
        guest,
        ahead_ns,
    } = sides;
    let clock = Clock {
        ahead_ns,
        finished: AtomicU32::new(0),
    };
    thread::scope(|scope| {
        let threads = [host, guest].map(|device| {
            let mut device = device.expect("the side is open");
            let (play, clock) = (&play, &clock);
            scope.spawn(move || play(&mut device, clock))
        });
        while !threads.iter().all(|thread| thread.is_finished()) {
            fixture.serve();
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Keeps the link up until the other side has read everything.
fn finish(device: &mut Device, clock: &Clock) {
    clock.finished.fetch_add(1, Ordering::Relaxed);
    let deadline = Deadline::new();
    while clock.finished.load(Ordering::Relaxed) < 2 {
        let _ = device.link(clock.now_ns());
        thread::sleep(Duration::from_millis(1));
        deadline.check("the other side does not finish");
    }
}

/// Sleeps as an engine does: until the descriptor is readable or the deadline has come. Returns a
/// record that is found at the deadline; such a record must have signalled the descriptor.
fn sleep(device: &mut Device, clock: &Clock, has_wake_ups: bool) -> Option<Vec<u8>> {
    let now_ns = clock.now_ns();
    let mut found = None;
    if device.arm(now_ns) {
        let wait_ns = device.next_deadline_ns().saturating_sub(now_ns);
        if !wait(device, wait_ns) {
            found = receive(device);
        }
        if has_wake_ups && found.is_some() {
            // The signal may follow the record with some delay.
            let is_signalled = (0..30).any(|_| wait(device, 900_000_000));
            assert!(is_signalled, "a record came without a wake-up");
        }
    }
    device.disarm();
    found
}

/// Waits for the descriptor of a side; true if it is readable.
fn wait(device: &Device, wait_ns: u64) -> bool {
    let wait_ns = wait_ns.min(999_000_000);
    let Some(fd) = device.wait_fd() else {
        thread::sleep(Duration::from_nanos(wait_ns));
        return false;
    };
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: wait_ns as i64,
    };
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
    ready == Ok(1)
}
