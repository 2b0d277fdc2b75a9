//! The loops that send, receive and echo. They are the same for every carriage.

use std::time::Duration;

use carina_sys::{CpuClock, ask_for_short_slices, cpu_time_ns, monotonic_ns};

use super::job::{Job, Seen};
use super::payload::{NUMBERED_BYTES_MIN, Payload, number};
use crate::carriage::{Arrival, Carriage, FOR_EVER};
use crate::failure::{Failure, failed};
use crate::measure::random::Random;
use crate::measure::sequence::SequenceTracker;
use crate::measure::summary::Summary;

/// A receiver of a lossy carriage takes such a silence for the end.
const LOSSY_SILENCE: Duration = Duration::from_millis(500);
/// A silence of this length does not count as time of receiving when the end follows it.
const LOSSY_PAUSE: Duration = Duration::from_millis(20);
/// A receiver gives up when the first SDU does not come in this time.
const FIRST_SDU_PATIENCE: Duration = Duration::from_secs(5);
/// How long an echo client waits for an answer on a lossy carriage before it counts a loss.
const LOSSY_ANSWER: Duration = Duration::from_millis(250);
/// Answers kept for percentiles; later ones replace a random earlier one.
const RTT_SAMPLES_MAX: usize = 1 << 20;

/// What a receiver tells of the last interval: SDUs and bytes so far, and the time so far.
pub type Tell<'a> = &'a mut dyn FnMut(&Seen);

/// Looks at the clock only as often as it takes to see a millisecond pass: a look costs as much
/// as a short SDU.
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

    /// The time, when it was due to look.
    #[inline]
    fn tick(&mut self) -> Option<u64> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let now = monotonic_ns();
        match now.saturating_sub(self.last_ns) {
            gap if gap < 250_000 => self.every = (self.every * 2).min(4096),
            gap if gap > 2_000_000 => self.every = (self.every / 4).max(1),
            _ => {}
        }
        self.last_ns = now;
        self.left = self.every;
        Some(now)
    }
}

/// When the next SDU may leave.
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

    /// Waits until the next SDU is due.
    #[inline]
    fn wait(&mut self, job: &Job, random: &mut Random) {
        let Some(mean_ns) = self.mean_ns else { return };
        loop {
            let left = self.due_ns - monotonic_ns() as f64;
            if left <= 0.0 {
                break;
            }
            // Sleeping is late by some 60 µs; the rest is spun away.
            match left > 200_000.0 {
                true => std::thread::sleep(Duration::from_nanos((left - 100_000.0) as u64)),
                false => std::thread::yield_now(),
            }
        }
        self.due_ns += job.arrivals.gap_ns(mean_ns, random);
    }
}

/// Sends the SDUs of a job and finishes the carriage.
///
/// # Errors
/// The carriage broke.
pub fn send<C: Carriage>(carriage: &mut C, job: &Job) -> Result<Seen, Failure> {
    let mut payload = Payload::new(job.sizes.max(), job.verify);
    let mut random = Random::new(job.seed);
    let cpu = cpu_time_ns(CpuClock::Process);
    let start = monotonic_ns();
    let end = if job.duration_ns == 0 {
        u64::MAX
    } else {
        start + job.duration_ns
    };
    let mut pace = Pace::new(job, start);
    let mut ticker = Ticker::new(start);
    let mut seen = Seen::default();
    loop {
        pace.wait(job, &mut random);
        if ticker.tick().is_some_and(|now| now >= end) && seen.sent > 0 {
            break;
        }
        let size = job.sizes.draw(&mut random);
        carriage.send(payload.sdu(seen.sent, size))?;
        seen.sent += 1;
        seen.sent_bytes += size as u64;
        if seen.sent == job.count {
            break;
        }
    }
    carriage.finish()?;
    seen.elapsed_ns = monotonic_ns() - start;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    Ok(seen)
}

