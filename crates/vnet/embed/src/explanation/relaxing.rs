//! Searches for the smallest relaxation.

use carina_time::Duration;

use crate::embedder::Embedder;
use crate::explanation::Relaxation;
use crate::id::{NodeId, VirtualLinkId};
use crate::request::{Node, Request, Sharing, VirtualLink};
use crate::residual::Residual;

/// A search for the smallest relaxation.
pub(crate) struct Search<'a, E> {
    residual: &'a Residual,
    request: &'a Request,
    embedder: &'a mut E,
    /// A delay longer than the delay of any path.
    delay_longest: u64,
}

/// A property of the request that can be relaxed, without the amount.
#[derive(Clone, Copy)]
enum Knob {
    Cpu(NodeId),
    Memory(NodeId),
    Nics(NodeId),
    Location(NodeId),
    Labels(NodeId),
    Apart([NodeId; 2]),
    Rate(VirtualLinkId),
    Delay(VirtualLinkId),
    AllRates,
}

impl Knob {
    /// Whether the property cannot be weakened by degrees, but only be left out.
    fn is_switch(self) -> bool {
        matches!(self, Knob::Location(_) | Knob::Labels(_) | Knob::Apart(_))
    }
}

impl<'a, E: Embedder> Search<'a, E> {
    pub(crate) fn new(residual: &'a Residual, request: &'a Request, embedder: &'a mut E) -> Self {
        let links = residual.substrate().links().iter();
        let delays = links.map(|link| link.delay.as_nanos());
        Search {
            residual,
            request,
            embedder,
            delay_longest: delays.fold(0, u64::saturating_add),
        }
    }

    /// The relaxation that keeps the largest part of the request.
    pub(crate) fn smallest(mut self) -> Option<Relaxation> {
        // The step of the best relaxation so far: another one must keep more.
        let mut best: Option<(u64, Knob)> = None;
        for knob in self.knobs() {
            let least = best.map_or(0, |(step, _)| step + 1);
            if knob.is_switch() {
                if least <= SWITCH_STEP && self.is_embeddable(knob, 0) {
                    best = Some((SWITCH_STEP, knob));
                }
            } else if least < STEPS && self.is_embeddable(knob, self.amount(knob, least)) {
                best = Some((self.highest_step(knob, least), knob));
            }
        }
        if best.is_none() && self.is_embeddable(Knob::AllRates, 0) {
            best = Some((self.highest_step(Knob::AllRates, 0), Knob::AllRates));
        }
        let (step, knob) = best?;
        if knob.is_switch() {
            return Some(as_relaxation(knob, 0));
        }
        let sufficient = self.amount(knob, step);
        Some(as_relaxation(knob, self.nearest(knob, sufficient)))
    }

    fn knobs(&self) -> Vec<Knob> {
        let mut knobs = Vec::new();
        for (index, link) in self.request.links().iter().enumerate() {
            let id = VirtualLinkId::of(index);
            if link.rate > 0 {
                knobs.push(Knob::Rate(id));
            }
            knobs.extend(link.delay_max.map(|_| Knob::Delay(id)));
        }
        for (index, node) in self.request.nodes().iter().enumerate() {
            let id = NodeId::of(index);
            let amounts = [
                (Knob::Cpu(id), node.cpu),
                (Knob::Memory(id), node.memory),
                (Knob::Nics(id), node.nics),
            ];
            let wanted = amounts.iter().filter(|(_, amount)| *amount > 0);
            knobs.extend(wanted.map(|(knob, _)| *knob));
            if !node.locations.is_empty() {
                knobs.push(Knob::Location(id));
            }
            if !node.labels.is_empty() {
                knobs.push(Knob::Labels(id));
            }
            if self.request.sharing() == Sharing::UnlessApart {
                knobs.extend(
                    node.apart_from
                        .iter()
                        .map(|other| Knob::Apart([id, *other])),
                );
            }
        }
        knobs
    }

    /// The requested amount of a property.
    fn wanted(&self, knob: Knob) -> u64 {
        let node = |id: NodeId| &self.request.nodes()[id.index()];
        let link = |id: VirtualLinkId| &self.request.links()[id.index()];
        match knob {
            Knob::Cpu(id) => node(id).cpu,
            Knob::Memory(id) => node(id).memory,
            Knob::Nics(id) => node(id).nics,
            Knob::Rate(id) => link(id).rate,
            Knob::Delay(id) => link(id).delay_max.unwrap_or_default().as_nanos(),
            Knob::Location(_) | Knob::Labels(_) | Knob::Apart(_) => 1,
            Knob::AllRates => PERCENT,
        }
    }

