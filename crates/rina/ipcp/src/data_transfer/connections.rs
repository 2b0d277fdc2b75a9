//! Connections: opening, switching after rollover, and closing.

use alloc::boxed::Box;
use alloc::string::ToString;

use carina_efcp::delimiting::{Assembler, AssemblerConfig, Delimiter, DelimiterConfig, Delimiting};
use carina_efcp::{
    CongestionControl, ConnEvent, Connection, ConnectionConfig, QueueLimits, RateControl,
    RttEstimator, WindowControl,
};
use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::dif::{Address, CepId, PduType, Syntax};

use super::DataPath;
use super::cep_ids::CepIdTable;
use super::delivery::MESSAGE_BYTES_MAX;
use super::dialect;
use super::efcp_instance::{EfcpInstance, EfcpInstanceConfig};
use super::error::ConnectionError;
use super::flow_io::FlowIo;
use super::port::QueueClass;
use crate::config::QosCube;
use crate::data_transfer::api::{Open, Owner, TransferEvent};
use crate::policy::{PolicyError, component};
use crate::trace::TraceEvent;

/// Largest number of bytes of incomplete SDUs that a flow holds.
const ASSEMBLY_BYTES_MAX: usize = 4 << 20;
/// Limits of the UDFs that wait in EFCP for the window to open, or for acknowledgement.
const CLOSED_WINDOW: QueueLimits = QueueLimits {
    pdus: 256,
    bytes: 1 << 20,
    flight_bytes: 8 << 20,
};
/// Largest number of UDFs without flow control that wait for their reader or for a missing UDF.
const REORDER_MAX: usize = 1024;
/// Bound in bytes for the PDUs that a window allows before the reader has taken any. A window
/// counts PDUs and its right edge never moves back, so everything that it allows must be held.
const WINDOW_BYTES: usize = 16 << 20;
/// Bytes that protection may add on an N-1 flow whose protection is not set up yet.
const PROTECTION_RESERVE: usize = 64;

