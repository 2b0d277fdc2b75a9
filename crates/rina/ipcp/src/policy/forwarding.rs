//! Forwarding policies: choose among several next hops and N-1 flows for a PDU.

/// How the PDUs for a neighbour spread over several N-1 flows to this neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// PDUs of one connection stay on one N-1 flow, in order.
    #[default]
    Flow,
    /// Each PDU takes the N-1 flow with the shortest queue; PDUs of one connection may overtake
    /// each other.
    LeastQueue,
}

/// A forwarding policy: chooses the next hop of a PDU when several are equally good.
pub trait ForwardingPolicy {
    /// Chooses one of `count` (2 or more) equally good next hops: an index below `count`. `mix` is
    /// a hash of the PDU's addresses and CEP-ids. The result must depend on the arguments only.
    fn next_hop(&self, mix: u32, count: usize) -> usize;

    /// How PDUs spread over several N-1 flows to the chosen next hop.
    fn spread(&self) -> Spread;
}

/// Policy `ecmp`: spreads connections over all next hops; each connection keeps its path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ecmp {
    /// How PDUs spread over several N-1 flows to the chosen next hop.
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

/// Policy `single`: all PDUs take the first next hop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Single {
    /// How PDUs spread over several N-1 flows to the chosen next hop.
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
