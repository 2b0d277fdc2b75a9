//! **rate_limiter**: drops frames above a rate, by a token bucket.
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `bits_per_second`: 1 to 10^12, counted without preamble and FCS;
//!   `bucket_bytes`: bytes that may pass at once after a pause, 1518 to 10^12 (default: one
//!   second's worth). The bucket holds at least the longest frame of the pool, so that every frame
//!   can pass
//! - counters: `drop_rate`: frames above the rate; `drop_rate_bytes`: bytes of these frames
//! - cost: a subtraction
//!
//! The bucket is full at the start. A change of the rate keeps the bucket's content.

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports, WhenFull};
use carina_time::Instant;
use serde::{Deserialize, Serialize};

/// The configuration of the app `rate_limiter`, which drops frames above a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimiterConfig {
    /// The rate limit, in bits per second.
    pub bits_per_second: u64,
    /// Size of the bucket in bytes; `None` means one second's worth.
    pub bucket_bytes: Option<u64>,
}

/// The running app `rate_limiter`: drops frames above a rate.
pub struct RateLimiter {
    bits_per_second: u64,
    bucket_bytes: u64,
    /// Length of the longest frame of the pool, in bytes.
    frame_bytes: u64,
    /// Content of the bucket, in bits times 10^9.
    tokens: u128,
    since: Option<Instant>,
    dropped: Counter,
    dropped_bytes: Counter,
}

/// Why a configuration of the app `rate_limiter` is invalid.
#[derive(Debug, thiserror::Error)]
enum RateError {
    #[error("bits_per_second = {0}: must be 1 to {MAX}")]
    Rate(u64),
    #[error(
        "bucket_bytes = {0}: must be {BUCKET_MIN} to {MAX}: a frame that is longer than the bucket \
         would never pass"
    )]
    Bucket(u64),
}

const MAX: u64 = 1_000_000_000_000;

/// Size of the smallest bucket, in bytes: an Ethernet frame of MTU 1500 with header and VLAN tag.
pub const BUCKET_MIN: u64 = 1518;

/// Number of tokens that one byte costs.
const BYTE: u128 = 8 * 1_000_000_000;

impl RateLimiterConfig {
    /// The rate, and the size of the bucket, which is at least `frame_bytes`.
    fn checked(self, frame_bytes: u64) -> Result<(u64, u64), RateError> {
        let rate = self.bits_per_second;
        if !(1..=MAX).contains(&rate) {
            return Err(RateError::Rate(rate));
        }
        let bucket = self.bucket_bytes.unwrap_or((rate / 8).max(BUCKET_MIN));
        if !(BUCKET_MIN..=MAX).contains(&bucket) {
            return Err(RateError::Bucket(bucket));
        }
        Ok((rate, bucket.max(frame_bytes)))
    }
}

impl AppConfig for RateLimiterConfig {
    const KIND: &'static str = "rate_limiter";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::Waits;

    type App = RateLimiter;

    fn check(&self) -> Result<(), AppError> {
        Ok(self.checked(0).map(drop)?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<RateLimiter, AppError> {
        let frame_bytes = context.pool().frame_bytes() as u64;
        let (bits_per_second, bucket_bytes) = self.checked(frame_bytes)?;
        Ok(RateLimiter {
            frame_bytes,
            bits_per_second,
            bucket_bytes,
            tokens: u128::from(bucket_bytes) * BYTE,
            since: None,
            dropped: context.counter("drop_rate"),
            dropped_bytes: context.counter("drop_rate_bytes"),
        })
    }

    fn can_apply(&self, _old: &RateLimiterConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut RateLimiter) {
        if let Ok((rate, bucket)) = self.checked(app.frame_bytes) {
            (app.bits_per_second, app.bucket_bytes) = (rate, bucket);
            app.tokens = app.tokens.min(u128::from(bucket) * BYTE);
        }
    }
}

impl FrameApp for RateLimiter {
    fn push(&mut self, ports: &mut Ports<'_>) {
        self.refill(ports.now());
        let full = (self.tokens / BYTE) as u64;
        let (mut left, mut dropped, mut dropped_bytes) = (full, 0, 0);
        ports.forward(0, 0, |frame| {
            let bytes = frame.len() as u64;
            match left.checked_sub(bytes) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => {
                    dropped += 1;
                    dropped_bytes += bytes;
                    false
                }
            }
        });
        self.tokens -= u128::from(full - left) * BYTE;
        self.dropped.add(dropped);
        self.dropped_bytes.add(dropped_bytes);
    }
}

impl RateLimiter {
    fn refill(&mut self, now: Instant) {
        let since = self.since.replace(now).unwrap_or(now);
        let nanos = u128::from(now.since(since).as_nanos());
        let tokens = self.tokens + nanos * u128::from(self.bits_per_second);
        self.tokens = tokens.min(u128::from(self.bucket_bytes) * BYTE);
    }
}
