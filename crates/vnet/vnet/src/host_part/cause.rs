//! Classes of reasons for which a node has failed or a link is down. The class names nothing of the
//! host, so that operators, who must not know the substrate, may see it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The class of reason for which a node has failed or a link is down.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A fault of the host.
    #[default]
    Host,
    /// A fault of the node's image.
    Image,
    /// The host lacks memory or disk space for the node.
    Room,
    /// The document asks for something impossible.
    Impossible,
    /// A command that configures the node has failed.
    Configuration,
    /// The node or link has not answered in time.
    Silent,
    /// The node has ended by itself.
    Ended,
    /// A fault of the encapsulation or DIF that carries the link.
    Carrier,
    /// The operator has switched the node or link off.
    Operator,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 9] = [
        Cause::Host,
        Cause::Image,
        Cause::Room,
        Cause::Impossible,
        Cause::Configuration,
        Cause::Silent,
        Cause::Ended,
        Cause::Carrier,
        Cause::Operator,
    ];

    /// The text for an operator about a link that is down for this cause.
    #[must_use]
    pub const fn words_of_link(self) -> &'static str {
        match self {
            Cause::Carrier => "nothing carries it between its hosts; the provider's log says why",
            Cause::Ended => "a node that it ends at has ended",
            Cause::Operator => "its operator has taken it down, or stopped a node at its end",
            _ => "no probe passes it",
        }
    }

    /// The text for an operator about a node that has failed for this cause: what happened and what
    /// helps, without naming anything of the host.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Cause::Host => "its host could not make it; the provider's log says why",
            Cause::Image => "its host has no image of this name that boots: ask the provider",
            Cause::Room => "there is too little memory for it: give it more, or ask the provider",
            Cause::Impossible => "its host has nothing that does what its document asks for",
            Cause::Configuration => "a command that configures it has failed inside of it",
            Cause::Silent => "it has not answered in time: its image may not boot, or boot slowly",
            Cause::Ended => "it has ended by itself, and is made again",
            Cause::Carrier => "one of its links has nothing that carries it: ask the provider",
            Cause::Operator => "its operator has stopped it: `carina vnet start` starts it again",
        }
    }
}

impl fmt::Display for Cause {
    /// Writes the text about a node, [`Cause::words`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
