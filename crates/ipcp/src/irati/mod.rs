//! Layer management of a DIF of IRATI's dialect.
//!
//! ```text
//!   commands, events                     N-1 flows come and go
//!        |   ^                                   |
//!        v   |                                   v
//!   +------------------------------------------------------------+
//!   | flows     directory     links    | neighbours, enrollment, |
//!   | (a_data)  (M_CREATE,    (M_WRITE | authentication,         |
//!   |            M_DELETE)     fsos)   | addresses               |
//!   +------------------------------------------------------------+
//!   | messages: opcode and object; objects, values, flow_object: |
//!   | names, classes, encodings                                  |
//!   +------------------------------------------------------------+
//!          |  management PDUs between neighbours
//!          v
//!        seam::DataTransfer (and its events back)
//! ```
//!
//! The flow allocator, the link-state database and the directory behind these files are those of
//! [`foreign`](crate::foreign). `docs/irati.md` has the protocol.

mod addresses;
mod authentication;
mod cubes;
mod directory;
mod enrollment;
mod flow_object;
mod flows;
pub mod fuzz;
mod links;
mod messages;
mod neighbours;
mod objects;
mod show;
mod values;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_wire::dif::{Address, Dialect};
use carina_wire::{FlowSpec, check_name};

pub use addresses::{KNOWN_ADDRESSES, KnownAddresses, describe};

use crate::api::{Command, Event, FlowKey, N1Port};
use crate::config::{Config, DifConfig, PolicySpec};
use crate::foreign::MS;
use crate::foreign::directory::Directory;
use crate::foreign::flows::Flows;
use crate::foreign::journal::Journal;
use crate::layer::LayerManagement;
use crate::manage::{self, AccessControl};
use crate::policy::{Catalogue, component};
use crate::seal::Toolbox;
use crate::seam::{DataTransfer, Owner, TransferEvent};
use authentication::Authentication;
use flows::Writer;
use links::Topology;
use neighbours::{N1, Peer, Sought};

/// How often neighbours are told everything again: nothing is repeated when a PDU is lost.
const REMIND_NS: u64 = 60_000 * MS;
/// Members that were told to leave and are remembered for it.
const EXPELLED_MAX: usize = 256;
/// Messages of this member to itself in one turn.
const OWN_MAX: usize = 64;

/// Management of one IPC process.
///
/// See [`LayerManagement`].
pub struct Irati {
    own: String,
    dif: String,
    config: DifConfig,
    toolbox: Box<dyn Toolbox>,
    catalogue: Catalogue,
    random: manage::random::Random,
    journal: Journal,
    addresses: KnownAddresses,
    access: Box<dyn AccessControl>,
    authentication: Authentication,
    /// Data transfer knows the configuration.
    is_configured: bool,
    /// 0 when there is none.
    address: u64,
    is_member: bool,
    /// It left the DIF and has not been told to come back.
    is_away: bool,
    n1s: BTreeMap<N1Port, N1>,
    sought: BTreeMap<(String, String), Sought>,
    expelled: BTreeSet<String>,
    topology: Topology,
    directory: Directory<u64>,
    ended: directory::AllEnded,
    flows: Flows<Writer>,
    own_messages: VecDeque<values::AData>,
    remind_at: u64,
    /// The earliest deadline, worked out after each call.
    due: Option<u64>,
}

