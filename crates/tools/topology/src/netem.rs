//! Parses the impairment of a link, given as options such as `delay=10ms` or in the syntax of
//! `tc-netem(8)`. Both forms configure the fault layer of the shim; the kernel's `netem` is not
//! used.

use carina_api::control::FaultSpec;

use super::TopologyError;
use super::token::Token;

/// Impairments of a link's frames; `None` where the file gives no value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Impairment {
    pub(crate) loss: Option<f64>,
    pub(crate) duplicate: Option<f64>,
    pub(crate) reorder: Option<f64>,
    pub(crate) delay_ms: Option<f64>,
    pub(crate) jitter_ms: Option<f64>,
    pub(crate) rate_bps: Option<u64>,
    /// Largest number of waiting frames, as netem's `limit`.
    pub(crate) limit_frames: Option<u64>,
    pub(crate) seed: Option<u64>,
}

/// Why values of an impairment contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImpairmentError {
    /// Reordering needs a delay, because a frame is reordered by sending it without the delay of
    /// the others.
    #[error("reorder needs a delay: reordered frames skip the delay")]
    ReorderWithoutDelay,
    /// The jitter is larger than the delay, so that delays would be negative.
    #[error("the jitter must be at most the delay")]
    JitterAboveDelay,
}

impl Impairment {
    /// Reads one `KEY=VALUE` of a line `eth`. Returns false if the key is not one of an impairment.
    ///
    /// # Errors
    /// The value is wrong.
    pub(crate) fn take(&mut self, key: &str, value: &Token) -> Result<bool, TopologyError> {
        match key {
            "delay" => self.delay_ms = Some(value.milliseconds("ms")?),
            "jitter" => self.jitter_ms = Some(value.milliseconds("ms")?),
            "loss" => self.loss = Some(value.percent()?),
            "duplicate" => self.duplicate = Some(value.percent()?),
            "reorder" => self.reorder = Some(value.percent()?),
            "rate" => self.rate_bps = Some(value.rate()?),
            "limit" => self.limit_frames = Some(value.number("limit", 1, LIMIT_MAX)?),
            "seed" => self.seed = Some(value.number("seed", 0, u64::MAX)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Parses parameters in the syntax of `tc-netem(8)`. Adds those that the fault layer does not
    /// support to `notes`.
    ///
    /// # Errors
    /// A parameter is unknown, or a value is wrong.
    pub(crate) fn netem(words: &[Token], notes: &mut Vec<String>) -> Result<Self, TopologyError> {
        let mut this = Self::default();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let what = word.text.as_str();
            let mut value = || {
                let missing = || word.error(format!("`{what}` needs a value"));
                words.next().ok_or_else(missing)
            };
            match what {
                "delay" | "latency" => {
                    this.delay_ms = Some(value()?.milliseconds("us")?);
                    if let Some(jitter) = words.next_if(|word| is_value(word, "")) {
                        this.jitter_ms = Some(jitter.milliseconds("us")?);
                        if words.next_if(|word| is_value(word, "%")).is_some() {
                            notes.push(lacks(word, "a correlation of delays is ignored"));
                        }
                    }
                }
                "loss" | "drop" => {
                    let mut share = value()?;
                    if share.text == "random" {
                        share = words.next().ok_or_else(|| {
                            word.error("`loss random` needs a share, for example 0.5%")
                        })?;
                    }
                    this.loss = Some(share.percent()?);
                    if words.next_if(|word| is_value(word, "%")).is_some() {
                        notes.push(lacks(word, "a correlation of losses is ignored"));
                    }
                }
                "duplicate" | "reorder" => {
                    let share = Some(value()?.percent()?);
                    match what {
                        "duplicate" => this.duplicate = share,
                        _ => this.reorder = share,
                    }
                    if words.next_if(|word| is_value(word, "%")).is_some() {
                        notes.push(lacks(word, "a correlation of frames is ignored"));
                    }
                }
                "rate" => this.rate_bps = Some(value()?.rate()?),
                "limit" => this.limit_frames = Some(value()?.number("limit", 1, LIMIT_MAX)?),
                "seed" => this.seed = Some(value()?.number("seed", 0, u64::MAX)?),
                "corrupt" => {
                    value()?.percent()?;
                    words.next_if(|word| is_value(word, "%"));
                    notes.push(lacks(word, "frames are not damaged"));
                }
                "ecn" => notes.push(lacks(word, "frames are not marked")),
                "distribution" => {
                    value()?;
                    notes.push(lacks(word, "jitter is distributed uniformly"));
                }
                "gap" => {
                    value()?;
                    notes.push(lacks(word, "`gap` is ignored; give `reorder` a share"));
                }
                _ => {
                    return Err(word.error(format!(
                        "`{what}` is not a supported parameter of netem; supported are delay, \
                         loss, duplicate, reorder, rate, limit, seed, and without effect corrupt, \
                         distribution, ecn, gap"
                    )));
                }
            }
        }
        Ok(this)
    }

    /// These impairments, overridden by the values that `other` gives.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            loss: other.loss.or(self.loss),
            duplicate: other.duplicate.or(self.duplicate),
            reorder: other.reorder.or(self.reorder),
            delay_ms: other.delay_ms.or(self.delay_ms),
            jitter_ms: other.jitter_ms.or(self.jitter_ms),
            rate_bps: other.rate_bps.or(self.rate_bps),
            limit_frames: other.limit_frames.or(self.limit_frames),
            seed: other.seed.or(self.seed),
        }
    }

