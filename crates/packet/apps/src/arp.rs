//! **arp**: gives IPv4 frames the MAC address of their next hop, and answers ARP requests for its
//! own address. (RFC 826)
//!
//! - inputs, outputs: `south`, an Ethernet segment, and `north`. Frames from `north` get this app's
//!   MAC address as source and the next hop's as destination, and go to `south`. Frames from
//!   `south` go to `north`, except ARP for this app's address
//! - configuration: `address`, `mac`: addresses of this app; `next`: IPv4 address of the next hop;
//!   `next_mac`: MAC address of the next hop (default: found by ARP)
//! - counters: `requests_sent`, `replies_sent`; `resolved`: how often the next hop's MAC address
//!   was learned; `drop_unresolved`: frames for a next hop that has not answered; `drop_short`:
//!   frames without a whole MAC header
//! - cost: a write of 12 bytes per frame
//!
//! The app asks for the next hop's MAC address once a second until it answers, and then once a
//! minute. If the next hop stops answering, its last known address is used for three more minutes.
//! If it announces another address (gratuitous ARP), the app uses that at once, and asks for
//! confirmation.

use std::net::Ipv4Addr;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use carina_time::Duration;
use carina_wire::ether::{ETHERTYPE_ARP, Mac};
use carina_wire::inet::Arp4;
use serde::{Deserialize, Serialize};

use crate::mac_text::MacText;
use crate::next_hop::{NORTH, NextHop, NextHopCounters, PORTS, SOUTH, check_macs};
use crate::station::Station4;

/// The configuration of the app `arp`, which gives IPv4 frames the MAC address of their next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArpConfig {
    /// The app's IPv4 address.
    pub address: Ipv4Addr,
    /// The app's MAC address.
    pub mac: MacText,
    /// IPv4 address of the next hop.
    pub next: Ipv4Addr,
    /// MAC address of the next hop; `None` finds it by ARP.
    pub next_mac: Option<MacText>,
}

/// The running app `arp`: gives IPv4 frames the MAC address of their next hop.
pub struct Arp {
    station: Station4,
    next_hop: NextHop,
    pool: Pool,
    counters: Counters,
}

struct Counters {
    requests_sent: Counter,
    replies_sent: Counter,
    next_hop: NextHopCounters,
}

/// Why a configuration of the app `arp` is invalid.
#[derive(Debug, thiserror::Error)]
enum ArpError {
    #[error("next = {0}: must differ from address")]
    Same(Ipv4Addr),
}

impl AppConfig for ArpConfig {
    const KIND: &'static str = "arp";
    const INPUTS: PortList = PORTS;
    const OUTPUTS: PortList = PORTS;
    const TICK: Option<Duration> = Some(Duration::from_millis(100));

    type App = Arp;

    fn check(&self) -> Result<(), AppError> {
        check_macs(self.mac, self.next_mac)?;
        if self.next == self.address {
            return Err(ArpError::Same(self.next).into());
        }
        Ok(())
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Arp, AppError> {
        Ok(Arp {
            station: Station4 {
                mac: self.mac.0.0,
                ip: self.address.octets(),
                next: Some(self.next.octets()),
            },
            next_hop: NextHop::new(self.next_mac.map(|mac| mac.0.0)),
            pool: context.pool().clone(),
            counters: Counters {
                requests_sent: context.counter("requests_sent"),
                replies_sent: context.counter("replies_sent"),
                next_hop: NextHopCounters::new(context),
            },
        })
    }
}

impl FrameApp for Arp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.each(SOUTH, |frame, ports| {
            let bytes = frame.bytes();
            let is_arp = bytes.get(12..14) == Some(&ETHERTYPE_ARP.to_be_bytes());
            match bytes.get(14..).filter(|_| is_arp).and_then(Arp4::decode) {
                Some(arp) => self.on_arp(arp, frame, ports),
                None => ports.transmit(NORTH, frame),
            }
        });
        self.next_hop
            .forward(self.station.mac, ports, &self.counters.next_hop);
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        if self.next_hop.is_due(ports.now())
            && let Some(request) = self.station.request()
        {
            self.send(&request, ports);
        }
    }
}

impl Arp {
    fn on_arp(&mut self, arp: Arp4, frame: Frame, ports: &mut Ports<'_>) {
        if let Some(heard) = self.station.heard(&arp)
            && self.next_hop.hear(heard, ports.now())
        {
            self.counters.next_hop.resolved.add(1);
        }
        if arp.target.1 != self.station.ip {
            return ports.transmit(NORTH, frame);
        }
        if let Some(reply) = self.station.reply(&arp) {
            self.send(&reply, ports);
        }
    }

    fn send(&self, arp: &Arp4, ports: &mut Ports<'_>) {
        if let Some(frame) = self.pool.frame_of(&ether_of(arp)) {
            ports.transmit(SOUTH, frame);
            if arp.is_reply {
                self.counters.replies_sent.add(1)
            } else {
                self.counters.requests_sent.add(1)
            }
        }
    }
}

/// An ARP message as a frame: a request goes to all stations, a reply to the station that asked.
pub(crate) fn ether_of(arp: &Arp4) -> [u8; 60] {
    let to = if arp.is_reply {
        arp.target.0
    } else {
        Mac::BROADCAST.0
    };
    // 60 bytes is the shortest Ethernet frame, without FCS. (IEEE 802.3 §4A.4.2)
    let mut bytes = [0; 60];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&arp.sender.0);
    bytes[12..14].copy_from_slice(&ETHERTYPE_ARP.to_be_bytes());
    bytes[14..42].copy_from_slice(&arp.encode());
    bytes
}