impl<P: Payload> DataPath<P> {
    /// Opens a connection; see [`DataTransfer::open`](super::DataTransfer::open).
    #[expect(
        clippy::too_many_lines,
        reason = "one connection is made of its cube, its owner and the limits in one go"
    )]
    pub(super) fn begin(&mut self, open: &Open) -> Result<CepId, ConnectionError> {
        let now = self.rmt.now;
        let pinned = open.pinned.map(|n1| n1.0);
        let family = self.rmt.syntax.dialect;
        let is_channel = pinned.is_some() || matches!(open.owner, Owner::Channel(_));
        if is_channel && !dialect::has_channels(family) {
            return Err(ConnectionError::NoChannels(family));
        }
        if open.cube.rate.is_some() && !dialect::has_rates(family) {
            return Err(ConnectionError::NoRates {
                cube: open.cube.name.clone(),
                dialect: family,
            });
        }
        let config = self.connection_config(&open.cube, pinned.is_some())?;
        config.check()?;
        let delimiting = self.delimiting(pinned.is_some())?;
        let queue_class = match (open.owner, self.rmt.class(open.cube.id)) {
            (Owner::Channel(_), _) => QueueClass::Management,
            (Owner::Flow(_), Some(class)) => QueueClass::Cube(class),
            (Owner::Flow(_), None) => return Err(ConnectionError::NoCube(open.cube.id)),
        };
        let udf_max = self.udf_max_of(pinned);
        if udf_max < UDF_LEAST {
            return Err(ConnectionError::PduTooShort(udf_max));
        }
        let in_order = config.in_order;
        let credit_max = config.window.unwrap_or_default().credit_max;
        let credit_max = credit_max.min((WINDOW_BYTES / udf_max) as u32).max(1);
        let quarantine = (config.mpl + config.r + config.a) * 2;
        let assembler = AssemblerConfig {
            policy: delimiting,
            in_order,
            is_reliable: config.retransmission && in_order,
            partial_delivery: open.cube.partial_delivery,
            bytes_max: match open.owner {
                Owner::Flow(_) => ASSEMBLY_BYTES_MAX,
                Owner::Channel(_) => MESSAGE_BYTES_MAX,
            },
        };
        let seed = self.seed;
        self.seed = seed
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let mut efcp = Connection::new(now, config, seed);
        efcp.set_credit(now, credit_max);
        let make = |cep| {
            Box::new(EfcpInstance::new(EfcpInstanceConfig {
                efcp,
                assembler: Assembler::new(assembler),
                owner: open.owner,
                cep,
                cube: &open.cube,
                qos: dialect::qos(family, open.cube.id),
                queue_class,
                pinned,
                quarantine,
                udf_max,
                credit_max,
            }))
        };
        let table: &mut CepIdTable<_> = match open.owner {
            Owner::Flow(_) => &mut self.connections.flows,
            Owner::Channel(_) => &mut self.connections.channels,
        };
        let cep = table.insert(now, make).ok_or(ConnectionError::NoCepId)?;
        let delimiter = DelimiterConfig {
            policy: delimiting,
            udf_max,
            in_order,
            msg_boundaries: open.msg_boundaries,
            concatenation: self.config.concatenation && delimiting == Delimiting::Standard,
        };
        self.adopt(open.owner, cep, delimiter)?;
        self.tracer.emit(now, || TraceEvent::ConnectionOpened {
            cep,
            flow: match open.owner {
                Owner::Flow(key) => Some(key),
                Owner::Channel(_) => None,
            },
            cube: &open.cube.name,
        });
        Ok(cep)
    }

    /// Attaches a new connection to its owner's flow I/O, which is created if necessary.
    fn adopt(
        &mut self,
        owner: Owner,
        cep: CepId,
        delimiter: DelimiterConfig,
    ) -> Result<(), ConnectionError> {
        if let Some(io) = self.flow_ios.get(owner)
            && !io.is_closed
        {
            if io.current.0 == 0 {
                io.current = cep;
                return Ok(());
            }
            // The new connection waits for `switch_to`, and replaces one that waited before it.
            let before = core::mem::replace(&mut io.next, cep);
            io.is_switching = false;
            self.remove_connection(before);
            return Ok(());
        }
        let mut io = FlowIo::new(owner, Delimiter::new(delimiter));
        io.current = cep;
        if self.flow_ios.insert(io) {
            Ok(())
        } else {
            self.connections.remove(cep, Instant::ZERO);
            Err(ConnectionError::FlowNumber)
        }
    }

    fn connection_config(
        &self,
        cube: &QosCube,
        is_channel: bool,
    ) -> Result<ConnectionConfig, PolicyError> {
        // Connections between neighbours have the default widths, whatever the DIF's widths are.
        let syntax = if is_channel {
            Syntax::default()
        } else {
            self.rmt.syntax
        };
        let seq_bits = syntax.seq_bits();
        // EFCP requires a window to be small compared with the range of sequence numbers.
        let credit_max = if seq_bits >= 35 {
            u32::MAX
        } else {
            (1u64 << seq_bits >> 3) as u32
        };
        let pdus = |credit| dialect::window_of(syntax.dialect, credit).min(credit_max);
        let window = cube.window.map(|window| WindowControl {
            credit_max: pdus(window.credit_max),
            initial_credit: pdus(window.initial_credit.min(window.credit_max)),
        });
        let config = &self.config;
        Ok(ConnectionConfig {
            in_order: cube.in_order,
            retransmission: cube.retransmission,
            window,
            rate: cube.rate.map(|rate| RateControl {
                pdus: rate.pdus,
                frame_ms: rate.frame_ms,
            }),
            max_sdu_gap: cube.max_sdu_gap,
            a: Duration::from_millis(u64::from(cube.initial_a_ms)),
            r: Duration::from_millis(u64::from(cube.retransmit_ms)),
            mpl: Duration::from_millis(u64::from(config.max_pdu_lifetime_ms)),
            seq_bits: seq_bits as u8,
            ctrl_seq_bits: syntax.ctrl_seq_bits() as u8,
            ecn: cube.ecn,
            rollover: None,
            profile: dialect::efcp_profile(syntax.dialect),
            ack: dialect::acknowledgements(syntax.dialect),
            queue: CLOSED_WINDOW,
            reorder_max: REORDER_MAX,
            congestion: self
                .catalogue
                .make_for::<Box<dyn CongestionControl>>(component::CONGESTION_CONTROL, config)?,
            rtt: self
                .catalogue
                .make_for::<Box<dyn RttEstimator>>(component::RTT_ESTIMATION, config)?,
        })
    }

    fn delimiting(&self, is_channel: bool) -> Result<Delimiting, PolicyError> {
        if is_channel {
            // Management messages are longer than PDUs, so channels always fragment.
            return Ok(Delimiting::Standard);
        }
        self.catalogue
            .make_for::<Delimiting>(component::DELIMITING, &self.config)
    }

    /// Longest user-data field of a connection in bytes; `pinned` is its only N-1 flow, if any.
    fn udf_max_of(&self, pinned: Option<u32>) -> usize {
        match pinned {
            None => match self.max_pdu {
                // Without an N-1 flow, both ends of every flow are at this IPCP.
                0 => usize::from(u16::MAX),
                known => known,
            }
            .saturating_sub(self.rmt.syntax.pci_bytes(PduType::Data)),
            Some(port) => {
                let sdu_max = self.rmt.port(port).map_or(0, |port| port.props.sdu_max);
                sdu_max
                    .min(Syntax::default().pdu_bytes_max())
                    .saturating_sub(PROTECTION_RESERVE + Syntax::default().pci_bytes(PduType::Data))
            }
        }
    }

    /// Longest user-data field of a flow, in bytes; 0 for a channel.
    pub(super) fn udf_max(&self, owner: Owner) -> usize {
        match owner {
            Owner::Flow(_) => self.udf_max_of(None),
            Owner::Channel(_) => 0,
        }
    }

    /// Sets the other end of a connection, and starts sending.
    pub(super) fn connect_to(&mut self, cep: CepId, remote: Address, remote_cep: CepId) {
        let now = self.rmt.now;
        let Some(instance) = self.connections.get_mut(cep) else {
            return;
        };
        instance.remote = if instance.pinned.is_some() {
            Address::NONE
        } else {
            remote
        };
        instance.remote_cep = remote_cep;
        instance.is_connected = true;
        instance.heard_at = now;
        let owner = instance.owner;
        self.tracer.emit(now, || TraceEvent::ConnectionEstablished {
            cep,
            remote,
            remote_cep,
        });
        self.drive(owner, &mut core::iter::empty());
        if let Owner::Flow(key) = owner {
            self.announce(key);
        }
        self.loop_back();
    }

    /// Handles the events that EFCP reports for a connection.
    pub(super) fn handle_efcp_events(&mut self, cep: CepId) {
        let now = self.rmt.now;
        while let Some(instance) = self.connections.get_mut(cep)
            && let Some(event) = instance.efcp.poll_event()
        {
            let owner = instance.owner;
            match event {
                ConnEvent::Failed(reason) => {
                    let reason = reason.text();
                    self.tracer
                        .emit(now, || TraceEvent::ConnectionFailed { cep, reason });
                    self.events.push_back(TransferEvent::Failed {
                        owner,
                        reason: reason.to_string(),
                    });
                }
                ConnEvent::Rollover => self.events.push_back(TransferEvent::Rollover { owner }),
                ConnEvent::PeerInactive => {}
                ConnEvent::Drained => {
                    // The peer may retransmit for a while, which must be acknowledged.
                    instance.close_at = (now + instance.quarantine).max(Instant::from_nanos(1));
                    self.drained(owner, cep);
                }
            }
        }
    }

    /// Reports to the tracer stalls and retransmission timeouts since the last call.
    #[cold]
    pub(super) fn trace_connection(&mut self, cep: CepId) {
        let now = self.rmt.now;
        let Some(instance) = self.connections.get_mut(cep) else {
            return;
        };
        let timeouts = instance.timeouts();
        if core::mem::replace(&mut instance.traced_timeouts, timeouts) != timeouts {
            let in_a_row = instance.efcp.timeouts_in_a_row().max(1);
            self.tracer
                .emit(now, || TraceEvent::RetransmissionTimeout { cep, in_a_row });
        }
        let is_stalled = instance.efcp.is_stalled();
        if core::mem::replace(&mut instance.is_stall_traced, is_stalled) == is_stalled {
            return;
        }
        if is_stalled {
            self.tracer
                .emit(now, || TraceEvent::ConnectionStalled { cep });
        } else if !instance.efcp.status().is_failed {
            self.tracer
                .emit(now, || TraceEvent::ConnectionResumed { cep });
        }
    }

    fn drained(&mut self, owner: Owner, cep: CepId) {
        let Some(io) = self.flow_ios.get(owner) else {
            return;
        };
        if io.current == cep && io.is_switching {
            io.is_switching = false;
            let before = io.old;
            io.old = io.current;
            io.current = core::mem::replace(&mut io.next, CepId(0));
            self.remove_connection(before);
            self.drive(owner, &mut core::iter::empty());
            if let Owner::Flow(key) = owner {
                self.announce(key);
            }
            return;
        }
        if let Some(instance) = self.connections.get_mut(cep) {
            // The current connection lasts until management closes it.
            instance.close_at = Instant::ZERO;
        }
        if io.is_finishing
            && !io.is_drained
            && let Owner::Flow(flow) = owner
        {
            io.is_drained = true;
            self.events.push_back(TransferEvent::Drained { flow });
        }
    }

    /// Handles a deadline of a connection; `at` is the time for which it was set.
    pub(super) fn connection_timeout(&mut self, cep: CepId, at: Instant) {
        let now = self.rmt.now;
        let Some(instance) = self.connections.get_mut(cep) else {
            return;
        };
        if instance.armed != at {
            return;
        }
        instance.armed = Instant::ZERO;
        if instance.close_at != Instant::ZERO && instance.close_at <= now {
            let quiet_at = instance.heard_at + instance.quarantine;
            if quiet_at <= now {
                return self.remove_connection(cep);
            }
            instance.close_at = quiet_at;
        }
        if instance.efcp.poll_timeout().is_some_and(|due| due <= now) {
            instance.efcp.handle_timeout(now);
            instance.transmit(&mut self.rmt);
        }
        instance.arm(&mut self.rmt);
        if !instance.is_dirty {
            instance.is_dirty = true;
            self.dirty.push(cep);
        }
        let owner = instance.owner;
        if self.tracer.is_on() {
            self.trace_connection(cep);
        }
        // EFCP may have given up waiting for a missing PDU, or the rate's next time frame has
        // begun.
        self.pull(owner);
        self.handle_efcp_events(cep);
        self.resume(owner);
    }

    /// EFCP may accept more than before: sends what waits, and then informs the writer.
    pub(super) fn resume(&mut self, owner: Owner) {
        let Some(io) = self.flow_ios.get(owner) else {
            return;
        };
        let wants = io.has_udfs() || !io.pending.is_empty() || io.is_finishing || io.is_switching;
        let is_short = io.is_short;
        if wants {
            self.drive(owner, &mut core::iter::empty());
        }
        if is_short && let Owner::Flow(key) = owner {
            self.announce(key);
        }
    }

    /// Removes a connection and quarantines its CEP-id.
    fn remove_connection(&mut self, cep: CepId) {
        if cep.0 == 0 {
            return;
        }
        let now = self.rmt.now;
        let rest = self
            .connections
            .get(cep)
            .map_or(Duration::ZERO, |instance| instance.quarantine);
        let Some(instance) = self.connections.remove(cep, now + rest) else {
            return;
        };
        self.tracer
            .emit(now, || TraceEvent::ConnectionClosed { cep });
        if let Some(io) = self.flow_ios.get(instance.owner) {
            for slot in [&mut io.old, &mut io.current, &mut io.next] {
                if *slot == cep {
                    *slot = CepId(0);
                }
            }
        }
    }

    /// Ends all connections of a flow or channel. SDUs that have arrived stay until the reader
    /// takes them.
    pub(super) fn close_connections(&mut self, owner: Owner) {
        let Some(io) = self.flow_ios.get(owner) else {
            return;
        };
        let ceps = [io.old, io.current, io.next];
        for cep in ceps.into_iter().filter(|cep| cep.0 != 0) {
            self.pull_all(owner, cep);
        }
        for cep in ceps {
            self.remove_connection(cep);
        }
        let Some(io) = self.flow_ios.get(owner) else {
            return;
        };
        io.is_closed = true;
        io.pending.clear();
        io.pending_bytes = 0;
        if io.ready.is_empty() || matches!(owner, Owner::Channel(_)) {
            self.flow_ios.remove(owner);
        }
    }
}

/// Smallest accepted user-data field in bytes: the longest delimiting header and some data.
const UDF_LEAST: usize = 16;
