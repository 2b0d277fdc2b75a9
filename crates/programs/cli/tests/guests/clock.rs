//! How soon, by whose clock: a node's log says when it noted what, and a canary says how much of
//! the time the machine itself was late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is promised: a flow whose other side has died ends within a second.
pub const PROMISED: Duration = Duration::from_secs(1);

/// The end of the flows of a link, as a node's log tells it.
#[derive(Debug)]
pub struct Loss {
    /// Why the link went down.
    pub reason: String,
    /// From the last sign of life of the peer until it was missed; zero when the peer announced
    /// its end.
    pub silent: Duration,
    /// From then on until the last flow was over.
    pub closing: Duration,
}

impl Loss {
    /// Reads the last loss of a link out of a node's log; `None` while the log names no loss, or
    /// its flows are not over.
    pub fn last(log: &str) -> Option<Loss> {
        let lines: Vec<&str> = log.lines().collect();
        let last = |kind: &str| lines.iter().rposition(|line| line.contains(kind));
        // Link and flows go down in one breath, and are noted in either order.
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

    /// From the peer's last sign of life until the flows were over.
    pub fn took(&self) -> Duration {
        self.silent + self.closing
    }

    /// Insists on the promise, as far as the machine itself was not late.
    pub fn kept_its_promise(&self, calm: &Canary) {
        self.within_a_second(self.took(), calm);
    }

    /// As [`Loss::kept_its_promise`] for a watcher in a guest: an emulated processor may take any
    /// time to end the flows, of which the canary on the host knows nothing.
    pub fn was_noticed_in_time(&self, calm: &Canary) {
        self.within_a_second(self.silent, calm);
    }

    fn within_a_second(&self, took: Duration, calm: &Canary) {
        let late = calm.late();
        let story = format!("{self:?} took {took:?}, the machine was late by {late:?}");
        eprintln!("{story}");
        assert!(took <= PROMISED + late, "{story}");
    }
}

/// The time of day with which a line of a log begins, as in `2026-01-02T03:04:05.678901Z`.
fn time_of_day(line: &str) -> Option<Duration> {
    let time = line.get(11..26)?;
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<u64>().ok();
    let seconds = number(0..2)? * 3600 + number(3..5)? * 60 + number(6..8)?;
    Some(Duration::from_secs(seconds) + Duration::from_micros(number(9..15)?))
}

/// Between two times of day of which the second is later, maybe after midnight.
fn since(before: Duration, after: Duration) -> Duration {
    match after.checked_sub(before) {
        Some(gone) => gone,
        None => after + Duration::from_secs(24 * 3600) - before,
    }
}

/// Sleeps in short pieces all the time and adds up by how much it woke late. What a watcher on this
/// machine cannot have noticed in time is at least that.
pub struct Canary {
    late_us: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Canary {
    pub fn start() -> Canary {
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

    /// All delays so far.
    pub fn late(&self) -> Duration {
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
    assert_eq!(loss.took(), Duration::from_micros(662_250));
}