/// Receives the SDUs of a job until the sender has finished.
///
/// # Errors
/// The carriage broke, or nothing came at all over one that loses nothing.
pub fn receive<C: Carriage>(carriage: &mut C, job: &Job, tell: Tell<'_>) -> Result<Seen, Failure> {
    let mut buffer = vec![0; job.sizes.max().max(64)];
    let checker = Payload::new(0, job.verify);
    let mut tracker = SequenceTracker::new();
    let cpu = cpu_time_ns(CpuClock::Process);
    let mut seen = Seen::default();
    let mut numbered = false;
    let Some(mut arrived) = first(carriage, &mut buffer)? else {
        return Ok(seen);
    };
    let start = monotonic_ns();
    let first_bytes = arrived as u64;
    let mut ticker = Ticker::new(start);
    let mut report_ns = start + job.interval_ns;
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
        if job.interval_ns > 0
            && let Some(now) = ticker.tick()
            && now >= report_ns
        {
            report_ns += job.interval_ns;
            seen.elapsed_ns = now - start;
            tell(&seen);
        }
        match next(carriage, &mut buffer)? {
            Next::Sdu(len) => arrived = len,
            Next::EndAt(ns) => break ns,
        }
    };
    seen.elapsed_ns = end.saturating_sub(start);
    seen.timed_bytes = seen.received_bytes - first_bytes;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    seen.tally = numbered.then(|| tracker.tally());
    Ok(seen)
}

/// What follows an SDU.
enum Next {
    /// Another one of this size.
    Sdu(usize),
    /// The end, which was at this time.
    EndAt(u64),
}

/// Waits for the next SDU or the end. Over a lossy carriage the word of the end may be lost or come
/// late; the end then was when silence began.
#[inline]
fn next<C: Carriage>(carriage: &mut C, buffer: &mut [u8]) -> Result<Next, Failure> {
    let limit = if carriage.is_lossy() {
        LOSSY_PAUSE
    } else {
        FOR_EVER
    };
    match carriage.recv(buffer, limit)? {
        Arrival::Sdu(len) => Ok(Next::Sdu(len)),
        Arrival::End => Ok(Next::EndAt(monotonic_ns())),
        Arrival::Idle => {
            let began = monotonic_ns().saturating_sub(limit.as_nanos() as u64);
            match carriage.recv(buffer, LOSSY_SILENCE)? {
                Arrival::Sdu(len) => Ok(Next::Sdu(len)),
                Arrival::End | Arrival::Idle => Ok(Next::EndAt(began)),
            }
        }
    }
}

/// Waits for the first SDU; `None` when the sender finished without one.
fn first<C: Carriage>(carriage: &mut C, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
    match carriage.recv(buffer, FIRST_SDU_PATIENCE)? {
        Arrival::Sdu(len) => Ok(Some(len)),
        Arrival::End => Ok(None),
        Arrival::Idle if carriage.is_lossy() => Ok(None),
        Arrival::Idle => Err(failed(format!(
            "no SDU came within {} s of the start",
            FIRST_SDU_PATIENCE.as_secs()
        ))),
    }
}

/// Time slices of both ends of an echo, in ns: the shortest the scheduler knows.
const SLICE_NS: u64 = 100_000;

