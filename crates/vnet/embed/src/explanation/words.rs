//! Describes an explanation as text, with the caller's names.

use carina_time::Duration;

use crate::explanation::{Constraint, Explanation, Lack, Relaxation};
use crate::id::{NodeId, VirtualLinkId};
use crate::request::Request;

/// The caller's names of things. The default names are numbers.
pub trait Names {
    /// The name of a node.
    fn node(&self, node: NodeId) -> String {
        format!("node {}", node.0)
    }

    /// A phrase for the node's allowed locations, such as `in de`; empty if it may be anywhere.
    fn place(&self, request: &Request, node: NodeId) -> String {
        let locations = &request.nodes()[node.index()].locations;
        let numbers: Vec<String> = locations
            .iter()
            .map(|location| location.0.to_string())
            .collect();
        if numbers.is_empty() {
            String::new()
        } else {
            format!(" in location {}", numbers.join(" or "))
        }
    }

    /// A rate with its unit.
    fn rate(&self, rate: u64) -> String {
        format!("a rate of {rate}")
    }

    /// An amount of memory with its unit.
    fn memory(&self, memory: u64) -> String {
        format!("{memory} of memory")
    }

    /// An amount of processors with its unit.
    fn cpu(&self, cpu: u64) -> String {
        format!("{cpu} of processors")
    }

    /// A delay with its unit.
    fn delay(&self, delay: Duration) -> String {
        format!("a delay of {delay}")
    }
}

/// Names everything by its number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbered;

impl Names for Numbered {}

impl Explanation {
    /// Describes the explanation: the constraint, and what would fit.
    #[must_use]
    pub fn describe(&self, request: &Request, names: &impl Names) -> String {
        let words = Words { request, names };
        let constraint = words.constraint(&self.constraint);
        match &self.relaxation {
            Some(relaxation) => format!("{constraint}; {}", words.relaxation(relaxation)),
            None => constraint,
        }
    }
}

struct Words<'a, N> {
    request: &'a Request,
    names: &'a N,
}

impl<N: Names> Words<'_, N> {
    fn constraint(&self, constraint: &Constraint) -> String {
        let names = self.names;
        match constraint {
            Constraint::Host { node, lack } => self.lack(*node, *lack),
            Constraint::Hosts { nodes, hosts } => {
                let all = nodes.iter().map(|node| names.node(*node));
                let all: Vec<String> = all.collect();
                let available = match hosts.len() {
                    1 => "there is 1".to_owned(),
                    count => format!("there are {count}"),
                };
                let wanted = nodes.len();
                format!(
                    "{} need {wanted} different hosts, but {available} for them",
                    all.join(", ")
                )
            }
            Constraint::Link { link } => {
                format!("{}: no path satisfies its rate and delay", self.link(*link))
            }
            Constraint::Node { node } => {
                format!(
                    "{}: no host is suitable once the other nodes are placed",
                    names.node(*node)
                )
            }
            Constraint::Together => "the links together need more rate than is free".to_owned(),
        }
    }

    fn lack(&self, id: NodeId, lack: Lack) -> String {
        let names = self.names;
        let place = names.place(self.request, id);
        let node = &self.request.nodes()[id.index()];
        let too_little = |wanted: String, largest: String| {
            format!("no host{place} has {wanted}, at most {largest}")
        };
        let what = match lack {
            Lack::Location => format!("there is no host{place}"),
            Lack::Labels => format!("no host{place} has all requested labels"),
            Lack::Cpu(available) => too_little(names.cpu(node.cpu), names.cpu(available)),
            Lack::Memory(available) => {
                too_little(names.memory(node.memory), names.memory(available))
            }
            Lack::Nics(available) => too_little(nics(node.nics), nics(available)),
            Lack::OneHostWithAll => format!("no host{place} satisfies all requirements"),
        };
        format!("{}: {what}", names.node(id))
    }

    fn relaxation(&self, relaxation: &Relaxation) -> String {
        let names = self.names;
        match relaxation {
            Relaxation::Cpu(node, cpu) => {
                format!("{}: {} would fit", names.node(*node), names.cpu(*cpu))
            }
            Relaxation::Memory(node, memory) => {
                format!("{}: {} would fit", names.node(*node), names.memory(*memory))
            }
            Relaxation::Nics(node, count) => {
                format!("{}: {} would fit", names.node(*node), nics(*count))
            }
            Relaxation::AnyLocation(node) => {
                format!("{}: it would fit at another location", names.node(*node))
            }
            Relaxation::NoLabels(node) => {
                format!("{}: it would fit without its labels", names.node(*node))
            }
            Relaxation::NotApart([a, b]) => {
                let [a, b] = [a, b].map(|node| names.node(*node));
                format!("{a} and {b} would fit on one host")
            }
            Relaxation::Rate(link, rate) => {
                format!("{}: {} would fit", self.link(*link), names.rate(*rate))
            }
            Relaxation::Delay(link, delay) => {
                format!("{}: {} would fit", self.link(*link), names.delay(*delay))
            }
            Relaxation::AllRates(percent) => format!("{percent} % of all rates would fit"),
        }
    }

    fn link(&self, link: VirtualLinkId) -> String {
        let ends = self.request.links()[link.index()].ends;
        let [a, b] = ends.map(|node| self.names.node(node));
        format!("{a}-{b}")
    }
}

fn nics(count: u64) -> String {
    match count {
        0 => "no network card".to_owned(),
        1 => "1 network card".to_owned(),
        count => format!("{count} network cards"),
    }
}
