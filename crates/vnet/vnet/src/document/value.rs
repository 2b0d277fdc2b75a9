//! Values of a document that carry a unit: rates, time spans and shares.

use std::fmt;
use std::str::FromStr;

use carina_time::Duration;
use serde::{Deserialize, Serialize};

/// The error for text that is not a valid value of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}: give for example {example}")]
pub struct ValueError {
    text: String,
    kind: &'static str,
    example: &'static str,
}

impl ValueError {
    pub(super) fn new(text: &str, kind: &'static str, example: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            kind,
            example,
        }
    }
}

/// A rate in bits a second, 1 to 2⁶³: `100Mbps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(u64);

/// A time span: `10ms`, `12h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(Duration);

/// A share of a whole in millionths, 0 to 1,000,000: `0.5%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u32);

/// Names of units and the factor of each to the smallest one, the largest first.
type Units = &'static [(&'static str, u64)];

const RATES: Units = &[
    ("Gbps", 1_000_000_000),
    ("Mbps", 1_000_000),
    ("kbps", 1_000),
    ("bps", 1),
];
const SPANS: Units = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
/// One percent is 10,000 millionths.
const PERCENT: Units = &[("%", 10_000)];

impl Rate {
    /// A rate of `bps` bits a second; `None` for 0 and for more than 2⁶³.
    #[must_use]
    pub fn from_bps(bps: u64) -> Option<Self> {
        (1..=1 << 63).contains(&bps).then_some(Self(bps))
    }

    /// The rate in bits a second.
    #[must_use]
    pub fn bps(self) -> u64 {
        self.0
    }
}

impl Span {
    /// No time.
    pub const ZERO: Span = Span(Duration::ZERO);
    pub(super) const HOUR: Span = Span(Duration::from_secs(3600));
    pub(super) const SECONDS_10: Span = Span(Duration::from_secs(10));
    pub(super) const MILLIS_100: Span = Span(Duration::from_millis(100));

    /// The time span as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl Share {
    /// Nothing: 0 %.
    pub const ZERO: Share = Share(0);
    /// All: 100 %.
    pub const WHOLE: Share = Share(1_000_000);

    /// A share of `millionths` of the whole; `None` if that is more than the whole.
    #[must_use]
    pub fn from_millionths(millionths: u32) -> Option<Share> {
        (millionths <= 1_000_000).then_some(Share(millionths))
    }

    /// The share in millionths, 0 to 1,000,000.
    #[must_use]
    pub fn millionths(self) -> u32 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let example = "64kbps, 100Mbps or 2.5Gbps";
        let wrong = || ValueError::new(text, "a rate of at least 1bps", example);
        read(text, RATES).and_then(Self::from_bps).ok_or_else(wrong)
    }
}

impl FromStr for Span {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let example = "250us, 10ms, 1.5s, 5m, 12h or 2d";
        let wrong = || ValueError::new(text, "a time", example);
        let nanos = read(text, SPANS).ok_or_else(wrong)?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

impl FromStr for Share {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::new(text, "a share from 0% to 100%", "1% or 0.01%");
        let millionths = read(text, PERCENT).ok_or_else(wrong)?;
        match u32::try_from(millionths) {
            Ok(millionths @ 0..=1_000_000) => Ok(Self(millionths)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&write(self.0, RATES))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&write(self.0.as_nanos(), SPANS))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&write(u64::from(self.0), PERCENT))
    }
}

/// Implements serde's conversions to and from the text of a value.
macro_rules! by_text {
    ($($kind:ty)*) => {$(
        impl TryFrom<String> for $kind {
            type Error = ValueError;

            fn try_from(text: String) -> Result<Self, ValueError> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }
    )*};
}

by_text!(Rate Span Share);

/// Parses a decimal number with a unit, exactly. `None` if the number has more decimals than the
/// smallest unit can express, or exceeds 64 bits.
fn read(text: &str, units: Units) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || decimals.len() > 18 {
        return None;
    }
    let mut value = u128::from(whole.parse::<u64>().ok()?) * u128::from(*scale);
    if !decimals.is_empty() {
        let share = u128::from(decimals.parse::<u64>().ok()?) * u128::from(*scale);
        let divisor = 10_u128.pow(u32::try_from(decimals.len()).ok()?);
        if share % divisor != 0 {
            return None;
        }
        value += share / divisor;
    }
    u64::try_from(value).ok()
}

/// Writes a value in the largest unit of which it is a multiple.
fn write(value: u64, units: Units) -> String {
    let divides = |(_, scale): &&(&str, u64)| value >= *scale && value.is_multiple_of(*scale);
    let (smallest, least) = units[units.len() - 1];
    match units.iter().find(divides) {
        Some((unit, scale)) => format!("{}{unit}", value / scale),
        None if value == 0 => format!("0{smallest}"),
        None => decimal(value, least, smallest),
    }
}

/// Writes a value that is not a multiple of any unit, as a decimal number of `unit`.
fn decimal(value: u64, scale: u64, unit: &str) -> String {
    let digits = scale.ilog10() as usize;
    let decimals = format!("{:0digits$}", value % scale);
    format!("{}.{}{unit}", value / scale, decimals.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_and_decimals_are_exact() {
        assert_eq!("2.5Gbps".parse::<Rate>().unwrap().bps(), 2_500_000_000);
        assert_eq!("64kbps".parse::<Rate>().unwrap().bps(), 64_000);
        let hours = "12h".parse::<Span>().unwrap().duration();
        assert_eq!(hours, Duration::from_secs(12 * 3600));
        assert_eq!("0.01%".parse::<Share>().unwrap().millionths(), 100);
        assert_eq!("100%".parse::<Share>().unwrap().millionths(), 1_000_000);
    }

    #[test]
    fn what_is_written_reads_as_the_same_value() {
        for text in ["1bps", "1500bps", "100Mbps", "3Gbps"] {
            assert_eq!(
                text.parse::<Rate>().unwrap().to_string().parse(),
                text.parse::<Rate>()
            );
        }
        for text in ["0ns", "90s", "250us", "1500ms", "2d"] {
            assert_eq!(
                text.parse::<Span>().unwrap().to_string().parse(),
                text.parse::<Span>()
            );
        }
        for text in ["0%", "0.0001%", "12.5%", "100%"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        let rates = [
            "", "fast", "100", "0bps", "-1Mbps", "1e3Mbps", "1.Mbps", ".5Mbps", "1MBps",
        ];
        for text in rates
            .into_iter()
            .chain(["0.1bps", "99999999999Gbps", "1.1.1Mbps"])
        {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("100Mbps"), "{text}: {error}");
        }
        for text in ["", "ten", "5", "5 ms", "1.0000000001s", "300000000000d"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["1", "101%", "0.00001%", "%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
