//! IPC processes: their life, their order, and what the data plane says of them.

use std::collections::{BTreeMap, BTreeSet};

use carina_api::control::{EventKind, HvSide, IpcpCreate, IpcpType, LinkState};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, IpcpId, LocalName};
use carina_dataplane::{Command, Event, IpcProcess, NormalIpcp};
use carina_shims::{HvBuilder, HvShim, Loopback, NetworkShim};
use carina_vmpi::hl::{Config as HlConfig, Side};
use carina_vmpi::ll::VmpiImpl;
use carina_vmpi::ll::ivshmem::{GuestDevice, Interrupts, PciAddress, guest_devices};

use crate::conns::{ConnId, Role};
use crate::core::Core;
use crate::ends::Stage;
use crate::members::Membership;
use crate::vms::VmPort;

/// One IPC process.
pub struct Ipcp {
    pub name: LocalName,
    pub dif: DifName,
    pub kind: IpcpType,
    pub side: Option<HvSide>,
    /// What it was made from; none for one that was made from a device.
    pub made_from: Option<IpcpCreate>,
    pub carrier: Carrier,
    /// Longest piece of an SDU in bytes that its medium takes at a time.
    pub piece_bytes_max: usize,
    pub state: LinkState,
    pub reason: Option<String>,
    pub peer: Option<String>,
    pub peer_names: BTreeSet<AppName>,
    /// Applications and IPCPs of this system that are registered in it.
    pub names: BTreeMap<AppName, Registrant>,
    pub vmpi_id: Option<u16>,
    /// The PCI device in use.
    pub pci: Option<PciAddress>,
    pub vm: Option<VmPort>,
    /// What a normal IPCP is about.
    pub member: Option<Membership>,
}

impl Ipcp {
    /// Whether others than its members can listen to or write into what it carries.
    pub fn is_exposed(&self) -> bool {
        matches!(self.kind, IpcpType::Eth | IpcpType::Udp | IpcpType::Tcp)
    }
}

/// Who is registered under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registrant {
    /// An application, by its connection.
    App(ConnId),
    /// A normal IPCP.
    Ipcp(IpcpId),
}

/// The shim behind an IPCP.
pub enum Carrier {
    /// Within this system.
    Loopback(Loopback),
    /// On the data plane.
    Hv(HvShim),
    /// On the data plane, over a network.
    Medium(NetworkShim),
    /// A member of a normal DIF.
    Normal(NormalIpcp),
}

impl Carrier {
    /// The shim, to be told something.
    pub fn shim(&mut self) -> &mut dyn IpcProcess {
        match self {
            Self::Loopback(shim) => shim,
            Self::Hv(shim) => shim,
            Self::Medium(shim) => shim,
            Self::Normal(shim) => shim,
        }
    }

    /// The shim, to be asked something.
    pub fn shim_ref(&self) -> &dyn IpcProcess {
        match self {
            Self::Loopback(shim) => shim,
            Self::Hv(shim) => shim,
            Self::Medium(shim) => shim,
            Self::Normal(shim) => shim,
        }
    }

    /// Takes note of an event of the data plane.
    fn handle(&mut self, event: &Event) {
        match self {
            Self::Loopback(_) => {}
            Self::Hv(shim) => shim.handle(event),
            Self::Medium(shim) => shim.handle(event),
            Self::Normal(shim) => shim.handle(event),
        }
    }
}

