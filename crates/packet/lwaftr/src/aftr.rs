//! The forwarding machine of an AFTR: frames in, frames out, no I/O. (RFC 7596 §6)
//!
//! ```text
//!                 external, IPv4                        internal, IPv6
//!   in:   tag off, reassemble, filter,          tag off, reassemble, filter,
//!         ARP, echo                             neighbours, echo
//!            |                                        |
//!         softwire of the destination           softwire of the inner source
//!            | encapsulate                            | decapsulate
//!   out:     +------------------------> internal      +---> external, or back (hairpin)
//!         header of Ethernet, filter, cut, tag
//! ```

mod arrived;
mod external;
mod internal;
mod parts;
mod tell;

use std::sync::Arc;

use carina_apps::congestion::class_of;
use carina_apps::metadata::complete;
use carina_apps::next_hop::Heard;
use carina_apps::station::{Station4, Station6};
use carina_filter::FilterError;
use carina_frame::{Frame, Pool};
use carina_time::{Duration, Instant};
use carina_wire::ether::{ETHERTYPE_ARP, Mac, TPID_CUSTOMER};
use carina_wire::inet::{ETHERTYPE_IPV4, PROTOCOL_IPV4};

use crate::config::{Config, NextHopAddress, Queue, Rules};
use crate::counters::{Counters, PairCounter, Single};
use crate::exchange::Learnt;
use crate::icmp::Limit;
use crate::link::{ETHER, Ether, Family, Leaving, Link};
use crate::numbers::Numbers;
use crate::path_mtu::PathMtus;
use crate::table::{Table, Tunnel};

use self::parts::Parts;

/// One worker's AFTR, with the addresses of one queue of the configuration.
pub struct Aftr {
    rules: Rules,
    table: Arc<Table>,
    external: Link,
    internal: Link,
    own: Own,
    policy: Policy,
    limit4: Limit,
    limit6: Limit,
    parts: Parts,
    paths: PathMtus,
    counters: Counters,
    pool: Pool,
    numbers: Numbers,
    out: Outputs,
    next_visit: Instant,
    /// Whether this worker sends the ARP requests and neighbour solicitations for next hops. Of
    /// several workers with the same addresses, one does.
    asks: bool,
    /// What this worker has learnt and the caller has not yet passed to the other workers; `None`
    /// when there is only one worker.
    learnt: Option<Vec<Learnt>>,
}

/// The AFTR's own addresses on both sides, and the next hops that it resolves by ARP and neighbour
/// discovery.
#[derive(Clone, Copy)]
struct Own {
    v4: Station4,
    v6: Station6,
}

/// What the configuration allows, as read from [`Config`].
#[derive(Clone, Copy)]
struct Policy {
    has_hairpinning: bool,
    allows_icmp4: bool,
    allows_icmp6: bool,
    sends_errors4: bool,
    sends_errors6: bool,
    flow_label: u32,
}

/// Frames that the AFTR sends, in order.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Frames to send towards the IPv4 Internet.
    pub external: Vec<Frame>,
    /// Frames to send towards the IPv6 access network.
    pub internal: Vec<Frame>,
}

