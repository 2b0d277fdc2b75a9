//! Layer management of one IPCP in a native DIF. Every function operates on the RIB of this member
//! or of another, through CDAP.
//!
//! After the Pouzin Society's *RINA Reference Model*, part 3: the tasks of an IPCP that act on its
//! RIB.
//!
//! ```text
//!   commands, events                          N-1 flows come and go
//!        |   ^                                          |
//!        v   |                                          v
//!   +---------------------------------------------------------------+
//!   | flow_allocator  directory  queries | neighbours -> enrollment |
//!   |        |           |          |    | keepalive  link_state    |
//!   |        +-----------+----------+----+-----+---------+          |
//!   |               rib: which operation reaches which component   |
//!   |               schema: names, classes, values                 |
//!   +---------------------------------------------------------------+
//!          |  single management PDUs     |  management channels
//!          v                             v
//!        data_transfer::DataTransfer (and its events back)
//! ```
//!
//! Each file has one component: its state and its effects on the others. The crate is independent
//! of the payload type, of clocks and of sockets. `docs/explanation/management.md` describes the
//! protocol.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod access_control;
mod addresses;
mod directory;
mod dissemination;
mod enrollment;
mod entries;
mod flow_allocator;
mod flow_table;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod keepalive;
mod leaving;
mod link_state;
mod name_conflict;
mod neighbours;
mod policies;
mod policy_change;
mod qos;
mod queries;
mod read_responses;
mod registrations;
mod requester;
mod rib;
mod rib_error;
mod rib_view;
mod schema;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::{Command, Event, FlowKey, N1Dif, N1Port};
use carina_ipcp::config::{Config, DifConfig};
use carina_ipcp::data_transfer::api::{DataTransfer, Owner, Target, TransferEvent};
use carina_ipcp::event_log::EventLog;
use carina_ipcp::layer::{AllocateError, CreateError, DialectProfile, LayerManagement};
use carina_ipcp::policy::{Catalogue, Descriptor, PolicyError, component};
use carina_ipcp::random::Random;
use carina_ipcp::security::{Toolbox, XOR_PASSWORD};
use carina_ipcp::trace::Tracer;
use carina_routing::Routing;
use carina_time::{Duration, Instant};
use carina_wire::dif::{Address, Dialect};
use carina_wire::{FlowSpec, check_name};

pub use access_control::{AccessControl, Operation, RuleError};
pub use addresses::{AddressAssignment, View};
pub use policies::describe;
pub use qos::QosSelection;

use directory::Directory;
use entries::{REFRESH_INTERVAL, Store};
use flow_table::Flows;
use leaving::Departure;
use link_state::LostNeighbour;
use name_conflict::NameConflict;
use neighbours::N1;
use policies::Policies;
use queries::Queries;

/// The profile of the native dialect: its policies and its layer management.
pub const DIALECT: DialectProfile = DialectProfile {
    dialect: Dialect::Native,
    describe,
    adopt,
    create: |config, toolbox, catalogue, seed| {
        Ok(Box::new(Management::new(config, toolbox, catalogue, seed)?))
    },
    connect_names: None,
};

fn adopt(policy: &mut Descriptor) -> bool {
    match policy.component {
        component::AUTHENTICATION => policy.name != XOR_PASSWORD,
        component::PCI_CHECKSUM => policy.name == "none",
        _ => true,
    }
}

/// Interval at which neighbours compare digests of their entries.
const COMPARE_INTERVAL: Duration = Duration::from_secs(30);
/// How long after its enrollment a member should have routes to all others.
const ROUTES_KNOWN_AFTER: Duration = Duration::from_secs(10);

/// Layer management of one IPCP of a native DIF.
///
/// See [`LayerManagement`].
pub(crate) struct Management {
    own: String,
    dif: String,
    given: Option<DifConfig>,
    toolbox: Box<dyn Toolbox>,
    catalogue: Catalogue,
    random: Random,
    incarnation: u64,
    name_conflict: NameConflict,
    log: EventLog,
    policies: Policies,
    /// The present membership; `None` while this IPCP is not a member.
    member: Option<Membership>,
    /// Address in an earlier membership of this DIF; 0 for none.
    former_address: u64,
    leaving: Option<Departure>,
    /// This IPCP has left the DIF and does not enroll by itself. A new N-1 flow or
    /// [`Command::Enroll`] clears the flag.
    has_left: bool,
    n1s: BTreeMap<N1Port, N1>,
    /// The N-1 DIFs that the owner of this IPCP listed.
    n1_difs: Vec<N1Dif>,
    channels: BTreeMap<u32, N1Port>,
    last_channel: u32,
    last_invoke: i32,
    store: Store,
    /// Addresses assigned to IPCPs, each with its owner's name and the end of the reservation.
    reserved_addresses: BTreeMap<u64, (String, Instant)>,
    routing: Option<Box<dyn Routing>>,
    /// The routing policy has computed no routes yet; the routes in force may be from another
    /// policy.
    is_routing_new: bool,
    lost: BTreeMap<(String, String), LostNeighbour>,
    registered: BTreeSet<String>,
    directory: Directory,
    flows: Flows,
    queries: Queries,
    /// Messages that this member sends to itself.
    own_messages: VecDeque<Vec<u8>>,
    refresh_at: Instant,
    compare_at: Instant,
    /// The earliest deadline, recomputed after each call.
    due: Option<Instant>,
}

