//! Layer management of a DIF of rlite's dialect, whose other members may run rlite.
//!
//! Messages and values are those of rlite itself, as `docs/how-to/rlite.md` describes them.
//!
//! ```text
//!   commands, events                          N-1 flows come and go
//!        |   ^                                          |
//!        v   |                                          v
//!   +----------------------------------------------------------------+
//!   | flow_allocation   rib_access | neighbours -> enrollee, enroller|
//!   |        |                     |     |          | addresses      |
//!   |        |                     | dissemination: lower flows,     |
//!   |        |                     | neighbours, directory           |
//!   |   interop::{flow_allocator, directory, link_state, rib_view}   |
//!   +----------------------------------------------------------------+
//!          | A-DATA, through the DIF     | CDAP, one connection for
//!          v                             v each N-1 flow
//!        data_transfer::DataTransfer: management PDUs
//! ```
//!
//! `docs/how-to/rlite.md` describes the protocol. Lost messages are not repeated: every attempt has
//! a time limit and is started again, and every 30 s each member sends its own entries again.

mod addresses;
mod crossing;
mod detaching;
mod dissemination;
mod enrollee;
mod enroller;
mod error;
mod flow_allocation;
mod flow_values;
mod n1;
mod neighbours;
mod objects;
mod own_membership;
mod policies;
mod restarts;
mod rib_access;
mod rib_updates;
mod routes;
mod session;
mod silence;
mod to_itself;
mod values;
mod wanted_n1s;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use carina_cdap::Rules;
use carina_ipcp::Cause;
use carina_ipcp::api::{Command, Event, FlowKey, N1Port};
use carina_ipcp::config::{Config, DifConfig};
use carina_ipcp::data_transfer::api::{DataTransfer, Owner, TransferEvent};
use carina_ipcp::event_log::EventLog;
use carina_ipcp::layer::{AllocateError, CreateError, DialectProfile, LayerManagement};
use carina_ipcp::policy::{Catalogue, Descriptor, component};
use carina_ipcp::random::Random;
use carina_ipcp::trace::{TraceEvent, Tracer};
use carina_time::{Duration, Instant};
use carina_wire::dif::{Address, Dialect};
use carina_wire::{FlowSpec, check_name};

use crate::interop::directory::{self, Directory};
use crate::interop::flow_allocator::FlowAllocator;
use crate::interop::link_state::{self, LinkState, ReachableMember};
use crate::interop::names;
use addresses::OutdatedAddress;
use flow_allocation::RliteFlows;
use n1::N1;
use policies::Policies;
use wanted_n1s::WantedN1;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use flow_allocation::a_data;

/// The profile of the rlite dialect.
pub(crate) const DIALECT: DialectProfile = DialectProfile {
    dialect: Dialect::Rlite,
    describe: policies::describe,
    adopt,
    create: |config, _toolbox, catalogue, seed| Ok(Box::new(Rlite::new(config, &catalogue, seed)?)),
    connect_names: Some(|message| names::of_connect(&RULES, message)),
};

/// rlite has neither authentication nor SDU protection, and its SDUs are not delimited.
fn adopt(policy: &mut Descriptor) -> bool {
    match policy.component {
        component::AUTHENTICATION | component::SDU_PROTECTION => policy.name == "none",
        component::DELIMITING => policy.name != "standard",
        _ => true,
    }
}

/// Rules for CDAP fields in this dialect.
const RULES: Rules = Rules::RLITE;

/// Interval at which old entries are removed and addresses are compared.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which a member sends its own entries again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// How long the end of an entry is remembered. rlite numbers the entry's next version from 1 again,
/// so this must not be much longer than flooding takes.
const HOLD_TIME: Duration = Duration::from_secs(1);

/// Largest number of known members, and of assigned addresses.
const MEMBERS_MAX: usize = 4_096;

/// Largest number of lower flows, and of registrations, of other members.
const ENTRIES_MAX: usize = 16_384;

/// The address that an IPCP claims before one is assigned to it.
pub(crate) const ADDRESS_OF_NEW: u64 = 1;