    /// The configuration of the fault layer at end number `end` of a link with this MTU; `None` if
    /// there is no impairment.
    ///
    /// # Errors
    /// The values contradict each other.
    pub(crate) fn fault(&self, end: usize, mtu: u32) -> Result<Option<FaultSpec>, ImpairmentError> {
        let fault = FaultSpec {
            loss: self.loss.unwrap_or(0.0),
            duplicate: self.duplicate.unwrap_or(0.0),
            reorder: self.reorder.unwrap_or(0.0),
            delay_ms: self.delay_ms.unwrap_or(0.0),
            jitter_ms: self.jitter_ms.unwrap_or(0.0),
            rate_bps: self.rate_bps.unwrap_or(0),
            queue_bytes: 0,
            // The two ends of a link need different seeds, so that they do not lose the same
            // frames.
            seed: self.seed.unwrap_or(1).wrapping_add(end as u64),
        };
        if fault.reorder > 0.0 && fault.delay_ms == 0.0 {
            return Err(ImpairmentError::ReorderWithoutDelay);
        }
        if fault.jitter_ms > fault.delay_ms {
            return Err(ImpairmentError::JitterAboveDelay);
        }
        let shares = fault.loss + fault.duplicate + fault.reorder;
        if shares == 0.0 && fault.delay_ms == 0.0 && fault.rate_bps == 0 {
            return Ok(None);
        }
        let frames = self.limit_frames.unwrap_or(LIMIT_DEFAULT) as usize;
        let waiting = frames.saturating_mul(mtu as usize);
        // Frames that are being delayed do not count as waiting.
        let late_ns = (fault.delay_ms + fault.jitter_ms) * 1e6;
        let rate = match fault.rate_bps {
            0 => UNLIMITED_BPS,
            rate => rate as f64,
        };
        let in_flight = (late_ns * rate / 8e9) as usize;
        let queue_bytes = waiting.saturating_add(in_flight).min(QUEUE_BYTES_MAX);
        Ok(Some(FaultSpec {
            queue_bytes,
            ..fault
        }))
    }
}

fn is_value(word: &Token, end: &str) -> bool {
    word.text.starts_with(|c: char| c.is_ascii_digit()) && word.text.ends_with(end)
}

fn lacks(word: &Token, what: &str) -> String {
    format!(
        "line {}: `{}` of netem is not fully supported: {what}",
        word.at.line, word.text
    )
}

/// Default number of frames that may wait, as in netem.
const LIMIT_DEFAULT: u64 = 1000;
const LIMIT_MAX: u64 = 10_000_000;
/// Rate that is assumed for a link without a rate.
const UNLIMITED_BPS: f64 = 10e9;
const QUEUE_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::super::token::split;
    use super::*;

    fn netem(text: &str) -> (Result<Impairment, TopologyError>, Vec<String>) {
        let mut notes = Vec::new();
        let words = split(7, text).unwrap();
        (Impairment::netem(&words, &mut notes), notes)
    }

    #[test]
    fn netem_parameters_are_translated() {
        let (read, notes) =
            netem("rate 10mbit delay 15ms 2ms loss random 1% duplicate 2% limit 50");
        let read = read.unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        let fault = read.fault(1, 1500).unwrap().unwrap();
        assert_eq!(fault.rate_bps, 10_000_000);
        assert_eq!((fault.delay_ms, fault.jitter_ms), (15.0, 2.0));
        assert_eq!((fault.loss, fault.duplicate), (0.01, 0.02));
        assert_eq!(fault.queue_bytes, 50 * 1500 + 21_250);
        assert_eq!(fault.seed, 2);
        // tc reads a bare number as microseconds.
        assert_eq!(netem("delay 500").0.unwrap().delay_ms, Some(0.5));
    }

    #[test]
    fn unsupported_parameters_are_noted_and_unknown_ones_refused() {
        let (read, notes) =
            netem("delay 10ms 5ms 25% distribution normal loss 1% 20% corrupt 0.1%");
        assert_eq!(read.unwrap().loss, Some(0.01));
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert!(notes.iter().all(|note| note.starts_with("line 7: ")));
        let wrong = netem("dealy 10ms").0.unwrap_err();
        assert!(wrong.message.contains("`dealy`") && wrong.at.line == 7);
        assert!(netem("loss").0.is_err());
        let early = netem("delay 1ms 2ms").0.unwrap();
        assert!(early.fault(0, 1500).is_err());
        assert_eq!(Impairment::default().fault(0, 1500), Ok(None));
    }
}
