//! The parts of the simulated world: systems, cables, IPCPs and their N-1 flows.

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::{Config, FlowKey, N1Port};
use carina_wire::dif::Address;

use crate::link::{Pipe, Profile};
use crate::member::Member;
use carina_random::Random;

/// A system: a machine with IPCPs and applications that starts and crashes as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SystemId(pub usize);

/// A cable between two systems. Each cable is an N-1 DIF of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CableId(pub usize);

/// The place of one IPCP on one system. The IPCP in it may crash and be replaced by a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotId(pub usize);

/// What an N-1 flow of an IPCP runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// A cable of the system.
    Cable(CableId),
    /// The IPCP of another DIF on the same system.
    Ipcp(SlotId),
}

/// An N-1 flow that an IPCP is meant to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The cable or the IPCP that carries the flow.
    pub below: Below,
    /// Name of the IPCP at the other end.
    pub remote: String,
    /// This side allocates the flow, and allocates it again after it has ended.
    pub is_initiator: bool,
    /// For a flow over an IPCP ([`Below::Ipcp`]): this side requests a reliable flow.
    pub is_reliable: bool,
}

/// Totals of a simulation from its start until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// PDUs put on cables.
    pub wire_pdus: u64,
    /// Bytes in the PDUs put on cables.
    pub wire_bytes: u64,
    /// Flows that were allocated.
    pub flows: u64,
    /// SDUs that applications have read.
    pub sdus: u64,
    /// Bytes that applications have read.
    pub sdu_bytes: u64,
    /// Times that an IPCP became a member.
    pub enrollments: u64,
    /// Time in ns at which an IPCP last became or ceased to be a member or a neighbour.
    pub changed_at: u64,
    /// Number of events that only inform a person.
    pub notices: u64,
}

pub(crate) struct System {
    pub name: String,
    pub is_up: bool,
    pub slots: Vec<SlotId>,
}

pub(crate) struct Cable {
    pub name: String,
    pub ends: [SystemId; 2],
    pub profile: Profile,
    pub is_up: bool,
    /// Changes each time the cable is cut or repaired.
    pub epoch: u32,
    /// Time in ns after which both ends detect that the cable or the other system is dead; `None`:
    /// they never do.
    pub detection_ns: Option<u64>,
    pub pipes: [Pipe; 2],
    pub flows: BTreeMap<u32, [Option<User>; 2]>,
    pub next_flow: u32,
    pub random: Random,
}

/// The user of one end of a flow over a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub slot: SlotId,
    pub incarnation: u32,
    pub n1: N1Port,
}

pub(crate) struct IpcpSlot {
    pub system: SystemId,
    pub config: Config,
    /// Whether the IPCP becomes the first member of the DIF when it starts for the first time.
    pub founds: bool,
    /// Whether the IPCP is supposed to be a member of the DIF.
    pub is_wanted: bool,
    pub attachments: Vec<Attachment>,
    pub apps: Vec<String>,
    pub incarnation: u32,
    pub instance: Option<Instance>,
}

pub(crate) struct Instance {
    pub member: Box<dyn Member>,
    pub n1s: Vec<Option<N1>>,
    /// State of each attachment, by index.
    pub links: Vec<Link>,
    pub flows: BTreeMap<FlowKey, FlowOwner>,
    /// Flows that the application of this system has deallocated, but whose state the IPCP may
    /// still hold.
    pub gone: BTreeSet<FlowKey>,
    pub address: Option<Address>,
    pub armed: Option<u64>,
    pub maintains_n1_at: Option<u64>,
    /// Guards against endless work at one moment: the time, and the number of actions at it.
    pub busy: (u64, u32),
}

pub(crate) struct N1 {
    pub lower: Lower,
    pub remote: String,
    pub attachment: Option<usize>,
    pub since: u64,
}

pub(crate) enum Lower {
    Cable {
        cable: CableId,
        flow: u32,
        side: usize,
    },
    Flow {
        slot: SlotId,
        key: FlowKey,
        partial: Vec<u8>,
    },
}

/// State of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Idle,
    Requesting,
    Up(N1Port),
}

/// The user of a flow that an IPCP provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowOwner {
    /// An application: number of its session, and index of its end.
    Session(usize, usize),
    /// A higher IPCP whose request for one of its attachments, given by its index, is not answered
    /// yet.
    Requesting(SlotId, usize),
    /// A higher IPCP, for which the flow is this N-1 flow.
    Upper(SlotId, N1Port),
}

#[derive(Debug)]
pub(crate) enum Scheduled {
    Start(SlotId),
    MaintainN1(SlotId, u32),
    Timer(SlotId, u32),
    /// A request for a flow over a cable reaches the other side.
    Requested {
        cable: CableId,
        side: usize,
        initiator: SlotId,
        incarnation: u32,
        attachment: usize,
    },
    /// The initiator receives the response: the flow, or a refusal.
    Responded {
        cable: CableId,
        initiator: SlotId,
        incarnation: u32,
        attachment: usize,
        flow: Option<u32>,
    },
    Arrive {
        cable: CableId,
        side: usize,
        flow: u32,
        pdu: Vec<u8>,
    },
    /// One end of a flow over a cable learns that the other end has ended.
    Ended {
        cable: CableId,
        side: usize,
        flow: u32,
    },
    /// Both ends detect that the cable is dead.
    Detected {
        cable: CableId,
        epoch: u32,
    },
    Unblock(User),
    Write(usize, usize),
    Resume(usize, usize),
    Respond(usize, u32),
    Close(usize, usize),
}

impl Instance {
    /// Number of N-1 flows that are up.
    pub(crate) fn n1_count(&self) -> usize {
        self.n1s.iter().flatten().count()
    }

    /// Marks a flow as deallocated from this side.
    pub(crate) fn let_go(&mut self, key: FlowKey) {
        if self.flows.remove(&key).is_some() {
            self.gone.insert(key);
        }
    }
}