/// Membership in the DIF: its identity and configuration, and this member's address.
struct Membership {
    dif_id: u64,
    address: u64,
    config: DifConfig,
}

impl Management {
    /// Makes the layer management of an IPCP that is not a member yet. The same `seed` and the same
    /// calls give the same behaviour.
    ///
    /// # Errors
    /// A name is not well formed, or a policy of the configuration does not exist.
    pub(crate) fn new(
        config: Config,
        toolbox: Box<dyn Toolbox>,
        catalogue: Catalogue,
        seed: u64,
    ) -> Result<Management, CreateError> {
        check_name(&config.name)?;
        check_name(&config.dif)?;
        let defaults = DifConfig::default();
        let in_force = config.dif_config.as_ref().unwrap_or(&defaults);
        catalogue.check(in_force)?;
        let policies = Policies::make(&catalogue, in_force)?;
        let mut random = Random::new(seed);
        let incarnation = random.nonce();
        Ok(Management {
            store: Store::new(&config.name, incarnation),
            own: config.name,
            dif: config.dif,
            given: config.dif_config,
            toolbox,
            catalogue,
            incarnation,
            name_conflict: NameConflict::default(),
            log: EventLog::default(),
            policies,
            member: None,
            former_address: 0,
            leaving: None,
            has_left: false,
            n1s: BTreeMap::new(),
            n1_difs: Vec::new(),
            channels: BTreeMap::new(),
            last_channel: 0,
            last_invoke: (random.next_u64() >> 34) as i32,
            random,
            reserved_addresses: BTreeMap::new(),
            routing: None,
            is_routing_new: true,
            lost: BTreeMap::new(),
            registered: BTreeSet::new(),
            directory: Directory::default(),
            flows: Flows::default(),
            queries: Queries::default(),
            own_messages: VecDeque::new(),
            refresh_at: Instant::ZERO,
            compare_at: Instant::ZERO,
            due: None,
        })
    }

    /// Handles the consequences of the call: messages to this member itself, messages and routes of
    /// the routing policy, changes of replicated entries.
    fn process_pending(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.register_backlog(now, dt);
        // Each round answers the messages of the one before. An exchange of this member with itself
        // ends; what exceeds the bound waits for the next call.
        for _ in 0..64 {
            self.drain_routing(now, dt);
            let Some(message) = self.own_messages.pop_front() else {
                break;
            };
            self.on_own_message(now, &message, dt);
        }
        self.directory_changes();
        self.flows.process_pending();
        self.due = self.next_deadline();
    }

    /// The earliest deadline of any component.
    fn next_deadline(&self) -> Option<Instant> {
        let always = [
            self.neighbours_due(),
            self.reconnect_due(),
            self.leaving.as_ref().map(Departure::due),
            // Messages of this member to itself are due at once.
            (!self.own_messages.is_empty()).then_some(Instant::ZERO),
        ];
        let member = self.member.as_ref().map(|_| {
            [
                self.keepalive_due(),
                self.flows.due(),
                self.queries.due(),
                self.directory.due(),
                self.routing
                    .as_ref()
                    .and_then(|routing| routing.poll_timeout()),
                Some(self.refresh_at.min(self.compare_at)),
            ]
        });
        always
            .into_iter()
            .chain(member.into_iter().flatten())
            .flatten()
            .min()
    }

    /// Sends a management message to a member, by address.
    fn send_to(&mut self, now: Instant, address: u64, message: Vec<u8>, dt: &mut dyn DataTransfer) {
        if self.address() == Some(Address(address)) {
            self.own_messages.push_back(message);
        } else {
            dt.send_management(now, Target::Address(Address(address)), &message);
        }
    }

    /// Returns a new invoke id, 1 or more.
    fn invoke_id(&mut self) -> i32 {
        self.last_invoke = self.last_invoke.checked_add(1).unwrap_or(1);
        self.last_invoke
    }

    fn bootstrap(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if self.member.is_some() {
            self.log
                .notice("bootstrap", "this IPCP is a member already");
            return;
        }
        let mut config = self.given.clone().unwrap_or_default();
        if config.cubes.is_empty() {
            config.cubes = qos::standard_cubes();
        }
        let view = View {
            last: addresses::last_address(config.widths.address),
            own: 0,
            taken: &BTreeMap::new(),
        };
        let address = addresses::assign(&*self.policies.addresses, &view, &mut self.random);
        let membership = Membership {
            dif_id: self.random.nonce(),
            address: address.unwrap_or(1),
            config,
        };
        let configured = dt.configure(now, &membership.config);
        let begun = configured.and_then(|()| Ok(self.become_member(now, membership, dt)?));
        if let Err(error) = begun {
            let reason = error.to_string();
            self.log.push(Event::Left { reason });
            return;
        }
        self.schedule_idle_flows(now, dt);
    }