impl Aftr {
    /// Makes the AFTR of one `queue` of `config`.
    ///
    /// # Errors
    /// A filter of `config` cannot be compiled. The filters of a configuration that was read from a
    /// file always can.
    pub fn new(
        config: &Config,
        queue: &Queue,
        table: Arc<Table>,
        rules: Rules,
        pool: Pool,
    ) -> Result<Aftr, FilterError> {
        let (external, internal) = (&config.external, &config.internal);
        let (next4, mac4) = split(queue.external.next_hop);
        let (next6, mac6) = split(queue.internal.next_hop);
        let ether4 = Ether {
            mac: queue.external.mac,
            vlan: queue.external.vlan,
            next: mac4,
        };
        let ether6 = Ether {
            mac: queue.internal.mac,
            vlan: queue.internal.vlan,
            next: mac6,
        };
        Ok(Aftr {
            rules,
            table,
            external: Link::new(Family::V4, ether4, external.mtu, &external.side, rules)?,
            internal: Link::new(Family::V6, ether6, internal.mtu, &internal.side, rules)?,
            own: Own {
                v4: Station4 {
                    mac: ether4.mac.0,
                    ip: queue.external.ip.octets(),
                    next: next4.map(|ip| ip.octets()),
                },
                v6: Station6 {
                    mac: ether6.mac.0,
                    ip: queue.internal.ip.octets(),
                    next: next6.map(|ip| ip.octets()),
                    is_router: true,
                },
            },
            policy: Policy {
                has_hairpinning: internal.has_hairpinning,
                allows_icmp4: external.side.allows_icmp,
                allows_icmp6: internal.side.allows_icmp,
                sends_errors4: external.side.sends_icmp_errors,
                sends_errors6: internal.side.sends_icmp_errors,
                flow_label: internal.flow_label,
            },
            limit4: Limit::new(external.side.error_rate),
            limit6: Limit::new(internal.side.error_rate),
            parts: Parts::new(external.side.reassembly, internal.side.reassembly),
            paths: PathMtus::default(),
            counters: Counters::default(),
            pool,
            numbers: Numbers::new(),
            out: Outputs::default(),
            next_visit: Instant::ZERO,
            asks: true,
            learnt: None,
        })
    }

    /// Makes this AFTR one of several workers, which pass on to each other what they learn
    /// ([`Aftr::take_learnt`]). Of the workers with the same addresses, one `asks` for next hops:
    /// it sends ARP requests and neighbour solicitations.
    #[must_use]
    pub fn of_several(mut self, asks: bool) -> Aftr {
        (self.asks, self.learnt) = (asks, Some(Vec::new()));
        self
    }
}

impl Aftr {
    /// Handles a frame that arrived from the Internet at time `now`. Frames to send are appended to
    /// [`Aftr::outputs`].
    pub fn handle_external(&mut self, mut frame: Frame, now: Instant) {
        let bytes = frame.len();
        match (complete(&mut frame), self.external.untag(&mut frame)) {
            (true, true) => self.external_frame(frame, now),
            (true, false) => self.drop4(PairCounter::DropWrongVlan, bytes),
            (false, _) => self.drop4(PairCounter::DropUnfinished, bytes),
        }
    }

    /// Prefetches the memory of the binding table that a frame from the Internet will need, so that
    /// the cache misses of a burst overlap. The result has no meaning; it keeps the compiler from
    /// removing the reads.
    #[must_use]
    #[inline]
    pub fn touch_external(&self, frame: &[u8]) -> u64 {
        self.touch(frame, ETHER, 16, 22)
    }

    /// Like [`Aftr::touch_external`], for a frame from the access network.
    #[must_use]
    #[inline]
    pub fn touch_internal(&self, frame: &[u8]) -> u64 {
        self.touch(frame, ETHER + 40, 12, 20)
    }

    /// Prefetches the table's memory for the IPv4 packet, without options, that begins at byte
    /// `start` of `frame`. `address` and `port` are the offsets, within that packet, of the address
    /// and the port to look up.
    #[inline]
    fn touch(&self, frame: &[u8], start: usize, address: usize, port: usize) -> u64 {
        let Some(packet) = frame.get(start..).and_then(|rest| rest.first_chunk::<24>()) else {
            return 0;
        };
        let mut ipv4 = [0; 4];
        ipv4.copy_from_slice(&packet[address..address + 4]);
        let port = u16::from_be_bytes([packet[port], packet[port + 1]]);
        self.table.touch(ipv4, port)
    }

    /// Like [`Aftr::handle_external`], for a frame that arrived from the access network.
    pub fn handle_internal(&mut self, mut frame: Frame, now: Instant) {
        let bytes = frame.len();
        match (complete(&mut frame), self.internal.untag(&mut frame)) {
            (true, true) => self.internal_frame(frame, now),
            (true, false) => self.drop6(PairCounter::DropWrongVlan, bytes),
            (false, _) => self.drop6(PairCounter::DropUnfinished, bytes),
        }
    }

