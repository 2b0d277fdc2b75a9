//! Requests to impair links on purpose, each direction by itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Rate, Share, Span};

/// Impairments of one direction of a link, applied after the link's own rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impairment {
    /// Time by which each frame is delayed; `None` for no delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Largest random deviation from `delay`; `None` for no deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// Share of frames that are dropped; `None` to drop no frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// Share of frames that are delivered twice; `None` for no frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Share>,
    /// Share of frames that overtake earlier ones; `None` for no frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Share>,
    /// Largest rate that passes; `None` for no limit. Frames above it wait in a queue of at most 16
    /// MiB and 4096 frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// The impairments of the two directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkImpairment {
    /// Impairment of frames from the first end to the second; `None` if that direction is not
    /// impaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<Impairment>,
    /// Impairment of frames from the second end to the first; `None` if that direction is not
    /// impaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Impairment>,
}

/// The impairments of a network, by link number.
pub type Impairments = BTreeMap<u32, LinkImpairment>;

impl std::fmt::Display for Impairment {
    /// Writes the impairment as a user types it: `delay=20ms loss=1%`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            ("delay", self.delay.map(|it| it.to_string())),
            ("jitter", self.jitter.map(|it| it.to_string())),
            ("loss", self.loss.map(|it| it.to_string())),
            ("duplicate", self.duplicate.map(|it| it.to_string())),
            ("reorder", self.reorder.map(|it| it.to_string())),
            ("rate", self.rate.map(|it| it.to_string())),
        ];
        let said = all
            .into_iter()
            .filter_map(|(word, value)| Some(format!("{word}={}", value?)));
        f.write_str(&said.collect::<Vec<_>>().join(" "))
    }
}

impl LinkImpairment {
    /// Whether neither direction is impaired.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.there.is_none() && self.back.is_none()
    }

    /// The impairment of frames that end `side` (0 or 1) sends; `None` if these frames are not
    /// impaired.
    #[must_use]
    pub fn of_side(&self, side: usize) -> Option<Impairment> {
        [self.there, self.back].into_iter().nth(side).flatten()
    }
}
