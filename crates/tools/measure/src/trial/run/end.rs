//! When a side of a measurement stops waiting.
//!
//! A measurement with a duration ends when its time is over, whatever the flow does: a sender that
//! finds no room gives up, a receiver waits for what is under way and for the word of the end, but
//! not for ever. One that is only counted has no such time; it ends when nothing has moved for
//! [`STILL`], or for ten times the gap between SDUs where that is longer.
//!
//! ```text
//!   start          end time                 STALL after the last SDU: Stalled
//!     |---------------|- - - - - - - - - - - - - - -|
//!                     '- - - - - - - - - - - - - - - - - - - - DRAIN: Late
//! ```

use std::time::{Duration, Instant};

use carina_sys::monotonic_ns;

use crate::transport::{Arrival, FOR_EVER, Transport};
use crate::trial::error::TrialError;
use crate::trial::job::{Ending, Job};

/// A flow on which nothing has moved for so long after the end time has stalled.
pub const STALL: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 3000 });
/// A flow without an end time on which nothing has moved for so long has stalled.
pub const STILL: Duration = Duration::from_millis(if cfg!(test) { 400 } else { 30_000 });
/// How long after the end time SDUs that still come are waited for.
pub const DRAIN: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 10_000 });
/// A receiver of a lossy transport takes such a silence for the end.
pub const LOSSY_SILENCE: Duration = Duration::from_millis(500);
/// A lossy transport that has been silent for so long when the end time comes has stalled.
const LULL: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 1000 });
/// A silence of this length does not count as time of receiving when the end follows it.
const LOSSY_PAUSE: Duration = Duration::from_millis(20);
/// How many times the mean gap between SDUs is still no silence.
const GAPS_MAX: f64 = 10.0;
/// A receiver gives up when the first SDU does not come in this time.
const FIRST_SDU_WAIT: Duration = Duration::from_secs(5);

/// What follows an SDU.
pub enum Next {
    /// Another one of this size.
    Sdu(usize),
    /// The end, which was at this time, and how it came.
    End(Instant, Ending),
}

/// How long a side waits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The end time; `None` for a side that waits for ever.
    pub end: Option<Instant>,
    /// The same on the monotonic clock in nanoseconds; `u64::MAX` where `end` is absent.
    pub end_ns: u64,
    /// When it began: a time that has passed.
    start: Instant,
    /// Silence on a lossy transport that is the end.
    silence: Duration,
}

impl Limits {
    /// The limits of a job that begins now.
    pub fn of(job: &Job) -> Self {
        let duration = (job.duration_ns > 0).then(|| Duration::from_nanos(job.duration_ns));
        let gaps_s = job.rate.map_or(0.0, |rate| {
            GAPS_MAX / rate.sdus_per_s(job.sizes.mean()).max(1e-6)
        });
        let gaps = Duration::try_from_secs_f64(gaps_s).unwrap_or(FOR_EVER);
        let end_ns = match job.duration_ns {
            0 => u64::MAX,
            duration_ns => monotonic_ns().saturating_add(duration_ns),
        };
        let start = Instant::now();
        Self {
            end: duration.and_then(|duration| start.checked_add(duration)),
            end_ns,
            start,
            silence: LOSSY_SILENCE.max(gaps.min(FOR_EVER)),
        }
    }

