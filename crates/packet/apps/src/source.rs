//! **source**: sends frames that are all copies of the same bytes.
//!
//! - inputs: none
//! - outputs: any names; all get the same number of frames
//! - configuration:
//!   - `size`: length of a frame in bytes without FCS, 42 to 9014, and at most that of the pool's
//!     frames (default: 64). The frame is UDP over IPv4, with correct checksums
//!   - `count`: number of frames per output (default: no limit)
//!   - `rate`: frames per second and output (default: as many as the links accept)
//! - counters: `pool_empty`: bursts that ended early because the pool had no frame
//! - cost: one copy of the bytes

use carina_frame::Pool;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports, WhenFull,
};
use carina_time::Instant;
use serde::{Deserialize, Serialize};

use crate::sample_packet::{SIZES, udp_packet};

/// The configuration of the app `source`, which sends copies of a generated UDP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// Length of a frame in bytes, within [`SIZES`].
    pub size: usize,
    /// Number of frames per output; `None` means no limit.
    pub count: Option<u64>,
    /// Frames per second and output; `None` means as many as the links accept.
    pub rate: Option<u64>,
}

impl Default for SourceConfig {
    fn default() -> SourceConfig {
        SourceConfig {
            size: 64,
            count: None,
            rate: None,
        }
    }
}

/// The running app `source`: sends copies of a generated UDP packet.
pub struct Source {
    config: SourceConfig,
    bytes: Vec<u8>,
    pool: Pool,
    pool_empty: Counter,
    /// Number of frames sent so far to each output.
    made: u64,
    /// Time at which the present rate began to apply, and the number of frames sent before that
    /// time.
    since: Option<(Instant, u64)>,
}

/// Why a configuration of the app `source` is invalid.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error("size = {0}: must be {min} to {max} bytes", min = SIZES.start(), max = SIZES.end())]
    Size(usize),
    #[error("size = {0}: must be at most {1} bytes, the length of the pool's frames")]
    PoolSize(usize, usize),
    #[error("rate = 0: must be at least 1 frame a second")]
    Rate,
}

impl AppConfig for SourceConfig {
    const KIND: &'static str = "source";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::Any;
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;

    type App = Source;

    fn check(&self) -> Result<(), AppError> {
        if !SIZES.contains(&self.size) {
            return Err(SourceError::Size(self.size).into());
        }
        if self.rate == Some(0) {
            return Err(SourceError::Rate.into());
        }
        Ok(())
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Source, AppError> {
        let pool_bytes = context.pool().frame_bytes();
        if self.size > pool_bytes {
            return Err(SourceError::PoolSize(self.size, pool_bytes).into());
        }
        Ok(Source {
            config: *self,
            bytes: udp_packet(self.size),
            pool: context.pool().clone(),
            pool_empty: context.counter("pool_empty"),
            made: 0,
            since: None,
        })
    }

    fn can_apply(&self, old: &SourceConfig) -> bool {
        self.size == old.size
    }

    fn apply(&self, app: &mut Source) {
        app.config = *self;
        app.since = None;
    }
}

impl FrameApp for Source {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let burst = self.due(ports.now()).min(FRAME_BURST as u64) as usize;
        if burst == 0 {
            return;
        }
        let (pool, bytes) = (&self.pool, &self.bytes[..]);
        // All outputs get the same number of frames: as many as the fullest link accepts.
        let outputs = ports.outputs();
        let burst = (0..outputs).fold(burst, |burst, output| burst.min(ports.room(output)));
        for output in 0..outputs {
            if ports.fill(output, burst, || pool.frame_of(bytes)) < burst {
                self.pool_empty.add(1);
            }
        }
        self.made += burst as u64;
    }

    fn next_deadline(&self) -> Option<Instant> {
        let (since, made) = self.since?;
        let rate = self.config.rate?;
        if self.config.count.is_some_and(|count| self.made >= count) {
            return None;
        }
        let frames = u128::from(self.made - made + 1);
        let nanos = (frames * 1_000_000_000).div_ceil(u128::from(rate));
        Some(Instant::from_nanos(
            since
                .as_nanos()
                .saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX)),
        ))
    }

    fn arm(&mut self) -> bool {
        let is_over = self.config.count.is_some_and(|count| self.made >= count);
        is_over || self.config.rate.is_some()
    }
}

impl Source {
    /// Number of frames to send now.
    fn due(&mut self, now: Instant) -> u64 {
        let left = self
            .config
            .count
            .map_or(u64::MAX, |count| count.saturating_sub(self.made));
        let Some(rate) = self.config.rate else {
            return left;
        };
        let (since, made) = *self.since.get_or_insert((now, self.made));
        let nanos = u128::from(now.since(since).as_nanos());
        let frames = nanos * u128::from(rate) / 1_000_000_000;
        let due = u64::try_from(frames).unwrap_or(u64::MAX);
        due.saturating_sub(self.made - made).min(left)
    }
}
