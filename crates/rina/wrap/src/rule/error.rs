//! What is wrong with a text that should be a rule.

use std::net::IpAddr;

use carina_api::NameError;
use thiserror::Error;

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The text has no arrow.
    #[error("rule {0:?} has no \"->\"; a rule is HOST[:PORTS] -> TARGET, as \"*.vm -> dif\"")]
    NoArrow(String),
    /// The text has no host before the arrow.
    #[error("rule {0:?} has no host before \"->\"; \"*\" matches every host")]
    NoHost(String),
    /// The text is not a set of destinations.
    #[error("rule {0:?} is not HOST[:PORTS], as \"www.example.com:80\"; \"*\" matches every host")]
    Destination(String),
    /// The text before the arrow is neither a host name nor an address nor a network.
    #[error(
        "rule {rule:?}: {host:?} is neither a host name nor a network such as 10.9.0.0/16 or \
         [fd00::/8]:80"
    )]
    Host {
        /// Text of the invalid rule.
        rule: String,
        /// The text in the place of the host.
        host: String,
    },
    /// The prefix length is not possible for the address.
    #[error("rule {rule:?}: /{length} is no prefix length of {address}; it has 0 to {max}")]
    PrefixLength {
        /// Text of the invalid rule.
        rule: String,
        /// The address before the `/`.
        address: IpAddr,
        /// The text behind the `/`.
        length: String,
        /// The largest possible prefix length.
        max: u8,
    },
    /// The text behind the `:` is not a port, or is a range whose end is less than its start.
    #[error("rule {rule:?}: {ports:?} is neither a port from 1 to 65535 nor a range such as 80-89")]
    Ports {
        /// Text of the invalid rule.
        rule: String,
        /// The text behind the `:`.
        ports: String,
    },
    /// The text behind the arrow is not one of the three targets.
    #[error("rule {rule:?}: target {target:?} must be kernel, refuse or dif [DIF] [as NAME]")]
    Target {
        /// Text of the invalid rule.
        rule: String,
        /// The text behind the `->`, which is no target.
        target: String,
    },
    /// The name of the application or of the DIF is invalid.
    #[error("rule {rule:?}: {error}")]
    Name {
        /// Text of the invalid rule.
        rule: String,
        /// What is wrong with the name of the application or DIF.
        error: NameError,
    },
    /// A placeholder in braces is not one that a name may have.
    #[error("rule {rule:?}: {placeholder} must be {{host}}, {{name}} or {{port}}")]
    Placeholder {
        /// Text of the invalid rule.
        rule: String,
        /// The text in the braces; valid texts are `host`, `name` and `port`.
        placeholder: String,
    },
}
