//! Layer management of a DIF of IRATI's dialect.
//!
//! Messages and values are those of IRATI itself, as `docs/how-to/irati.md` describes them.
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
//!        data_transfer::DataTransfer (and its events back)
//! ```
//!
//! The flow allocator, the link-state database and the directory that these files use are in
//! `interop`. `docs/how-to/irati.md` describes the protocol.

mod addresses;
mod authentication;
mod cubes;
mod directory;
mod enrollee;
mod enroller;
mod error;
mod flow_object;
mod flows;
mod keepalive;
mod links;
mod membership;
mod messages;
mod n1;
mod neighbours;
mod objects;
mod rib_view;
mod to_itself;
mod unsupported;
mod values;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::{Command, Event, FlowKey, N1Port};
use carina_ipcp::config::{Config, DifConfig, PolicySpec};
use carina_ipcp::data_transfer::api::{DataTransfer, Owner, TransferEvent};
use carina_ipcp::event_log::EventLog;
use carina_ipcp::layer::{AllocateError, CreateError, DialectProfile, LayerManagement};
use carina_ipcp::policy::{Catalogue, Descriptor, component};
use carina_ipcp::security::{Toolbox, XOR_PASSWORD};
use carina_ipcp::trace::{TraceEvent, Tracer};
use carina_management::AccessControl;
use carina_time::{Duration, Instant};
use carina_wire::dif::{Address, Dialect};
use carina_wire::{FlowSpec, check_name};

use crate::interop::directory::Directory;
use crate::interop::flow_allocator::FlowAllocator;
use crate::interop::names;
use addresses::{KnownAddresses, describe};
use authentication::Authentication;
use flows::FlowCodec;
use links::Topology;
use n1::{N1, WantedN1};
use unsupported::Unsupported;

pub(crate) use addresses::KNOWN_ADDRESSES;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use flows::a_data;

/// The profile of the IRATI dialect.
pub(crate) const DIALECT: DialectProfile = DialectProfile {
    dialect: Dialect::Irati,
    describe: |catalogue| {
        carina_management::describe(catalogue);
        describe(catalogue);
    },
    adopt,
    create: |config, toolbox, catalogue, seed| {
        Ok(Box::new(Irati::new(config, toolbox, catalogue, seed)?))
    },
    connect_names: Some(|message| names::of_connect(&objects::RULES, message)),
};

/// No policy can change while an IRATI DIF runs: members do not tell one another of a change.
fn adopt(policy: &mut Descriptor) -> bool {
    policy.is_live = false;
    if policy.component == component::DELIMITING {
        return policy.name != "standard";
    }
    if FIXED.iter().any(|(fixed, _)| *fixed == policy.component) {
        policy.params.clear();
    }
    has_policy(policy.component, policy.name)
}

/// Interval at which all state is sent to neighbours again, because a lost PDU is not repeated.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Largest number of expelled members that are remembered.
const EXPELLED_MAX: usize = 256;
/// Largest number of messages of this member to itself that are handled in one call.
const OWN_MAX: usize = 64;

/// Layer management of one IPCP in an IRATI DIF.
///
/// See [`LayerManagement`].
pub(crate) struct Irati {
    own: String,
    dif: String,
    config: DifConfig,
    toolbox: Box<dyn Toolbox>,
    catalogue: Catalogue,
    random: carina_ipcp::random::Random,
    log: EventLog,
    addresses: KnownAddresses,
    access: Box<dyn AccessControl>,
    authentication: Authentication,
    /// Data transfer has been given the configuration.
    is_configured: bool,
    /// Address of this IPCP; 0 for none.
    address: u64,
    is_member: bool,
    /// This IPCP has left the DIF and does not enroll by itself. A new N-1 flow or
    /// [`Command::Enroll`] clears the flag.
    has_left: bool,
    n1s: BTreeMap<N1Port, N1>,
    wanted_n1s: BTreeMap<(String, String), WantedN1>,
    expelled: BTreeSet<String>,
    /// Neighbours that were lost without ever having answered a keep-alive, and how many times
    /// their allowed time was doubled.
    unresponsive: BTreeMap<String, u32>,
    topology: Topology,
    directory: Directory<u64>,
    ended: directory::AllEnded,
    questioned: directory::Questioned,
    flows: FlowAllocator<FlowCodec>,
    own_messages: VecDeque<values::AData>,
    refresh_at: Instant,
    /// The earliest deadline, recomputed after each call.
    due: Option<Instant>,
}

