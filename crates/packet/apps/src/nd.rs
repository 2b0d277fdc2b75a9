//! **nd**: gives IPv6 frames the MAC address of their next hop, and answers solicitations of its
//! own address. (RFC 4861)
//!
//! - inputs, outputs: `south`, an Ethernet segment, and `north`. Frames from `north` get this app's
//!   MAC address as source and the next hop's as destination, and go to `south`. Frames from
//!   `south` go to `north`, except solicitations of this app's address and advertisements of the
//!   next hop
//! - configuration: `address`, `mac`: addresses of this app; `next`: IPv6 address of the next hop;
//!   `next_mac`: MAC address of the next hop (default: found by neighbour discovery)
//! - counters: `solicitations_sent`, `advertisements_sent`; `resolved`: how often the next hop's
//!   MAC address was learned; `drop_unresolved`: frames for a next hop that has not answered;
//!   `drop_invalid`: messages that RFC 4861 §7.1 or RFC 6980 forbid; `drop_short`: frames without
//!   a whole MAC header
//! - cost: a write of 12 bytes per frame
//!
//! The app asks for the next hop's MAC address at the same intervals as `arp`.

use std::net::Ipv6Addr;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, Ports};
use carina_time::Duration;
use carina_wire::inet::ETHERTYPE_IPV6;
use carina_wire::neighbour::{NEIGHBOUR_BYTES, Neighbour, NeighbourError, NeighbourKind};
use serde::{Deserialize, Serialize};

use crate::mac_text::MacText;
use crate::next_hop::{NORTH, NextHop, NextHopCounters, PORTS, SOUTH, check_macs};
use crate::station::Station6;

/// The configuration of the app `nd`, which gives IPv6 frames the MAC address of their next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NdConfig {
    /// The app's IPv6 address.
    pub address: Ipv6Addr,
    /// The app's MAC address.
    pub mac: MacText,
    /// IPv6 address of the next hop.
    pub next: Ipv6Addr,
    /// MAC address of the next hop; `None` finds it by neighbour discovery.
    pub next_mac: Option<MacText>,
}

/// The running app `nd`: gives IPv6 frames the MAC address of their next hop.
pub struct Nd {
    station: Station6,
    next_hop: NextHop,
    pool: Pool,
    counters: Counters,
}

struct Counters {
    solicitations_sent: Counter,
    advertisements_sent: Counter,
    next_hop: NextHopCounters,
    invalid: Counter,
}

/// Why a configuration of the app `nd` is invalid.
#[derive(Debug, thiserror::Error)]
enum NdError {
    #[error("{name} = {address}: must be the address of one station")]
    Group {
        name: &'static str,
        address: Ipv6Addr,
    },
    #[error("next = {0}: must differ from address")]
    Same(Ipv6Addr),
}

impl AppConfig for NdConfig {
    const KIND: &'static str = "nd";
    const INPUTS: PortList = PORTS;
    const OUTPUTS: PortList = PORTS;
    const TICK: Option<Duration> = Some(Duration::from_millis(100));

    type App = Nd;

    fn check(&self) -> Result<(), AppError> {
        check_macs(self.mac, self.next_mac)?;
        for (name, address) in [("address", self.address), ("next", self.next)] {
            if address.is_multicast() || address.is_unspecified() {
                return Err(NdError::Group { name, address }.into());
            }
        }
        if self.next == self.address {
            return Err(NdError::Same(self.next).into());
        }
        Ok(())
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Nd, AppError> {
        Ok(Nd {
            station: Station6 {
                mac: self.mac.0.0,
                ip: self.address.octets(),
                next: Some(self.next.octets()),
                is_router: false,
            },
            next_hop: NextHop::new(self.next_mac.map(|mac| mac.0.0)),
            pool: context.pool().clone(),
            counters: Counters {
                solicitations_sent: context.counter("solicitations_sent"),
                advertisements_sent: context.counter("advertisements_sent"),
                next_hop: NextHopCounters::new(context),
                invalid: context.counter("drop_invalid"),
            },
        })
    }
}

impl FrameApp for Nd {
    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.each(SOUTH, |frame, ports| {
            let bytes = frame.bytes();
            let is_ipv6 = bytes.get(12..14) == Some(&ETHERTYPE_IPV6.to_be_bytes());
            match bytes.get(14..).filter(|_| is_ipv6).map(Neighbour::decode) {
                Some(Ok(message)) => self.on_message(message, frame, ports),
                Some(Err(NeighbourError::Invalid)) => self.counters.invalid.add(1),
                Some(Err(_)) | None => ports.transmit(NORTH, frame),
            }
        });
        self.next_hop
            .forward(self.station.mac, ports, &self.counters.next_hop);
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        if self.next_hop.is_due(ports.now())
            && let Some((message, to)) = self.station.solicitation()
        {
            self.send(message, to, ports);
        }
    }
}

impl Nd {
    fn on_message(&mut self, message: Neighbour, frame: Frame, ports: &mut Ports<'_>) {
        if let Some(heard) = self.station.heard(&message)
            && self.next_hop.hear(heard, ports.now())
        {
            self.counters.next_hop.resolved.add(1);
        }
        let sender = frame.bytes()[6..].first_chunk().copied();
        let answer = self
            .station
            .advertisement(&message, sender.unwrap_or_default());
        match (answer, message.kind) {
            (Some((answer, to)), _) => self.send(answer, to, ports),
            (None, NeighbourKind::Advertisement { .. })
                if Some(message.target) == self.station.next => {}
            (None, _) => ports.transmit(NORTH, frame),
        }
    }

    fn send(&self, message: Neighbour, to: [u8; 6], ports: &mut Ports<'_>) {
        let mut bytes = [0; 14 + NEIGHBOUR_BYTES];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&self.station.mac);
        bytes[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        bytes[14..].copy_from_slice(&message.encode());
        if let Some(frame) = self.pool.frame_of(&bytes) {
            ports.transmit(SOUTH, frame);
            match message.kind {
                NeighbourKind::Solicitation => self.counters.solicitations_sent.add(1),
                NeighbourKind::Advertisement { .. } => self.counters.advertisements_sent.add(1),
            }
        }
    }
}
