//! What layer management may ask of data transfer, and the events it gets.
//!
//! Layer management decides, data transfer moves PDUs. Layer management uses [`DataTransfer`] and
//! nothing else of data transfer, so that each half is tested without the other, and the payload
//! type stays out of layer management.

use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Instant;
use carina_wire::dif::{Address, CepId};

use super::error::{ConnectionError, N1Error, SettingsError};
use crate::api::{FlowKey, N1Port, N1Properties};
use crate::config::{DifConfig, PolicySpec, QosCube};
use crate::security::SduProtection;

/// What management may ask of data transfer.
pub trait DataTransfer {
    /// The DIF's constants, cubes and policies are known. Called once before anything but
    /// `add_n1` and `send_to_n1`; a second call changes what can be changed on a living DIF.
    ///
    /// # Errors
    /// The policy or constant that is wrong.
    fn configure(&mut self, now: Instant, config: &DifConfig) -> Result<(), SettingsError>;

    /// This IPCP's own address.
    fn set_address(&mut self, address: Address);

    /// An N-1 flow can be used for management.
    fn add_n1(&mut self, n1: N1Port, props: &N1Properties);

    /// It is gone: queued PDUs move to another flow of the same neighbour or are dropped, counted.
    fn remove_n1(&mut self, now: Instant, n1: N1Port);

    /// Protection from here on; `None` takes it off. Management PDUs to [`Target::N1`] are exempt
    /// both ways: two IPCPs that connect have no common keys yet, and a peer that restarted has
    /// lost them.
    fn set_sdu_protection(
        &mut self,
        n1: N1Port,
        protection: Option<alloc::boxed::Box<dyn SduProtection>>,
    );

    /// The N-1 flows of a neighbour, best first; empty when it is no neighbour any more.
    fn set_neighbour(&mut self, now: Instant, neighbour: Address, n1s: &[N1Port]);

    /// Whether what comes from an N-1 flow is taken as from a neighbour although nothing is sent
    /// to one through it: the neighbour has not heard yet that it is given up.
    fn set_detaching(&mut self, n1: N1Port, is_detaching: bool);

    /// What flows and others have waiting for an N-1 flow finds another way, or is dropped,
    /// counted. To be called after a [`DataTransfer::set_neighbour`] that no longer lists the N-1
    /// flow.
    fn move_waiting(&mut self, now: Instant, n1: N1Port);

    /// Replaces the forwarding table.
    fn set_forwarding(&mut self, table: &[Route]);

    /// Puts these routes in place of those to the same destinations, and takes others away.
    fn change_forwarding(&mut self, changed: &[Route], removed: &[Address]);

    /// Sends a management PDU without delivery guarantee: to the neighbour behind `n1`, or through
    /// the forwarding table; a message to this member's own address comes back as an event. PDUs
    /// to [`Target::N1`] look the same in every DIF
    /// ([`Widths::default`](carina_wire::dif::Widths)), because an IPCP that joins does not know
    /// the DIF's widths yet. At most [`DataTransfer::management_max`] bytes.
    fn send_management(&mut self, now: Instant, to: Target, message: &[u8]);

    /// Longest management message in bytes that fits in one PDU everywhere in the DIF.
    fn management_max(&self) -> usize;

    /// Makes a connection of a new or an existing flow; returns its local CEP-id.
    ///
    /// # Errors
    /// No CEP-id is free, or a policy of the cube is unknown.
    fn open(&mut self, now: Instant, open: Open) -> Result<CepId, ConnectionError>;

    /// The other end of a connection is known: data may flow.
    fn connect(&mut self, now: Instant, local: CepId, remote: Address, remote_cep: CepId);

    /// The flow's writing moves from its present connection to this one as soon as what was
    /// written has been sent; the old one is closed when both sides are through with it.
    fn switch_to(&mut self, now: Instant, flow: FlowKey, cep: CepId);

    /// No more will be written to the flow; [`TransferEvent::Drained`] tells when all has been
    /// acknowledged (or sent, without retransmission control).
    fn finish(&mut self, now: Instant, flow: FlowKey);

    /// Ends a flow's or management channel's connections at once.
    fn close(&mut self, now: Instant, owner: Owner);

    /// Writes a message to a reliable management channel (a connection that management owns).
    fn write_channel(&mut self, now: Instant, channel: u32, message: Vec<u8>);

    /// The next thing that management must know.
    fn poll(&mut self) -> Option<TransferEvent>;

    /// Counters and state of data transfer as RIB objects below `/data-transfer`: connections, N-1
    /// flows with their queues, drops by reason.
    fn show(&self, out: &mut Vec<crate::api::RibObject>);

    /// Changes one policy while the DIF runs.
    ///
    /// # Errors
    /// Unknown policy or parameter, or one that cannot be changed on a living DIF.
    fn set_policy(
        &mut self,
        now: Instant,
        component: &str,
        spec: &PolicySpec,
    ) -> Result<(), SettingsError>;

    /// Longest PDU of the DIF in bytes, protection not counted: as configured, or derived from the
    /// first N-1 flow; 0 when not known yet.
    fn max_pdu(&self) -> usize {
        0
    }

    /// Whether an N-1 flow carries the longest PDU of the DIF under its present protection.
    ///
    /// # Errors
    /// The lengths that do not go together.
    fn carries(&self, _n1: N1Port) -> Result<(), N1Error> {
        Ok(())
    }
}

/// Where a management PDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The IPCP behind this N-1 flow; the PCI says destination 0.
    N1(N1Port),
    /// A member, by address.
    Address(Address),
}

/// A forwarding entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where PDUs go.
    pub dst: Address,
    /// Neighbours on shortest paths: several share the load by flow (ECMP).
    pub next: Vec<Address>,
    /// Neighbours that do not lead back here, for when all of `next` are gone (LFA).
    pub alternates: Vec<Address>,
}

/// Whose connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A flow.
    Flow(FlowKey),
    /// A management channel, numbered by management.
    Channel(u32),
}

/// A connection to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// For whom.
    pub owner: Owner,
    /// The cube, with everything that EFCP needs.
    pub cube: QosCube,
    /// Boundaries of SDUs are kept.
    pub msg_boundaries: bool,
    /// PDUs go through this N-1 flow only (management channels between neighbours). Channels look
    /// the same in every DIF, as PDUs to [`Target::N1`] do, and need no addresses.
    pub pinned: Option<N1Port>,
}

/// What data transfer tells management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferEvent {
    /// A management PDU for this IPCP.
    Management {
        /// Through which N-1 flow it came.
        n1: N1Port,
        /// Source address in its PCI, which is not verified.
        src: Address,
        /// The message.
        message: Vec<u8>,
    },
    /// A message on a management channel, whole and in order.
    Channel {
        /// The channel.
        channel: u32,
        /// The message.
        message: Vec<u8>,
    },
    /// A connection has failed: no acknowledgement for R, or a protocol violation.
    Failed {
        /// Whose.
        owner: Owner,
        /// Why.
        reason: String,
    },
    /// After `finish`: everything is through.
    Drained {
        /// Which flow.
        flow: FlowKey,
    },
    /// Sequence numbers of a connection run out: management is to allocate a new one.
    Rollover {
        /// Whose.
        owner: Owner,
    },
    /// An N-1 flow took no PDU within the time allowed although PDUs are queued.
    Stuck {
        /// Which.
        n1: N1Port,
    },
    /// An N-1 flow carried a PDU that its protection rejected, or that is malformed: once per
    /// flow and reason.
    Notice {
        /// The words.
        text: String,
    },
}
