//! Counts of frames that hosts have dropped in one direction of a link, by reason.

use serde::{Deserialize, Serialize};

/// Frames dropped on their way from one end of a link to the other, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Frames that exceeded the rate of the link.
    pub rate: u64,
    /// Frames that the link's impairment (`carina vnet impair`) dropped as loss.
    pub impairment: u64,
    /// Frames for which the queue of the link's impairment was full. This queue holds frames until
    /// the delay and the rate of the impairment let them pass.
    pub line: u64,
    /// Frames that an app of the engine could not pass on, because the queue to the next app was
    /// full.
    pub room: u64,
    /// Frames that arrived while the link had no flow that carries it to the other host.
    pub no_flow: u64,
    /// Frames for which the queue of the flow that carries the link to the other host was full.
    pub flow: u64,
}

impl Dropped {
    /// The sums of both counts. They saturate, because a host may report any number.
    #[must_use]
    pub fn and(self, other: Dropped) -> Dropped {
        Dropped {
            rate: self.rate.saturating_add(other.rate),
            impairment: self.impairment.saturating_add(other.impairment),
            line: self.line.saturating_add(other.line),
            room: self.room.saturating_add(other.room),
            no_flow: self.no_flow.saturating_add(other.no_flow),
            flow: self.flow.saturating_add(other.flow),
        }
    }
}

impl std::fmt::Display for Dropped {
    /// Writes `; dropped meanwhile: 2 by its impairment`; nothing if no frame was dropped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [
            (self.rate, "above its rate"),
            (self.impairment, "by its impairment"),
            (self.line, "because the queue of the impaired link was full"),
            (self.room, "because a queue was full"),
            (self.no_flow, "without a flow"),
            (self.flow, "because the queue of the flow was full"),
        ];
        let words: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        if words.is_empty() {
            Ok(())
        } else {
            write!(f, "; dropped in this time: {}", words.join(", "))
        }
    }
}
