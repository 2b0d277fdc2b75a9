//! Decides what happens to each packet: over which flow it travels, or why it is dropped.
//!
//! The machine does no I/O; time is an argument.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use carina_apps::prefix::Address as _;

use crate::class::Class;
use crate::counters::Reason;
use crate::flows::{FlowLimits, FlowTable, Found};
use crate::packet::Packet;
use crate::prefix::{IpPrefix, PrefixTable};

pub use crate::flows::{FlowId, FlowKey};

/// The prefixes of this member and of the others, and the flows between them.
#[derive(Debug)]
pub struct Router {
    own: PrefixTable,
    members: PrefixTable,
    /// Whether `members` has all prefixes that are registered in the DIF.
    is_complete: bool,
    flows: FlowTable,
}

/// What to do with a packet that the kernel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send the packet over this flow, or queue it while the flow is requested.
    Send(FlowId),
    /// Request this flow, and queue the packet for it.
    Request(FlowId, FlowKey),
    /// Drop the packet.
    Drop(Reason),
}

impl Router {
    /// Makes the router of one of `workers` threads of a member that has registered the prefixes
    /// `own`; the threads share the limits of the member. Deallocates flows that carry no packet
    /// for `idle`.
    #[must_use]
    pub fn new(own: &[IpPrefix], idle: Duration, workers: usize) -> Router {
        let share = |limit: usize| limit / workers.max(1);
        Router {
            own: own.iter().copied().collect(),
            members: PrefixTable::default(),
            is_complete: false,
            flows: FlowTable::new(FlowLimits {
                flows_max: share(FLOWS_MAX),
                unknown_max: share(UNKNOWN_MAX),
                refused_max: share(REFUSED_MAX),
                refused_for: REFUSED_FOR,
                idle,
            }),
        }
    }

    /// Sets the prefixes of the other members. `is_complete`: the DIF has no further ones, so that
    /// packets to other destinations need no request.
    pub fn set_members(&mut self, members: impl IntoIterator<Item = IpPrefix>, is_complete: bool) {
        let own = &self.own;
        let others = members.into_iter().filter(|prefix| !own.contains(*prefix));
        self.members = others.take(MEMBERS_MAX).collect();
        self.is_complete = is_complete;
        self.flows.forget_refusals();
    }

    /// Decides about a packet that the kernel sends.
    pub fn handle_outgoing(&mut self, packet: &Packet, now: Instant) -> Decision {
        match self.flow_for(packet, now) {
            Ok(Found::Known(id)) => Decision::Send(id),
            Ok(Found::New(id)) => match self.key(id) {
                Some(key) => Decision::Request(id, key),
                None => Decision::Drop(Reason::FlowEnded),
            },
            Err(reason) => Decision::Drop(reason),
        }
    }

    /// Returns the flow over which a packet of the kernel travels, if the flow exists or is
    /// requested and the destination belongs to a known member.
    pub fn known_flow(&mut self, packet: &Packet, now: Instant) -> Option<FlowId> {
        let key = FlowKey {
            local: self.own.find(packet.source)?,
            remote: self.members.find(packet.destination)?,
            class: Class::of_dscp(packet.dscp),
        };
        self.flows.known(key, now).filter(|_| !packet.is_to_many())
    }

    fn flow_for(&mut self, packet: &Packet, now: Instant) -> Result<Found, Reason> {
        if packet.is_to_many() {
            return Err(Reason::ToMany);
        }
        let local = self.own.find(packet.source).ok_or(Reason::SourceNotOwn)?;
        let known = self.members.find(packet.destination);
        let remote = match known {
            Some(remote) => remote,
            None if self.is_complete || is_local_only(packet.destination) => {
                return Err(Reason::NoMember);
            }
            None => IpPrefix::host(packet.destination),
        };
        let key = FlowKey {
            local,
            remote,
            class: Class::of_dscp(packet.dscp),
        };
        self.flows.find(key, known.is_none(), now)
    }

