//! The AFTR's counters: those of the model `snabb-softwire`, under its names, and those that the
//! model lacks.
//!
//! Byte counters count frames without VLAN tag: Ethernet header and packet. A packet counts as a
//! whole, before it is fragmented and after it is reassembled. `drop-all-ipv4-iface` and
//! `drop-all-ipv6-iface` sum all frames that arrived on that side and were dropped, for whatever
//! reason.

macro_rules! names {
    ($(#[$doc:meta])* $name:ident: $($variant:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each is its name")]
        pub enum $name {
            $($variant,)*
        }

        impl $name {
            /// The number of counters.
            pub const COUNT: usize = $name::ALL.len();
            /// All counters, in the order of their values.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The counter's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

names! {
    /// A counter of packets and bytes; its two names end with `-packets` and `-bytes`.
    PairCounter:
        DropAllIpv4Iface = "drop-all-ipv4-iface",
        DropAllIpv6Iface = "drop-all-ipv6-iface",
        DropBadChecksumIcmpv4 = "drop-bad-checksum-icmpv4",
        DropInByPolicyIcmpv4 = "drop-in-by-policy-icmpv4",
        DropInByPolicyIcmpv6 = "drop-in-by-policy-icmpv6",
        DropInByRfc7596Icmpv4 = "drop-in-by-rfc7596-icmpv4",
        DropMisplacedNotIpv4 = "drop-misplaced-not-ipv4",
        DropMisplacedNotIpv6 = "drop-misplaced-not-ipv6",
        DropNoDestSoftwireIpv4 = "drop-no-dest-softwire-ipv4",
        DropNoSourceSoftwireIpv6 = "drop-no-source-softwire-ipv6",
        DropOverMtuButDontFragmentIpv4 = "drop-over-mtu-but-dont-fragment-ipv4",
        DropOverRateLimitIcmpv6 = "drop-over-rate-limit-icmpv6",
        DropOverTimeButNotHopLimitIcmpv6 = "drop-over-time-but-not-hop-limit-icmpv6",
        DropTooBigTypeButNotCodeIcmpv6 = "drop-too-big-type-but-not-code-icmpv6",
        DropTtlZeroIpv4 = "drop-ttl-zero-ipv4",
        DropUnknownProtocolIcmpv6 = "drop-unknown-protocol-icmpv6",
        DropUnknownProtocolIpv6 = "drop-unknown-protocol-ipv6",
        HairpinIpv4 = "hairpin-ipv4",
        InArpReply = "in-arp-reply",
        InArpRequest = "in-arp-request",
        InIcmpv4Echo = "in-icmpv4-echo",
        InIcmpv6Echo = "in-icmpv6-echo",
        InIpv4 = "in-ipv4",
        InIpv6 = "in-ipv6",
        InNdpNa = "in-ndp-na",
        InNdpNs = "in-ndp-ns",
        OutArpReply = "out-arp-reply",
        OutArpRequest = "out-arp-request",
        OutIcmpv4Echo = "out-icmpv4-echo",
        OutIcmpv4Error = "out-icmpv4-error",
        OutIcmpv6Echo = "out-icmpv6-echo",
        OutIcmpv6Error = "out-icmpv6-error",
        OutIpv4 = "out-ipv4",
        OutIpv6 = "out-ipv6",
        OutNdpNa = "out-ndp-na",
        OutNdpNs = "out-ndp-ns",
        // Counters that the model lacks.
        DropBadChecksumIcmpv6 = "drop-bad-checksum-icmpv6",
        DropCeButNotEctIpv4 = "drop-ce-but-not-ect-ipv4",
        DropExtensionHeadersIpv6 = "drop-extension-headers-ipv6",
        DropFilteredInIpv4 = "drop-filtered-in-ipv4",
        DropFilteredInIpv6 = "drop-filtered-in-ipv6",
        DropFilteredOutIpv4 = "drop-filtered-out-ipv4",
        DropFilteredOutIpv6 = "drop-filtered-out-ipv6",
        DropMalformedIpv4 = "drop-malformed-ipv4",
        DropMalformedIpv6 = "drop-malformed-ipv6",
        DropMalformedArp = "drop-malformed-arp",
        DropMalformedNdp = "drop-malformed-ndp",
        DropNoFrame = "drop-no-frame",
        DropNotOursIcmpv6 = "drop-not-ours-icmpv6",
        DropOverRateLimitIcmpv4 = "drop-over-rate-limit-icmpv4",
        DropTooSmallMtuIcmpv6 = "drop-too-small-mtu-icmpv6",
        DropUnfinished = "drop-unfinished",
        DropUnresolvedIpv4 = "drop-unresolved-ipv4",
        DropUnresolvedIpv6 = "drop-unresolved-ipv6",
        DropWrongVlan = "drop-wrong-vlan",
}

impl PairCounter {
    /// Whether the counter belongs to the model `snabb-softwire`, and not only to Carina.
    #[must_use]
    pub fn is_of_the_model(self) -> bool {
        self < PairCounter::DropBadChecksumIcmpv6
    }
}

names! {
    /// A counter of packets without their bytes. `memuse-…` are bytes of memory, `path-mtus`
    /// entries.
    Single:
        DropIpv4FragDisabled = "drop-ipv4-frag-disabled",
        DropIpv4FragInvalidReassembly = "drop-ipv4-frag-invalid-reassembly",
        DropIpv4FragRandomEvicted = "drop-ipv4-frag-random-evicted",
        DropIpv6FragDisabled = "drop-ipv6-frag-disabled",
        DropIpv6FragInvalidReassembly = "drop-ipv6-frag-invalid-reassembly",
        DropIpv6FragRandomEvicted = "drop-ipv6-frag-random-evicted",
        DropOutByPolicyIcmpv4Packets = "drop-out-by-policy-icmpv4-packets",
        DropOutByPolicyIcmpv6Packets = "drop-out-by-policy-icmpv6-packets",
        InIpv4FragNeedsReassembly = "in-ipv4-frag-needs-reassembly",
        InIpv4FragReassembled = "in-ipv4-frag-reassembled",
        InIpv4FragReassemblyUnneeded = "in-ipv4-frag-reassembly-unneeded",
        InIpv6FragNeedsReassembly = "in-ipv6-frag-needs-reassembly",
        InIpv6FragReassembled = "in-ipv6-frag-reassembled",
        InIpv6FragReassemblyUnneeded = "in-ipv6-frag-reassembly-unneeded",
        IngressPacketDrops = "ingress-packet-drops",
        MemuseIpv4FragReassemblyBuffer = "memuse-ipv4-frag-reassembly-buffer",
        MemuseIpv6FragReassemblyBuffer = "memuse-ipv6-frag-reassembly-buffer",
        OutIpv4Frag = "out-ipv4-frag",
        OutIpv4FragNot = "out-ipv4-frag-not",
        OutIpv6Frag = "out-ipv6-frag",
        OutIpv6FragNot = "out-ipv6-frag-not",
        // Counters that the model lacks.
        DropIpv4FragExpired = "drop-ipv4-frag-expired",
        DropIpv6FragExpired = "drop-ipv6-frag-expired",
        PathMtus = "path-mtus",
}

/// The counters of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    pairs: [[u64; 2]; PairCounter::COUNT],
    singles: [u64; Single::COUNT],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            pairs: [[0; 2]; PairCounter::COUNT],
            singles: [0; Single::COUNT],
        }
    }
}

impl Counters {
    /// Adds one packet of `bytes` bytes to a counter of packets and bytes.
    #[inline]
    pub fn count(&mut self, of: PairCounter, bytes: usize) {
        let [packets, sum] = &mut self.pairs[of as usize];
        *packets += 1;
        *sum += bytes as u64;
    }

    /// Adds `count` packets to a counter of packets alone.
    #[inline]
    pub fn add(&mut self, single: Single, count: usize) {
        self.singles[single as usize] += count as u64;
    }

    /// Sets a counter that holds a present value, such as memory in use, and not a sum.
    pub fn set(&mut self, single: Single, value: u64) {
        self.singles[single as usize] = value;
    }

    /// How many packets and how many bytes a counter has counted, in this order.
    #[must_use]
    pub fn of(&self, of: PairCounter) -> [u64; 2] {
        self.pairs[of as usize]
    }

    /// The value of a counter without a count of bytes: packets, bytes of memory in use
    /// (`memuse-…`), or entries (`path-mtus`).
    #[must_use]
    pub fn single(&self, single: Single) -> u64 {
        self.singles[single as usize]
    }

    /// The names of all counters, in the order of [`Counters::values`].
    #[must_use]
    pub fn names() -> Vec<String> {
        let pairs = PairCounter::ALL.iter().flat_map(|of| {
            let name = |unit| format!("{}-{unit}", of.name());
            [name("packets"), name("bytes")]
        });
        let singles = Single::ALL.iter().map(|single| single.name().to_owned());
        pairs.chain(singles).collect()
    }

    /// The values of all counters, in the order of [`Counters::names`].
    pub fn values(&self) -> impl Iterator<Item = u64> {
        self.pairs.iter().flatten().chain(&self.singles).copied()
    }

    /// Every counter with its name, sorted by name.
    #[must_use]
    pub fn all(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = Counters::names().into_iter().zip(self.values()).collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of revision 2021-11-08 of the model.
    const MODEL: &str = include_str!("../tests/files/counters-of-the-model");

    #[test]
    fn every_counter_of_the_model_has_its_name() {
        let names: Vec<String> = Counters::default()
            .all()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(MODEL.lines().count(), 93);
        for name in MODEL.lines() {
            assert!(names.iter().any(|own| own == name), "{name}");
        }
        for of in PairCounter::ALL {
            let packets = format!("{}-packets", of.name());
            let is_listed = MODEL.lines().any(|name| name == packets);
            assert_eq!(is_listed, of.is_of_the_model(), "{packets}");
        }
        assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn counters_count_packets_and_their_bytes() {
        let mut counters = Counters::default();
        counters.count(PairCounter::InIpv4, 60);
        counters.count(PairCounter::InIpv4, 100);
        counters.add(Single::OutIpv6Frag, 2);
        let all = counters.all();
        let value = |wanted: &str| all.iter().find(|(name, _)| name == wanted).unwrap().1;
        assert_eq!((value("in-ipv4-packets"), value("in-ipv4-bytes")), (2, 160));
        assert_eq!((value("out-ipv6-frag"), value("out-ipv4-frag")), (2, 0));
    }
}
