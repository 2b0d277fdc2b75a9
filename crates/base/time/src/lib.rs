//! Instants and durations for protocol machines, which take the time as an argument.
//!
//! A protocol machine never reads a clock. Its driver passes the current [`Instant`], and the
//! machine returns the [`Instant`] of its next deadline. The node takes instants from
//! `CLOCK_MONOTONIC`, the simulator from its virtual clock; a machine cannot tell the difference.
//!
//! Both types count nanoseconds in 64 bits, which last 584 years. Their arithmetic saturates: a
//! duration that a peer or a configuration chose cannot overflow. The name of each conversion says
//! its unit.
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A point in time: nanoseconds since an origin that the driver of a machine chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock: 0 ns.
    pub const ZERO: Self = Self(0);

    /// Later than every instant of a clock: a deadline that is never reached.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the instant `micros` microseconds after the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(NANOS_PER_MICRO))
    }

    /// Returns the instant `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// Returns the instant `secs` seconds after the origin.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the whole milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// The instant `duration` earlier; the origin if that would be before it.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.0))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// The time from `earlier` to this instant, like [`Instant::since`].
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Instant {
    /// Seconds with the decimals that are needed: `12.5s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        seconds(self.0, f)
    }
}

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// The span of length zero.
    pub const ZERO: Self = Self(0);

    /// The longest span, 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes a span of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Makes a span of `micros` microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(NANOS_PER_MICRO))
    }

    /// Makes a span of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// Makes a span of `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// Returns this span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns this span in whole microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / NANOS_PER_MICRO
    }

    /// Returns this span in whole milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    /// Returns this span in whole seconds.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / NANOS_PER_SEC
    }

    /// Whether the span has length zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the absolute difference of two spans.
    #[must_use]
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }
}

impl Add for Duration {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;

    /// The difference; zero if `other` is longer.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;

    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Mul<Duration> for u64 {
    type Output = Duration;

    fn mul(self, span: Duration) -> Duration {
        span * self
    }
}

/// Number of times that the divisor fits into the span.
impl Div for Duration {
    type Output = u64;

    /// # Panics
    /// `divisor` is zero.
    fn div(self, divisor: Self) -> u64 {
        self.0 / divisor.0
    }
}

impl Div<u64> for Duration {
    type Output = Self;

    /// # Panics
    /// `divisor` is 0.
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, |sum, span| sum + span)
    }
}

/// Saturates at [`Duration::MAX`].
impl From<core::time::Duration> for Duration {
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(span: Duration) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Display for Duration {
    /// In the largest unit that the span fills, with the decimals that are needed: `2s`, `12.5ms`,
    /// `800ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0s"),
            nanos if nanos >= NANOS_PER_SEC => seconds(nanos, f),
            nanos if nanos >= NANOS_PER_MILLI => decimal(nanos, NANOS_PER_MILLI, "ms", f),
            nanos if nanos >= NANOS_PER_MICRO => decimal(nanos, NANOS_PER_MICRO, "us", f),
            nanos => write!(f, "{nanos}ns"),
        }
    }
}

fn seconds(nanos: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    decimal(nanos, NANOS_PER_SEC, "s", f)
}

/// Writes `nanos` in a unit of `per_unit` nanoseconds, a power of ten, without trailing zeros.
fn decimal(nanos: u64, per_unit: u64, unit: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (whole, mut rest) = (nanos / per_unit, nanos % per_unit);
    if rest == 0 {
        return write!(f, "{whole}{unit}");
    }
    let mut digits = per_unit.ilog10() as usize;
    while rest.is_multiple_of(10) {
        rest /= 10;
        digits -= 1;
    }
    write!(f, "{whole}.{rest:0digits$}{unit}")
}

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SEC: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(
            Instant::from_secs(1) - Duration::from_secs(2),
            Instant::ZERO
        );
        assert_eq!(
            Instant::from_secs(1) - Instant::from_secs(2),
            Duration::ZERO
        );
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!(Duration::MAX * 2, Duration::MAX);
        let longer_than_fits = core::time::Duration::from_secs(u64::MAX);
        assert_eq!(Duration::from(longer_than_fits), Duration::MAX);
    }

    #[test]
    fn each_unit_converts_to_each_other() {
        let span = Duration::from_millis(1500);
        assert_eq!(
            (span.as_secs(), span.as_millis(), span.as_micros()),
            (1, 1500, 1_500_000)
        );
        assert_eq!(Instant::ZERO + span, Instant::from_nanos(1_500_000_000));
        assert_eq!(Instant::from_micros(2_500).as_millis(), 2);
        assert_eq!(3 * span, Duration::from_millis(4500));
        assert_eq!(Duration::from_secs(5) / span, 3);
    }

    #[test]
    fn spans_are_shown_in_the_largest_unit_they_fill() {
        for (nanos, shown) in [
            (0, "0s"),
            (800, "800ns"),
            (1_020, "1.02us"),
            (12_500_000, "12.5ms"),
            (2_000_000_000, "2s"),
            (61_000_000_001, "61.000000001s"),
        ] {
            assert_eq!(Duration::from_nanos(nanos).to_string(), shown);
        }
        assert_eq!(Instant::from_millis(100).to_string(), "0.1s");
    }
}