impl Core {
    /// Makes an IPCP as configured.
    ///
    /// # Errors
    /// The name is taken, the fields do not fit together, or there is no device.
    pub fn create_ipcp(&mut self, create: IpcpCreate) -> Result<IpcpId, ErrorBody> {
        let bad = |what| ErrorBody::new(ErrorCode::BadRequest, what);
        crate::config::check_ipcp(&create).map_err(bad)?;
        self.check_free(&create.name)?;
        let (name, dif) = (create.name.clone(), create.dif.clone());
        match create.kind {
            IpcpType::Loopback => {
                let id = self.free_ipcp()?;
                let carrier = Carrier::Loopback(Loopback::new(id));
                self.add_ipcp(id, name, dif, carrier, Some(create));
                Ok(id)
            }
            IpcpType::Eth | IpcpType::Udp | IpcpType::Tcp => self.create_medium(create),
            IpcpType::Hv => {
                let pci = self.find_device(&create)?;
                let opened = GuestDevice::open(&pci, Interrupts::Auto).map_err(|error| {
                    let what = format!("IPCP {name}: PCI device {pci}: {error}");
                    ErrorBody::new(ErrorCode::NotFound, what)
                })?;
                let id = self.create_hv(name.clone(), dif, opened.device, Some(create))?;
                if let Some(why) = opened.polls_because {
                    let what = format!("no interrupts, the device is polled: {why}");
                    self.journal.note(EventKind::Degraded, &name, what);
                }
                if let Some(ipcp) = self.ipcps.get_mut(&id) {
                    ipcp.pci = Some(pci);
                }
                Ok(id)
            }
            IpcpType::Normal => Err(bad(format!(
                "IPCP {name}: normal IPCPs are made by `carina dif create` and `carina dif join`"
            ))),
        }
    }

    /// Makes an hv IPCP over a device.
    ///
    /// # Errors
    /// The name is taken or a limit is reached.
    pub fn create_hv(
        &mut self,
        name: LocalName,
        dif: DifName,
        device: Box<dyn VmpiImpl + Send>,
        made_from: Option<IpcpCreate>,
    ) -> Result<IpcpId, ErrorBody> {
        self.check_free(&name)?;
        let id = self.free_ipcp()?;
        let side = device.side();
        let config = HlConfig::new(side, String::new(), device.record_bytes_max());
        let builder = HvBuilder {
            label: name.to_string(),
            device,
            side,
            name: self.name.clone(),
        };
        self.plane.add_ipcp(id, Box::new(builder));
        let carrier = Carrier::Hv(HvShim::new(id, self.plane.commands()));
        self.add_ipcp(id, name, dif, carrier, made_from);
        if let Some(ipcp) = self.ipcps.get_mut(&id) {
            ipcp.piece_bytes_max = config.piece_bytes_max as usize;
            ipcp.side = Some(if side == Side::Host {
                HvSide::Host
            } else {
                HvSide::Guest
            });
        }
        Ok(id)
    }

    /// Makes a shim over a network.
    fn create_medium(&mut self, create: IpcpCreate) -> Result<IpcpId, ErrorBody> {
        let others = self.ipcps.values();
        let others = others.filter_map(|ipcp| ipcp.made_from.as_ref());
        crate::media::check_alone(&create, others)?;
        let (medium, offered) = crate::media::open(&create)?;
        let id = self.free_ipcp()?;
        let kind = match create.kind {
            IpcpType::Udp => "udp",
            IpcpType::Tcp => "tcp",
            _ => "eth",
        };
        self.plane.add_ipcp(id, medium);
        let shim = NetworkShim::new(id, kind, offered, self.plane.commands());
        let (name, dif) = (create.name.clone(), create.dif.clone());
        self.add_ipcp(id, name, dif, Carrier::Medium(shim), Some(create));
        Ok(id)
    }

    pub fn add_ipcp(
        &mut self,
        id: IpcpId,
        name: LocalName,
        dif: DifName,
        carrier: Carrier,
        made_from: Option<IpcpCreate>,
    ) {
        let (kind, state, vmpi_id) = match &carrier {
            Carrier::Loopback(_) => (IpcpType::Loopback, LinkState::Up, None),
            Carrier::Hv(_) => (IpcpType::Hv, LinkState::Down, Some(self.free_vmpi_id())),
            Carrier::Medium(_) => {
                let kind = made_from.as_ref().map_or(IpcpType::Eth, |made| made.kind);
                (kind, LinkState::Down, None)
            }
            Carrier::Normal(_) => (IpcpType::Normal, LinkState::Down, None),
        };
        self.journal
            .note(EventKind::IpcpCreated, &name, format!("in {dif}"));
        let ipcp = Ipcp {
            name,
            dif,
            kind,
            side: None,
            made_from,
            carrier,
            piece_bytes_max: usize::MAX,
            state,
            reason: None,
            peer: None,
            peer_names: BTreeSet::new(),
            names: BTreeMap::new(),
            vmpi_id,
            pci: None,
            vm: None,
            member: None,
        };
        self.ipcps.insert(id, ipcp);
        self.made.push(id);
        self.register_all_in(id);
        self.register_members_in(id);
    }