/// Layer management of one member of an rlite DIF. See [`LayerManagement`].
pub(crate) struct Rlite {
    own: String,
    dif: String,
    given: Option<DifConfig>,
    /// Data transfer has been configured, although this IPCP is not a member yet.
    is_configured: bool,
    random: Random,
    log: EventLog,
    policies: Policies,
    member: Option<Membership>,
    n1s: BTreeMap<N1Port, N1>,
    /// N-1 flows that were lost and are requested again, by N-1 DIF and name.
    wanted_n1s: BTreeMap<(String, String), WantedN1>,
    /// Why attempts to join that were answered failed, and whether the reason is lasting, by N-1
    /// DIF and name.
    refusals: BTreeMap<(String, String), (String, bool)>,
    /// This IPCP has left the DIF and does not enroll by itself. [`Command::Enroll`] clears the
    /// flag.
    has_left: bool,
    links: LinkState,
    /// The other members by name: the address book of the DIF.
    members: BTreeMap<String, Member>,
    /// Addresses of other members that were replaced recently.
    outdated: BTreeMap<String, Vec<OutdatedAddress>>,
    /// Assigned addresses, each with the member that assigned it. See `addresses`.
    allocated_addresses: BTreeMap<u64, String>,
    /// Assignments to which a member objected recently.
    objected_addresses: BTreeMap<(u64, String), Instant>,
    directory: Directory<String>,
    flows: FlowAllocator<RliteFlows>,
    /// Messages that this member sends to itself.
    own_messages: VecDeque<Vec<u8>>,
    /// The routes last given to data transfer.
    routes: Vec<ReachableMember>,
    /// The addresses to which these routes lead.
    reachable: BTreeSet<u64>,
    are_routes_stale: bool,
    routes_at: Instant,
    /// N-1 flows of neighbours, by address, as last given to data transfer.
    neighbour_ports: BTreeMap<u64, Vec<N1Port>>,
    housekeeping_at: Instant,
    /// Number of refreshes so far.
    rounds: usize,
    refresh_at: Instant,
    /// This member does not announce itself again before this time.
    announce_next: Instant,
    /// The earliest deadline, recomputed after each call.
    due: Option<Instant>,
}

/// Membership in the DIF: this member's address, and the DIF's configuration.
struct Membership {
    address: u64,
    config: DifConfig,
}

/// The record of another member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    address: u64,
    lower_difs: Vec<String>,
}

impl Rlite {
    /// Makes the layer management of an IPCP that is not a member yet. The same `seed` and the same
    /// calls give the same behaviour.
    ///
    /// # Errors
    /// A name is not well formed, or a policy of the configuration does not exist.
    pub(crate) fn new(
        config: Config,
        catalogue: &Catalogue,
        seed: u64,
    ) -> Result<Rlite, CreateError> {
        check_name(&config.name)?;
        check_name(&config.dif)?;
        let defaults = DifConfig::of_dialect(Dialect::Rlite);
        let in_force = config.dif_config.as_ref().unwrap_or(&defaults);
        catalogue.check(in_force)?;
        let policies =
            Policies::of(in_force).map_err(|error| CreateError::Refused(Cause::new(error)))?;
        let limits = directory::Limits {
            entries: ENTRIES_MAX,
            hold: HOLD_TIME,
        };
        Ok(Rlite {
            links: LinkState::new(&config.name, link_limits(&policies)),
            directory: Directory::new(config.name.clone(), limits),
            flows: FlowAllocator::new(RliteFlows::new(&config.name), flow_allocation::PROFILE),
            own: config.name,
            dif: config.dif,
            given: config.dif_config,
            is_configured: false,
            random: Random::new(seed),
            log: EventLog::default(),
            policies,
            member: None,
            n1s: BTreeMap::new(),
            wanted_n1s: BTreeMap::new(),
            refusals: BTreeMap::new(),
            has_left: false,
            members: BTreeMap::new(),
            outdated: BTreeMap::new(),
            allocated_addresses: BTreeMap::new(),
            objected_addresses: BTreeMap::new(),
            own_messages: VecDeque::new(),
            routes: Vec::new(),
            reachable: BTreeSet::new(),
            are_routes_stale: false,
            routes_at: Instant::ZERO,
            neighbour_ports: BTreeMap::new(),
            housekeeping_at: Instant::ZERO,
            rounds: 0,
            refresh_at: Instant::ZERO,
            announce_next: Instant::ZERO,
            due: None,
        })
    }

