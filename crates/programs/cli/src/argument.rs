//! Why the text of an argument is not a value of its kind.

use carina_api::NameError;
use carina_netdev::vlan_translate::{TAG_INNER, TAG_USUAL};
use carina_wire::dif::Dialect;

/// What is wrong with the text of an argument, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// No comparison with a severity of alarms.
    #[error("{0:?}: is:V, below:V or above:V is expected; V is warning, minor, major or critical")]
    Severity(String),
    /// A path of a RIB object does not begin at the root.
    #[error("it begins with `/`: /{0}")]
    NotRooted(String),
    /// A condition on RIB objects has no field or value.
    #[error("it must be FIELD=VALUE, without `&`")]
    Condition,
    /// A dialect that does not exist.
    #[error("dialect {0} is unknown; valid values are {names}", names = dialects())]
    Dialect(String),
    /// A range of seeds without two numbers.
    #[error("{0} is no range of seeds; 0..1000 is one")]
    Seeds(String),
    /// A range of seeds that is empty.
    #[error("{0} holds no seed")]
    NoSeed(String),
    /// An address of a peer without name or host.
    #[error("NAME=HOST or NAME=HOST:PORT is expected")]
    Peer,
    /// A port without its kind, or a key of it without value.
    #[error("kind=KIND,KEY=VALUE is expected, such as kind=af_xdp,interface=eth1")]
    GraphPort,
    /// The name of a peer is not well formed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An Ethertype that is out of its range, or not a number.
    #[error(
        "{0:?} is no Ethertype; 0x0600 to 0xffff are, such as {TAG_INNER:#06x} and {TAG_USUAL:#06x}"
    )]
    Ethertype(String),
    /// The DIF of a member that joins is missing.
    #[error("DIF or DIF=MEMBER is expected")]
    Join,
    /// A policy without component, name, or value of a parameter.
    #[error("it has the form COMPONENT=NAME,PARAM=VALUE")]
    Policy,
    /// A word of an impairment that there is not, or whose value is wrong.
    #[error("{0}")]
    Impairment(String),
    /// A format of networks that is not read.
    #[error("valid values are {0}")]
    Format(String),
    /// A parameter of a policy that stands twice.
    #[error("{0} is given twice")]
    Twice(String),
}

fn dialects() -> String {
    Dialect::ALL.map(Dialect::name).join(", ")
}