    /// The amount of a property at a step: the weakest requirement at 0, what was requested at
    /// [`STEPS`]. For a delay, weaker means longer.
    fn amount(&self, knob: Knob, step: u64) -> u64 {
        let wanted = u128::from(self.wanted(knob));
        let (step, steps) = (u128::from(step), u128::from(STEPS));
        let amount = match knob {
            Knob::Delay(_) if step == 0 => u128::from(self.delay_longest).max(wanted),
            Knob::Delay(_) => (wanted * steps / step).min(u128::from(u64::MAX)),
            _ => wanted * step / steps,
        };
        // The result is at most `wanted`, or was capped at 64 bits.
        amount as u64
    }

    /// The highest step that fits, given that `low` fits.
    fn highest_step(&mut self, knob: Knob, low: u64) -> u64 {
        let (mut low, mut high) = (low, STEPS);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.is_embeddable(knob, self.amount(knob, middle)) {
                low = middle
            } else {
                high = middle
            }
        }
        low
    }

    /// The amount nearest to the requested one that fits, given that `sufficient` does.
    fn nearest(&mut self, knob: Knob, sufficient: u64) -> u64 {
        let (mut sufficient, mut fails) = (sufficient, self.wanted(knob));
        while sufficient.abs_diff(fails) > 1 {
            let middle = sufficient.min(fails) + sufficient.abs_diff(fails) / 2;
            if self.is_embeddable(knob, middle) {
                sufficient = middle
            } else {
                fails = middle
            }
        }
        sufficient
    }

    fn is_embeddable(&mut self, knob: Knob, amount: u64) -> bool {
        let relaxed = as_relaxation(knob, amount).apply(self.request);
        relaxed.is_some_and(|request| self.embedder.embed(self.residual, &request).is_ok())
    }
}

fn as_relaxation(knob: Knob, amount: u64) -> Relaxation {
    match knob {
        Knob::Cpu(node) => Relaxation::Cpu(node, amount),
        Knob::Memory(node) => Relaxation::Memory(node, amount),
        Knob::Nics(node) => Relaxation::Nics(node, amount),
        Knob::Location(node) => Relaxation::AnyLocation(node),
        Knob::Labels(node) => Relaxation::NoLabels(node),
        Knob::Apart(nodes) => Relaxation::NotApart(nodes),
        Knob::Rate(link) => Relaxation::Rate(link, amount),
        Knob::Delay(link) => Relaxation::Delay(link, Duration::from_nanos(amount)),
        Knob::AllRates => Relaxation::AllRates(amount),
    }
}

impl Relaxation {
    /// The request with this relaxation; `None` if it names a node or link that the request does
    /// not have.
    #[must_use]
    pub fn apply(self, request: &Request) -> Option<Request> {
        let mut nodes: Vec<Node> = request.nodes().to_vec();
        let mut links: Vec<VirtualLink> = request.links().to_vec();
        match self {
            Relaxation::Cpu(node, amount) => nodes.get_mut(node.index())?.cpu = amount,
            Relaxation::Memory(node, amount) => nodes.get_mut(node.index())?.memory = amount,
            Relaxation::Nics(node, amount) => nodes.get_mut(node.index())?.nics = amount,
            Relaxation::AnyLocation(node) => nodes.get_mut(node.index())?.locations.clear(),
            Relaxation::NoLabels(node) => nodes.get_mut(node.index())?.labels.clear(),
            Relaxation::NotApart([a, b]) => {
                for (node, other) in [(a, b), (b, a)] {
                    let node = nodes.get_mut(node.index())?;
                    node.apart_from.retain(|apart| *apart != other);
                }
            }
            Relaxation::Rate(link, rate) => links.get_mut(link.index())?.rate = rate,
            Relaxation::Delay(link, delay) => links.get_mut(link.index())?.delay_max = Some(delay),
            Relaxation::AllRates(percent) => {
                for link in &mut links {
                    let part = u128::from(link.rate) * u128::from(percent) / u128::from(PERCENT);
                    link.rate = u64::try_from(part).unwrap_or(u64::MAX);
                }
            }
        }
        Request::new(nodes, links, request.sharing()).ok()
    }
}

/// Number of steps into which a requested amount is divided, so that relaxations can be compared.
const STEPS: u64 = 128;

/// Dropping locations, labels or a separation counts as much as giving up three quarters of an
/// amount.
const SWITCH_STEP: u64 = STEPS / 4;

const PERCENT: u64 = 100;
