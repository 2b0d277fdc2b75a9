//! The outputs of a router: maps the names in routes to ports with links, and looks up bursts of
//! frames.

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{LINK_FRAMES, PortNames, Ports};

/// The outputs of a router, by the numbers that its table uses.
pub(crate) struct RouteOutputs {
    names: Vec<String>,
    output_of: Vec<Option<usize>>,
    /// The results of the look-ups for a burst.
    found: Vec<u16>,
}

/// The number that a table returns for an address without a route.
pub const NO_ROUTE: u16 = u16::MAX - 1;
/// The number that a look-up returns for a frame of another protocol.
pub(crate) const OTHER: u16 = u16::MAX;

/// Counters of dropped frames.
pub(crate) struct RouteCounters {
    pub(crate) no_route: Counter,
    pub(crate) other: Counter,
    pub(crate) no_link: Counter,
}

impl RouteOutputs {
    /// The outputs named by the routes.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a String>) -> RouteOutputs {
        let mut names: Vec<String> = names.cloned().collect();
        names.sort();
        names.dedup();
        RouteOutputs {
            output_of: vec![None; names.len()],
            names,
            found: Vec::with_capacity(LINK_FRAMES),
        }
    }

    /// The number of an output.
    pub(crate) fn number(&self, name: &String) -> u16 {
        self.names.binary_search(name).unwrap_or_default() as u16
    }

    pub(crate) fn rewired(&mut self, ports: &PortNames<'_>) {
        let output_of = |name: &String| ports.outputs.iter().position(|output| output == name);
        self.output_of = self.names.iter().map(output_of).collect();
    }

    /// Moves the frames at the input to the outputs of their routes.
    #[inline]
    pub(crate) fn push(
        &mut self,
        ports: &mut Ports<'_>,
        counters: &RouteCounters,
        look_up: impl Fn(&[u8]) -> u16,
    ) {
        // Does all look-ups first, so that their memory accesses overlap.
        self.found.clear();
        self.found
            .extend(ports.frames(0).map(|frame| look_up(frame.bytes())));
        let (mut at, mut no_route, mut other, mut no_link) = (0, 0, 0, 0);
        ports.each(0, |frame, ports| {
            let found = self.found[at];
            at += 1;
            match found {
                NO_ROUTE => no_route += 1,
                OTHER => other += 1,
                number => match self.output_of[usize::from(number)] {
                    Some(output) => ports.transmit(output, frame),
                    None => no_link += 1,
                },
            }
        });
        counters.no_route.add(no_route);
        counters.other.add(other);
        counters.no_link.add(no_link);
    }
}
