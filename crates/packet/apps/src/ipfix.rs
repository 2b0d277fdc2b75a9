//! **ipfix**: measures flows of IPv4 and IPv6, and exports them by IPFIX over UDP. (RFC 7011, RFC
//! 7012)
//!
//! - inputs: `input`
//! - outputs: `output`, the frames that came in, and `export`, packets to the collector
//! - configuration:
//!   - `local`, `collector`: addresses, both of IPv4 or of IPv6; `port`, to which packets go, 4739
//!     where nothing is said, and `local_port`, likewise; `hop_limit`: 64 where nothing is said;
//!     `mac`, `next_mac`: Ethernet addresses of packets, zeros where nothing is said, for `arp` or
//!     `nd` to fill in; `mtu`: the longest packet, 1500 where nothing is said
//!   - `domain`: the observation domain, 1 where nothing is said
//!   - `idle_timeout`, `active_timeout`: a flow ends after so many seconds without a packet, and
//!     after so many in any case; 300 and 120 where nothing is said
//!   - `flows`: of which so many are measured at a time, 20000 where nothing is said; beyond, the
//!     one that was silent longest ends
//!   - `template_refresh`: seconds after which templates are sent again, 600 where nothing is said
//! - counters: `flows`: that are being measured; `exported`: flows that were; `evicted`: those of
//!   them that had to make room; `messages`; `not_ip`, `malformed`: frames that are not measured;
//!   `drop_no_frame`, `drop_no_room`: messages for which there was no memory, or that do not fit
//! - cost: a look-up in a table of flows
//!
//! Packets of a flow have the same addresses, protocol, ports and VLAN; of ICMP the same type and
//! code. Of fragments but the first there are no ports. Records have the start and the end in
//! milliseconds, packets, bytes from the header of IP on, flags of TCP, and why the flow has ended.
//! Flows that have not ended go with the app.

pub mod flow_table;
pub mod message;
pub mod packet;

use std::any::Any;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Port, PortList, Ports, made,
};
use carina_frame::Pool;
use carina_time::{Duration, Instant};
use carina_wire::inet::{PROTOCOL_UDP, checksum};
use serde::{Deserialize, Serialize};

use self::flow_table::{Ended, FlowTable, Timeouts};
use self::message::Exporter;
use self::packet::{Packet, Unmeasured};
use crate::mac_text::MacText;
use crate::outer::{Ends, EndsError, Outer};
use crate::tunnel::hop_limit;

/// The configuration of the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpfixConfig {
    /// Where packets come from.
    pub local: IpAddr,
    /// Where they go.
    pub collector: IpAddr,
    /// The collector's port.
    #[serde(default = "port")]
    pub port: u16,
    /// The own port.
    #[serde(default = "port")]
    pub local_port: u16,
    /// TTL or hop limit of packets to the collector.
    #[serde(default = "hop_limit")]
    pub hop_limit: u8,
    /// Their source.
    pub mac: Option<MacText>,
    /// Their destination.
    pub next_mac: Option<MacText>,
    /// The longest of them, in bytes.
    #[serde(default = "mtu")]
    pub mtu: u16,
    /// The observation domain.
    #[serde(default = "domain")]
    pub domain: u32,
    /// Seconds without a packet after which a flow ends.
    #[serde(default = "idle_timeout")]
    pub idle_timeout: u32,
    /// Seconds after which it ends in any case.
    #[serde(default = "active_timeout")]
    pub active_timeout: u32,
    /// Flows that are measured at a time.
    #[serde(default = "flows")]
    pub flows: u32,
    /// Seconds after which templates are sent again.
    #[serde(default = "template_refresh")]
    pub template_refresh: u32,
}

/// IPFIX over UDP. (RFC 7011 §10.3.1)
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

/// Why there is no such app.
#[derive(Debug, thiserror::Error)]
enum IpfixError {
    #[error("the collector is the remote end: {0}")]
    Ends(#[from] EndsError),
    #[error("{name} = 0: must be 1 to {max}")]
    Zero { name: &'static str, max: u32 },
    #[error("flows = {0}: must be 1 to {FLOWS_MAX}")]
    Flows(u32),
    #[error("mtu = {0}: must be {MTU_MIN} to 65535")]
    Mtu(u16),
    #[error("the clock of the system stands before 1970, and flows would have no time")]
    Clock,
}

/// Some 200 bytes each.
const FLOWS_MAX: u32 = 10_000_000;
/// Headers, and a message with a record of any template.
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

    /// The same with other timeouts.
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

/// The app.
pub struct Ipfix {
    config: IpfixConfig,
    outer: Outer,
    pool: Pool,
    table: FlowTable,
    exporter: Exporter,
    /// The system's time when the app was made, since 1970, and the engine's when it ran first.
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

    /// Flows stay while their timeouts change.
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
        // What finds no room on the link stays in the table until the next time.
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
    /// The system's time, since 1970.
    fn time(&self, now: Instant) -> Duration {
        self.made + now.since(self.began.unwrap_or(now))
    }

    /// The system's time when the engine's clock was 0.
    fn epoch(&self, now: Instant) -> Duration {
        let since = now.since(Instant::ZERO).as_nanos();
        Duration::from_nanos(self.time(now).as_nanos().saturating_sub(since))
    }

    fn export(&mut self, ended: &Ended, ports: &mut Ports<'_>) {
        // A collector can read nothing before it has the templates. (RFC 7011 §8)
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

    /// Sends a message to the collector.
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
        // 0 would say that there is no checksum. (RFC 768)
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