    /// Checks a packet that arrived over a flow which the member with the prefix `peer` allocated.
    ///
    /// # Errors
    /// The source is outside of the peer's prefix, or in a longer prefix of another member or of
    /// this member; or the destination is in no prefix of this member.
    pub fn check_incoming(&self, peer: IpPrefix, packet: &Packet) -> Result<(), Reason> {
        let longest = self.members.find(packet.source);
        let is_own = self.own.find(packet.source);
        let is_peers = peer.contains(packet.source)
            && longest.is_none_or(|longest| longest.bits() <= peer.bits())
            && is_own.is_none_or(|own| own.bits() < peer.bits());
        if !is_peers {
            return Err(Reason::SourceNotPeers);
        }
        if self.own.find(packet.destination).is_none() {
            return Err(Reason::DestinationNotOwn);
        }
        Ok(())
    }

    /// Whether a flow from this prefix may be accepted: `None` while the directory does not have
    /// the prefix but may get it.
    #[must_use]
    pub fn may_accept(&self, peer: IpPrefix) -> Option<bool> {
        if self.own.contains(peer) {
            return Some(false);
        }
        (self.members.contains(peer) || !self.is_complete).then_some(true)
    }

    /// Notes that a requested flow is open.
    pub fn handle_opened(&mut self, id: FlowId) {
        self.flows.opened(id);
    }

    /// Notes that a requested flow was refused. It is not requested again for a second.
    pub fn handle_refused(&mut self, id: FlowId, now: Instant) {
        self.flows.refused(id, now);
    }

    /// Notes that a flow has ended. The next packet requests it again.
    pub fn handle_ended(&mut self, id: FlowId) {
        self.flows.remove(id);
    }

    /// Removes the idle flows, which the caller must deallocate.
    pub fn poll_idle(&mut self, now: Instant) -> Vec<FlowId> {
        self.flows.remove_idle(now)
    }

    /// Returns what a flow carries.
    #[must_use]
    pub fn key(&self, id: FlowId) -> Option<FlowKey> {
        self.flows.key(id)
    }

    /// Number of flows that exist or are requested.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Whether the list of members has all prefixes of the DIF.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

/// Whether an address has a meaning on its link only, so that no name of a DIF can have it.
fn is_local_only(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.masked(10) == LINK_LOCAL || address.is_loopback(),
    }
}

