//! Of what kind the reason is why a node has failed or a link is down: so much of it may be known
//! to those who must not know the host.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Of what kind the reason is why a node has failed or a link is down.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Something of its host.
    #[default]
    Host,
    /// Its image.
    Image,
    /// Its memory, or the room for it.
    Room,
    /// What its document asks for.
    Impossible,
    /// A command that configures it.
    Configuration,
    /// It has not answered in time.
    Silent,
    /// It has ended by itself.
    Ended,
    /// What carries a link of it.
    Carrier,
    /// Its operator wants it so.
    Operator,
}

impl Cause {
    /// All of them.
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

    /// The words for an operator of a link that is down for this.
    #[must_use]
    pub const fn words_of_link(self) -> &'static str {
        match self {
            Cause::Carrier => "nothing carries it between its hosts; the provider's log says why",
            Cause::Ended => "a node that it ends at has ended",
            Cause::Operator => "its operator has taken it down, or stopped a node at its end",
            _ => "no probe passes it",
        }
    }

    /// The words for an operator of a node that has failed for this: what it is, and what helps,
    /// without a word of the host.
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
    /// As of a node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
