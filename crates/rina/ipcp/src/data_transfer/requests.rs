//! The requests of layer management to data transfer.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::dif::{
    Address, CepId, NEIGHBOUR_CHECK_BYTES, PCI_BYTES_MAX, Pci, PduType, Syntax,
    append_neighbour_check,
};

use super::DataPath;
use super::cep_ids::CepIdTable;
use super::counters::DropReason;
use super::delivery::MESSAGE_BYTES_MAX;
use super::dialect::{NEIGHBOUR, has_channels, management_qos};
use super::error::{ConnectionError, N1Error, SettingsError};
use super::port::QueueClass;
use super::rmt::NextHop;
use super::settings::bare_policies;
use crate::api::{FlowKey, N1Port, N1Properties, RibObject};
use crate::config::{DifConfig, PolicySpec};
use crate::data_transfer::api::{DataTransfer, Open, Owner, Route, Target, TransferEvent};
use crate::policy::{ForwardingPolicy, component};
use crate::security::SduProtection;
use crate::trace::TraceEvent;

/// An N-1 flow that takes nothing for this many keep-alive intervals is reported as stuck.
const STUCK_INTERVALS: u64 = 3;

impl<P: Payload> DataTransfer for DataPath<P> {
    fn configure(&mut self, now: Instant, config: &DifConfig) -> Result<(), SettingsError> {
        self.rmt.now = now;
        self.check(config)?;
        let forwarding = self
            .catalogue
            .make_for::<Box<dyn ForwardingPolicy>>(component::FORWARDING, config)?;
        let has_checksum = self
            .catalogue
            .make_for::<bool>(component::PCI_CHECKSUM, config)?;
        if !self.is_configured {
            self.connections.flows = CepIdTable::of_flows(config.widths.cep);
        }
        self.config = config.clone();
        self.cubes.clone_from(&config.cubes);
        self.is_configured = true;
        let syntax = self.syntax_of(config);
        let rmt = &mut self.rmt;
        rmt.set_syntax(syntax, has_checksum);
        rmt.hop_limit = config.hop_limit.max(1);
        rmt.stall_timeout =
            Duration::from_millis(u64::from(config.keepalive_ms.max(1))) * STUCK_INTERVALS;
        rmt.set_cubes(&self.cubes);
        rmt.set_forwarding_policy(forwarding);
        self.renew_port_policies()?;
        self.fix_max_pdu();
        Ok(())
    }

    fn set_address(&mut self, address: Address) {
        self.rmt.address = address;
        self.rmt.forwarding_generation += 1;
    }

    fn add_n1(&mut self, n1: N1Port, props: &N1Properties) {
        if self.rmt.port(n1.0).is_some() {
            let now = self.rmt.now;
            self.remove_n1(now, n1);
        }
        // Cannot fail: these policies were already made once with this configuration.
        let made = self.port_policies();
        let (scheduler, queue) = made.unwrap_or_else(|_| bare_policies());
        let cubes = &self.cubes;
        if !self
            .rmt
            .add_port(n1, props.clone(), cubes, scheduler, queue)
        {
            self.events.push_back(TransferEvent::Notice {
                text: format!("N-1 flow {}: the number is too large", n1.0),
            });
            return;
        }
        self.tracer.emit(self.rmt.now, || TraceEvent::N1Added {
            n1,
            dif: &props.dif,
            remote: &props.remote,
        });
        self.fix_max_pdu();
        if let Err(error) = self.carries(n1) {
            let text = error.to_string();
            self.events.push_back(TransferEvent::Notice { text });
        }
    }

    fn remove_n1(&mut self, now: Instant, n1: N1Port) {
        self.rmt.now = now;
        let Some(mut port) = self.rmt.remove_port(n1) else {
            return;
        };
        self.tracer.emit(self.rmt.now, || TraceEvent::N1Lost { n1 });
        let mut waiting = Vec::new();
        let lost = port.drain(&mut waiting);
        self.rmt.counters.drop_many(DropReason::N1Gone, lost);
        for (queue_class, pdu) in waiting {
            self.rmt.requeue(queue_class, pdu);
        }
        for key in port.take_all_held() {
            self.resume_held(key);
        }
        self.wake_all();
        self.loop_back();
    }

    fn set_sdu_protection(&mut self, n1: N1Port, protection: Option<Box<dyn SduProtection>>) {
        if let Some(port) = self.rmt.port_mut(n1.0) {
            port.protection = protection;
        }
        if let Err(error) = self.carries(n1) {
            let text = error.to_string();
            self.events.push_back(TransferEvent::Notice { text });
        }
    }

    fn set_neighbour(&mut self, now: Instant, neighbour: Address, n1s: &[N1Port]) {
        self.rmt.now = now;
        let ports = n1s.iter().map(|n1| n1.0).collect();
        self.rmt.table.set_neighbour(neighbour, ports);
        self.rmt.mark_neighbours();
        self.rmt.forwarding_generation += 1;
        self.wake_all();
    }

