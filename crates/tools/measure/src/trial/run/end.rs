//! When a side of a measurement stops waiting.
//!
//! A measurement with a duration ends at its end time, whatever the flow does. A sender without
//! room then gives up. A receiver waits for SDUs still on their way and for the end mark, but not
//! forever. A measurement with only a count of SDUs has no end time: it ends when nothing has moved
//! for [`STILL`], or for ten times the gap between SDUs if that is longer.
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

/// A flow without movement for this long after the end time has stalled.
pub(super) const STALL: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 3000 });
/// A flow without an end time has stalled after this long without movement.
pub(crate) const STILL: Duration = Duration::from_millis(if cfg!(test) { 400 } else { 30_000 });
/// How long after the end time a receiver still waits for SDUs.
pub(crate) const DRAIN: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 10_000 });
/// A receiver takes this much silence on a lossy transport as the end.
pub(super) const LOSSY_SILENCE: Duration = Duration::from_millis(500);
/// A lossy transport that has been silent for this long at the end time has stalled.
const LULL: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 1000 });
/// A silence of at least this length before the end does not count as receiving time.
const LOSSY_PAUSE: Duration = Duration::from_millis(20);
/// A silence of up to this many mean gaps between SDUs is normal.
const GAPS_MAX: f64 = 10.0;
/// A receiver gives up if the first SDU does not arrive within this time.
const FIRST_SDU_WAIT: Duration = Duration::from_secs(5);

/// What a receiver gets after an SDU.
pub(super) enum Next {
    /// Another SDU of this size.
    Sdu(usize),
    /// The end of the measurement: its time, and why it ended.
    End(Instant, Ending),
}

/// Time limits of the sender or the receiver in one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The end time; `None` for a side without one.
    pub end: Option<Instant>,
    /// The end time on the monotonic clock, in nanoseconds; `u64::MAX` if `end` is `None`.
    pub end_ns: u64,
    /// The start of the job. As a deadline it has always passed.
    start: Instant,
    /// Length of a silence on a lossy transport that counts as the end.
    silence: Duration,
}

impl Limits {
    /// The limits of a job that starts now.
    pub(super) fn of(job: &Job) -> Self {
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

    /// Whether the end time is reached at `now_ns`.
    #[inline]
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns
    }

    /// Whether a receiver no longer waits for SDUs at `now_ns`.
    #[inline]
    pub(super) fn is_late(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns.saturating_add(DRAIN.as_nanos() as u64)
    }

    /// Without an end time: how long a sender may find no room, or a receiver may receive nothing,
    /// before the transport counts as stalled.
    pub(super) fn still(&self) -> Duration {
        STILL.max(self.silence)
    }

    /// Sends one SDU. Returns whether it was sent before the end time.
    #[inline]
    pub(super) fn send<C: Transport>(
        &self,
        transport: &mut C,
        sdu: &[u8],
    ) -> Result<bool, TrialError> {
        // Without an end time, the clock is read only when there is no room.
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
    pub(super) fn next<C: Transport>(
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

    /// Waits on after a silence of `waited` on a transport without loss, and reports a stall when
    /// the limits are reached.
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

    /// Waits on after a silence of `waited` on a lossy transport. The end mark may be lost or late:
    /// then the end is the time when the silence began, unless that is long before the end time.
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
    /// The transport broke, or nothing arrived over a transport without loss and without an end
    /// time.
    pub(super) fn first<C: Transport>(
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
