//! Errors in the text of command line arguments.

use carina_api::NameError;
use carina_netdev::vlan_translate::{TAG_INNER, TAG_USUAL};
use carina_wire::dif::Dialect;

/// Why the text of an argument is refused, and what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ArgumentError {
    /// The value of `--by-severity` is not `is:V`, `below:V` or `above:V`, where V is a severity
    /// such as `major`; holds the value.
    #[error(
        "{0:?}: must be is:V, below:V or above:V, where V is warning, minor, major or \
        critical"
    )]
    Severity(String),
    /// The path of a RIB object does not begin with `/`.
    #[error("the name of an object begins with `/`: write /{0}")]
    NotRooted(String),
    /// A condition that selects RIB objects is not `FIELD=VALUE`.
    #[error("it must be FIELD=VALUE, without `&`")]
    Condition,
    /// A dialect is not `native`, `rlite` or `irati`; holds the text.
    #[error("dialect {0} is unknown; valid values are {names}", names = dialects())]
    Dialect(String),
    /// The text is not a range of seeds, which has the form `0..1000`.
    #[error("{0} is not a range of seeds; a range looks like 0..1000")]
    Seeds(String),
    /// The range of seeds is empty.
    #[error("the range {0} has no seeds; the first number must be less than the second")]
    NoSeed(String),
    /// A peer is not `NAME=HOST` or `NAME=HOST:PORT`.
    #[error("NAME=HOST or NAME=HOST:PORT is expected")]
    Peer,
    /// The port of a graph is not a list of `KEY=VALUE`, separated by commas.
    #[error("kind=KIND,KEY=VALUE is expected, such as kind=af_xdp,interface=eth1")]
    GraphPort,
    /// The name of a peer is not well formed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The Ethertype is not a number, or below 0x0600.
    #[error(
        "{0:?} is not an Ethertype; it must be 0x0600 to 0xffff, such as {TAG_INNER:#06x} and \
         {TAG_USUAL:#06x}"
    )]
    Ethertype(String),
    /// The value of `carina import irati --join` is not `DIF` or `DIF=MEMBER`: its DIF is missing.
    #[error("DIF or DIF=MEMBER is expected")]
    Join,
    /// A policy is not `COMPONENT=NAME`, or one of the parameters after it is not `PARAM=VALUE`.
    #[error("the form is COMPONENT=NAME,PARAM=VALUE")]
    Policy,
    /// A word of an impairment, such as `delay=20ms`, is unknown, or its value is wrong; holds what
    /// would be right.
    #[error("{0}")]
    Impairment(String),
    /// The format in `vnet import --from` or `vnet export --to` is unknown; holds the names of the
    /// known formats.
    #[error("valid values are {0}")]
    Format(String),
    /// The same parameter of a policy is given twice.
    #[error("{0} is given twice")]
    Twice(String),
}

fn dialects() -> String {
    Dialect::ALL.map(Dialect::name).join(", ")
}
