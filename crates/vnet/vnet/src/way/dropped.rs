//! What hosts have dropped of a direction of a link, by reason.

use serde::{Deserialize, Serialize};

/// Frames that were dropped on their way from one end of a link to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Above the rate of the link.
    pub rate: u64,
    /// By its impairment.
    pub impairment: u64,
    /// For which an impaired line had no room.
    pub line: u64,
    /// For which there was no room between the apps of the engine.
    pub room: u64,
    /// While the link had no flow to the other host.
    pub no_flow: u64,
    /// For which that flow had no room.
    pub flow: u64,
}

impl Dropped {
    /// Both together. What a host says may be any number.
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
    /// `; dropped meanwhile: 2 by its impairment`; nothing where nothing was dropped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [
            (self.rate, "above its rate"),
            (self.impairment, "by its impairment"),
            (self.line, "for which the impaired line had no room"),
            (self.room, "for which there was no room"),
            (self.no_flow, "without a flow"),
            (self.flow, "for which the flow had no room"),
        ];
        let words: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        if words.is_empty() {
            Ok(())
        } else {
            write!(f, "; dropped meanwhile: {}", words.join(", "))
        }
    }
}