    /// Whether the end time has come at `now_ns`.
    #[inline]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns
    }

    /// Whether SDUs that still come at `now_ns` are no longer waited for.
    #[inline]
    pub fn is_late(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns.saturating_add(DRAIN.as_nanos() as u64)
    }

    /// How long nothing may move where there is no end time.
    pub fn still(&self) -> Duration {
        STILL.max(self.silence)
    }

    /// Sends one SDU; says whether it went before the end time.
    #[inline]
    pub fn send<C: Transport>(&self, transport: &mut C, sdu: &[u8]) -> Result<bool, TrialError> {
        // Without an end time, the clock is looked at only when there is no room.
        if transport.send_until(sdu, self.end.unwrap_or(self.start))? {
            return Ok(true);
        }
        match self.end {
            Some(_) => Ok(false),
            None => Ok(transport.send_until(sdu, Instant::now() + self.still())?),
        }
    }

    /// Waits for the next SDU or the end.
    #[inline]
    pub fn next<C: Transport>(
        &self,
        transport: &mut C,
        buffer: &mut [u8],
    ) -> Result<Next, TrialError> {
        let limit = match (transport.is_lossy(), self.end) {
            (true, _) => LOSSY_PAUSE,
            (false, Some(_)) => STALL,
            (false, None) => self.still(),
        };
        match transport.recv(buffer, limit)? {
            Arrival::Sdu(len) => Ok(Next::Sdu(len)),
            Arrival::End => Ok(Next::End(Instant::now(), Ending::Finished)),
            Arrival::Idle if transport.is_lossy() => self.hush(transport, buffer, limit),
            Arrival::Idle => self.stall(transport, buffer, limit),
        }
    }

    /// Nothing came over a transport that loses nothing for `waited`.
    fn stall<C: Transport>(
        &self,
        transport: &mut C,
        buffer: &mut [u8],
        waited: Duration,
    ) -> Result<Next, TrialError> {
        let mut limit;
        loop {
            let now = Instant::now();
            let since = now.checked_sub(waited).unwrap_or(now);
            let Some(end) = self.end else {
                return Ok(Next::End(since, Ending::Stalled));
            };
            limit = (end + STALL).saturating_duration_since(now);
            if limit.is_zero() {
                return Ok(Next::End(since.max(end), Ending::Stalled));
            }
            match transport.recv(buffer, limit)? {
                Arrival::Sdu(len) => return Ok(Next::Sdu(len)),
                Arrival::End => return Ok(Next::End(Instant::now(), Ending::Finished)),
                Arrival::Idle => {}
            }
        }
    }

    /// Nothing came over a lossy transport for `waited`. The word of the end may be lost or come
    /// late: the end then was when silence began, unless that was long before the end time.
    fn hush<C: Transport>(
        &self,
        transport: &mut C,
        buffer: &mut [u8],
        waited: Duration,
    ) -> Result<Next, TrialError> {
        let now = Instant::now();
        let began = now.checked_sub(waited).unwrap_or(now);
        let until = self.end.unwrap_or(now).max(now) + self.silence;
        match transport.recv(buffer, until.saturating_duration_since(now))? {
            Arrival::Sdu(len) => Ok(Next::Sdu(len)),
            Arrival::End => Ok(Next::End(began, Ending::Finished)),
            Arrival::Idle => Ok(match self.end {
                Some(end) if began + LULL.max(self.silence) < end => {
                    Next::End(end, Ending::Stalled)
                }
                _ => Next::End(began, Ending::Finished),
            }),
        }
    }

    /// Waits for the first SDU.
    ///
    /// # Errors
    /// The transport broke, or nothing came at all over one that loses nothing and has no end time.
    pub fn first<C: Transport>(
        &self,
        transport: &mut C,
        buffer: &mut [u8],
    ) -> Result<Next, TrialError> {
        let now = Instant::now();
        let wait = match self.end {
            Some(end) => (end + STALL).saturating_duration_since(now),
            None => Duration::ZERO,
        };
        match transport.recv(buffer, wait.max(FIRST_SDU_WAIT))? {
            Arrival::Sdu(len) => Ok(Next::Sdu(len)),
            Arrival::End => Ok(Next::End(now, Ending::Finished)),
            Arrival::Idle if transport.is_lossy() || self.end.is_some() => {
                Ok(Next::End(now, Ending::Stalled))
            }
            Arrival::Idle => Err(TrialError::NothingCame(FIRST_SDU_WAIT)),
        }
    }
}
