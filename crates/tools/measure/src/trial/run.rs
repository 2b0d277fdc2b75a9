//! The loops that send, receive and echo. They are the same for every transport.

mod end;

use std::time::{Duration, Instant};

use carina_sys::{CpuClock, ask_for_short_slices, cpu_time_ns, monotonic_ns};

use self::end::{LOSSY_SILENCE, Limits, Next, STALL};
use super::error::TrialError;
use super::job::{Ending, Job, SideReport};
use super::payload::{NUMBERED_BYTES_MIN, Payload, number};
use crate::random::Random;
use crate::sequence::SequenceTracker;
use crate::summary::Summary;
use crate::transport::{Arrival, Transport};

pub(super) use self::end::{DRAIN, STILL};

/// A sender that has found no room for this long at the end time reports [`Ending::HeldBack`].
const HELD_BACK: Duration = Duration::from_secs(1);
/// Largest number of SDUs between two reads of the clock: large enough that the reads cost little,
/// small enough that a flow that slows down still observes its end time.
const LOOK_EVERY_MAX: u32 = 256;
/// How long an echo client waits for an answer on a lossy transport before it counts a loss.
const LOSSY_ANSWER: Duration = Duration::from_millis(250);
/// Number of round-trip times kept for percentiles; later ones replace a random earlier one.
const RTT_SAMPLES_MAX: usize = 1 << 20;

/// Called at the end of each interval of a job, with the SDUs, bytes and time so far.
pub(super) type OnInterval<'a> = &'a mut dyn FnMut(&SideReport);

/// Decides when to read the clock: often enough to notice each millisecond, but not for each SDU,
/// because a read costs as much as a short SDU.
struct Ticker {
    left: u32,
    every: u32,
    last_ns: u64,
}

impl Ticker {
    fn new(now_ns: u64) -> Self {
        Self {
            left: 1,
            every: 1,
            last_ns: now_ns,
        }
    }

    /// Counts an SDU, and returns the time if the clock was due to be read.
    #[inline]
    fn tick(&mut self) -> Option<u64> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let now = monotonic_ns();
        match now.saturating_sub(self.last_ns) {
            gap if gap < 250_000 => self.every = (self.every * 2).min(LOOK_EVERY_MAX),
            gap if gap > 2_000_000 => self.every = (self.every / 4).max(1),
            _ => {}
        }
        self.last_ns = now;
        self.left = self.every;
        Some(now)
    }
}

/// Schedules when the next SDU may be sent.
struct Pace {
    mean_ns: Option<f64>,
    due_ns: f64,
}

impl Pace {
    fn new(job: &Job, now_ns: u64) -> Self {
        let mean_ns = job.rate.map(|rate| 1e9 / rate.sdus_per_s(job.sizes.mean()));
        Self {
            mean_ns,
            due_ns: now_ns as f64,
        }
    }

    /// Waits until the next SDU is due. Returns false if the end time comes first.
    #[inline]
    fn wait(&mut self, job: &Job, random: &mut Random, limits: &Limits) -> bool {
        let Some(mean_ns) = self.mean_ns else {
            return true;
        };
        loop {
            let now_ns = monotonic_ns();
            let left = self.due_ns.min(limits.end_ns as f64) - now_ns as f64;
            if self.due_ns <= now_ns as f64 {
                break;
            }
            if limits.is_over(now_ns) {
                return false;
            }
            // A sleep overruns by some 60 µs, so the rest of the wait is spent yielding.
            if left > 200_000.0 {
                std::thread::sleep(Duration::from_nanos((left - 100_000.0) as u64))
            } else {
                std::thread::yield_now()
            }
        }
        self.due_ns += job.arrivals.gap_ns(mean_ns, random);
        true
    }
}

/// Sends the SDUs of a job and finishes the transport.
///
/// # Errors
/// The transport broke.
pub(super) fn send<C: Transport>(transport: &mut C, job: &Job) -> Result<SideReport, TrialError> {
    let mut payload = Payload::new(job.sizes.max(), job.verify);
    let mut random = Random::new(job.seed);
    let cpu = cpu_time_ns(CpuClock::Process);
    let limits = Limits::of(job);
    let start = monotonic_ns();
    let mut pace = Pace::new(job, start);
    let mut ticker = Ticker::new(start);
    let mut seen = SideReport::default();
    let mut sent_at = start;
    while pace.wait(job, &mut random, &limits) {
        if let Some(now) = ticker.tick() {
            sent_at = now;
            if seen.sent > 0 && limits.is_over(now) {
                break;
            }
        }
        let size = job.sizes.draw(&mut random);
        if !limits.send(transport, payload.sdu(seen.sent, size))? {
            let waited = monotonic_ns().saturating_sub(sent_at);
            if limits.end.is_none() || waited >= HELD_BACK.as_nanos() as u64 {
                seen.ending = Ending::HeldBack;
            }
            break;
        }
        seen.sent += 1;
        seen.sent_bytes += size as u64;
        if seen.sent == job.count {
            break;
        }
    }
    transport.finish()?;
    seen.elapsed_ns = monotonic_ns() - start;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    Ok(seen)
}

