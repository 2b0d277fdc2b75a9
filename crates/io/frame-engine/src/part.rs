//! The part of a graph that one network runs, before it gets there.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crate::app::FrameApp;
use crate::back_pressure::links_with_back_pressure;
use crate::configure_error::ConfigureError;
use crate::difference::Difference;
use crate::graph::{Graph, LinkName};
use crate::neighbour::{Incoming, Outgoing};

/// The apps of one network, and the links that have an end at one of them.
pub(super) struct Part {
    pub(super) graph: Graph,
    /// The links with back-pressure; may include links of other parts.
    pub(super) back_pressure: BTreeSet<LinkName>,
    /// Receiving ends of new links from other networks. The network keeps the ends of links that it
    /// already has.
    pub(super) incoming: BTreeMap<LinkName, Incoming>,
    pub(super) outgoing: BTreeMap<LinkName, Outgoing>,
}

impl Part {
    /// The part that consists of a whole graph.
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

/// What a network gives up when it changes. It must be dropped on a thread where no frame waits:
/// dropping it frees large tables and closes kernel sockets. Apps are dropped side by side, because
/// the kernel takes tens of milliseconds to close a packet socket, mostly waiting.
#[derive(Default)]
pub(super) struct Discarded {
    /// Parts of apps that were removed.
    pub(super) apps: Vec<Box<dyn Any + Send>>,
    /// The graph that the network ran, with the configurations of its apps.
    pub(super) _graph: Graph,
}

impl Drop for Discarded {
    fn drop(&mut self) {
        drop_together(std::mem::take(&mut self.apps));
    }
}

/// Drops values on several threads at the same time, and returns when all are dropped.
pub(super) fn drop_together(values: Vec<Box<dyn Any + Send>>) {
    let threads = values.len().min(THREADS_MAX);
    let values = Mutex::new(values);
    let next = || {
        let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
        values.pop()
    };
    let work = || {
        while let Some(value) = next() {
            drop(value);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without a further thread, the others drop the values.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// Largest number of values that are dropped at the same time.
const THREADS_MAX: usize = 128;

/// Why a part cannot be run, and what was already built for it.
pub(super) struct Refusal {
    pub(super) error: ConfigureError,
    pub(super) discarded: Discarded,
}

/// A part whose new apps have been built.
pub(super) struct Prepared {
    pub(super) part: Part,
    pub(super) difference: Difference,
    pub(super) built: BTreeMap<String, Box<dyn FrameApp>>,
}

impl Prepared {
    /// Discards the part.
    pub(super) fn dismantle(self) -> Discarded {
        let apps = self.built.into_values().filter_map(FrameApp::dismantle);
        Discarded {
            apps: apps.collect(),
            _graph: self.part.graph,
        }
    }
}