impl Irati {
    /// Makes the layer management of an IPCP that is not a member yet. The same `seed` and the same
    /// calls give the same behaviour.
    ///
    /// # Errors
    /// A name is not well formed, or a policy of the configuration does not exist in this dialect.
    pub(crate) fn new(
        config: Config,
        toolbox: Box<dyn Toolbox>,
        catalogue: Catalogue,
        seed: u64,
    ) -> Result<Irati, CreateError> {
        check_name(&config.name)?;
        check_name(&config.dif)?;
        let mut given = config
            .dif_config
            .unwrap_or_else(|| DifConfig::of_dialect(Dialect::Irati));
        if given.cubes.is_empty() {
            given.cubes = DifConfig::of_dialect(Dialect::Irati).cubes;
        }
        let spec = known_addresses(&given);
        let place = component::ADDRESS_ASSIGNMENT.to_string();
        given.policies.insert(place, spec.clone());
        // Checks policies that the dialect fixes before the catalogue does, for a better error
        // message.
        check_policies(&given)?;
        catalogue.check(&given)?;
        let addresses: KnownAddresses = catalogue.make(component::ADDRESS_ASSIGNMENT, &spec)?;
        let authentication = given.policies.get(component::AUTHENTICATION);
        let authentication = Authentication::new(authentication.unwrap_or(&PolicySpec::default()))?;
        let address = addresses.own(&config.name, objects::INSTANCE);
        Ok(Irati {
            access: catalogue.make_for(component::ACCESS_CONTROL, &given)?,
            topology: Topology::new(&config.name),
            directory: Directory::new(0, directory::LIMITS),
            flows: FlowAllocator::new(FlowCodec::default(), flows::PROFILE).reusing_invoke_ids(),
            own: config.name,
            dif: config.dif,
            config: given,
            toolbox,
            catalogue,
            random: carina_ipcp::random::Random::new(seed),
            log: EventLog::default(),
            addresses,
            authentication,
            is_configured: false,
            address: address.unwrap_or_default(),
            is_member: false,
            has_left: false,
            n1s: BTreeMap::new(),
            wanted_n1s: BTreeMap::new(),
            expelled: BTreeSet::new(),
            unresponsive: BTreeMap::new(),
            ended: BTreeMap::new(),
            questioned: BTreeMap::new(),
            own_messages: VecDeque::new(),
            refresh_at: Instant::ZERO,
            due: None,
        })
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Counts a discarded message of the IPCP behind an N-1 flow, and reports it.
    fn discard(&mut self, n1: N1Port, what: &'static str) {
        let peer = match self.n1s.get(&n1).map(N1::display_name) {
            Some(name) if !name.is_empty() => name.to_string(),
            _ => format!("N-1 flow {}", n1.0),
        };
        self.log.discard(&peer, what);
    }

    /// Gives the configuration to data transfer, once. Returns false when data transfer refuses it.
    fn configure(&mut self, now: Instant, dt: &mut dyn DataTransfer) -> bool {
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
            Err(error) => {
                let reason = error.to_string();
                self.log.push(Event::Left { reason });
            }
        }
        self.is_configured
    }

    /// Handles the consequences of the call.
    fn process_pending(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        // An exchange of this member with itself ends; what exceeds the bound waits for the next
        // call.
        for _ in 0..OWN_MAX {
            self.drain_flows(now, dt);
            let Some(data) = self.own_messages.pop_front() else {
                break;
            };
            let outer = carina_cdap::Message::new(carina_cdap::Opcode::Write);
            self.on_a_data(now, None, data, &outer, dt);
        }
        self.directory_changes();
        self.due = self.next_deadline();
    }

    fn next_deadline(&self) -> Option<Instant> {
        let member = self.is_member.then(|| {
            [
                self.flows.due(),
                self.topology.due(),
                self.directory_due(),
                Some(self.refresh_at),
            ]
        });
        let always = [
            self.neighbours_due(),
            (!self.own_messages.is_empty()).then_some(Instant::ZERO),
        ];
        let all = always.into_iter().chain(member.into_iter().flatten());
        all.flatten().min()
    }

    /// Sends all link-state objects and directory entries to neighbours again.
    fn refresh(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.refresh_at = now + self.random.about(REFRESH_INTERVAL);
        for n1 in self.up() {
            self.queue_all_links(now, n1);
            self.send_directory(now, n1, dt);
        }
    }
}

impl LayerManagement for Irati {
    fn handle(&mut self, now: Instant, command: Command, dt: &mut dyn DataTransfer) {
        self.log.set_now(now);
        match command {
            Command::Bootstrap => self.bootstrap(now, dt),
            Command::N1Up { n1, props } => self.n1_up(now, n1, props, dt),
            Command::N1Down { n1, reason } => self.n1_down(now, n1, &reason, dt),
            Command::Enroll { n1 } => self.enroll_through(now, n1, dt),
            Command::GiveUpN1 { n1, reason } => self.detach_n1(now, n1, &reason, dt),
            // Nothing to do, since no other member reads the RIB.
            Command::N1Difs { .. } => {}
            Command::Leave => self.leave(now, dt),
            Command::Expel { id, member } => self.expel(now, id, &member, dt),
            Command::Register { name } => self.register(now, &name, dt),
            Command::Unregister { name } => self.unregister(now, &name, dt),
            Command::Respond { flow, answer } => {
                if self.flows.respond(now, flow, answer, dt) {
                    self.flows.trace_allocated(flow, &self.log);
                }
            }
            Command::Deallocate { flow, reason } => {
                self.flows.deallocate(now, flow, &reason, dt);
            }
            Command::Rib { id, member, op } => self.rib_command(now, id, member, op, dt),
        }
        self.process_pending(now, dt);
    }

