//! Flows over a stream, such as vsock: a flow that rarely sends beside flows that always do.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use crate::pair::{App, Pair};

/// Number of flows that send all the time.
const CROWD: usize = 63;

/// Size of an SDU of the crowd in bytes.
const CROWD_SDU: usize = 1400;

/// Number of echoes of the idle flow.
const ECHOES: usize = 300;

/// Most bytes of the crowd that may arrive while one echo in ten is on its way; a busy machine
/// delays the others. One turn of each flow of the crowd before the idle flow is a million bytes.
const BYTES_MAX: u64 = 256 << 10;

#[test]
fn idle_flow_does_not_wait_for_a_turn_of_each_saturated_flow() {
    let mut pair = Pair::over_stream();
    let (mut host, guest, ..) = pair.flow();
    let ends = Arc::new(AtomicBool::new(false));
    echo(guest);
    let alone = echoes(&mut host, || 0);

    let flows: Vec<_> = (0..CROWD).map(|_| pair.flow()).collect();
    let (mut senders, mut receivers, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for (sender, receiver, port, guest_port) in flows {
        senders.push(sender);
        receivers.push(receiver);
        ports.push((port, guest_port));
    }
    let received = Arc::new(AtomicU64::new(0));
    let crowd = [
        send_all(senders, &ends),
        receive_all(receivers, &ends, &received),
    ];
    while received.load(Ordering::Relaxed) < 64 << 20 {
        sleep(Duration::from_millis(1));
        assert!(pair.host.is_running() && pair.guest.is_running());
    }
    let beside = echoes(&mut host, || received.load(Ordering::Relaxed));
    println!("alone:  {alone}\nbeside: {beside}");
    assert!(beside.bytes_p10 < BYTES_MAX, "{beside}");

    ends.store(true, Ordering::Relaxed);
    for thread in crowd {
        thread.join().unwrap();
    }
}

/// What the echoes of the idle flow met: times for a reader of the test, bytes for the test.
struct Seen {
    p50_us: f64,
    p99_us: f64,
    bytes_p10: u64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "median {:.0} µs, 99 of 100 within {:.0} µs, {} bytes of others in a tenth",
            self.p50_us, self.p99_us, self.bytes_p10
        )
    }
}

/// Sends SDUs one after another, each when the last was echoed, with pauses.
fn echoes(app: &mut App, bytes: impl Fn() -> u64) -> Seen {
    let (mut times_us, mut counts) = (Vec::new(), Vec::new());
    for number in 0..ECHOES {
        let (begin, before) = (Instant::now(), bytes());
        app.send(&[number as u8; 64]);
        assert_eq!(app.recv().unwrap(), [number as u8; 64]);
        counts.push(bytes() - before);
        times_us.push(begin.elapsed().as_secs_f64() * 1e6);
        sleep(Duration::from_millis(2));
    }
    times_us.sort_by(f64::total_cmp);
    counts.sort_unstable();
    Seen {
        p50_us: times_us[ECHOES / 2],
        p99_us: times_us[ECHOES * 99 / 100],
        bytes_p10: counts[ECHOES / 10],
    }
}

/// Returns every SDU until the flow or the test ends.
fn echo(mut app: App) {
    spawn(move || {
        while let Ok(sdu) = app.recv() {
            app.send(&sdu);
        }
    });
}

/// Keeps the rings of all flows full.
fn send_all(mut apps: Vec<App>, ends: &Arc<AtomicBool>) -> JoinHandle<()> {
    let ends = Arc::clone(ends);
    spawn(move || {
        let sdu = [7; CROWD_SDU];
        while !ends.load(Ordering::Relaxed) {
            let mut has_sent = false;
            for app in &mut apps {
                for _ in 0..16 {
                    if app.end.tx.push(&[&sdu], false).is_err() {
                        break;
                    }
                    has_sent = true;
                }
                app.end.publish();
            }
            if !has_sent {
                sleep(Duration::from_micros(200));
            }
        }
    })
}

/// Discards what arrives on all flows, and counts its bytes.
fn receive_all(
    mut apps: Vec<App>,
    ends: &Arc<AtomicBool>,
    received: &Arc<AtomicU64>,
) -> JoinHandle<()> {
    let (ends, received) = (Arc::clone(ends), Arc::clone(received));
    spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            let mut bytes = 0;
            for app in &mut apps {
                while let Some(piece) = app.end.rx.next().unwrap() {
                    bytes += piece.len();
                }
                app.end.release();
            }
            received.fetch_add(bytes as u64, Ordering::Relaxed);
            if bytes == 0 {
                sleep(Duration::from_micros(200));
            }
        }
    })
}