/// Receives the SDUs of a job until the sender has finished or the time limits are reached.
///
/// # Errors
/// The transport broke, or nothing arrived over a transport without loss and without an end time.
pub(super) fn receive<C: Transport>(
    transport: &mut C,
    job: &Job,
    on_interval: OnInterval<'_>,
) -> Result<SideReport, TrialError> {
    let mut buffer = vec![0; job.sizes.max().max(64)];
    let checker = Payload::new(0, job.verify);
    let mut tracker = SequenceTracker::new();
    let cpu = cpu_time_ns(CpuClock::Process);
    let limits = Limits::of(job);
    let mut seen = SideReport::default();
    let mut numbered = false;
    let mut arrived = match limits.first(transport, &mut buffer)? {
        Next::Sdu(len) => len,
        Next::End(_, ending) => return Ok(SideReport { ending, ..seen }),
    };
    let (start, start_ns) = (Instant::now(), monotonic_ns());
    let first_bytes = arrived as u64;
    let mut ticker = Ticker::new(start_ns);
    let mut reports = Reports::new(job);
    let end = loop {
        let sdu = &buffer[..arrived];
        if let Some(number) = number(sdu) {
            numbered = true;
            tracker.note(number);
        }
        if job.verify && !checker.matches(sdu, seen.received) {
            seen.damaged += 1;
        }
        seen.received += 1;
        seen.received_bytes += arrived as u64;
        if let Some(now_ns) = ticker.tick() {
            reports.make(&mut seen, now_ns - start_ns, on_interval);
            if limits.is_late(now_ns) {
                seen.ending = Ending::Late;
                break Instant::now();
            }
        }
        match limits.next(transport, &mut buffer)? {
            Next::Sdu(len) => arrived = len,
            Next::End(at, ending) => {
                seen.ending = ending;
                break at;
            }
        }
    };
    seen.elapsed_ns = end.saturating_duration_since(start).as_nanos() as u64;
    seen.timed_bytes = seen.received_bytes - first_bytes;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    seen.tally = numbered.then(|| tracker.tally());
    Ok(seen)
}

/// Times at which interval reports are due, in nanoseconds from the start.
struct Reports {
    every_ns: u64,
    next_ns: u64,
}

impl Reports {
    fn new(job: &Job) -> Self {
        Self {
            every_ns: job.interval_ns,
            next_ns: job.interval_ns,
        }
    }

    /// Reports an interval if one has ended.
    #[inline]
    fn make(&mut self, seen: &mut SideReport, elapsed_ns: u64, on_interval: OnInterval<'_>) {
        if self.every_ns > 0 && elapsed_ns >= self.next_ns {
            self.next_ns += self.every_ns;
            seen.elapsed_ns = elapsed_ns;
            on_interval(seen);
        }
    }
}

/// Sends one SDU at a time, and waits until it comes back.
///
/// # Errors
/// The transport broke, or an answer differs from what was sent.
pub(super) fn ping<C: Transport>(
    transport: &mut C,
    job: &Job,
    on_interval: OnInterval<'_>,
) -> Result<SideReport, TrialError> {
    // With every transport, the measured time should be the round trip, not the wait for a
    // processor.
    let _ = ask_for_short_slices();
    let mut payload = Payload::new(job.sizes.max(), job.verify);
    let checker = Payload::new(0, job.verify);
    let mut buffer = vec![0; job.sizes.max().max(64)];
    let mut random = Random::new(job.seed);
    let mut times_us = Vec::new();
    let mut seen = SideReport::default();
    let cpu = cpu_time_ns(CpuClock::Process);
    let limits = Limits::of(job);
    let start = monotonic_ns();
    let mut pace = Pace::new(job, start);
    let mut reports = Reports::new(job);
    let mut before = start;
    while pace.wait(job, &mut random, &limits) {
        if pace.mean_ns.is_some() {
            before = monotonic_ns();
        }
        let size = job.sizes.draw(&mut random);
        if !limits.send(transport, payload.sdu(seen.sent, size))? {
            seen.ending = Ending::Stalled;
            break;
        }
        let asked = seen.sent;
        seen.sent += 1;
        seen.sent_bytes += size as u64;
        let answer = answer(transport, &mut buffer, (asked, size), &limits)?;
        // The clock is read once per round: the end of one is the beginning of the next.
        let now = monotonic_ns();
        match answer {
            Answer::Sdu(len) => {
                let rtt_us = (now - before) as f64 / 1e3;
                keep(&mut times_us, rtt_us, seen.received, &mut random);
                seen.received += 1;
                seen.received_bytes += len as u64;
                seen.damaged += u64::from(job.verify && !checker.matches(&buffer[..len], asked));
            }
            Answer::Lost => {}
            Answer::Stalled => {
                seen.ending = Ending::Stalled;
                break;
            }
        }
        before = now;
        reports.make(&mut seen, now - start, on_interval);
        let late = job.duration_ns > 0 && now - start >= job.duration_ns;
        if late || seen.sent == job.count {
            break;
        }
    }
    transport.finish()?;
    seen.elapsed_ns = monotonic_ns() - start;
    seen.timed_bytes = seen.received_bytes;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    seen.rtt_us = Summary::of(&times_us);
    Ok(seen)
}

