//! Flow specifications on the command line: `reliable`, or `unreliable,max_sdu_gap=2,max_loss=1%`.

use std::str::FromStr;

use carina_client::FlowSpec;
use carina_measure::traffic::{ParseError, Rate, share};
use carina_text::duration::{DurationError, parse_ns};

/// Flow specification of the command line: one of three named specifications, with some fields
/// changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpecArg(pub FlowSpec);

/// Help text of every option that takes a flow specification.
pub(crate) const SPEC_HELP: &str = "The flow specification: `reliable` (every SDU, once, whole \
and in order), `unreliable` (no requirement) or `flow-controlled` (in order, and the receiver \
is not overrun; lost SDUs are not retransmitted). Append fields that differ from it: \
max_sdu_gap=COUNT, max_loss=SHARE, max_delay=TIME, max_jitter=TIME, avg_bandwidth=RATE, \
in_order=true|false, as in `unreliable,max_sdu_gap=2,max_loss=1%`. The shims eth and udp offer \
no reliable flow";

/// Why a text is not a flow specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SpecError {
    /// The text does not begin with `reliable`, `unreliable` or `flow-controlled`.
    #[error("{0:?} must be reliable, unreliable or flow-controlled")]
    Name(String),
    /// A part behind the first comma is not `FIELD=VALUE`.
    #[error("{0:?} must be FIELD=VALUE")]
    NotAField(String),
    /// The text behind the first comma names an unknown field, or the value of a field is wrong.
    #[error("{field}: {reason}")]
    In {
        /// Name of the field as the user wrote it, such as `max_loss`, or an unknown name.
        field: String,
        /// What is wrong with the field or its value.
        reason: Box<SpecError>,
    },
    /// A flow specification has no field of this name.
    #[error(
        "there is no such field; there are max_sdu_gap, max_loss, max_delay, max_jitter, \
         avg_bandwidth and in_order"
    )]
    UnknownField,
    /// The value of `max_sdu_gap` is neither a number of SDUs nor `any`.
    #[error("{0:?} must be a number of SDUs, or `any`")]
    Gap(String),
    /// The value of `avg_bandwidth` is in SDUs per second, but must be in bits per second.
    #[error("must be in bits per second, such as 10Mbit")]
    NotBits,
    /// The value of `in_order` is neither `true` nor `false`.
    #[error("{0:?} must be true or false")]
    NotABool(String),
    /// The value of `max_delay` or `max_jitter` is below 1 µs or above 2^32 − 1 µs (about 4294 s).
    #[error("{0} must be between 1us and 4294s")]
    TimeRange(String),
    /// The value of `max_delay` or `max_jitter` is not a duration, such as 50ms.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The value of `avg_bandwidth` is not a rate, such as 10Mbit, or the value of `max_loss` is
    /// not a fraction, such as 1%.
    #[error(transparent)]
    Traffic(#[from] ParseError),
}

impl SpecArg {
    /// Whether the specification allows neither loss nor gaps and requires order.
    pub(crate) fn is_reliable(&self) -> bool {
        self.0.max_loss == 0 && self.0.max_sdu_gap == 0 && self.0.in_order
    }
}

impl FromStr for SpecArg {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<SpecArg, SpecError> {
        let mut parts = text.split(',');
        let mut spec = match parts.next().unwrap_or_default() {
            "reliable" => FlowSpec::reliable(),
            "unreliable" => FlowSpec::unreliable(),
            "flow-controlled" => FlowSpec::flow_controlled(),
            other => {
                return Err(SpecError::Name(other.to_owned()));
            }
        };
        for part in parts {
            let (field, value) = part
                .split_once('=')
                .ok_or_else(|| SpecError::NotAField(part.to_owned()))?;
            set(&mut spec, field, value).map_err(|reason| SpecError::In {
                field: field.to_owned(),
                reason: Box::new(reason),
            })?;
        }
        Ok(SpecArg(spec))
    }
}

fn set(spec: &mut FlowSpec, field: &str, value: &str) -> Result<(), SpecError> {
    match field {
        "max_sdu_gap" => {
            spec.max_sdu_gap = match value {
                "any" => u64::MAX,
                count => count
                    .parse()
                    .map_err(|_| SpecError::Gap(value.to_owned()))?,
            }
        }
        "max_loss" => spec.max_loss = (share(value)? * 10_000.0).round() as u16,
        "max_delay" => spec.max_delay_us = micros(value)?,
        "max_jitter" => spec.max_jitter_us = micros(value)?,
        "avg_bandwidth" => {
            spec.avg_bandwidth_bps = match value.parse()? {
                Rate::Bits(bps) => bps as u64,
                Rate::Sdus(_) => return Err(SpecError::NotBits),
            }
        }
        "in_order" => {
            spec.in_order = value
                .parse()
                .map_err(|_| SpecError::NotABool(value.to_owned()))?;
        }
        _ => return Err(SpecError::UnknownField),
    }
    Ok(())
}

/// Parses a duration and returns it in microseconds, rounded up. Refuses zero, which would mean "no
/// requirement" in a flow specification.
fn micros(text: &str) -> Result<u32, SpecError> {
    let us = parse_ns(text)?.div_ceil(1000);
    match u32::try_from(us) {
        Ok(0) | Err(_) => Err(SpecError::TimeRange(text.to_owned())),
        Ok(us) => Ok(us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FlowSpec, SpecError> {
        text.parse::<SpecArg>().map(|arg| arg.0)
    }

    #[test]
    fn names_stand_for_what_they_say_and_fields_differ() {
        assert_eq!(parse("reliable"), Ok(FlowSpec::reliable()));
        assert_eq!(parse("unreliable"), Ok(FlowSpec::unreliable()));
        assert_eq!(parse("flow-controlled"), Ok(FlowSpec::flow_controlled()));
        let text = "unreliable,max_sdu_gap=2,max_loss=1%,max_delay=50ms,max_jitter=250us,\
                    avg_bandwidth=10Mbit,in_order=true";
        let expected = FlowSpec {
            max_sdu_gap: 2,
            max_loss: 100,
            max_delay_us: 50_000,
            max_jitter_us: 250,
            avg_bandwidth_bps: 10_000_000,
            in_order: true,
            ..FlowSpec::unreliable()
        };
        assert_eq!(parse(text), Ok(expected));
        let any = parse("reliable,max_sdu_gap=any").map(|spec| spec.max_sdu_gap);
        assert_eq!(any, Ok(u64::MAX));
    }

    #[test]
    fn what_may_lose_or_reorder_is_not_reliable() {
        for (text, is_reliable) in [
            ("reliable", true),
            ("reliable,max_delay=1s", true),
            ("reliable,max_sdu_gap=1", false),
            ("reliable,in_order=false", false),
            ("flow-controlled", false),
        ] {
            let arg: Result<SpecArg, SpecError> = text.parse();
            assert_eq!(arg.map(|arg| arg.is_reliable()), Ok(is_reliable), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_there_is() {
        for (text, words) in [
            ("", "flow-controlled"),
            ("best", "flow-controlled"),
            ("reliable,", "FIELD=VALUE"),
            ("reliable,gap=1", "max_sdu_gap"),
            ("reliable,max_sdu_gap=-1", "max_sdu_gap: \"-1\""),
            ("reliable,max_loss=101%", "max_loss: 101%"),
            ("reliable,max_delay=0s", "max_delay: 0s"),
            ("reliable,max_delay=2h", "10ms"),
            ("reliable,avg_bandwidth=10pps", "bits per second"),
            ("reliable,in_order=perhaps", "must be true or false"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
