//! The life of an IPCP: creation, handling of its events, destruction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use carina_api::control::{EventKind, IpcpCreate, IpcpType, LinkState};
use carina_api::{DifName, ErrorBody, ErrorCode, IpcpId, LocalName};
use carina_dataplane::Event;

use crate::core::Core;
use crate::ipcp_kinds::{self, Opened};
use crate::ipcps::Ipcp;
use crate::layers::{Layer, check_doors, layers};
use crate::membership::Membership;
use crate::vm_port::VmPort;

/// Parameters of an IPCP to add.
pub(crate) struct NewIpcp {
    pub name: LocalName,
    pub dif: DifName,
    /// The configuration of a shim, if it has one.
    pub made_from: Option<IpcpCreate>,
    /// The state of a member of a normal DIF; `None` for a shim.
    pub member: Option<Membership>,
    pub opened: Opened,
}

impl Core {
    /// Creates an IPCP from its configuration.
    ///
    /// # Errors
    /// The name is in use, the fields do not fit together, or the device or interface cannot be
    /// opened.
    pub(crate) fn create_ipcp(&mut self, create: IpcpCreate) -> Result<IpcpId, ErrorBody> {
        ipcp_kinds::check(&create)
            .map_err(|error| ErrorBody::new(ErrorCode::BadRequest, error.to_string()))?;
        self.ipcps.check_name_unused(&create.name)?;
        let opened = ipcp_kinds::open(&create, &self.ipcps, &self.name, &self.graphs())?;
        self.add_ipcp(NewIpcp {
            name: create.name.clone(),
            dif: create.dif.clone(),
            made_from: Some(create),
            member: None,
            opened,
        })
    }

    /// Directory of the counters of graphs.
    fn graphs(&self) -> PathBuf {
        self.run_dir_lock.dir().path().join("graphs")
    }

    /// Adds an IPCP of any kind to the data plane and to the table, and registers in it the names
    /// that are registered in all DIFs.
    ///
    /// # Errors
    /// The name is in use, or there are too many IPCPs.
    pub(crate) fn add_ipcp(&mut self, new: NewIpcp) -> Result<IpcpId, ErrorBody> {
        let NewIpcp {
            name,
            dif,
            made_from,
            member,
            opened,
        } = new;
        self.ipcps.check_name_unused(&name)?;
        let layer = Layer::of_shim(&name, dif.clone());
        check_doors(&layer, &layers(&self.ipcps))?;
        let id = self.ipcps.unused_id()?;
        if opened.kind != IpcpType::Loopback {
            let below = self.below(member.as_ref());
            let wanted = self.placement.get(&name).copied();
            self.plane.place(id, wanted, &below);
        }
        if let Some(builder) = opened.builder {
            self.plane.add_ipcp(id, builder);
        }
        let kind = opened.kind;
        tracing::debug!(ipcp = %name, %dif, ?kind, "IPCP opened");
        self.journal
            .note(EventKind::IpcpCreated, &name, format!("in {dif}"));
        if let Some(notice) = opened.notice {
            self.journal.note(EventKind::Degraded, &name, notice);
        }
        let ipcp = Ipcp {
            name,
            dif,
            kind,
            side: opened.side,
            made_from,
            process: (opened.process)(id, self.plane.commands(id)),
            piece_bytes_max: opened.piece_bytes_max,
            is_exposed: opened.is_exposed,
            state: opened.state,
            reason: None,
            peer: None,
            peer_names: BTreeSet::new(),
            names: BTreeMap::new(),
            vmpi_id: (kind == IpcpType::Hv).then(|| self.ipcps.unused_vmpi_id()),
            pci: opened.pci,
            vm: None,
            member,
        };
        self.ipcps.insert(id, ipcp);
        self.register_all_in(id);
        self.register_members_in(id);
        Ok(id)
    }

    /// The IPCPs whose flows a member will use as N-1 flows.
    fn below(&self, member: Option<&Membership>) -> Vec<IpcpId> {
        let is_below = |id: &IpcpId| member.is_some_and(|m| m.is_over(&self.ipcps[*id].dif));
        self.ipcps.ids().into_iter().filter(is_below).collect()
    }

    /// Destroys an IPCP with its flows, its registered names and the region of its VM.
    pub(crate) fn remove_ipcp(&mut self, id: IpcpId, reason: &str) {
        if let Some((name, vm)) = self.detach_ipcp(id, reason) {
            self.remove_vm(&name, vm, false);
        }
    }

    /// Ends an IPCP and returns the port of its VM, if it has one.
    pub(crate) fn detach_ipcp(&mut self, id: IpcpId, reason: &str) -> Option<(LocalName, VmPort)> {
        self.detach_from_n1_difs(id);
        for port in self.endpoints.ports_over(id) {
            self.on_closed(port, reason);
            if let Some((channel, side)) = self
                .endpoints
                .get_mut(port)
                .and_then(|end| end.allocated()?.channel.as_ref())
            {
                channel.fail(side.other());
            }
        }
        let ipcp = self.ipcps.remove(id)?;
        for (_, app) in self.connections.apps_mut() {
            app.ipcps.retain(|at| *at != id);
        }
        self.forget_pending_registrations(id);
        if !ipcp.process.as_dyn().is_local() {
            self.plane.remove_ipcp(id);
        }
        self.journal
            .note(EventKind::IpcpDestroyed, &ipcp.name, reason);
        Some((ipcp.name, ipcp.vm?))
    }

