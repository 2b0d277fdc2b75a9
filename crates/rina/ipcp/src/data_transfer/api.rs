//! The interface of data transfer toward layer management: requests and events.
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

/// The requests that layer management makes to data transfer.
pub trait DataTransfer {
    /// Sets the DIF's constants, cubes and policies. Called once before everything but `add_n1` and
    /// `send_management` to an N-1 flow. A further call changes what can be changed while the DIF
    /// runs.
    /// # Errors
    /// The policy or constant that is invalid.
    fn configure(&mut self, now: Instant, config: &DifConfig) -> Result<(), SettingsError>;

    /// Sets the address of this IPCP in the DIF, the source of the PDUs that it sends.
    fn set_address(&mut self, address: Address);

    /// Adds an N-1 flow. At first it carries management PDUs only, until
    /// [`DataTransfer::set_neighbour`] lists it.
    fn add_n1(&mut self, n1: N1Port, props: &N1Properties);

    /// Removes an N-1 flow. Its queued PDUs move to another flow of the same neighbour; without one
    /// they are dropped and counted.
    fn remove_n1(&mut self, now: Instant, n1: N1Port);

    /// Sets the SDU protection of an N-1 flow; `None` removes it. Management PDUs to [`Target::N1`]
    /// are never protected: two IPCPs that connect have no common keys yet, and a restarted peer
    /// has lost them.
    fn set_sdu_protection(
        &mut self,
        n1: N1Port,
        protection: Option<alloc::boxed::Box<dyn SduProtection>>,
    );

    /// Sets the N-1 flows to a neighbour, best first. Empty: it is no longer a neighbour.
    fn set_neighbour(&mut self, now: Instant, neighbour: Address, n1s: &[N1Port]);

    /// Tells data transfer whether the member gives up an N-1 flow. While `is_detaching`, PDUs from
    /// the flow are accepted as from a neighbour although none are sent through it: the neighbour
    /// does not know yet that the flow is given up.
    fn set_detaching(&mut self, n1: N1Port, is_detaching: bool);

    /// Moves the PDUs that wait for an N-1 flow to other N-1 flows; those without another path are
    /// dropped and counted. Call it after a [`DataTransfer::set_neighbour`] that no longer lists
    /// `n1`.
    fn move_waiting(&mut self, now: Instant, n1: N1Port);

    /// Replaces the whole forwarding table by `table`.
    fn set_forwarding(&mut self, table: &[Route]);

    /// Replaces the routes to the destinations in `changed`, and removes the routes to `removed`.
    fn change_forwarding(&mut self, changed: &[Route], removed: &[Address]);

    /// Sends a management PDU without delivery guarantee: to the neighbour behind an N-1 flow, or
    /// to an address through the forwarding table. A message to this member's own address comes
    /// back as an event. `message` has at most [`DataTransfer::management_max`] bytes.
    ///
    /// PDUs to [`Target::N1`] have the default widths in every DIF
    /// ([`Widths::default`](carina_wire::dif::Widths)), because an IPCP that joins does not know
    /// the DIF's widths yet.
    fn send_management(&mut self, now: Instant, to: Target, message: &[u8]);

    /// Longest management message in bytes that fits in one PDU everywhere in the DIF.
    fn management_max(&self) -> usize;

    /// Opens a connection of a new or existing flow. Returns its local CEP-id.
    ///
    /// # Errors
    /// No CEP-id is free, or a policy of the cube is unknown.
    fn open(&mut self, now: Instant, open: Open) -> Result<CepId, ConnectionError>;

    /// Sets the other end of a connection. From now on it can carry data.
    fn connect(&mut self, now: Instant, local: CepId, remote: Address, remote_cep: CepId);

    /// Makes `cep` the connection of a flow once all SDUs written before have been sent. The old
    /// connection is closed when both sides have finished with it.
    fn switch_to(&mut self, now: Instant, flow: FlowKey, cep: CepId);

    /// Ends writing to a flow. [`TransferEvent::Drained`] follows when all PDUs are acknowledged
    /// (or, without retransmission control, sent).
    fn finish(&mut self, now: Instant, flow: FlowKey);

    /// Ends the connections of a flow or a management channel at once; unsent data is lost.
    fn close(&mut self, now: Instant, owner: Owner);

