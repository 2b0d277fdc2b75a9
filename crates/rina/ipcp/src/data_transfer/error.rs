//! Reasons for which data transfer refuses a request of layer management.

use alloc::string::String;
use core::error::Error;
use core::fmt;

use carina_efcp::ConfigError;
use carina_wire::FlowSpec;
use carina_wire::dif::Dialect;

use crate::api::N1Port;
use crate::policy::{PolicyError, component};

/// Why a configuration of the DIF, or a policy change, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// The dialect does not support these PCI widths; the text says which it supports.
    Widths(&'static str),
    /// The catalogue rejects a policy of the configuration.
    Policy(PolicyError),
    /// The DIF's configuration asks for a PCI checksum, but the PCI of this dialect has no field
    /// for it.
    NoChecksum(Dialect),
    /// No QoS cube, or too many.
    CubeCount {
        /// The largest allowed number.
        max: usize,
    },
    /// The id of a QoS cube is 0, or two cubes have the same id.
    CubeId(u16),
    /// The id of a QoS cube does not fit in the QoS-id of the PCI.
    CubeIdWidth(u16),
    /// A QoS cube is invalid.
    Cube {
        /// Id of the cube.
        id: u16,
        /// Why the cube is invalid.
        error: CubeError,
    },
    /// The configured longest PDU is out of range.
    MaxPdu {
        /// Smallest allowed value, in bytes.
        min: usize,
        /// Largest allowed value, in bytes.
        max: usize,
    },
    /// The field widths differ from those in use, which cannot change while the DIF runs.
    WidthsInUse,
    /// The present policy, or the new one, cannot be exchanged while the DIF runs.
    NotLive {
        /// Name of the component whose policy cannot be exchanged.
        component: &'static str,
        /// The policy that cannot be exchanged.
        policy: &'static str,
    },
    /// The component does not belong to data transfer.
    OtherComponent(String),
}

/// Why a QoS cube is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CubeError {
    /// The window is 0 PDUs.
    WindowZero,
    /// The rate is 0 PDUs, or its frame 0 ms.
    RateZero,
    /// `max_loss` is more than 10000 (it is in 1/10000).
    MaxLoss(u16),
}

/// Why a connection cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The dialect has no management channels.
    NoChannels(Dialect),
    /// The QoS cube has rate-based flow control, which the dialect does not support.
    NoRates {
        /// Name of the cube.
        cube: String,
        /// The dialect that has no rate-based flow control.
        dialect: Dialect,
    },
    /// The catalogue rejects a policy that the connection uses.
    Policy(PolicyError),
    /// EFCP refuses the combination of the cube and the DIF's constants.
    Config(ConfigError),
    /// The DIF has no QoS cube with this id.
    NoCube(u16),
    /// A PDU has too little room for user data: this many bytes.
    PduTooShort(usize),
    /// All CEP-ids are in use or in quarantine.
    NoCepId,
    /// The flow's number is too large.
    FlowNumber,
}

/// Why an N-1 flow does not carry the DIF's PDUs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum N1Error {
    /// There is no N-1 flow of this number.
    Unknown(N1Port),
    /// The DIF's longest PDU does not fit.
    TooNarrow {
        /// The N-1 flow.
        n1: N1Port,
        /// Name of the N-1 DIF that provides the flow.
        dif: String,
        /// The longest PDU that it carries under its present protection, in bytes.
        has: usize,
        /// The DIF's longest PDU in bytes.
        needs: usize,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Widths(what) => f.write_str(what),
            SettingsError::Policy(error) => error.fmt(f),
            SettingsError::NoChecksum(dialect) => write!(
                f,
                "{}: the PCI of dialect {} has no checksum; use policy none",
                component::PCI_CHECKSUM,
                dialect.name()
            ),
            SettingsError::CubeCount { max } => write!(
                f,
                "a DIF must have 1 to {max} QoS \
                cubes"
            ),
            SettingsError::CubeId(id) => {
                write!(f, "QoS cube {id}: ids must be 1 or more, and unique")
            }
            SettingsError::CubeIdWidth(id) => write!(f, "QoS cube {id}: the id needs 2 bytes"),
            SettingsError::Cube { id, error } => write!(f, "QoS cube {id}: {error}"),
            SettingsError::MaxPdu { min, max } => {
                write!(f, "max-pdu must be {min} to {max} bytes, or 0")
            }
            SettingsError::WidthsInUse => {
                f.write_str("field widths cannot be changed while the DIF runs")
            }
            SettingsError::NotLive { component, policy } => write!(
                f,
                "{component}: policy {policy} cannot be changed while the DIF runs"
            ),
            SettingsError::OtherComponent(name) => {
                write!(f, "{name} is no component of data transfer")
            }
        }
    }
}

impl Error for SettingsError {}

impl From<PolicyError> for SettingsError {
    fn from(error: PolicyError) -> SettingsError {
        SettingsError::Policy(error)
    }
}

impl fmt::Display for CubeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CubeError::WindowZero => f.write_str("a window of 0 PDUs never opens"),
            CubeError::RateZero => {
                f.write_str("a rate of 0 PDUs, or in a frame of 0 ms, sends nothing")
            }
            CubeError::MaxLoss(max_loss) => write!(
                f,
                "max_loss is {max_loss}; it counts 1/10000 and is at most {}",
                FlowSpec::MAX_LOSS
            ),
        }
    }
}

impl Error for CubeError {}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::NoChannels(dialect) => {
                write!(f, "{} has no management channels", dialect.name())
            }
            ConnectionError::NoRates { cube, dialect } => write!(
                f,
                "QoS cube {cube}: {} has no flow control by rate",
                dialect.name()
            ),
            ConnectionError::Policy(error) => error.fmt(f),
            ConnectionError::Config(error) => error.fmt(f),
            ConnectionError::NoCube(id) => write!(f, "no QoS cube has id {id}"),
            ConnectionError::PduTooShort(bytes) => {
                write!(f, "PDUs of {bytes} bytes are too small for user data")
            }
            ConnectionError::NoCepId => f.write_str("no CEP-id is free"),
            ConnectionError::FlowNumber => f.write_str("the flow's number is too large"),
        }
    }
}

impl Error for ConnectionError {}

impl From<PolicyError> for ConnectionError {
    fn from(error: PolicyError) -> ConnectionError {
        ConnectionError::Policy(error)
    }
}

impl From<ConfigError> for ConnectionError {
    fn from(error: ConfigError) -> ConnectionError {
        ConnectionError::Config(error)
    }
}

impl fmt::Display for N1Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            N1Error::Unknown(n1) => write!(f, "there is no N-1 flow {}", n1.0),
            N1Error::TooNarrow {
                n1,
                dif,
                has,
                needs,
            } => write!(
                f,
                "N-1 flow {} in {dif} carries PDUs of {has} bytes at most, but PDUs of the DIF \
                 have up to {needs} bytes",
                n1.0
            ),
        }
    }
}

impl Error for N1Error {}
