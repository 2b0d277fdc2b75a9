//! Congestion control: how many PDUs may be in flight, as a policy.

use core::fmt;

/// A policy of congestion control. Windows are in PDUs, since sequence numbers count PDUs.
pub trait CongestionControl: fmt::Debug {
    /// Its name in the catalogue.
    fn name(&self) -> &'static str;

    /// PDUs that may be in flight; at least 1.
    fn window(&self) -> u64;

    /// Some PDUs have arrived.
    fn on_ack(&mut self, ack: &Acked);

    /// A loss was detected by what arrived after it. Called once per episode: losses of PDUs that
    /// were sent before the window shrank count once.
    fn on_loss(&mut self, now: u64, in_flight: u64);

    /// The retransmission timer ran out: everything in flight is taken for lost.
    fn on_timeout(&mut self, now: u64, in_flight: u64);

    /// The last loss was none: the PDU was late.
    fn on_spurious(&mut self) {}
}

/// What a policy of congestion control hears of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Time in ns.
    pub now: u64,
    /// PDUs that it newly acknowledges.
    pub count: u64,
    /// PDUs in flight before it.
    pub in_flight: u64,
    /// Of the newly acknowledged ones, those that carried a congestion mark.
    pub marks: u64,
    /// Smoothed round-trip time in ns; 0 when not known.
    pub srtt_ns: u64,
    /// Smallest round-trip time in ns; 0 when not known.
    pub min_rtt_ns: u64,
    /// The window was not used up: it must not grow.
    pub is_limited: bool,
    /// Losses are being repaired.
    pub is_recovering: bool,
    /// Sequence number of the next new PDU.
    pub next_seq: u64,
    /// The highest sequence number below which all is acknowledged.
    pub left: u64,
}

/// No congestion control: windows of flow control are the only limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl CongestionControl for Unlimited {
    fn name(&self) -> &'static str {
        "none"
    }

    fn window(&self) -> u64 {
        u64::MAX
    }

    fn on_ack(&mut self, _ack: &Acked) {}

    fn on_loss(&mut self, _now: u64, _in_flight: u64) {}

    fn on_timeout(&mut self, _now: u64, _in_flight: u64) {}
}
