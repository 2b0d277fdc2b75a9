//! **ipfix**: measures flows of IPv4 and IPv6 packets, and exports them by IPFIX over UDP. (RFC
//! 7011, RFC 7012)
//!
//! - inputs: `input`
//! - outputs: `output`: the frames of `input`, unchanged; `export`: packets to the collector
//! - configuration:
//!   - `local`, `collector`: IP addresses of this exporter and of the collector, both IPv4 or both
//!     IPv6; `port`, `local_port`: UDP ports of the collector and of the exporter (default: 4739);
//!     `hop_limit` (default: 64); `mac`, `next_mac`: source and destination MAC address of packets
//!     to the collector (default: zeros, for `arp` or `nd` to fill in); `mtu`: length of the
//!     longest packet (default: 1500)
//!   - `domain`: observation domain (default: 1)
//!   - `idle_timeout`: seconds without a packet after which a flow ends (default: 300);
//!     `active_timeout`: seconds after which a flow ends even if it continues (default: 120)
//!   - `flows`: most flows that are measured at a time (default: 20000); when a further one begins,
//!     the flow that has been silent longest ends
//!   - `template_refresh`: seconds between two transmissions of the templates (default: 600)
//! - counters: `flows`: flows being measured at present; `exported`: flows that have ended;
//!   `evicted`: flows that ended early to make room; `messages`; `not_ip`, `malformed`: frames that
//!   were not measured; `drop_no_frame`: messages for which the pool had no frame; `drop_no_room`:
//!   messages that did not fit into one
//! - cost: a look-up in a table of flows
//!
//! The packets of a flow have equal addresses, protocol, ports and VLAN; with ICMP, equal type and
//! code. Fragments other than the first have no ports. A record contains start and end in
//! milliseconds, packets, bytes from the IP header on, TCP flags, and the reason why the flow
//! ended. Flows that are still being measured when the app ends are not exported.

pub mod flow_table;
pub mod message;
pub mod packet;

use std::any::Any;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use carina_frame::Pool;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Port, PortList, Ports, made,
};
use carina_time::{Duration, Instant};
use carina_wire::inet::{PROTOCOL_UDP, checksum};
use serde::{Deserialize, Serialize};

use self::flow_table::{Ended, FlowTable, Timeouts};
use self::message::Exporter;
use self::packet::{Packet, Unmeasured};
use crate::mac_text::MacText;
use crate::outer::{Ends, EndsError, Outer};
use crate::tunnel::hop_limit;

/// The configuration of the app `ipfix`, which measures flows of IP packets, and exports them by
/// IPFIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpfixConfig {
    /// Source IP address of packets to the collector.
    pub local: IpAddr,
    /// IP address of the collector.
    pub collector: IpAddr,
    /// UDP port of the collector.
    #[serde(default = "port")]
    pub port: u16,
    /// UDP port of this exporter.
    #[serde(default = "port")]
    pub local_port: u16,
    /// TTL or hop limit of packets to the collector.
    #[serde(default = "hop_limit")]
    pub hop_limit: u8,
    /// Source MAC address of packets to the collector. `None`: zeros, which an app `arp` or `nd`
    /// behind this app replaces.
    pub mac: Option<MacText>,
    /// Destination MAC address of packets to the collector. `None`: zeros, which an app `arp` or
    /// `nd` behind this app replaces.
    pub next_mac: Option<MacText>,
    /// Length of the longest IP packet to the collector, in bytes.
    #[serde(default = "mtu")]
    pub mtu: u16,
    /// Number of the observation domain, which messages carry. (RFC 7011 §3.1)
    #[serde(default = "domain")]
    pub domain: u32,
    /// Seconds without a packet after which a flow ends.
    #[serde(default = "idle_timeout")]
    pub idle_timeout: u32,
    /// Seconds after which a flow ends even if it continues.
    #[serde(default = "active_timeout")]
    pub active_timeout: u32,
    /// Largest number of flows that are measured at a time.
    #[serde(default = "flows")]
    pub flows: u32,
    /// Seconds between two transmissions of the templates.
    #[serde(default = "template_refresh")]
    pub template_refresh: u32,
}

