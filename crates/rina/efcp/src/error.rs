//! Errors in policies and in the configuration of a connection.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// Why a policy could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The component has no policy of this name.
    UnknownPolicy {
        /// Name of the component whose policy was requested.
        component: &'static str,
        /// The unknown name of a policy, as it was given.
        policy: String,
        /// The names of the existing policies.
        known: Vec<&'static str>,
    },
    /// The policy has no parameter of this name.
    UnknownParameter {
        /// Name of the component whose policy was requested.
        component: &'static str,
        /// Name of the policy that does not have the parameter.
        policy: &'static str,
        /// The unknown name of a parameter, as it was given.
        parameter: String,
    },
    /// The value of a parameter is not a whole number within its range.
    Value {
        /// Name of the policy whose parameter has a wrong value.
        policy: &'static str,
        /// Name of the parameter with the wrong value.
        parameter: &'static str,
        /// The invalid value, as it was given.
        value: String,
        /// Smallest and largest valid value.
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

/// Which field of a [`ConnectionConfig`](crate::ConnectionConfig) is invalid, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The width of sequence numbers is not 8 to 64 bits.
    SequenceBits,
    /// The window has 0 PDUs.
    WindowZero,
    /// The window is too large for the width of the sequence numbers.
    WindowSize {
        /// The largest valid window, in PDUs.
        window_max: u64,
        /// Width of the sequence numbers, in bits.
        seq_bits: u8,
    },
    /// The rate is 0 PDUs, or the frame is 0 ms.
    RateZero,
    /// The number of the first control PDU is neither 0 nor 1.
    ControlFirst,
    /// A queue has a limit of 0 PDUs.
    QueueZero,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::SequenceBits => f.write_str("sequence numbers have 8 to 64 bits"),
            ConfigError::WindowZero => f.write_str("a window of 0 PDUs never opens"),
            ConfigError::WindowSize {
                window_max,
                seq_bits,
            } => write!(
                f,
                "a window is at most {window_max} PDUs with sequence numbers of {seq_bits} bits"
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
