//! Describes why requests do not fit, as text of the operator's document.

use carina_embed::explanation::{Constraint, Names, Relaxation, explain};
use carina_embed::joint::Joint;
use carina_embed::{NodeId, Request, Residual};
use carina_time::Duration;

use crate::document::limits::MEMORY_MIB;
use crate::document::{Rate, Span};
use crate::message::{Reason, ReasonCode};

/// Names of the nodes of an embedding request, and where each may be placed. A node that represents
/// another provider beyond a border has no name.
#[derive(Clone, Debug, Default)]
pub struct DocumentNames {
    /// Names of the nodes, in the order in which the request lists the nodes.
    pub nodes: Vec<String>,
    /// The allowed locations of each node; anywhere if the list is empty.
    pub places: Vec<Vec<String>>,
}

impl Names for DocumentNames {
    fn node(&self, node: NodeId) -> String {
        let name = self.nodes.get(node.index());
        name.map_or_else(|| "another provider".to_owned(), String::clone)
    }

    fn place(&self, _: &Request, node: NodeId) -> String {
        match self.places.get(node.index()) {
            Some(places) if !places.is_empty() => format!(" in {}", places.join(" or ")),
            _ => String::new(),
        }
    }

    fn rate(&self, rate: u64) -> String {
        Rate::from_bps(rate).map_or_else(|| "no rate".to_owned(), |rate| rate.to_string())
    }

    fn memory(&self, memory: u64) -> String {
        format!("{memory} MiB")
    }

    fn cpu(&self, cpu: u64) -> String {
        match cpu {
            1 => "1 processor".to_owned(),
            _ => format!("{cpu} processors"),
        }
    }

    fn delay(&self, delay: Duration) -> String {
        Span::from(delay).to_string()
    }
}

/// Returns why a request does not fit into the free capacity of `residual`. The message names the
/// smallest change to the request that would make it fit, unless no single change would. If the
/// request does fit, the message is only "it does not fit". Rates of `residual` and `request` are
/// in bits a second.
#[must_use]
pub fn insufficient(residual: &Residual, request: &Request, names: &DocumentNames) -> Reason {
    let explanation = explain(residual, request, &mut Joint::first());
    let Some(mut explanation) = explanation else {
        return Reason::new(ReasonCode::Insufficient, "it does not fit");
    };
    // Drops a relaxation that a document cannot express.
    explanation.relaxation = explanation
        .relaxation
        .filter(|relaxation| match relaxation {
            Relaxation::Cpu(_, cpus) => *cpus > 0,
            Relaxation::Memory(_, memory) => MEMORY_MIB.contains(memory),
            Relaxation::Rate(_, rate) => *rate > 0,
            Relaxation::AllRates(percent) => *percent > 0,
            _ => true,
        });
    let node = match &explanation.constraint {
        Constraint::Host { node, .. } | Constraint::Node { node } => Some(*node),
        _ => None,
    };
    let node = node.and_then(|node| names.nodes.get(node.index()).cloned());
    let message = explanation.describe(request, names);
    let code = ReasonCode::Insufficient;
    Reason {
        code,
        message,
        node,
    }
}