    fn set_detaching(&mut self, n1: N1Port, is_detaching: bool) {
        if let Some(port) = self.rmt.port_mut(n1.0) {
            port.is_detaching = is_detaching;
            self.rmt.mark_neighbours();
        }
    }

    fn move_waiting(&mut self, now: Instant, n1: N1Port) {
        self.rmt.now = now;
        let Some(port) = self.rmt.port_mut(n1.0) else {
            return;
        };
        let mut waiting = Vec::new();
        port.drain_classes(&mut waiting);
        let held: Vec<FlowKey> = port.take_all_held().collect();
        for (queue_class, pdu) in waiting {
            self.rmt.requeue(queue_class, pdu);
        }
        for key in held {
            self.resume_held(key);
        }
        self.wake_all();
    }

    fn set_forwarding(&mut self, table: &[Route]) {
        self.rmt.table.set_routes(table);
        self.rmt.forwarding_generation += 1;
        self.wake_all();
    }

    fn change_forwarding(&mut self, changed: &[Route], removed: &[Address]) {
        self.rmt.table.change_routes(changed, removed);
        self.rmt.forwarding_generation += 1;
        self.wake_all();
    }

    fn send_management(&mut self, now: Instant, to: Target, message: &[u8]) {
        self.rmt.now = now;
        let dialect = self.rmt.syntax.dialect;
        let (syntax, hop_limit, queue_class) = match to {
            Target::N1(_) if has_channels(dialect) => {
                (Syntax::default(), NEIGHBOUR, QueueClass::Unprotected)
            }
            _ => (self.rmt.syntax, self.rmt.hop_limit, QueueClass::Management),
        };
        let dst = match to {
            Target::N1(_) => Address::NONE,
            Target::Address(address) => address,
        };
        let src = match queue_class {
            // The default widths have no room for a large address; the message names its sender.
            QueueClass::Unprotected if self.rmt.address.0 > u64::from(u16::MAX) => Address::NONE,
            _ => self.rmt.address,
        };
        let pci = Pci {
            kind: PduType::Management,
            dst,
            src,
            qos: management_qos(dialect),
            dst_cep: CepId(0),
            src_cep: CepId(0),
            drf: false,
            ecn: false,
            seq: 0,
        };
        // Unprotected PDUs get a checksum; SDU protection covers all others.
        let check = match queue_class {
            QueueClass::Unprotected => NEIGHBOUR_CHECK_BYTES,
            _ => 0,
        };
        let user_bytes = message.len() + check;
        let mut header = [0; PCI_BYTES_MAX];
        let Ok(len) = syntax.encode(&pci, None, user_bytes, hop_limit, &mut header) else {
            return self.rmt.counters.drop_one(DropReason::Field);
        };
        let mut bytes = Vec::with_capacity(len + user_bytes);
        bytes.extend_from_slice(&header[..len]);
        bytes.extend_from_slice(message);
        if check > 0 {
            append_neighbour_check(&mut bytes);
        }
        let Some(pdu) = self.rmt.with_checksum(bytes) else {
            return self.rmt.counters.drop_one(DropReason::NoBuffer);
        };
        match to {
            Target::N1(n1) => self.rmt.queue(n1.0, queue_class, pdu, true),
            Target::Address(_) => match self.rmt.next_hop(pci.dst, pci.dst_cep, pci.src_cep) {
                Ok(NextHop::Local) => {
                    self.rmt.counters.pdus_looped += 1;
                    self.rmt.looped.push_back(pdu);
                    self.loop_back();
                }
                Ok(NextHop::Port(port)) => self.rmt.queue(port, queue_class, pdu, true),
                Err(reason) => self.rmt.counters.drop_one(reason),
            },
        }
    }

    fn management_max(&self) -> usize {
        let mut pci = self.rmt.syntax.pci_bytes(PduType::Management);
        if has_channels(self.rmt.syntax.dialect) {
            let of_neighbours = Syntax::default().pci_bytes(PduType::Management);
            pci = pci.max(of_neighbours + NEIGHBOUR_CHECK_BYTES);
        }
        let whole = match self.max_pdu {
            0 => Syntax::default().pdu_bytes_max(),
            known => known,
        };
        // Before enrollment the longest PDU of the DIF is unknown, so the N-1 flows decide.
        let ports = self.rmt.ports().map(|port| port.pdu_max());
        let least = ports.min().unwrap_or(whole).min(whole);
        least.min(MESSAGE_BYTES_MAX).saturating_sub(pci)
    }

    fn open(&mut self, now: Instant, open: Open) -> Result<CepId, ConnectionError> {
        self.rmt.now = now;
        self.begin(&open)
    }

    fn connect(&mut self, now: Instant, local: CepId, remote: Address, remote_cep: CepId) {
        self.rmt.now = now;
        self.connect_to(local, remote, remote_cep);
    }

