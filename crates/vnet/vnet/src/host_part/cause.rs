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

    /// Returns why a link is down, as text for operators; every cause has a text. The text does not
    /// name the link, so the caller puts the link's name in front.
    #[must_use]
    pub const fn words_of_link(self) -> &'static str {
        match self {
            Cause::Carrier => {
                "its frames are not carried between its hosts; the provider's log has the reason"
            }
            Cause::Ended => "a node at one of its ends has ended",
            Cause::Operator => {
                "its operator or its timetable has set it down, or a node at its end is stopped"
            }
            _ => "no probe packet passes it",
        }
    }

    /// Returns why a node has failed and what helps, as text for operators. The text names neither
    /// the node nor anything of the host; the caller puts the node's name in front.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Cause::Host => "its host could not create it; the provider's log has the reason",
            Cause::Image => "its host has no bootable image of this name: ask the provider",
            Cause::Room => "its memory is too small: give it more, or ask the provider",
            Cause::Impossible => "its host does not support what the document requires of it",
            Cause::Configuration => "a configuration command failed inside it",
            Cause::Silent => {
                "it did not answer in time: its image may not boot, or boots too slowly"
            }
            Cause::Ended => "it ended by itself, and is recreated",
            Cause::Carrier => "the frames of one of its links are not carried: ask the provider",
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