    /// Destroys an IPCP: its flows end, its names are gone, and so is the region of its VM.
    pub fn remove_ipcp(&mut self, id: IpcpId, reason: &str) {
        if let Some((name, vm)) = self.take_ipcp(id, reason) {
            self.remove_vm(&name, vm, false);
        }
    }

    /// Ends an IPCP and gives back the port of its VM.
    pub fn take_ipcp(&mut self, id: IpcpId, reason: &str) -> Option<(LocalName, VmPort)> {
        self.leave_below(id);
        let ports: Vec<_> = self
            .ends
            .iter()
            .filter(|(_, e)| e.ipcp == id)
            .map(|(port, _)| *port)
            .collect();
        for port in ports {
            self.on_closed(port, reason);
            if let Some((channel, side)) = self
                .ends
                .get_mut(&port)
                .and_then(|end| end.live()?.channel.as_ref())
            {
                channel.fail(side.other());
            }
        }
        let ipcp = self.ipcps.remove(&id)?;
        self.made.retain(|made| *made != id);
        for conn in self.conns.values_mut() {
            if let Role::App(app) = &mut conn.role {
                app.ipcps.retain(|at| *at != id);
            }
        }
        self.answers_no_more(id);
        if !matches!(ipcp.carrier, Carrier::Loopback(_)) {
            self.plane.send(Command::RemoveIpcp { ipcp: id });
        }
        self.journal
            .note(EventKind::IpcpDestroyed, &ipcp.name, reason);
        Some((ipcp.name, ipcp.vm?))
    }

    /// The IPCP of that name.
    pub fn ipcp_named(&self, name: &str) -> Option<IpcpId> {
        self.made
            .iter()
            .copied()
            .find(|id| self.ipcps[id].name.as_str() == name)
    }

    /// IPCPs in the order in which their DIFs are searched.
    pub fn search_order(&self) -> Vec<IpcpId> {
        let rank = |id: &IpcpId| {
            let dif = &self.ipcps[id].dif;
            self.dif_order
                .iter()
                .position(|d| d == dif)
                .unwrap_or(self.dif_order.len())
        };
        let mut order = self.made.clone();
        order.sort_by_key(rank);
        order
    }

    /// Hears what a shim of this thread has to say.
    pub fn pump(&mut self, id: carina_api::IpcpId) {
        while let Some(event) = self
            .ipcps
            .get_mut(&id)
            .and_then(|ipcp| ipcp.carrier.shim().poll_event())
        {
            self.on_event(event);
        }
    }

