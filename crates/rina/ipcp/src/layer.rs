//! What the rest of an IPC process knows of layer management, whatever the dialect of its DIF.
//!
//! [`LayerManagement`] is the trait; each dialect describes its implementor in a
//! [`DialectProfile`]. A program gives the list of its dialects,
//! [`Dialects`](crate::Dialects): nothing in this crate knows one of them.

mod error;

use alloc::boxed::Box;
use alloc::string::String;

use carina_time::Instant;
use carina_wire::FlowSpec;
use carina_wire::dif::{Address, Dialect};

pub use error::{AllocateError, CreateError};

use crate::api::{Command, Event, FlowKey};
use crate::config::Config;
use crate::data_transfer::api::{DataTransfer, TransferEvent};
use crate::policy::{Catalogue, Descriptor};
use crate::security::Toolbox;
use crate::trace::Tracer;

/// Why an N-1 flow is given back whose two ends are one IPCP.
pub const TO_ITSELF: &str = "it leads to this IPCP itself, which has the name that was \
     asked for, too";

/// Layer management of one IPC process: enrollment, neighbours, directory, routing, flow
/// allocation, and the RIB that shows all of it.
///
/// After each call drain [`LayerManagement::poll_event`] and read
/// [`LayerManagement::poll_timeout`] again.
pub trait LayerManagement {
    /// Acts on an order.
    fn handle(&mut self, now: Instant, command: Command, dt: &mut dyn DataTransfer);

    /// Asks for a flow from application `local` to application `remote`. The result follows as
    /// [`Event::Allocated`].
    ///
    /// # Errors
    /// Why no request is sent: this IPCP is not a member, no cube meets the specification, or there
    /// are too many flows.
    fn allocate(
        &mut self,
        now: Instant,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, AllocateError>;

    /// Acts on an event of data transfer. The caller passes everything that [`DataTransfer::poll`]
    /// gives.
    fn on_transfer(&mut self, now: Instant, event: TransferEvent, dt: &mut dyn DataTransfer);

    /// Does what is due. The caller calls it at the time that [`LayerManagement::poll_timeout`]
    /// gave, or later.
    fn handle_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer);

    /// When [`LayerManagement::handle_timeout`] is due; may lie in the past. May change after
    /// every other call.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next event, in order. May change after every other call.
    #[must_use]
    fn poll_event(&mut self) -> Option<Event>;

    /// The owner has [`Event::Closed`] of a flow, which waited until its reader had taken all
    /// SDUs: from here on the key may be given to another flow.
    fn end_is_known(&mut self, flow: FlowKey);

    /// The address of this member; `None` when this IPCP is not a member.
    #[must_use]
    fn address(&self) -> Option<Address>;

    /// Reports control events to `tracer` from here on.
    fn set_tracer(&mut self, tracer: Tracer);
}

/// The layer management of one dialect: which policies it has, and how it is made.
#[derive(Clone, Copy)]
pub struct DialectProfile {
    /// The dialect that this is about.
    pub dialect: Dialect,
    /// Adds the policies of the dialect's layer management to a catalogue.
    pub describe: fn(&mut Catalogue),
    /// Whether a policy of the catalogue can be configured in a DIF of this dialect. May change
    /// what the policy says of itself.
    pub adopt: fn(&mut Descriptor) -> bool,
    /// Makes the layer management of an IPCP that is not a member yet.
    pub create: Create,
    /// Reads M_CONNECT where that may be the first PDU of an N-1 flow whose other end nothing else
    /// has named.
    pub connect_names: Option<ReadNames>,
}

/// The names in M_CONNECT, as an N-1 DIF writes names: `ap|api`, without an empty instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectNames {
    /// The IPCP that connects.
    pub calling: String,
    /// The IPCP, or the DIF, that it connects to.
    pub called: String,
}

/// Reads the names in a management message that is M_CONNECT; `None` for every other message.
pub type ReadNames = fn(&[u8]) -> Option<ConnectNames>;

/// Makes the layer management of an IPCP that is not a member yet. The catalogue has all policies
/// of the dialect, those of the toolbox too. The same seed and the same calls give the same
/// behaviour.
///
/// # Errors
/// What is wrong with the configuration.
pub type Create =
    fn(Config, Box<dyn Toolbox>, Catalogue, u64) -> Result<Box<dyn LayerManagement>, CreateError>;