/// Result of waiting for the answer to one SDU of an echo.
enum Answer {
    /// The answer arrived; it has this length.
    Sdu(usize),
    /// The answer was lost, on a transport that may lose SDUs.
    Lost,
    /// The answer did not arrive before the end time.
    Stalled,
}

/// Waits for the answer to SDU number `asked`, of `size` bytes.
fn answer<C: Transport>(
    transport: &mut C,
    buffer: &mut [u8],
    (asked, size): (u64, usize),
    limits: &Limits,
) -> Result<Answer, TrialError> {
    let is_lossy = transport.is_lossy();
    loop {
        let next = if is_lossy {
            match transport.recv(buffer, LOSSY_ANSWER)? {
                Arrival::Sdu(len) => Next::Sdu(len),
                Arrival::End => Next::End(Instant::now(), Ending::Finished),
                Arrival::Idle => return Ok(Answer::Lost),
            }
        } else {
            limits.next(transport, buffer)?
        };
        match next {
            // A late answer to an SDU that was given up is not the answer to this one.
            Next::Sdu(len)
                if size >= NUMBERED_BYTES_MIN
                    && is_lossy
                    && number(&buffer[..len]) != Some(asked) => {}
            Next::Sdu(len) if len == size => return Ok(Answer::Sdu(len)),
            Next::Sdu(len) => {
                return Err(TrialError::AnswerLength {
                    sent: size,
                    received: len,
                });
            }
            Next::End(_, Ending::Finished) => {
                return Err(TrialError::ClosedEarly);
            }
            Next::End(..) => return Ok(Answer::Stalled),
        }
    }
}

/// Keeps a random sample of all round-trip times in bounded memory (reservoir sampling).
fn keep(times: &mut Vec<f64>, time: f64, nth: u64, random: &mut Random) {
    if times.len() < RTT_SAMPLES_MAX {
        times.push(time);
    } else {
        let place = random.between(0, nth) as usize;
        if let Some(old) = times.get_mut(place) {
            *old = time;
        }
    }
}

/// Sends every SDU back until the client has finished or has been silent for too long.
///
/// # Errors
/// The transport broke.
pub(super) fn reflect<C: Transport>(
    transport: &mut C,
    job: &Job,
) -> Result<SideReport, TrialError> {
    // With every transport, the measured time should be the round trip, not the wait for a
    // processor.
    let _ = ask_for_short_slices();
    let mut buffer = vec![0; job.sizes.max().max(64)];
    let mut seen = SideReport::default();
    let cpu = cpu_time_ns(CpuClock::Process);
    // The client may be silent until a little after the end time; a longer silence is the end.
    let limits = Limits::of(job);
    let limit = match (transport.is_lossy(), limits.end) {
        (true, _) => 4 * LOSSY_SILENCE,
        (false, Some(_)) => 2 * STALL,
        (false, None) => 2 * limits.still(),
    };
    let start = monotonic_ns();
    loop {
        match transport.recv(&mut buffer, limit)? {
            Arrival::Sdu(len) => {
                seen.received += 1;
                seen.received_bytes += len as u64;
                if !limits.send(transport, &buffer[..len])? {
                    seen.ending = Ending::HeldBack;
                    break;
                }
                seen.sent += 1;
                seen.sent_bytes += len as u64;
            }
            Arrival::Idle if limits.end.is_some() && !limits.is_over(monotonic_ns()) => {}
            Arrival::Idle if transport.is_lossy() => break,
            Arrival::Idle => {
                seen.ending = Ending::Stalled;
                break;
            }
            Arrival::End => break,
        }
    }
    seen.elapsed_ns = monotonic_ns() - start;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    Ok(seen)
}

#[cfg(test)]
mod tests;