    /// Like [`Aftr::handle_external`], for a frame of the one segment that both sides share ("on a
    /// stick"): IPv4 and ARP frames count as external, all others as internal.
    pub fn handle_stick(&mut self, mut frame: Frame, now: Instant) {
        if !complete(&mut frame) {
            return self.drop4(PairCounter::DropUnfinished, frame.len());
        }
        let bytes = frame.bytes();
        let word = |at: usize| match bytes.get(at..at + 2) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            _ => 0,
        };
        let ethertype = match word(12) {
            TPID_CUSTOMER => word(16),
            ethertype => ethertype,
        };
        match ethertype {
            ETHERTYPE_IPV4 | ETHERTYPE_ARP => self.handle_external(frame, now),
            _ => self.handle_internal(frame, now),
        }
    }

    /// Does what is due at time `now`: asks for next hops, and gives up packets that have stayed
    /// incomplete for too long. Call it about every 100 ms.
    pub fn handle_time(&mut self, now: Instant) {
        if self.external.must_ask(now) && self.asks {
            self.ask4();
        }
        if self.internal.must_ask(now) && self.asks {
            self.ask6();
        }
        if now >= self.next_visit {
            self.next_visit = now + EXPIRE_EVERY;
            self.expire(now);
            self.paths.expire(now);
            self.count_paths();
        }
    }

    fn count_paths(&mut self) {
        let count = self.paths.len() as u64;
        self.counters.set(Single::PathMtus, count);
    }

    /// Takes the [`Learnt`] facts that this worker has found since the last call; the caller passes
    /// them to the other workers.
    pub fn take_learnt(&mut self) -> impl Iterator<Item = Learnt> {
        self.learnt.iter_mut().flat_map(|learnt| learnt.drain(..))
    }

    /// Uses a fact that another worker has learnt: a next hop's MAC address, or a path MTU.
    pub fn handle_learnt(&mut self, learnt: &Learnt, now: Instant) {
        match *learnt {
            Learnt::NextHop4 { ip, mac } if Some(ip) == self.own.v4.next => {
                self.hear4(Heard::answer(mac), now);
            }
            Learnt::NextHop6 { ip, mac } if Some(ip) == self.own.v6.next => {
                self.hear6(Heard::answer(mac), now);
            }
            Learnt::PathMtu { b4, mtu } => {
                self.paths.learn(b4, mtu, now);
                self.count_paths();
            }
            // A next hop that this worker does not have.
            Learnt::NextHop4 { .. } | Learnt::NextHop6 { .. } => {}
        }
    }

    /// Handles what a message tells about the external next hop. Packets that have waited for its
    /// MAC address leave. Returns the MAC address when the message confirms or changes it.
    fn hear4(&mut self, heard: Heard, now: Instant) -> Option<[u8; 6]> {
        let (link, leaving) = self.leaving4();
        link.hear(heard, now, leaving)
    }

    /// Like [`Aftr::hear4`], for the internal next hop.
    fn hear6(&mut self, heard: Heard, now: Instant) -> Option<[u8; 6]> {
        let (link, leaving) = self.leaving6();
        link.hear(heard, now, leaving)
    }

    /// Sets the identification from which the AFTR counts when it fragments IPv4 packets and the
    /// rules give the fragments new identifications.
    pub(crate) fn number_from(&mut self, identification: u16) {
        self.numbers.number_from(identification);
    }

    fn tell_others(&mut self, learnt: Learnt) {
        if let Some(all) = &mut self.learnt {
            all.push(learnt);
        }
    }

    /// The frames to send, by side. The caller must drain the lists: the AFTR appends to them and
    /// never removes a frame.
    pub fn outputs(&mut self) -> &mut Outputs {
        &mut self.out
    }

    /// The counters of this worker.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the MAC addresses of the external and of the internal next hop are known, in this
    /// order.
    #[must_use]
    pub fn are_resolved(&self) -> [bool; 2] {
        [self.external.is_resolved(), self.internal.is_resolved()]
    }

    /// Replaces the binding table; it is used from the next frame on.
    pub fn set_table(&mut self, table: Arc<Table>) {
        self.table = table;
    }

    /// The binding table in use.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    fn drop4(&mut self, of: PairCounter, bytes: usize) {
        self.counters.count(of, bytes);
        if of.is_of_the_model() || !self.rules.counts_as_snabb {
            self.counters.count(PairCounter::DropAllIpv4Iface, bytes);
        }
    }

    fn drop6(&mut self, of: PairCounter, bytes: usize) {
        self.counters.count(of, bytes);
        if of.is_of_the_model() || !self.rules.counts_as_snabb {
            self.counters.count(PairCounter::DropAllIpv6Iface, bytes);
        }
    }

    /// Sends an IPv4 packet to the Internet.
    fn send4(&mut self, packet: Frame) {
        self.counters
            .count(PairCounter::OutIpv4, ETHER + packet.len());
        let (link, leaving) = self.leaving4();
        link.send(packet, leaving);
    }

    /// Sends an IPv6 packet to the access network.
    fn send6(&mut self, packet: Frame) {
        self.send6_within(packet, self.internal.mtu());
    }

    /// Like [`Aftr::send6`], but fragments the packet if it is longer than `mtu` bytes.
    fn send6_within(&mut self, packet: Frame, mtu: usize) {
        self.counters
            .count(PairCounter::OutIpv6, ETHER + packet.len());
        let (link, leaving) = self.leaving6();
        link.send(packet, Leaving { mtu, ..leaving });
    }

    /// The length of the longest IPv6 packet that may be sent to the B4 of `tunnel`, in bytes.
    fn mtu_to(&self, tunnel: &Tunnel) -> usize {
        let mtu = self.internal.mtu();
        self.paths.of(&tunnel.b4).map_or(mtu, |path| path.min(mtu))
    }

    fn leaving4(&mut self) -> (&mut Link, Leaving<'_>) {
        let leaving = Leaving {
            out: &mut self.out.external,
            counters: &mut self.counters,
            pool: &self.pool,
            numbers: &mut self.numbers,
            mtu: self.external.mtu(),
        };
        (&mut self.external, leaving)
    }

    fn leaving6(&mut self) -> (&mut Link, Leaving<'_>) {
        let leaving = Leaving {
            out: &mut self.out.internal,
            counters: &mut self.counters,
            pool: &self.pool,
            numbers: &mut self.numbers,
            mtu: self.internal.mtu(),
        };
        (&mut self.internal, leaving)
    }

    /// Encapsulates an IPv4 packet and sends it through a softwire. An IPv6 packet that is too long
    /// is fragmented after encapsulation. (RFC 2473 §3.1)
    fn encapsulate(&mut self, mut packet: Frame, tunnel: &Tunnel) {
        let class = class_of(packet.bytes());
        let word = 6 << 28 | u32::from(class) << 20 | self.policy.flow_label;
        let mut header = [0; 40];
        header[..4].copy_from_slice(&word.to_be_bytes());
        header[4..6].copy_from_slice(&(packet.len() as u16).to_be_bytes());
        (header[6], header[7]) = (PROTOCOL_IPV4, self.rules.hop_limit);
        header[8..24].copy_from_slice(&tunnel.br);
        header[24..].copy_from_slice(&tunnel.b4);
        if packet.prepend(&header) {
            self.send6_within(packet, self.mtu_to(tunnel))
        } else {
            self.counters.count(PairCounter::DropNoFrame, packet.len())
        }
    }
}

/// Splits a next hop, which is given by its IP address or by its MAC address.
fn split<T>(next_hop: NextHopAddress<T>) -> (Option<T>, Option<Mac>) {
    match next_hop {
        NextHopAddress::Ip(ip) => (Some(ip), None),
        NextHopAddress::Mac(mac) => (None, Some(mac)),
    }
}

/// How often incomplete packets are checked for expiry.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
