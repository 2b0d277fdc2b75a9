//! The shape of generated traffic: the sizes of SDUs, and the times at which they are sent.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Why a text is not a valid traffic parameter. The message gives valid examples.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text is not a distribution of SDU sizes.
    #[error("`{0}` is not an SDU size: give 1400, uniform:64..1500 or exponential:500")]
    Sizes(String),
    /// The lower bound of a distribution is above the upper one.
    #[error("the lower bound {low} is above the upper one, {high}")]
    Bounds {
        /// The lower bound of the SDU sizes, in bytes.
        low: u64,
        /// The upper bound of the SDU sizes, in bytes.
        high: u64,
    },
    /// The size in bytes is above [`SDU_MAX`].
    #[error("SDUs of {0} bytes are too large; must be at most {SDU_MAX} bytes")]
    TooLarge(u64),
    /// A part of the text is wrong.
    #[error("`{text}`: {reason}")]
    In {
        /// The text with the wrong part.
        text: String,
        /// What is wrong in it.
        reason: Box<ParseError>,
    },
    /// The text is not a number of bytes.
    #[error("`{0}` is not a size in bytes from 0 to {SDU_MAX} (k and M work)")]
    Bytes(String),
    /// The text is not a range of sizes.
    #[error("`{0}` is not a sweep: give FROM..TO:STEP, for example 0..4000:250")]
    Sweep(String),
    /// The text is not a distribution of gaps between SDUs.
    #[error("`{0}` is not a distribution of arrivals: give constant or poisson")]
    Arrivals(String),
    /// The text is not a share.
    #[error("{0:?} is not a share: give for example 1% or 0.01")]
    Share(String),
    /// The share is below 0 or above 100 %.
    #[error("{0} is not between 0 and 100 %")]
    ShareRange(String),
    /// The text is not a rate.
    #[error("`{0}` is not a rate: give for example 500pps, 10kpps or 100Mbit")]
    Rate(String),
}

/// Largest SDU that the tools generate, in bytes.
pub const SDU_MAX: u64 = 64 << 20;

/// Distribution of SDU sizes in bytes.
///
/// Text forms: `1400` (all the same), `uniform:64..1500`, `exponential:500` (the mean; sizes are
/// capped at ten times the mean).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Every SDU has this size.
    Fixed(u64),
    /// Every size from `low` to `high` is equally likely.
    Uniform {
        /// The smallest SDU size that can be drawn, in bytes.
        low: u64,
        /// The largest SDU size that can be drawn, in bytes.
        high: u64,
    },
    /// Exponentially distributed, rounded down, capped at ten times the mean.
    Exponential {
        /// The mean size in bytes of the distribution before the cap.
        mean: u64,
    },
}

impl Sizes {
    /// Draws the size of the next SDU.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> usize {
        match *self {
            Self::Fixed(size) => size as usize,
            Self::Uniform { low, high } => random.between(low, high) as usize,
            Self::Exponential { mean } => {
                (random.exponential(mean as f64) as u64).min(10 * mean) as usize
            }
        }
    }

    /// The largest size that can be drawn.
    pub fn max(&self) -> usize {
        match *self {
            Self::Fixed(size) => size as usize,
            Self::Uniform { high, .. } => high as usize,
            Self::Exponential { mean } => 10 * mean as usize,
        }
    }

    /// Checks sizes that another system sent.
    ///
    /// # Errors
    /// The lower bound is above the upper one, or a size is above `SDU_MAX`.
    pub fn check(&self) -> Result<(), ParseError> {
        let (low, high) = match *self {
            Self::Fixed(size) => (size, size),
            Self::Uniform { low, high } => (low, high),
            Self::Exponential { mean } => (mean, mean.saturating_mul(10)),
        };
        if low > high {
            return Err(ParseError::Bounds { low, high });
        }
        if high > SDU_MAX {
            return Err(ParseError::TooLarge(high));
        }
        Ok(())
    }

    /// The mean size.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Fixed(size) => size as f64,
            Self::Uniform { low, high } => (low + high) as f64 / 2.0,
            Self::Exponential { mean } => mean as f64,
        }
    }
}

impl FromStr for Sizes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let sizes = match text.split_once(':') {
            None => Self::Fixed(bytes(text)?),
            Some(("fixed", size)) => Self::Fixed(bytes(size)?),
            Some(("uniform", range)) => {
                let (low, high) = range
                    .split_once("..")
                    .ok_or_else(|| ParseError::Sizes(text.to_owned()))?;
                Self::Uniform {
                    low: bytes(low)?,
                    high: bytes(high)?,
                }
            }
            Some(("exponential", mean)) => Self::Exponential { mean: bytes(mean)? },
            Some(_) => return Err(ParseError::Sizes(text.to_owned())),
        };
        sizes.check().map_err(|reason| ParseError::In {
            text: text.to_owned(),
            reason: Box::new(reason),
        })?;
        Ok(sizes)
    }
}

/// Parses a number of bytes with an optional `k` or `M` (factors 1024 and 1024²).
///
/// # Errors
/// The text is not such a number, or the value is above `SDU_MAX`.
pub fn bytes(text: &str) -> Result<u64, ParseError> {
    let (number, scale) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1 << 10),
        None => text
            .strip_suffix('M')
            .map_or((text, 1), |number| (number, 1 << 20)),
    };
    let value = number
        .parse::<u64>()
        .ok()
        .and_then(|value| value.checked_mul(scale));
    value
        .filter(|value| *value <= SDU_MAX)
        .ok_or_else(|| ParseError::Bytes(text.to_owned()))
}