    /// Becomes a member; data transfer is configured already.
    ///
    /// # Errors
    /// A policy of the configuration cannot be made.
    fn become_member(
        &mut self,
        now: Instant,
        membership: Membership,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), PolicyError> {
        self.policies = Policies::make(&self.catalogue, &membership.config)?;
        let mut routing: Box<dyn Routing> = self
            .catalogue
            .make_for(component::ROUTING, &membership.config)?;
        routing.set_own(now, membership.address, &self.own);
        self.routing = Some(routing);
        self.is_routing_new = true;
        let address = Address(membership.address);
        dt.set_address(address);
        self.former_address = membership.address;
        self.directory.is_stale = true;
        self.directory.routes_known_at = now + ROUTES_KNOWN_AFTER;
        let config = membership.config.clone();
        self.member = Some(membership);
        self.refresh_at = now + REFRESH_INTERVAL;
        self.compare_at = now + self.random.about(COMPARE_INTERVAL);
        self.log.push(Event::Enrolled { address, config });
        self.publish_member(now, dt);
        self.publish_registrations(now, dt);
        Ok(())
    }
}

impl LayerManagement for Management {
    fn handle(&mut self, now: Instant, command: Command, dt: &mut dyn DataTransfer) {
        self.log.set_now(now);
        match command {
            Command::Bootstrap => self.bootstrap(now, dt),
            Command::N1Up { n1, props } => self.n1_up(now, n1, props, dt),
            Command::N1Down { n1, reason } => self.n1_down(now, n1, &reason, dt),
            Command::Enroll { n1 } => self.enroll_through(now, n1, dt),
            Command::GiveUpN1 { n1, reason } => self.detach_n1(now, n1, &reason, dt),
            Command::N1Difs { difs } => self.n1_difs = difs,
            Command::Leave => self.leave(now, "the node ordered it to leave", dt),
            Command::Expel { id, member } => self.expel(now, id, &member, dt),
            Command::Register { name } => self.register(now, name, dt),
            Command::Unregister { name } => self.unregister(now, &name, dt),
            Command::Respond { flow, answer } => self.respond(now, flow, answer, dt),
            Command::Deallocate { flow, reason } => self.deallocate(now, flow, reason, dt),
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
        self.process_pending(now, dt);
        key
    }

    fn on_transfer(&mut self, now: Instant, event: TransferEvent, dt: &mut dyn DataTransfer) {
        self.log.set_now(now);
        match event {
            TransferEvent::Management { n1, src, message } => {
                self.on_management_pdu(now, n1, src, &message, dt);
            }
            TransferEvent::Channel { channel, message } => {
                self.on_channel(now, channel, &message, dt);
            }
            TransferEvent::Failed {
                owner: Owner::Channel(channel),
                reason,
            } => {
                if let Some(n1) = self.channels.get(&channel).copied() {
                    let reason = alloc::format!("the management channel failed: {reason}");
                    self.neighbour_lost(now, n1, &reason, dt);
                }
            }
            TransferEvent::Failed {
                owner: Owner::Flow(flow),
                reason,
            } => {
                self.flow_failed(now, flow, &reason, dt);
            }
            TransferEvent::Drained { flow } => self.flow_drained(now, flow, dt),
            TransferEvent::Rollover {
                owner: Owner::Flow(flow),
            } => {
                self.renew_connection(now, flow, dt);
            }
            TransferEvent::Rollover {
                owner: Owner::Channel(channel),
            } => {
                self.channel_rollover(now, channel, dt);
            }
            TransferEvent::Stuck { n1 } => self.n1_stuck(now, n1, dt),
            TransferEvent::Notice { text } => self.log.push(Event::Notice { text }),
        }
        self.process_pending(now, dt);
    }

    fn handle_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.log.set_now(now);
        self.neighbours_timeout(now, dt);
        self.reconnect_timeout(now);
        self.leaving_timeout(now, dt);
        if self.member.is_some() {
            self.keepalive_timeout(now, dt);
            self.flows_timeout(now, dt);
            self.queries_timeout(now, dt);
            self.directory_timeout(now, dt);
            if let Some(routing) = &mut self.routing
                && routing.poll_timeout().is_some_and(|at| at <= now)
            {
                routing.handle_timeout(now);
            }
            if self.refresh_at <= now {
                self.refresh_at = now + REFRESH_INTERVAL;
                self.refresh(now, dt);
            }
            if self.compare_at <= now {
                self.compare_at = now + self.random.about(COMPARE_INTERVAL);
                self.compare_all(now, dt);
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
        self.member.as_ref().map(|member| Address(member.address))
    }
}

impl core::fmt::Debug for Management {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Management")
            .field("own", &self.own)
            .field("dif", &self.dif)
            .field("address", &self.address())
            .field("n1s", &self.n1s.len())
            .finish_non_exhaustive()
    }
}
