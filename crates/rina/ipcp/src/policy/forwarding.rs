//! Forwarding: which of several ways a PDU takes.

/// How PDUs spread over several N-1 flows to the same neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// PDUs of one connection stay on one N-1 flow, in order.
    #[default]
    Flow,
    /// Each PDU takes the shortest queue; PDUs of one connection may overtake each other.
    LeastQueue,
}

/// A forwarding policy.
pub trait ForwardingPolicy {
    /// Chooses one of `count` (2 or more) equally good next hops for a PDU whose addresses and
    /// CEP-ids mix to `mix`: an index below `count`. Must depend on its arguments only.
    fn next_hop(&self, mix: u32, count: usize) -> usize;

    /// How PDUs spread over the N-1 flows of the next hop.
    fn spread(&self) -> Spread;
}

/// Policy `ecmp`: connections spread over all next hops; each keeps its path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ecmp {
    /// Over N-1 flows.
    pub spread: Spread,
}

impl ForwardingPolicy for Ecmp {
    fn next_hop(&self, mix: u32, count: usize) -> usize {
        ((u64::from(mix) * count as u64) >> 32) as usize
    }

    fn spread(&self) -> Spread {
        self.spread
    }
}

/// Policy `single`: everything takes the first next hop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Single {
    /// Over N-1 flows.
    pub spread: Spread,
}

impl ForwardingPolicy for Single {
    fn next_hop(&self, _mix: u32, _count: usize) -> usize {
        0
    }

    fn spread(&self) -> Spread {
        self.spread
    }
}