    fn switch_to(&mut self, now: Instant, flow: FlowKey, cep: CepId) {
        self.rmt.now = now;
        let Some(io) = self.flow_ios.flow(flow) else {
            return;
        };
        if io.next != cep || io.current == cep {
            return;
        }
        io.is_switching = true;
        self.drive(Owner::Flow(flow), &mut core::iter::empty());
        self.handle_owner_events(Owner::Flow(flow));
        self.loop_back();
    }

    fn finish(&mut self, now: Instant, flow: FlowKey) {
        self.rmt.now = now;
        let Some(io) = self.flow_ios.flow(flow) else {
            return;
        };
        io.is_finishing = true;
        let cep = io.current;
        let is_connected = self
            .connections
            .get(cep)
            .is_some_and(|instance| instance.is_connected);
        if is_connected {
            self.drive(Owner::Flow(flow), &mut core::iter::empty());
            self.handle_owner_events(Owner::Flow(flow));
        } else {
            // A flow without a connected other end has sent nothing and will send nothing.
            self.events.push_back(TransferEvent::Drained { flow });
        }
        self.loop_back();
    }

    fn close(&mut self, now: Instant, owner: Owner) {
        self.rmt.now = now;
        self.close_connections(owner);
    }

    fn write_channel(&mut self, now: Instant, channel: u32, message: Vec<u8>) {
        self.rmt.now = now;
        let owner = Owner::Channel(channel);
        let Some(io) = self.flow_ios.get(owner) else {
            return self.rmt.counters.drop_one(DropReason::NoFlow);
        };
        if message.len() > MESSAGE_BYTES_MAX {
            return self.rmt.counters.drop_one(DropReason::SduTooLong);
        }
        if io.pending_bytes > CHANNEL_BYTES_MAX {
            self.events.push_back(TransferEvent::Failed {
                owner,
                reason: "the other side accepts no management messages".to_string(),
            });
            return self.rmt.counters.drop_one(DropReason::ManagementQueueFull);
        }
        let Some(sdu) = P::from_vec(message) else {
            self.events.push_back(TransferEvent::Failed {
                owner,
                reason: "no buffer for a management message".to_string(),
            });
            return self.rmt.counters.drop_one(DropReason::NoBuffer);
        };
        if io.pending.is_empty() {
            self.drive(owner, &mut core::iter::once((sdu, false)));
        } else {
            io.push_pending(sdu, false);
        }
    }

    fn poll(&mut self) -> Option<TransferEvent> {
        let event = self.events.pop_front()?;
        if matches!(event, TransferEvent::Management { .. }) {
            self.management_waiting -= 1;
        }
        Some(event)
    }

    fn show(&self, out: &mut Vec<RibObject>) {
        self.describe(out);
    }

    fn set_policy(
        &mut self,
        now: Instant,
        component: &str,
        spec: &PolicySpec,
    ) -> Result<(), SettingsError> {
        self.rmt.now = now;
        let (descriptor, _) = self.catalogue.resolve(component, spec)?;
        if !descriptor.is_live {
            return Err(SettingsError::NotLive {
                component: descriptor.component,
                policy: descriptor.name,
            });
        }
        let before = self
            .config
            .policies
            .insert(component.to_string(), spec.clone());
        let changed = self.apply_policy(component);
        if changed.is_err() {
            match before {
                Some(before) => self.config.policies.insert(component.to_string(), before),
                None => self.config.policies.remove(component),
            };
        } else {
            let policy = spec.name.as_str();
            self.tracer
                .emit(self.rmt.now, || TraceEvent::PolicyChanged {
                    component,
                    policy,
                });
        }
        changed
    }

    fn max_pdu(&self) -> usize {
        self.max_pdu
    }

    fn carries(&self, n1: N1Port) -> Result<(), N1Error> {
        let Some(port) = self.rmt.port(n1.0) else {
            return Err(N1Error::Unknown(n1));
        };
        let longest = port.pdu_max();
        if self.max_pdu == 0 || longest >= self.max_pdu {
            return Ok(());
        }
        Err(N1Error::TooNarrow {
            n1,
            dif: port.props.dif.clone(),
            has: longest,
            needs: self.max_pdu,
        })
    }
}

/// Limit of the bytes that wait to be written to a management channel.
const CHANNEL_BYTES_MAX: usize = 16 << 20;

impl<P: Payload> DataPath<P> {
    /// Resumes the flows that wait for a queue, because their paths may have changed.
    pub(super) fn wake_all(&mut self) {
        let mut held = Vec::new();
        for port in self.rmt.ports_mut() {
            held.extend(port.take_all_held());
        }
        for key in held {
            self.resume_held(key);
        }
    }

    /// Handles the events of a flow's or channel's connections, right after a request of
    /// management.
    fn handle_owner_events(&mut self, owner: Owner) {
        let ceps = self.flow_ios.get(owner).map(|io| io.connections());
        for cep in ceps.into_iter().flatten() {
            self.handle_efcp_events(cep);
        }
    }
}
