//! The part of a graph that one network runs, on its way to there.

use std::collections::BTreeMap;

use crate::frames::app::FrameApp;
use crate::frames::difference::Difference;
use crate::frames::graph::{Graph, LinkName};
use crate::frames::neighbour::{Incoming, Outgoing};

/// Apps of one network, and the links with an end at one of them.
pub(super) struct Part {
    pub(super) graph: Graph,
    /// Ends of links from and to other networks that are new. Those that the network has already
    /// it keeps.
    pub(super) incoming: BTreeMap<LinkName, Incoming>,
    pub(super) outgoing: BTreeMap<LinkName, Outgoing>,
}

impl Part {
    /// A whole graph.
    pub(super) fn whole(graph: &Graph) -> Part {
        Part {
            graph: graph.clone(),
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
        }
    }
}

/// A part whose new apps have been made.
pub(super) struct Prepared {
    pub(super) part: Part,
    pub(super) difference: Difference,
    pub(super) built: BTreeMap<String, Box<dyn FrameApp>>,
}