    /// Hears what the data plane has to say.
    pub fn hear_plane(&mut self) {
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.plane.poll_event() else {
                return;
            };
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        if let Some(ipcp) = ipcp_of(&event).and_then(|ipcp| self.ipcps.get_mut(&ipcp)) {
            ipcp.carrier.handle(&event);
        }
        match event {
            Event::LinkUp { ipcp, peer } => self.on_link(ipcp, Ok(peer)),
            Event::LinkDown { ipcp, reason } => self.on_link(ipcp, Err(reason)),
            Event::SduMaxChanged { ipcp, .. } => self.refit_members(ipcp),
            Event::Registered { ipcp, name } => self.on_registered(ipcp, &name, Ok(())),
            Event::PeerRegistered { ipcp: id, name } => {
                let Some(ipcp) = self.ipcps.get_mut(&id) else {
                    return;
                };
                self.journal.note(
                    EventKind::PeerRegistered,
                    &name,
                    format!("through {}", ipcp.name),
                );
                ipcp.peer_names.insert(name);
                self.hurry_members(id);
            }
            Event::PeerUnregistered { ipcp, name } => {
                let Some(ipcp) = self.ipcps.get_mut(&ipcp) else {
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
                self.offer(ipcp, port, local, remote, spec);
            }
            Event::AllocateResult { port, result } => self.on_allocated(port, result),
            Event::FlowClosed { port, reason } => self.on_closed(port, &reason),
            Event::Member { ipcp, event } => self.on_member(ipcp, event),
        }
    }

    fn on_link(&mut self, id: IpcpId, link: Result<String, String>) {
        let Some(ipcp) = self.ipcps.get_mut(&id) else {
            return;
        };
        match link {
            Ok(peer) => {
                ipcp.state = LinkState::Up;
                ipcp.reason = None;
                self.journal
                    .note(EventKind::LinkUp, &ipcp.name, format!("peer {peer}"));
                ipcp.peer = Some(peer);
                self.hurry_members(id);
            }
            Err(reason) => {
                ipcp.state = LinkState::Down;
                ipcp.peer = None;
                ipcp.peer_names.clear();
                self.journal.note(EventKind::LinkDown, &ipcp.name, &reason);
                ipcp.reason = Some(reason);
                self.answers_no_more(id);
            }
        }
    }

    /// The PCI device asked for, or the first that is not in use.
    fn find_device(&self, create: &IpcpCreate) -> Result<PciAddress, ErrorBody> {
        let name = &create.name;
        let missing = |what| ErrorBody::new(ErrorCode::NotFound, what);
        let found = guest_devices()
            .map_err(|error| missing(format!("IPCP {name}: PCI devices: {error}")))?;
        let in_use = |pci: &PciAddress| self.ipcps.values().any(|i| i.pci.as_ref() == Some(pci));
        let wanted = |pci: &PciAddress| create.pci.as_ref().is_none_or(|wanted| wanted == pci);
        let mut fitting = found.iter().filter(|pci| wanted(pci));
        match fitting.clone().find(|pci| !in_use(pci)) {
            Some(pci) => Ok(pci.clone()),
            None if fitting.next().is_some() => Err(ErrorBody::new(
                ErrorCode::Conflict,
                format!("IPCP {name}: the VMPI devices of this system are in use"),
            )),
            None => Err(missing(format!(
                "IPCP {name}: no VMPI device (PCI 1af4:1110){}; this system has: {}",
                create
                    .pci
                    .as_ref()
                    .map_or(String::new(), |pci| format!(" at {pci}")),
                if found.is_empty() {
                    "none".to_owned()
                } else {
                    found.join(", ")
                },
            ))),
        }
    }

    /// Number of flows over an IPCP.
    pub fn flows_over(&self, id: IpcpId) -> u32 {
        let up = |stage: &Stage| matches!(stage, Stage::Up(_));
        self.ends
            .values()
            .filter(|end| end.ipcp == id && up(&end.stage))
            .count() as u32
    }

    /// Checks that no IPCP has the name.
    ///
    /// # Errors
    /// One has.
    pub fn check_free(&self, name: &LocalName) -> Result<(), ErrorBody> {
        match self.ipcp_named(name.as_str()) {
            None => Ok(()),
            Some(_) => Err(ErrorBody::new(
                ErrorCode::DuplicateName,
                format!("there is an IPCP or VM named {name} already"),
            )),
        }
    }

    pub fn free_ipcp(&mut self) -> Result<IpcpId, ErrorBody> {
        if self.ipcps.len() >= IPCPS_MAX {
            let what = format!("there are {IPCPS_MAX} IPCPs; that is the limit");
            return Err(ErrorBody::new(ErrorCode::LimitReached, what));
        }
        loop {
            let id = IpcpId(self.next_ipcp);
            self.next_ipcp = self.next_ipcp.checked_add(1).unwrap_or(1);
            if !self.ipcps.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// The lowest free number for a VMPI device.
    fn free_vmpi_id(&self) -> u16 {
        let taken: BTreeSet<u16> = self
            .ipcps
            .values()
            .filter_map(|ipcp| ipcp.vmpi_id)
            .collect();
        (0..=u16::MAX)
            .find(|id| !taken.contains(id))
            .unwrap_or(u16::MAX)
    }
}

/// The IPCP whose shim an event concerns.
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
/// IPCPs of one system.
pub const IPCPS_MAX: usize = 4096;