impl Irati {
    /// Management of an IPCP that is no member yet. The same `seed` and the same calls give the
    /// same behaviour.
    ///
    /// # Errors
    /// A name is no name, or a policy of the configuration does not exist in this dialect.
    pub fn new(
        config: Config,
        toolbox: Box<dyn Toolbox>,
        mut catalogue: Catalogue,
        seed: u64,
    ) -> Result<Irati, String> {
        check_name(&config.name).map_err(|error| error.to_string())?;
        check_name(&config.dif).map_err(|error| error.to_string())?;
        if catalogue.policies(component::ROUTING).next().is_none() {
            manage::describe(&mut catalogue);
        }
        describe(&mut catalogue);
        catalogue.describe_toolbox(&*toolbox);
        let mut given = config
            .dif_config
            .unwrap_or_else(|| DifConfig::of_dialect(Dialect::Irati));
        if given.cubes.is_empty() {
            given.cubes = DifConfig::of_dialect(Dialect::Irati).cubes;
        }
        let spec = known_addresses(&given);
        let place = component::ADDRESS_ASSIGNMENT.to_string();
        given.policies.insert(place, spec.clone());
        catalogue.check(&given)?;
        check_policies(&given)?;
        let addresses: KnownAddresses = catalogue.make(component::ADDRESS_ASSIGNMENT, &spec)?;
        let authentication = given.policies.get(component::AUTHENTICATION);
        let authentication = Authentication::new(authentication.unwrap_or(&PolicySpec::default()))?;
        let address = addresses.own(&config.name, objects::INSTANCE);
        Ok(Irati {
            access: catalogue.make_for(component::ACCESS_CONTROL, &given)?,
            topology: Topology::new(&config.name),
            directory: Directory::new(0, directory::LIMITS),
            flows: Flows::new(Writer::default(), flows::HABITS).reusing_invoke_ids(),
            own: config.name,
            dif: config.dif,
            config: given,
            toolbox,
            catalogue,
            random: manage::random::Random::new(seed),
            journal: Journal::default(),
            addresses,
            authentication,
            is_configured: false,
            address: address.unwrap_or_default(),
            is_member: false,
            is_away: false,
            n1s: BTreeMap::new(),
            sought: BTreeMap::new(),
            expelled: BTreeSet::new(),
            ended: BTreeMap::new(),
            own_messages: VecDeque::new(),
            remind_at: 0,
            due: None,
        })
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// Counts a message of whoever is behind an N-1 flow as discarded.
    fn discard(&mut self, n1: N1Port, what: &'static str) {
        let peer = match self.n1s.get(&n1).map(N1::called) {
            Some(name) if !name.is_empty() => name.to_string(),
            _ => format!("N-1 flow {}", n1.0),
        };
        self.journal.discard(&peer, what);
    }

    /// Gives the configuration to data transfer, once. False when it does not like it.
    fn configure(&mut self, now: u64, dt: &mut dyn DataTransfer) -> bool {
        if self.is_configured {
            return true;
        }
        match dt.configure(now, &self.config) {
            Ok(()) => {
                self.is_configured = true;
                if self.address != 0 {
                    dt.set_address(Address(self.address));
                }
            }
            Err(reason) => self.journal.tell(Event::Left { reason }),
        }
        self.is_configured
    }

    fn last_address(&self) -> u64 {
        addresses::last(self.config.widths.address)
    }

    /// Addresses of others, with their owners.
    fn taken(&self) -> BTreeMap<u64, String> {
        let members = self.topology.members.iter();
        let mut taken: BTreeMap<u64, String> = members
            .flat_map(|(name, all)| all.iter().map(|address| (*address, name.clone())))
            .collect();
        // Those that enroll at this moment.
        let peers = self.n1s.values().map(|flow| &flow.peer);
        let peers = peers.filter(|peer| peer.address != 0);
        taken.extend(peers.map(|peer| (peer.address, peer.name.clone())));
        if self.address != 0 {
            taken.insert(self.address, self.own.clone());
        }
        taken
    }

    /// The address of an IPCP that joins, which says that it has `wanted`.
    ///
    /// # Errors
    /// Why it is not admitted.
    fn assign(&self, peer: &Peer, wanted: u64) -> Result<u64, String> {
        let mut taken = self.taken();
        taken.retain(|_, owner| *owner != peer.name);
        let last = self.last_address();
        self.addresses
            .assign(&peer.name, &peer.instance, wanted, last, &taken)
    }

    /// This IPCP was given an address while it joins.
    ///
    /// # Errors
    /// It cannot have that one.
    fn take_address(&mut self, address: u64, dt: &mut dyn DataTransfer) -> Result<(), String> {
        if address == 0 || address > self.last_address() {
            return Err(format!(
                "address {address}, which the member gave, does not fit the DIF's addresses"
            ));
        }
        if address == self.address {
            return Ok(());
        }
        if self.is_member {
            return Err(format!(
                "the member wants this one to have address {address} instead of {}",
                self.address
            ));
        }
        self.address = address;
        dt.set_address(Address(address));
        Ok(())
    }

    /// An attempt has failed: back to the address that this IPCP had before.
    fn unlearn(&mut self, dt: &mut dyn DataTransfer) {
        if self.is_member {
            return;
        }
        let own = self.addresses.own(&self.own, objects::INSTANCE);
        self.address = own.unwrap_or_default();
        dt.set_address(Address(self.address));
    }

    /// Takes up membership, if it has not.
    fn become_member(&mut self, now: u64, dt: &mut dyn DataTransfer) {
        if self.is_member {
            return;
        }
        self.is_member = true;
        self.remind_at = now + REMIND_NS;
        let address = Address(self.address);
        dt.set_address(address);
        self.directory.set_own(self.address);
        self.directory.touch_all();
        self.flows.codec.own = self.address;
        let config = self.config.clone();
        self.journal.tell(Event::Enrolled { address, config });
    }

    fn bootstrap(&mut self, now: u64, dt: &mut dyn DataTransfer) {
        if self.is_member {
            let text = "this IPCP is a member already";
            return self.journal.notice("bootstrap", text);
        }
        if !self.configure(now, dt) {
            return;
        }
        let own = Peer {
            name: self.own.clone(),
            instance: objects::INSTANCE.to_string(),
            address: 0,
        };
        match self.assign(&own, self.address) {
            Ok(address) => self.address = address,
            Err(reason) => return self.journal.tell(Event::Left { reason }),
        }
        self.is_away = false;
        self.become_member(now, dt);
    }

    /// Leaves the DIF: what this member has told is taken back, and neighbours are released.
    fn leave(&mut self, now: u64, dt: &mut dyn DataTransfer) {
        if !self.is_member {
            let text = "this IPCP is no member of a DIF";
            return self.journal.notice("leave", text);
        }
        let reason = "this member leaves the DIF";
        self.flows.end_all(now, reason, true, dt);
        self.drain_flows(now, dt);
        let registered = self.directory.registered();
        let registered: Vec<String> = registered.map(|(name, _)| name.to_string()).collect();
        for name in &registered {
            self.unregister(now, name, dt);
        }
        let n1s: Vec<N1Port> = self.n1s.keys().copied().collect();
        for n1 in n1s {
            self.part(now, n1, reason, true, dt);
            self.rest(n1);
        }
        self.is_away = true;
        self.is_member = false;
        self.sought.clear();
        self.ended.clear();
        self.topology = Topology::new(&self.own);
        dt.set_forwarding(&[]);
        self.directory.clear();
        let is_there = |_: &u64| false;
        for event in self.directory.changes(&is_there) {
            self.journal.tell(event);
        }
        // Applications are still there, for when it comes back.
        for name in registered {
            self.directory.register(&name);
        }
        self.unlearn(dt);
        let reason = "it was told to leave".to_string();
        self.journal.tell(Event::Left { reason });
    }

    /// Ends the neighbourhood with a member, and admits it no more.
    fn expel(&mut self, now: u64, member: &str, dt: &mut dyn DataTransfer) {
        let Some(n1) = self.n1_of(member) else {
            let text = format!(
                "{member:?} cannot be expelled: it is no neighbour, and in an irati DIF only \
                 neighbours can be released"
            );
            return self.journal.notice("expel", &text);
        };
        if self.expelled.len() < EXPELLED_MAX {
            self.expelled.insert(member.to_string());
        }
        self.part(now, n1, "it was expelled", true, dt);
        self.rest(n1);
    }

    /// Everything that follows from what has just happened.
    fn settle(&mut self, now: u64, dt: &mut dyn DataTransfer) {
        // A conversation of this member with itself ends; what is left waits for the next call.
        for _ in 0..OWN_MAX {
            self.drain_flows(now, dt);
            let Some(data) = self.own_messages.pop_front() else {
                break;
            };
            let outer = carina_cdap::Message::new(carina_cdap::Opcode::Write);
            self.on_a_data(now, None, data, &outer, dt);
        }
        self.directory_changes();
        self.due = self.earliest();
    }

    fn earliest(&self) -> Option<u64> {
        let member = self.is_member.then(|| {
            [
                self.flows.due(),
                self.topology.due(),
                directory::due(&self.ended),
                Some(self.remind_at),
            ]
        });
        let always = [
            self.neighbours_due(),
            (!self.own_messages.is_empty()).then_some(0),
        ];
        let all = always.into_iter().chain(member.into_iter().flatten());
        all.flatten().min()
    }

    /// Tells neighbours everything again.
    fn remind(&mut self, now: u64, dt: &mut dyn DataTransfer) {
        self.remind_at = now + self.random.about(REMIND_NS);
        for n1 in self.up() {
            self.tell_all_links(now, n1);
            self.tell_directory(now, n1, dt);
        }
    }
}

impl LayerManagement for Irati {
    fn handle(&mut self, now: u64, command: Command, dt: &mut dyn DataTransfer) {
        match command {
            Command::Bootstrap => self.bootstrap(now, dt),
            Command::N1Up { n1, props } => self.n1_up(now, n1, props, dt),
            Command::N1Down { n1, reason } => self.n1_down(now, n1, &reason, dt),
            Command::Enroll { n1 } => self.enroll_by(now, n1, dt),
            Command::Leave => self.leave(now, dt),
            Command::Expel { member } => self.expel(now, &member, dt),
            Command::Register { name } => self.register(now, &name, dt),
            Command::Unregister { name } => self.unregister(now, &name, dt),
            Command::Respond { flow, answer } => self.flows.respond(now, flow, answer, dt),
            Command::Deallocate { flow, reason } => {
                self.flows.deallocate(now, flow, &reason, dt);
            }
            Command::Rib { id, member, op } => self.rib_command(now, id, member, op, dt),
        }
        self.settle(now, dt);
    }

