//! What is wrong with a policy or the configuration of a connection.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// Why a policy cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The component has no policy of this name.
    UnknownPolicy {
        /// The component.
        component: &'static str,
        /// The name given.
        policy: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// The policy has no parameter of this name.
    UnknownParameter {
        /// The component.
        component: &'static str,
        /// The policy.
        policy: &'static str,
        /// The name given.
        parameter: String,
    },
    /// The value of a parameter is not a whole number within its range.
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The value given.
        value: String,
        /// The values that are valid.
        range: RangeInclusive<u64>,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::UnknownPolicy {
                component,
                policy,
                known,
            } => write!(
                f,
                "{component} has no policy {policy:?}; there is: {}",
                known.join(", ")
            ),
            PolicyError::UnknownParameter {
                component,
                policy,
                parameter,
            } => write!(
                f,
                "{component} policy {policy} has no parameter {parameter:?}"
            ),
            PolicyError::Value {
                policy,
                parameter,
                value,
                range,
            } => write!(
                f,
                "{parameter} of policy {policy} is a whole number from {} to {}, not {value:?}",
                range.start(),
                range.end()
            ),
        }
    }
}

impl core::error::Error for PolicyError {}

/// Which field of a [`ConnectionConfig`](crate::ConnectionConfig) is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The width of sequence numbers.
    SequenceBits,
    /// A window of 0 PDUs.
    WindowZero,
    /// A window that is too large for the sequence numbers.
    WindowSize {
        /// The largest window in PDUs.
        most: u64,
        /// Width of the sequence numbers.
        seq_bits: u8,
    },
    /// A rate of 0 PDUs, or a frame of 0 ms.
    RateZero,
    /// The first number of control PDUs.
    ControlFirst,
    /// A queue of 0 PDUs.
    QueueZero,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::SequenceBits => f.write_str("sequence numbers have 8 to 64 bits"),
            ConfigError::WindowZero => f.write_str("a window of 0 PDUs never opens"),
            ConfigError::WindowSize { most, seq_bits } => write!(
                f,
                "a window is at most {most} PDUs with sequence numbers of {seq_bits} bits"
            ),
            ConfigError::RateZero => {
                f.write_str("a rate of 0 PDUs, or in a frame of 0 ms, sends nothing")
            }
            ConfigError::ControlFirst => f.write_str("control PDUs are numbered from 0 or from 1"),
            ConfigError::QueueZero => f.write_str("a queue holds at least one PDU"),
        }
    }
}

impl core::error::Error for ConfigError {}