/// Sends each SDU and waits for it to come back, one at a time.
///
/// # Errors
/// The carriage broke, or an answer did not come over one that loses nothing.
pub fn ping<C: Carriage>(carriage: &mut C, job: &Job, tell: Tell<'_>) -> Result<Seen, Failure> {
    // Whatever carries the SDUs: what is timed is the round trip, not the wait for a processor.
    let _ = ask_for_short_slices(SLICE_NS);
    let mut payload = Payload::new(job.sizes.max(), job.verify);
    let checker = Payload::new(0, job.verify);
    let mut buffer = vec![0; job.sizes.max().max(64)];
    let mut random = Random::new(job.seed);
    let mut times_us = Vec::new();
    let mut seen = Seen::default();
    let cpu = cpu_time_ns(CpuClock::Process);
    let start = monotonic_ns();
    let mut pace = Pace::new(job, start);
    let mut report_ns = start + job.interval_ns;
    let mut before = start;
    loop {
        pace.wait(job, &mut random);
        if pace.mean_ns.is_some() {
            before = monotonic_ns();
        }
        let size = job.sizes.draw(&mut random);
        carriage.send(payload.sdu(seen.sent, size))?;
        let asked = seen.sent;
        seen.sent += 1;
        seen.sent_bytes += size as u64;
        let answer = answer(carriage, &mut buffer, asked, size)?;
        // The clock is read once per round: the end of one is the beginning of the next.
        let now = monotonic_ns();
        if let Some(len) = answer {
            keep(
                &mut times_us,
                (now - before) as f64 / 1e3,
                seen.received,
                &mut random,
            );
            seen.received += 1;
            seen.received_bytes += len as u64;
            seen.damaged += u64::from(job.verify && !checker.matches(&buffer[..len], asked));
        }
        before = now;
        if job.interval_ns > 0 && now >= report_ns {
            report_ns += job.interval_ns;
            seen.elapsed_ns = now - start;
            tell(&seen);
        }
        let late = job.duration_ns > 0 && now - start >= job.duration_ns;
        if late || seen.sent == job.count {
            break;
        }
    }
    carriage.finish()?;
    seen.elapsed_ns = monotonic_ns() - start;
    seen.timed_bytes = seen.received_bytes;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    seen.rtt_us = Summary::of(&times_us);
    Ok(seen)
}

/// Waits for the answer to SDU `asked`; `None` when it was lost.
fn answer<C: Carriage>(
    carriage: &mut C,
    buffer: &mut [u8],
    asked: u64,
    size: usize,
) -> Result<Option<usize>, Failure> {
    let limit = if carriage.is_lossy() {
        LOSSY_ANSWER
    } else {
        FOR_EVER
    };
    loop {
        match carriage.recv(buffer, limit)? {
            // A late answer to an SDU that was given up is not the answer to this one.
            Arrival::Sdu(len)
                if size >= NUMBERED_BYTES_MIN
                    && carriage.is_lossy()
                    && number(&buffer[..len]) != Some(asked) => {}
            Arrival::Sdu(len) if len == size => return Ok(Some(len)),
            Arrival::Sdu(len) => {
                return Err(failed(format!("sent {size} bytes, the answer has {len}")));
            }
            Arrival::Idle => return Ok(None),
            Arrival::End => return Err(failed("the server closed before it answered")),
        }
    }
}

/// Keeps a sample of all round-trip times in bounded memory (reservoir sampling).
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

/// Sends every SDU back until the client has finished.
///
/// # Errors
/// The carriage broke.
pub fn reflect<C: Carriage>(carriage: &mut C, sdu_max: usize) -> Result<Seen, Failure> {
    // Whatever carries the SDUs: what is timed is the round trip, not the wait for a processor.
    let _ = ask_for_short_slices(SLICE_NS);
    let mut buffer = vec![0; sdu_max.max(64)];
    let mut seen = Seen::default();
    let cpu = cpu_time_ns(CpuClock::Process);
    let start = monotonic_ns();
    loop {
        let limit = if carriage.is_lossy() {
            4 * LOSSY_SILENCE
        } else {
            FOR_EVER
        };
        match carriage.recv(&mut buffer, limit)? {
            Arrival::Sdu(len) => {
                seen.received += 1;
                seen.received_bytes += len as u64;
                carriage.send(&buffer[..len])?;
                seen.sent += 1;
                seen.sent_bytes += len as u64;
            }
            Arrival::End | Arrival::Idle => break,
        }
    }
    seen.elapsed_ns = monotonic_ns() - start;
    seen.cpu_ns = cpu_time_ns(CpuClock::Process) - cpu;
    Ok(seen)
}

#[cfg(test)]
mod tests;