    fn allocate(
        &mut self,
        now: u64,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, String> {
        let key = self.allocate_flow(now, local, remote, spec, dt);
        self.settle(now, dt);
        key
    }

    fn on_transfer(&mut self, now: u64, event: TransferEvent, dt: &mut dyn DataTransfer) {
        match event {
            TransferEvent::Management { n1, src, message } => {
                self.on_management(now, n1, src.0, &message, dt);
            }
            TransferEvent::Failed {
                owner: Owner::Flow(flow),
                reason,
            } => self.flows.failed(now, flow, &reason, dt),
            TransferEvent::Drained { flow } => self.flows.drained(now, flow, dt),
            TransferEvent::Rollover {
                owner: Owner::Flow(flow),
            } => {
                // Numbers wrap in this dialect; a data transfer that cannot has to stop.
                let reason = "the sequence numbers of its connection are used up";
                self.flows.failed(now, flow, reason, dt);
            }
            // There are no management channels in this dialect.
            TransferEvent::Channel { .. }
            | TransferEvent::Failed { .. }
            | TransferEvent::Rollover { .. } => self.journal.count("channel-of-nobody"),
            TransferEvent::Stuck { n1 } => {
                let reason = "the N-1 flow takes nothing any more".to_string();
                self.part(now, n1, &reason, false, dt);
                self.journal.tell(Event::DropN1 { n1, reason });
            }
            TransferEvent::Notice { text } => self.journal.tell(Event::Notice { text }),
        }
        self.settle(now, dt);
    }

    fn handle_timeout(&mut self, now: u64, dt: &mut dyn DataTransfer) {
        self.neighbours_timeout(now, dt);
        if self.is_member {
            self.flows.handle_timeout(now, dt);
            self.links_timeout(now, dt);
            self.directory_timeout(now, dt);
            if self.remind_at <= now {
                self.remind(now, dt);
            }
        }
        self.settle(now, dt);
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.due
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.journal.poll()
    }

    fn address(&self) -> Option<Address> {
        self.is_member.then_some(Address(self.address))
    }
}

impl core::fmt::Debug for Irati {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Irati")
            .field("own", &self.own)
            .field("dif", &self.dif)
            .field("address", &self.address())
            .field("n1s", &self.n1s.len())
            .finish_non_exhaustive()
    }
}

/// Checks that no policy is asked for that this dialect does not have.
///
/// # Errors
/// The first of them, with what there is.
fn check_policies(config: &DifConfig) -> Result<(), String> {
    const FIXED: [(&str, &str); 5] = [
        (component::ROUTING, "link-state"),
        (component::DIRECTORY, "replicated"),
        (component::QOS_SELECTION, "first-fit"),
        (component::ENROLLMENT, "reconnecting"),
        (component::SDU_PROTECTION, "none"),
    ];
    for (component, only) in FIXED {
        let Some(spec) = config.policies.get(component) else {
            continue;
        };
        if !spec.name.is_empty() && spec.name != only {
            return Err(format!(
                "{component}: dialect irati has no policy {:?}; it has: {only}",
                spec.name
            ));
        }
        if let Some(param) = spec.params.keys().next() {
            return Err(format!(
                "{component}: parameter {param:?} cannot be set in dialect irati, which lays it \
                 down"
            ));
        }
    }
    Ok(())
}

/// The policy of addresses that a configuration asks for.
fn known_addresses(config: &DifConfig) -> PolicySpec {
    let spec = config.policies.get(component::ADDRESS_ASSIGNMENT);
    let mut spec = spec.cloned().unwrap_or_default();
    if spec.name.is_empty() {
        spec.name = KNOWN_ADDRESSES.to_string();
    }
    spec
}

/// Values in parts of so many, and of no more than `room` bytes each (one value at least).
fn parts<T: prost::Message>(values: Vec<T>, count: usize, room: usize) -> Vec<Vec<T>> {
    // Tag and length in front of each.
    const FIELD_BYTES: usize = 4;
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for value in values {
        let len = value.encoded_len() + FIELD_BYTES;
        match parts.last_mut() {
            Some(part) if part.len() < count && bytes + len <= room => {
                part.push(value);
                bytes += len;
            }
            _ => {
                parts.push(alloc::vec![value]);
                bytes = len;
            }
        }
    }
    parts
}