    fn allocate(
        &mut self,
        now: Instant,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, AllocateError> {
        self.log.set_now(now);
        let key = self.allocate_flow(now, local, remote, spec, dt);
        if let Ok(flow) = key {
            self.log.trace(|| TraceEvent::FlowRequested {
                flow,
                local,
                remote,
                is_initiator: true,
            });
        }
        self.process_pending(now, dt);
        key
    }

    fn on_transfer(&mut self, now: Instant, event: TransferEvent, dt: &mut dyn DataTransfer) {
        self.log.set_now(now);
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
                // Sequence numbers wrap in this dialect; a data transfer that cannot wrap them must
                // end the flow.
                let reason = "the sequence numbers of its connection are used up";
                self.flows.failed(now, flow, reason, dt);
            }
            // This dialect has no management channels.
            TransferEvent::Channel { .. }
            | TransferEvent::Failed { .. }
            | TransferEvent::Rollover { .. } => self.log.count("channel-unexpected"),
            TransferEvent::Stuck { n1 } => {
                let reason = "the N-1 flow no longer accepts PDUs".to_string();
                self.disconnect(now, n1, &reason, false, dt);
                self.log.push(Event::DropN1 { n1, reason });
            }
            TransferEvent::Notice { text } => self.log.push(Event::Notice { text }),
        }
        self.process_pending(now, dt);
    }

    fn handle_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.log.set_now(now);
        self.neighbours_timeout(now, dt);
        if self.is_member {
            self.flows.handle_timeout(now, dt);
            self.links_timeout(now, dt);
            self.directory_timeout(now, dt);
            if self.refresh_at <= now {
                self.refresh(now, dt);
            }
        }
        self.process_pending(now, dt);
    }

    fn set_tracer(&mut self, tracer: Tracer) {
        self.log.set_tracer(tracer);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.log.poll()
    }

    fn end_is_known(&mut self, flow: FlowKey) {
        self.flows.end_is_known(flow);
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

/// Checks that the configuration has no policy that this dialect does not support.
///
/// # Errors
/// The first such policy, with the valid ones.
fn check_policies(config: &DifConfig) -> Result<(), Unsupported> {
    for (component, only) in FIXED {
        let Some(spec) = config.policies.get(component) else {
            continue;
        };
        if !spec.name.is_empty() && spec.name != only {
            return Err(Unsupported::Policy {
                component,
                policy: spec.name.clone(),
                known: alloc::vec![only],
            });
        }
        if let Some(param) = spec.params.keys().next() {
            return Err(Unsupported::Parameter {
                component,
                parameter: param.clone(),
            });
        }
    }
    Ok(())
}

/// Components with a single policy in this dialect, and its name.
const FIXED: [(&str, &str); 5] = [
    (component::ROUTING, "link-state"),
    (component::DIRECTORY, "replicated"),
    (component::QOS_SELECTION, "first-fit"),
    (component::ENROLLMENT, "reconnecting"),
    (component::SDU_PROTECTION, "none"),
];

/// True when a policy of a component can be used in this dialect.
fn has_policy(component: &str, name: &str) -> bool {
    if let Some((_, only)) = FIXED.iter().find(|(fixed, _)| *fixed == component) {
        return name == *only;
    }
    match component {
        component::ADDRESS_ASSIGNMENT => name == KNOWN_ADDRESSES,
        component::AUTHENTICATION => name == "none" || name == XOR_PASSWORD,
        // The PCI has no field for a checksum.
        component::PCI_CHECKSUM => name == "none",
        _ => true,
    }
}

/// The address policy that a configuration selects.
fn known_addresses(config: &DifConfig) -> PolicySpec {
    let spec = config.policies.get(component::ADDRESS_ASSIGNMENT);
    let mut spec = spec.cloned().unwrap_or_default();
    if spec.name.is_empty() {
        spec.name = KNOWN_ADDRESSES.to_string();
    }
    spec
}

/// Splits values into parts of at most `count` values and `room` bytes each (at least one value).
fn parts<T: prost::Message>(values: Vec<T>, count: usize, room: usize) -> Vec<Vec<T>> {
    // Bytes of tag and length in front of each value.
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