    /// Handles the consequences of the call: messages about flows, messages to this member itself,
    /// changed routes, changed reachability.
    fn process_pending(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.update_neighbours(now, dt);
        self.update_routes(now, dt);
        // Each round answers the messages of the one before. An exchange of this member with itself
        // ends; what exceeds the bound waits for the next call.
        for _ in 0..64 {
            self.send_flow_messages(now, dt);
            let Some(message) = self.own_messages.pop_front() else {
                break;
            };
            self.on_own(now, &message, dt);
        }
        while let Some(event) = self.flows.poll_event() {
            if let Event::Allocated {
                flow,
                result: Ok(()),
            } = event
            {
                self.flows.trace_allocated(flow, &self.log);
            }
            self.log.push(event);
        }
        self.directory_changes();
        self.due = self.next_deadline();
    }

    /// The earliest deadline of any component.
    fn next_deadline(&self) -> Option<Instant> {
        let always = [
            self.neighbours_due(),
            self.wanted_n1s_due(),
            // Messages of this member to itself are due at once.
            (!self.own_messages.is_empty()).then_some(Instant::ZERO),
            self.are_routes_stale.then_some(self.routes_at),
        ];
        let member = self.member.as_ref().map(|_| {
            [
                self.flows.due(),
                Some(self.housekeeping_at.min(self.refresh_at)),
            ]
        });
        let member = member.into_iter().flatten();
        always.into_iter().chain(member).flatten().min()
    }

    /// Removes what is too old, and compares addresses. Runs every 10 s.
    fn housekeeping(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        for (from, to) in self.links.expire(now) {
            let text = alloc::format!("the lower flow of {from} to {to} was not renewed");
            self.log.notice("aged", &text);
        }
        self.forget_requests(now);
        self.resolve_conflict(now, dt);
    }
}

/// Limits and times of the lower flows under these policies.
fn link_limits(policies: &Policies) -> link_state::Limits {
    let age_max = policies.age_max();
    link_state::Limits {
        entries: ENTRIES_MAX,
        age_max,
        renew: age_max / 10 * 3,
        hold: HOLD_TIME,
        restart: Duration::from_secs(30),
        needs_both: true,
    }
}

impl LayerManagement for Rlite {
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
            Command::Leave => self.leave(now, "the node ordered it to leave", dt),
            Command::Expel { id, member } => self.expel(id, &member),
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
            } => {
                self.log.count("flows-failed");
                self.flows.failed(now, flow, &reason, dt);
            }
            TransferEvent::Rollover {
                owner: Owner::Flow(flow),
            } => {
                let reason = "the sequence numbers of the connection are used up";
                self.flows.failed(now, flow, reason, dt);
            }
            TransferEvent::Drained { flow } => self.flows.drained(now, flow, dt),
            TransferEvent::Stuck { n1 } => {
                self.drop_neighbour(now, n1, "the N-1 flow accepts no PDUs", dt);
            }
            TransferEvent::Notice { text } => self.log.push(Event::Notice { text }),
            // This dialect has no management channels.
            TransferEvent::Channel { .. }
            | TransferEvent::Failed {
                owner: Owner::Channel(_),
                ..
            }
            | TransferEvent::Rollover {
                owner: Owner::Channel(_),
            } => self.log.count("channel-unexpected"),
        }
        self.process_pending(now, dt);
    }

    fn handle_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.log.set_now(now);
        self.neighbours_timeout(now, dt);
        self.wanted_n1s_timeout(now);
        if self.member.is_some() {
            self.flows.handle_timeout(now, dt);
            if self.housekeeping_at <= now {
                self.housekeeping_at = now + HOUSEKEEPING_INTERVAL;
                self.forget_outdated(now);
                self.housekeeping(now, dt);
            }
            if self.refresh_at <= now {
                self.refresh_at = now + REFRESH_INTERVAL;
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
        self.own_address().map(Address)
    }
}