const LINK_LOCAL: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// Largest number of flows of a member, requested and open.
const FLOWS_MAX: usize = 1024;
/// Largest number of unanswered requests to destinations that the directory does not have.
const UNKNOWN_MAX: usize = 32;
/// Largest number of refusals that a member remembers.
const REFUSED_MAX: usize = 4096;
/// How long the member waits after a refused request before it requests the same flow again.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Largest number of prefixes of other members.
const MEMBERS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    fn packet(source: &str, destination: &str) -> Packet {
        Packet {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            dscp: 0,
        }
    }

    fn router(members: &[&str], is_complete: bool) -> Router {
        let own = [prefix("10.9.1.1/32"), prefix("10.20.0.0/16")];
        let mut router = Router::new(&own, Duration::from_secs(60), 1);
        router.set_members(members.iter().map(|text| prefix(text)), is_complete);
        router
    }

    #[test]
    fn packets_of_one_class_to_one_member_share_a_flow() {
        let now = Instant::now();
        let mut router = router(&["10.9.1.2/32", "10.30.0.0/16"], true);
        let mut send = |source, destination, dscp| {
            let packet = Packet {
                dscp,
                ..packet(source, destination)
            };
            router.handle_outgoing(&packet, now)
        };
        let Decision::Request(first, key) = send("10.9.1.1", "10.30.0.1", 0) else {
            panic!("no flow is requested");
        };
        assert_eq!(
            (key.local, key.remote),
            (prefix("10.9.1.1/32"), prefix("10.30.0.0/16"))
        );
        assert_eq!(send("10.9.1.1", "10.30.7.7", 0), Decision::Send(first));
        // Another class, source or destination has another flow.
        for (source, destination, dscp) in [
            ("10.9.1.1", "10.30.0.1", 46),
            ("10.20.0.9", "10.30.0.1", 0),
            ("10.9.1.1", "10.9.1.2", 0),
        ] {
            let other = send(source, destination, dscp);
            assert!(
                matches!(other, Decision::Request(id, _) if id != first),
                "{other:?}"
            );
        }
        assert_eq!(
            send("10.9.1.7", "10.9.1.2", 0),
            Decision::Drop(Reason::SourceNotOwn)
        );
        assert_eq!(
            send("10.9.1.1", "10.9.1.3", 0),
            Decision::Drop(Reason::NoMember)
        );
        assert_eq!(
            send("10.9.1.1", "224.0.0.1", 0),
            Decision::Drop(Reason::ToMany)
        );
    }

    #[test]
    fn member_may_send_from_its_prefix_only() {
        let router = router(
            &["10.9.1.2/32", "10.30.0.0/16", "10.30.5.0/24", "0.0.0.0/0"],
            true,
        );
        let check = |peer: &str, source: &str, destination: &str| {
            router.check_incoming(prefix(peer), &packet(source, destination))
        };
        assert_eq!(check("10.9.1.2/32", "10.9.1.2", "10.9.1.1"), Ok(()));
        assert_eq!(check("10.30.0.0/16", "10.30.1.1", "10.20.9.9"), Ok(()));
        for (peer, source) in [
            ("10.9.1.2/32", "10.9.1.3"),
            // A longer prefix belongs to another member, or to this one.
            ("10.30.0.0/16", "10.30.5.1"),
            ("0.0.0.0/0", "10.30.1.1"),
            ("0.0.0.0/0", "10.9.1.1"),
        ] {
            let checked = check(peer, source, "10.9.1.1");
            assert_eq!(checked, Err(Reason::SourceNotPeers), "{source} of {peer}");
        }
        let elsewhere = check("10.9.1.2/32", "10.9.1.2", "10.30.0.1");
        assert_eq!(elsewhere, Err(Reason::DestinationNotOwn));
    }

    #[test]
    fn scan_of_100000_addresses_leaves_others_undisturbed() {
        let now = Instant::now();
        for is_complete in [true, false] {
            let mut router = router(&["10.9.1.2/32"], is_complete);
            for n in 0..100_000_u32 {
                let mut target = packet("10.9.1.1", "10.9.1.2");
                target.destination = std::net::Ipv4Addr::from_bits(0x0b00_0000 + n).into();
                // The node refuses every second request at once.
                if let Decision::Request(id, _) = router.handle_outgoing(&target, now)
                    && n % 2 == 0
                {
                    router.handle_refused(id, now);
                }
            }
            let waiting = if is_complete { 0 } else { UNKNOWN_MAX };
            assert_eq!(router.flows(), waiting);
            let decision = router.handle_outgoing(&packet("10.9.1.1", "10.9.1.2"), now);
            assert!(matches!(decision, Decision::Request(..)), "{decision:?}");
        }
    }

    #[test]
    fn refused_flow_is_requested_again_after_a_second() {
        let now = Instant::now();
        let mut router = router(&["10.9.1.2/32"], true);
        let packet = packet("10.9.1.1", "10.9.1.2");
        let Decision::Request(id, _) = router.handle_outgoing(&packet, now) else {
            panic!("no flow is requested");
        };
        router.handle_refused(id, now);
        let refused = router.handle_outgoing(&packet, now);
        assert_eq!(refused, Decision::Drop(Reason::FlowRefused));
        let later = router.handle_outgoing(&packet, now + REFUSED_FOR);
        assert!(matches!(later, Decision::Request(..)), "{later:?}");
    }

    #[test]
    fn idle_flow_is_given_back() {
        let now = Instant::now();
        let mut router = router(&["10.9.1.2/32"], true);
        let packet = packet("10.9.1.1", "10.9.1.2");
        let Decision::Request(id, _) = router.handle_outgoing(&packet, now) else {
            panic!("no flow is requested");
        };
        router.handle_opened(id);
        let used = now + Duration::from_secs(30);
        assert_eq!(router.handle_outgoing(&packet, used), Decision::Send(id));
        assert!(router.poll_idle(now + Duration::from_secs(60)).is_empty());
        assert_eq!(router.poll_idle(used + Duration::from_secs(60)), [id]);
        assert_eq!(router.flows(), 0);
    }

    #[test]
    fn flow_of_an_unregistered_name_waits_for_the_directory() {
        let mut router = router(&["10.9.1.2/32"], true);
        assert_eq!(router.may_accept(prefix("10.9.1.2/32")), Some(true));
        assert_eq!(router.may_accept(prefix("10.9.1.1/32")), Some(false));
        assert_eq!(router.may_accept(prefix("10.9.1.3/32")), None);
        router.set_members([prefix("10.9.1.3/32")], true);
        assert_eq!(router.may_accept(prefix("10.9.1.3/32")), Some(true));
    }
}
