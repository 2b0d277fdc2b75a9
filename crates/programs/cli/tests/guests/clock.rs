//! Measures how soon an event was noticed. A node's log says when the node noticed it, and a canary
//! measures for how long the machine itself was delayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The promise: a flow whose other side has died ends within a second.
pub(crate) const PROMISED: Duration = Duration::from_secs(1);

/// The loss of a link with its flows, as recorded in a node's log.
#[derive(Debug)]
pub(crate) struct Loss {
    /// Why the link went down.
    pub reason: String,
    /// Time from the peer's last sign of life until the node missed it; zero if the peer announced
    /// its end.
    pub silent: Duration,
    /// Time from then on until the last flow had ended.
    pub closing: Duration,
}

impl Loss {
    /// Reads the last loss of a link from a node's log. `None` if the log contains no loss, or if
    /// the flows have not ended yet.
    pub(crate) fn last(log: &str) -> Option<Loss> {
        let lines: Vec<&str> = log.lines().collect();
        let last = |kind: &str| lines.iter().rposition(|line| line.contains(kind));
        // Link and flows go down in the same breath, and their log lines may be in either order.
        let (down, flow) = (last("kind=LinkDown")?, last("kind=FlowClosed")?);
        let (down_at, flow_at) = (time_of_day(lines[down])?, time_of_day(lines[flow])?);
        let closing = if flow < down {
            Duration::ZERO
        } else {
            since(down_at, flow_at)
        };
        let reason = lines[down].split("journal: ").nth(1)?.to_owned();
        let silent = reason
            .split_once("no sign of life for ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
            .map_or(Duration::ZERO, Duration::from_millis);
        Some(Loss {
            reason,
            silent,
            closing,
        })
    }

    /// Time from the peer's last sign of life until the flows had ended.
    pub(crate) fn elapsed(&self) -> Duration {
        self.silent + self.closing
    }

    /// Checks the promise, with an allowance for delays of the machine itself.
    pub(crate) fn kept_its_promise(&self, calm: &Canary) {
        self.within_a_second(self.elapsed(), calm);
    }

    /// Like [`Loss::kept_its_promise`], for a node in a guest. An emulated processor may take any
    /// time to end the flows, which the canary on the host cannot detect, so only the detection is
    /// checked.
    pub(crate) fn was_noticed_in_time(&self, calm: &Canary) {
        self.within_a_second(self.silent, calm);
    }

    fn within_a_second(&self, elapsed: Duration, calm: &Canary) {
        let late = calm.late();
        let story = format!("{self:?} took {elapsed:?}, the machine was late by {late:?}");
        eprintln!("{story}");
        assert!(elapsed <= PROMISED + late, "{story}");
    }
}

/// The time of day at the start of a log line, such as `2026-01-02T03:04:05.678901Z`.
fn time_of_day(line: &str) -> Option<Duration> {
    let time = line.get(11..26)?;
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<u64>().ok();
    let seconds = number(0..2)? * 3600 + number(3..5)? * 60 + number(6..8)?;
    Some(Duration::from_secs(seconds) + Duration::from_micros(number(9..15)?))
}

/// Time between two times of day, the second of which may be after midnight.
fn since(before: Duration, after: Duration) -> Duration {
    match after.checked_sub(before) {
        Some(gone) => gone,
        None => after + Duration::from_secs(24 * 3600) - before,
    }
}

/// Sleeps in short pieces all the time, and adds up how much too late it woke. A process on this
/// machine may have been delayed at least as much.
pub(crate) struct Canary {
    late_us: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Canary {
    pub(crate) fn start() -> Canary {
        let late_us = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (sum, ends) = (Arc::clone(&late_us), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(PIECE);
                let late = begun.elapsed().saturating_sub(PIECE);
                if late > PIECE {
                    sum.fetch_add(late.as_micros() as u64, Ordering::Relaxed);
                }
            }
        });
        Canary {
            late_us,
            stop,
            thread: Some(thread),
        }
    }

    /// Sum of the delays so far.
    pub(crate) fn late(&self) -> Duration {
        Duration::from_micros(self.late_us.load(Ordering::Relaxed))
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const PIECE: Duration = Duration::from_millis(5);

#[test]
fn loss_is_read_out_of_a_log() {
    let log = "\
2026-11-21T23:59:59.900000Z  INFO carina_node::journal: peer a kind=LinkUp subject=\"a\"
2026-11-21T23:59:59.950000Z  INFO carina_node::journal: the peer gave no sign of life for 612 ms kind=LinkDown subject=\"a\"
2026-11-22T00:00:00.000250Z  INFO carina_node::journal: the peer gave no sign of life for 612 ms kind=FlowClosed subject=\"7\"
";
    let loss = Loss::last(log).unwrap();
    assert_eq!(loss.silent, Duration::from_millis(612));
    assert_eq!(loss.elapsed(), Duration::from_micros(662_250));
}
