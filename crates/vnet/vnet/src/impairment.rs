//! Links that are made worse on purpose, each direction by itself: what is asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Rate, Share, Span};

/// What is done to one direction of a link, after its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impairment {
    /// Each frame is so late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// The delay differs by up to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// So many frames are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// So many pass twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Share>,
    /// So many overtake others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Share>,
    /// No more than this passes; what is above waits, at most 16 MiB or 4096 frames of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// The impairments of a link: of what its first end sends, and of what its second end sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkImpairment {
    /// Of what the first end sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<Impairment>,
    /// Of what the second end sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Impairment>,
}

/// The impairments of a network, by the numbers of links.
pub type Impairments = BTreeMap<u32, LinkImpairment>;

impl std::fmt::Display for Impairment {
    /// As it is said: `delay=20ms loss=1%`.
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
    /// Whether nothing is impaired.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.there.is_none() && self.back.is_none()
    }

    /// That of what one of its ends sends, 0 or 1.
    #[must_use]
    pub fn of_side(&self, side: usize) -> Option<Impairment> {
        [self.there, self.back].into_iter().nth(side).flatten()
    }
}
