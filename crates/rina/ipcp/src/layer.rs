//! The interface of layer management toward the rest of an IPCP, the same for all dialects.
//!
//! Each dialect implements [`LayerManagement`] and describes its implementation in a
//! [`DialectProfile`]. A program passes the list of its dialects, [`Dialects`](crate::Dialects);
//! this crate depends on no dialect.

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

/// The reason for giving up an N-1 flow whose two ends are the same IPCP.
pub const TO_ITSELF: &str = "the N-1 flow leads back to this IPCP itself, which has registered \
     the requested name as well";

/// Layer management of one IPC process: enrollment, neighbours, directory, routing, flow
/// allocation, and the RIB that shows all of it.
///
/// After each call drain [`LayerManagement::poll_event`] and read
/// [`LayerManagement::poll_timeout`] again.
pub trait LayerManagement {
    /// Carries out a command of the owner at time `now`. Results follow as events.
    fn handle(&mut self, now: Instant, command: Command, dt: &mut dyn DataTransfer);

    /// Requests a flow from application `local` to application `remote`. The result follows as
    /// [`Event::Allocated`].
    ///
    /// # Errors
    /// No request is sent: this IPCP is not a member, no cube meets the specification, or there are
    /// too many flows.
    fn allocate(
        &mut self,
        now: Instant,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, AllocateError>;

    /// Handles an event of data transfer. The caller passes every event that [`DataTransfer::poll`]
    /// returns.
    fn on_transfer(&mut self, now: Instant, event: TransferEvent, dt: &mut dyn DataTransfer);

    /// Handles all deadlines that have passed. The caller calls it at the time that
    /// [`LayerManagement::poll_timeout`] returned, or later.
    fn handle_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer);

    /// Returns when to call [`LayerManagement::handle_timeout`], or `None` if no deadline is set.
    /// The time may lie in the past. Any other call may change it.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// Takes the oldest event, or returns `None` if none waits. Any other call may add events.
    #[must_use]
    fn poll_event(&mut self) -> Option<Event>;

    /// Tells layer management that the owner has received [`Event::Closed`] of a flow, which was
    /// held back until the reader had taken all SDUs. From now on the key may be reused.
    fn end_is_known(&mut self, flow: FlowKey);

    /// The address of this member; `None` when this IPCP is not a member.
    #[must_use]
    fn address(&self) -> Option<Address>;

    /// Sets the tracer that receives control events from now on.
    fn set_tracer(&mut self, tracer: Tracer);
}

/// A dialect's layer management: its policies and its constructor.
#[derive(Clone, Copy)]
pub struct DialectProfile {
    /// The dialect that this profile describes.
    pub dialect: Dialect,
    /// Adds the policies of the dialect's layer management to a catalogue.
    pub describe: fn(&mut Catalogue),
    /// Whether a DIF of this dialect can use a policy of the catalogue. May adapt the policy's
    /// descriptor.
    pub adopt: fn(&mut Descriptor) -> bool,
    /// Makes the layer management of an IPCP of this dialect.
    pub create: Create,
    /// Reads an M_CONNECT, for dialects whose M_CONNECT may be the first PDU of an N-1 flow and the
    /// only message that names its other end; `None` for other dialects.
    pub connect_names: Option<ReadNames>,
}

/// The names in an M_CONNECT, in the form of the N-1 DIF: `ap|api`, or `ap` if the instance is
/// empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectNames {
    /// Name of the IPCP that sent the M_CONNECT.
    pub calling: String,
    /// Name of the IPCP, or of the DIF, to which the M_CONNECT is addressed.
    pub called: String,
}

/// Reads the names in a management message if it is an M_CONNECT; returns `None` for other
/// messages.
pub type ReadNames = fn(&[u8]) -> Option<ConnectNames>;

/// Makes the layer management of an IPCP that is not a member yet. The catalogue has all policies
/// of the dialect and of the toolbox. The last argument is the seed: the same seed and the same
/// calls give the same behaviour.
///
/// # Errors
/// The configuration is invalid.
pub type Create =
    fn(Config, Box<dyn Toolbox>, Catalogue, u64) -> Result<Box<dyn LayerManagement>, CreateError>;