    /// Handles the events of an IPCP whose control side runs on this thread.
    pub(crate) fn dispatch_ipcp_events(&mut self, id: carina_api::IpcpId) {
        while let Some(event) = self
            .ipcps
            .get_mut(id)
            .and_then(|ipcp| ipcp.process.as_dyn_mut().poll_event())
        {
            self.handle_event(event);
        }
    }

    /// Handles the events of the data plane.
    pub(crate) fn dispatch_data_plane_events(&mut self) {
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.plane.poll_event() else {
                return;
            };
            self.handle_event(event);
        }
    }

    fn handle_event(&mut self, event: Event) {
        if let Some(ipcp) = ipcp_of(&event).and_then(|ipcp| self.ipcps.get_mut(ipcp)) {
            ipcp.process.as_dyn_mut().handle(&event);
        }
        match event {
            Event::LinkUp { ipcp, peer } => self.on_link(ipcp, Ok(peer)),
            Event::LinkDown { ipcp, reason } => self.on_link(ipcp, Err(reason)),
            Event::SduMaxChanged { ipcp, .. } => self.recheck_members_over(ipcp),
            Event::Registered { ipcp, name } => self.on_registered(ipcp, &name, Ok(())),
            Event::PeerRegistered { ipcp: id, name } => {
                let Some(ipcp) = self.ipcps.get_mut(id) else {
                    return;
                };
                self.journal.note(
                    EventKind::PeerRegistered,
                    &name,
                    format!("through {}", ipcp.name),
                );
                ipcp.peer_names.insert(name);
                self.retry_n1_flows_now(id);
            }
            Event::PeerUnregistered { ipcp, name } => {
                let Some(ipcp) = self.ipcps.get_mut(ipcp) else {
                    return;
                };
                ipcp.peer_names.remove(&name);
                self.journal.note(
                    EventKind::PeerUnregistered,
                    &name,
                    format!("through {}", ipcp.name),
                );
            }
            Event::IncomingFlow {
                ipcp,
                port,
                local,
                remote,
                spec,
            } => {
                self.on_incoming_flow(ipcp, port, local, remote, spec);
            }
            Event::AllocateResult { port, result } => self.on_allocated(port, result),
            Event::FlowClosed { port, reason } => self.on_closed(port, &reason),
            Event::Member { ipcp, event } => self.on_member(ipcp, event),
        }
    }

    fn on_link(&mut self, id: IpcpId, link: Result<String, String>) {
        let Some(ipcp) = self.ipcps.get_mut(id) else {
            return;
        };
        match link {
            Ok(peer) => {
                ipcp.state = LinkState::Up;
                ipcp.reason = None;
                let (words, peer) = link_up(ipcp.made_from.as_ref(), ipcp.kind, peer);
                self.journal.note(EventKind::LinkUp, &ipcp.name, words);
                ipcp.peer = peer;
                self.retry_n1_flows_now(id);
            }
            Err(reason) => {
                ipcp.state = LinkState::Down;
                ipcp.peer = None;
                ipcp.peer_names.clear();
                self.journal.note(EventKind::LinkDown, &ipcp.name, &reason);
                ipcp.reason = Some(reason);
                self.forget_pending_registrations(id);
            }
        }
    }
}

/// The notice about a link that is up, and its peers. For a shim over IP the peers are taken from
/// the configuration, because the data plane only names the address where the shim listens.
fn link_up(
    made_from: Option<&IpcpCreate>,
    kind: IpcpType,
    named: String,
) -> (String, Option<String>) {
    match kind {
        IpcpType::Udp | IpcpType::Tcp => {
            let peers = made_from.map_or(&[][..], |create| &create.peers);
            let shown = peers.iter().take(PEERS_SHOWN);
            let mut shown: Vec<String> = shown
                .map(|peer| format!("{} at {}", peer.name, peer.address))
                .collect();
            if peers.len() > PEERS_SHOWN {
                shown.push(format!("{} more", peers.len() - PEERS_SHOWN));
            }
            if shown.is_empty() {
                return (format!("listens at {named}"), None);
            }
            let shown = shown.join(", ");
            (format!("peer {shown}; listens at {named}"), Some(shown))
        }
        IpcpType::Eth => (format!("interface {named}"), Some(named)),
        _ => (format!("peer {named}"), Some(named)),
    }
}

/// The IPCP that an event concerns; `None` for events of a flow.
fn ipcp_of(event: &Event) -> Option<IpcpId> {
    match event {
        Event::LinkUp { ipcp, .. }
        | Event::LinkDown { ipcp, .. }
        | Event::SduMaxChanged { ipcp, .. }
        | Event::Registered { ipcp, .. }
        | Event::PeerRegistered { ipcp, .. }
        | Event::PeerUnregistered { ipcp, .. }
        | Event::IncomingFlow { ipcp, .. }
        | Event::Member { ipcp, .. } => Some(*ipcp),
        Event::AllocateResult { .. } | Event::FlowClosed { .. } => None,
    }
}

const EVENTS_PER_TURN: usize = 256;

/// Largest number of peers that the notice of a shim over IP names.
const PEERS_SHOWN: usize = 3;