    /// Writes a message to a management channel: a reliable connection that layer management owns.
    fn write_channel(&mut self, now: Instant, channel: u32, message: Vec<u8>);

    /// Returns the next event for layer management, or `None`.
    fn poll(&mut self) -> Option<TransferEvent>;

    /// Appends the state and counters of data transfer as RIB objects below `/data-transfer`:
    /// connections, N-1 flows with their queues, drops by reason.
    fn show(&self, out: &mut Vec<crate::api::RibObject>);

    /// Changes one policy while the DIF runs.
    ///
    /// # Errors
    /// The policy or parameter is unknown, or cannot be changed while the DIF runs.
    fn set_policy(
        &mut self,
        now: Instant,
        component: &str,
        spec: &PolicySpec,
    ) -> Result<(), SettingsError>;

    /// Longest PDU of the DIF in bytes, without protection: as configured, or derived from the
    /// first N-1 flow. 0: not known yet.
    fn max_pdu(&self) -> usize {
        0
    }

    /// Checks that an N-1 flow carries the longest PDU of the DIF under its present protection.
    ///
    /// # Errors
    /// The N-1 flow is unknown, or its SDUs are too short for the DIF's longest PDU.
    fn carries(&self, _n1: N1Port) -> Result<(), N1Error> {
        Ok(())
    }
}

/// Destination of a management PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The IPCP at the other end of this N-1 flow. The PCI has destination 0.
    N1(N1Port),
    /// The member of the DIF with this address; the forwarding table decides the path.
    Address(Address),
}

/// An entry of the forwarding table: the neighbours that lead to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address of the destination member.
    pub dst: Address,
    /// Addresses of the neighbours on shortest paths to the destination. Connections are spread
    /// over them (ECMP).
    pub next: Vec<Address>,
    /// Loop-free alternates (LFA): neighbours to use when no neighbour of `next` is left.
    pub alternates: Vec<Address>,
}

/// What a connection carries data for: a flow or a management channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A flow of an application or an IPCP above.
    Flow(FlowKey),
    /// A management channel; layer management assigns the number.
    Channel(u32),
}

/// Parameters of a connection to open.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// The flow or management channel that the connection serves.
    pub owner: Owner,
    /// The QoS cube of the connection; EFCP takes its parameters from the cube.
    pub cube: QosCube,
    /// Delimiting preserves SDU boundaries; `false`: the data is a byte stream.
    pub msg_boundaries: bool,
    /// The only N-1 flow that PDUs of the connection may take; set for management channels between
    /// neighbours. Like PDUs to [`Target::N1`], pinned connections have the default widths in every
    /// DIF and need no addresses.
    pub pinned: Option<N1Port>,
}

/// Events that data transfer reports to layer management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferEvent {
    /// A management PDU for this IPCP arrived.
    Management {
        /// N-1 flow from which the PDU came.
        n1: N1Port,
        /// Source address in the PCI of the PDU; not verified.
        src: Address,
        /// The bytes of the CDAP message.
        message: Vec<u8>,
    },
    /// A message arrived on a management channel, complete and in order.
    Channel {
        /// Number of the channel.
        channel: u32,
        /// The bytes of the CDAP message.
        message: Vec<u8>,
    },
    /// A connection has failed: no acknowledgement arrived within R, or the peer violated the
    /// protocol.
    Failed {
        /// Owner of the connection.
        owner: Owner,
        /// Why the connection failed, as text for people.
        reason: String,
    },
    /// After [`DataTransfer::finish`]: all PDUs of the flow are acknowledged, or sent without
    /// retransmission control.
    Drained {
        /// The flow whose PDUs are acknowledged.
        flow: FlowKey,
    },
    /// The sequence numbers of a connection run out soon: layer management should allocate a new
    /// connection.
    Rollover {
        /// Owner of the connection.
        owner: Owner,
    },
    /// An N-1 flow has accepted no PDU within the time limit although PDUs are queued.
    Stuck {
        /// The N-1 flow.
        n1: N1Port,
    },
    /// An N-1 flow delivered a malformed PDU, or one that its protection rejected. Reported once
    /// per N-1 flow and reason.
    Notice {
        /// Text for people: the N-1 flow and the reason.
        text: String,
    },
}
