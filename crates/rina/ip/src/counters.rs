//! What a member counts: packets that it moved, and packets that it dropped under their reasons.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why a member of a DIF of `carina ip` dropped a packet, or an SDU that a peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The kernel sent bytes that are not an IP packet, or a packet with an unknown kind of
    /// segmentation.
    Malformed,
    /// The destination is a multicast group or the broadcast address.
    ToMany,
    /// The kernel sent a packet whose source address is outside of all IP prefixes that this member
    /// has registered.
    SourceNotOwn,
    /// No member has registered an IP prefix that contains the destination address.
    NoMember,
    /// The node refused a flow to the destination a moment ago.
    FlowRefused,
    /// Too many flows to unknown destinations are requested already.
    RequestsLimited,
    /// The member has its largest number of flows.
    FlowsFull,
    /// The queue in front of a flow is full: the receiver is slower than the sender.
    QueueFull,
    /// The flow ended while the packet waited for it.
    FlowEnded,
    /// A packet of several segments that cannot be cut.
    Uncuttable,
    /// The packet is longer than what its flow carries.
    TooLong,
    /// A peer sent an SDU that is not an IP packet.
    BadSdu,
    /// A peer sent a packet whose source address is outside of the IP prefix that the peer has
    /// registered.
    SourceNotPeers,
    /// A peer sent a packet whose destination address is outside of all IP prefixes that this
    /// member has registered.
    DestinationNotOwn,
    /// The kernel refused the packet, for example because of an invalid header.
    KernelRefused,
    /// The TUN interface is down, so the kernel takes no packet.
    InterfaceDown,
}

/// What a member has counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that the member sent over flows.
    pub packets_sent: u64,
    /// Bytes in the packets counted by `packets_sent`.
    pub bytes_sent: u64,
    /// Packets that the member received over flows and gave to the kernel.
    pub packets_received: u64,
    /// Bytes in the packets counted by `packets_received`.
    pub bytes_received: u64,
    /// Packets of several segments that the member cut in software.
    pub packets_cut: u64,
    /// Received packets that were joined to the packet before, so that the kernel gets one packet
    /// of several segments.
    #[serde(default)]
    pub packets_joined: u64,
    /// TCP SYNs whose maximum segment size the member lowered.
    pub mss_clamped: u64,
    /// ICMP errors that the member sent to its kernel.
    pub errors_sent: u64,
    /// Flows that the member requested.
    pub flows_requested: u64,
    /// Flow requests of other members that this member refused.
    pub flows_denied: u64,
    /// Packets that the member dropped, by reason.
    pub dropped: BTreeMap<Reason, u64>,
}

impl Counters {
    /// Counts a dropped packet.
    pub fn drop(&mut self, reason: Reason) {
        self.drop_many(reason, 1);
    }

    /// Adds the counts of another worker of the same member.
    pub(crate) fn add(&mut self, other: &Counters) {
        self.packets_sent += other.packets_sent;
        self.bytes_sent += other.bytes_sent;
        self.packets_received += other.packets_received;
        self.bytes_received += other.bytes_received;
        self.packets_cut += other.packets_cut;
        self.packets_joined += other.packets_joined;
        self.mss_clamped += other.mss_clamped;
        self.errors_sent += other.errors_sent;
        self.flows_requested += other.flows_requested;
        self.flows_denied += other.flows_denied;
        for (reason, count) in &other.dropped {
            *self.dropped.entry(*reason).or_default() += count;
        }
    }

    /// Counts several dropped packets.
    pub(crate) fn drop_many(&mut self, reason: Reason, count: usize) {
        if count > 0 {
            *self.dropped.entry(reason).or_default() += count as u64;
        }
    }
}