/// A series of SDU sizes to measure one after the other. Text form: `FROM..TO:STEP`, such as
/// `0..4000:250`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep(pub Vec<u64>);

impl FromStr for Sweep {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Sweep(text.to_owned());
        let (from, rest) = text.split_once("..").ok_or_else(wrong)?;
        let (to, step) = rest.split_once(':').ok_or_else(wrong)?;
        let (from, to, step) = (bytes(from)?, bytes(to)?, bytes(step)?);
        if step == 0 || from > to || (to - from) / step > 10_000 {
            return Err(wrong());
        }
        Ok(Self((from..=to).step_by(step as usize).collect()))
    }
}

/// Distribution of the gaps between SDUs, at a given rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// All gaps are equal.
    Constant,
    /// A Poisson process: the gaps are exponentially distributed.
    Poisson,
}

impl Arrivals {
    /// The words that [`Arrivals::from_str`] accepts.
    pub const WORDS: [&str; 2] = ["constant", "poisson"];

    /// Draws the gap before the next SDU, in nanoseconds, from the mean gap in nanoseconds.
    pub fn gap_ns(self, mean_ns: f64, random: &mut Random) -> f64 {
        match self {
            Self::Constant => mean_ns,
            Self::Poisson => random.exponential(mean_ns),
        }
    }
}

impl FromStr for Arrivals {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => Err(ParseError::Arrivals(text.to_owned())),
        }
    }
}

/// Parses a share, `1%` or `0.01`, to a number from 0 to 1.
///
/// # Errors
/// The text is not a number, or is below 0 or above 100 %.
pub fn share(text: &str) -> Result<f64, ParseError> {
    let wrong = || ParseError::Share(text.to_owned());
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| wrong())? / 100.0,
        None => text.parse().map_err(|_| wrong())?,
    };
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(ParseError::ShareRange(text.to_owned()))
    }
}

/// A rate of traffic. Text forms: SDUs per second (`10kpps`, `500pps`), or bits of SDU content per
/// second (`100Mbit`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    /// A number of SDUs per second.
    Sdus(f64),
    /// A number of bits of SDU content per second; headers do not count.
    Bits(f64),
}

impl Rate {
    /// The rate in SDUs per second, for SDUs of the given mean size in bytes.
    pub fn sdus_per_s(self, mean_bytes: f64) -> f64 {
        match self {
            Self::Sdus(rate) => rate,
            Self::Bits(rate) => rate / (8.0 * mean_bytes.max(1.0)),
        }
    }
}

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Rate(text.to_owned());
        let (head, bits) = match text.strip_suffix("bit") {
            Some(head) => (head, true),
            None => (text.strip_suffix("pps").ok_or_else(wrong)?, false),
        };
        let (number, scale) = match head.chars().last().ok_or_else(wrong)? {
            'k' => (&head[..head.len() - 1], 1e3),
            'M' => (&head[..head.len() - 1], 1e6),
            'G' => (&head[..head.len() - 1], 1e9),
            _ => (head, 1.0),
        };
        let value = number.parse::<f64>().map_err(|_| wrong())? * scale;
        if !value.is_finite() || value <= 0.0 {
            return Err(wrong());
        }
        Ok(if bits {
            Self::Bits(value)
        } else {
            Self::Sdus(value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_percent_or_fraction() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(share("100 %"), Ok(1.0));
        assert!(share("101%").is_err() && share("x").is_err() && share("-1%").is_err());
    }

    #[test]
    fn size_texts_mean_what_they_say() {
        assert_eq!("1400".parse(), Ok(Sizes::Fixed(1400)));
        assert_eq!("64k".parse(), Ok(Sizes::Fixed(65536)));
        assert_eq!(
            "uniform:64..1500".parse(),
            Ok(Sizes::Uniform {
                low: 64,
                high: 1500
            })
        );
        assert_eq!(
            "exponential:500".parse(),
            Ok(Sizes::Exponential { mean: 500 })
        );
        for text in ["", "x", "uniform:9..1", "1G", "exponential:60M", "gauss:1"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn draws_stay_within_the_stated_maximum() {
        let mut random = Random::new(3);
        for text in ["0", "uniform:0..9", "exponential:100"] {
            let sizes: Sizes = text.parse().unwrap();
            assert!(
                (0..10_000).all(|_| sizes.draw(&mut random) <= sizes.max()),
                "{text}"
            );
        }
    }

    #[test]
    fn sweeps_include_their_end() {
        assert_eq!("0..4000:250".parse::<Sweep>().unwrap().0.len(), 17);
        assert!("0..4000:0".parse::<Sweep>().is_err());
        assert!("9..1:1".parse::<Sweep>().is_err());
    }

    #[test]
    fn rates_convert_by_mean_size() {
        assert_eq!("10kpps".parse(), Ok(Rate::Sdus(1e4)));
        assert_eq!("1Mbit".parse::<Rate>().unwrap().sdus_per_s(125.0), 1000.0);
        assert!("fast".parse::<Rate>().is_err() && "0pps".parse::<Rate>().is_err());
        assert!("bit".parse::<Rate>().is_err());
    }
}
