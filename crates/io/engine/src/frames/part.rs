//! The part of a graph that one network runs, on its way to there.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use crate::frames::app::FrameApp;
use crate::frames::back_pressure::links_with_back_pressure;
use crate::frames::configure_error::ConfigureError;
use crate::frames::difference::Difference;
use crate::frames::graph::{Graph, LinkName};
use crate::frames::neighbour::{Incoming, Outgoing};

/// Apps of one network, and the links with an end at one of them.
pub(super) struct Part {
    pub(super) graph: Graph,
    /// Those of the links that have back-pressure, and maybe others of the whole graph.
    pub(super) back_pressure: BTreeSet<LinkName>,
    /// Ends of links from and to other networks that are new. Those that the network has already
    /// it keeps.
    pub(super) incoming: BTreeMap<LinkName, Incoming>,
    pub(super) outgoing: BTreeMap<LinkName, Outgoing>,
}

impl Part {
    /// A whole graph.
    pub(super) fn whole(graph: &Graph) -> Part {
        Part::of(graph.clone(), links_with_back_pressure(graph))
    }

    /// A part without ends of new links.
    pub(super) fn of(graph: Graph, back_pressure: BTreeSet<LinkName>) -> Part {
        Part {
            graph,
            back_pressure,
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
        }
    }
}

/// What a network gives up when it becomes another, to be dropped where no frame waits for it:
/// memory of large tables is freed then, and sockets of the kernel are closed.
#[derive(Default)]
pub(super) struct Remains {
    /// Parts of apps that have gone.
    pub(super) apps: Vec<Box<dyn Any + Send>>,
    /// What the network ran, with the configurations of its apps.
    pub(super) graph: Graph,
}

/// Why a part cannot be run, and what was made of it before that was known.
pub(super) struct Refusal {
    pub(super) error: ConfigureError,
    pub(super) remains: Remains,
}

/// A part whose new apps have been made.
pub(super) struct Prepared {
    pub(super) part: Part,
    pub(super) difference: Difference,
    pub(super) built: BTreeMap<String, Box<dyn FrameApp>>,
}

impl Prepared {
    /// Gives it up.
    pub(super) fn dismantle(self) -> Remains {
        let apps = self.built.into_values().filter_map(FrameApp::dismantle);
        Remains {
            apps: apps.collect(),
            graph: self.part.graph,
        }
    }
}