/// The UDP port of IPFIX. (RFC 7011 §10.3.1)
fn port() -> u16 {
    4739
}

fn mtu() -> u16 {
    1500
}

fn domain() -> u32 {
    1
}

fn idle_timeout() -> u32 {
    300
}

fn active_timeout() -> u32 {
    120
}

fn flows() -> u32 {
    20_000
}

fn template_refresh() -> u32 {
    600
}

/// Why a configuration of the app `ipfix` is invalid.
#[derive(Debug, thiserror::Error)]
enum IpfixError {
    #[error("address of the collector: {0}")]
    Ends(#[from] EndsError),
    #[error("{name} = 0: must be 1 to {max}")]
    Zero { name: &'static str, max: u32 },
    #[error("flows = {0}: must be 1 to {FLOWS_MAX}")]
    Flows(u32),
    #[error("mtu = {0}: must be {MTU_MIN} to 65535")]
    Mtu(u16),
    #[error("the system clock is before 1970: flow records need its time; set the clock")]
    Clock,
}

/// Largest number of flows. Each needs some 200 bytes.
const FLOWS_MAX: u32 = 10_000_000;
/// Smallest MTU: headers, and a message with one record of any template.
const MTU_MIN: u16 = 48 + Exporter::LONGEST_MIN as u16;

impl IpfixConfig {
    fn outer(&self) -> Result<Outer, IpfixError> {
        let ends = Ends {
            local: self.local,
            remote: self.collector,
            hop_limit: self.hop_limit,
            mac: self.mac,
            next_mac: self.next_mac,
        };
        let outer = Outer::new(&ends, PROTOCOL_UDP)?;
        for (name, value, max) in [
            ("port", u32::from(self.port), u16::MAX.into()),
            ("local_port", self.local_port.into(), u16::MAX.into()),
            ("idle_timeout", self.idle_timeout, u32::MAX),
            ("active_timeout", self.active_timeout, u32::MAX),
            ("template_refresh", self.template_refresh, u32::MAX),
        ] {
            if value == 0 {
                return Err(IpfixError::Zero { name, max });
            }
        }
        if !(1..=FLOWS_MAX).contains(&self.flows) {
            return Err(IpfixError::Flows(self.flows));
        }
        if self.mtu < MTU_MIN {
            return Err(IpfixError::Mtu(self.mtu));
        }
        Ok(outer)
    }

    /// This configuration with the timeouts of `other`.
    fn with_timeouts_of(&self, other: &IpfixConfig) -> IpfixConfig {
        IpfixConfig {
            idle_timeout: other.idle_timeout,
            active_timeout: other.active_timeout,
            template_refresh: other.template_refresh,
            ..*self
        }
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts {
            idle: Duration::from_secs(self.idle_timeout.into()),
            active: Duration::from_secs(self.active_timeout.into()),
        }
    }
}

/// The running app `ipfix`: measures flows of IP packets, and exports them by IPFIX.
pub struct Ipfix {
    config: IpfixConfig,
    outer: Outer,
    pool: Pool,
    table: FlowTable,
    exporter: Exporter,
    /// The system's time since 1970 when the app was made, and the engine's time when it first ran.
    made: Duration,
    began: Option<Instant>,
    next_templates: Option<Instant>,
    counters: Counters,
}

struct Counters {
    flows: Counter,
    exported: Counter,
    evicted: Counter,
    messages: Counter,
    not_ip: Counter,
    malformed: Counter,
    no_frame: Counter,
    no_room: Counter,
}

const INPUT: usize = 0;
const OUTPUT: usize = 0;
const EXPORT: usize = 1;

impl AppConfig for IpfixConfig {
    const KIND: &'static str = "ipfix";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output"), Port::new("export")]);
    const TICK: Option<Duration> = Some(Duration::from_millis(500));
    const OPENS: bool = true;

    type App = Ipfix;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        Ok(self.outer().map(drop)?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Ipfix, AppError> {
        let outer = self.outer()?;
        let headers = if outer.is_ipv6() { 48 } else { 28 };
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let made = clock.map_err(|_| IpfixError::Clock)?.as_nanos() as u64;
        Ok(Ipfix {
            config: *self,
            outer,
            pool: context.pool().clone(),
            table: FlowTable::new(self.flows as usize),
            exporter: Exporter::new(self.domain, usize::from(self.mtu) - headers),
            made: Duration::from_nanos(made),
            began: None,
            next_templates: None,
            counters: Counters {
                flows: context.counter("flows"),
                exported: context.counter("exported"),
                evicted: context.counter("evicted"),
                messages: context.counter("messages"),
                not_ip: context.counter("not_ip"),
                malformed: context.counter("malformed"),
                no_frame: context.counter("drop_no_frame"),
                no_room: context.counter("drop_no_room"),
            },
        })
    }

    /// Timeouts can change without a new app; the flows stay.
    fn can_apply(&self, old: &IpfixConfig) -> bool {
        *self == old.with_timeouts_of(self)
    }

    fn apply(&self, app: &mut Ipfix) {
        app.config = *self;
    }
}

impl FrameApp for Ipfix {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        self.began.get_or_insert(now);
        ports.each(INPUT, |frame, ports| {
            match Packet::read(&frame) {
                Ok(packet) => {
                    if let Some(ended) = self.table.measure(&packet, now) {
                        self.counters.evicted.add(1);
                        self.export(&ended, ports);
                    }
                }
                Err(Unmeasured::NotIp) => self.counters.not_ip.add(1),
                Err(Unmeasured::Malformed) => self.counters.malformed.add(1),
            }
            ports.transmit(OUTPUT, frame);
        });
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        self.began.get_or_insert(now);
        self.send_templates(ports);
        let timeouts = self.config.timeouts();
        // Flows for which the link has no room stay in the table until the next tick.
        while ports.room(EXPORT) > 1
            && let Some(ended) = self.table.take_ended(&timeouts, now)
        {
            self.export(&ended, ports);
        }
        if let Some(message) = self.exporter.flush(self.time(now)) {
            self.send(&message, ports);
        }
        self.counters.flows.set(self.table.len() as u64);
    }
}

impl Ipfix {
    /// The system's time since 1970.
    fn time(&self, now: Instant) -> Duration {
        self.made + now.since(self.began.unwrap_or(now))
    }

    /// The system's time since 1970 at which the engine's clock was 0.
    fn epoch(&self, now: Instant) -> Duration {
        let since = now.since(Instant::ZERO).as_nanos();
        Duration::from_nanos(self.time(now).as_nanos().saturating_sub(since))
    }

    fn export(&mut self, ended: &Ended, ports: &mut Ports<'_>) {
        // A collector cannot parse records before it has the templates. (RFC 7011 §8)
        self.send_templates(ports);
        let now = ports.now();
        self.counters.exported.add(1);
        let full = self.exporter.add(ended, self.epoch(now), self.time(now));
        if let Some(message) = full {
            self.send(&message, ports);
        }
    }

    fn send_templates(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        if self.next_templates.is_some_and(|next| now < next) {
            return;
        }
        let refresh = Duration::from_secs(self.config.template_refresh.into());
        self.next_templates = Some(now + refresh);
        let message = self.exporter.templates(self.time(now));
        self.send(&message, ports);
    }

    /// Sends a message to the collector in a UDP packet.
    fn send(&mut self, message: &[u8], ports: &mut Ports<'_>) {
        let Some(mut frame) = self.pool.take() else {
            return self.counters.no_frame.add(1);
        };
        let length = (message.len() + 8) as u16;
        let mut header = [0; 8];
        header[..2].copy_from_slice(&self.config.local_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.config.port.to_be_bytes());
        header[4..6].copy_from_slice(&length.to_be_bytes());
        if !frame.append(&header) || !frame.append(message) {
            return self.counters.no_room.add(1);
        }
        let pseudo = self.outer.pseudo_sum(length.into());
        // 0 would mean that there is no checksum. (RFC 768)
        let sum = match checksum(frame.bytes(), pseudo) {
            0 => 0xffff,
            sum => sum,
        };
        frame.bytes_mut()[6..8].copy_from_slice(&sum.to_be_bytes());
        if !self.outer.wrap(&mut frame, 0) {
            return self.counters.no_room.add(1);
        }
        self.counters.messages.add(1);
        ports.transmit(EXPORT, frame);
    }
}
