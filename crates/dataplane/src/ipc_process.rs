//! What every shim IPC process gives the IPC manager, whatever it runs over.

use carina_api::{AppName, FlowSpec, PortId};
use thiserror::Error;

use crate::command::FlowEnd;
use crate::offered::Offered;

/// A shim IPC process as the manager sees it: names in, flows out. Answers that take time come as
/// [`Event`](crate::Event)s, from the data plane or from [`Shim::poll_event`].
pub trait Shim {
    /// The kind as the configuration writes it: `hv` or `loopback`.
    fn kind(&self) -> &'static str;

    /// What it promises for every flow.
    fn offered(&self) -> Offered;

    /// Makes an application of this system reachable.
    ///
    /// # Errors
    /// [`Refusal::NameTaken`] when the name is registered.
    fn register(&mut self, name: &AppName) -> Result<(), Refusal>;

    /// True when [`Shim::register`] only asks for it, and what becomes of it comes as an event.
    fn registers_later(&self) -> bool {
        false
    }

    /// Takes a registration back.
    ///
    /// # Errors
    /// [`Refusal::NotRegistered`] when there is none.
    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal>;

    /// True when a flow to `name` could be asked for.
    fn reaches(&self, name: &AppName) -> bool;

    /// True when nobody knows whether `name` can be reached before it is asked for.
    fn may_reach(&self, _name: &AppName) -> bool {
        false
    }

    /// Asks for a flow; the result comes as `AllocateResult`. `end` is the data plane's end of the
    /// caller's flow; a shim whose flows stay in this system takes none.
    ///
    /// # Errors
    /// Every [`Refusal`] that can be known at once; `end` is closed then.
    fn allocate(&mut self, call: Call, end: Option<FlowEnd>) -> Result<(), Refusal>;

    /// Answers an `IncomingFlow`.
    ///
    /// # Errors
    /// [`Refusal::UnknownPort`] when the request is gone.
    fn respond(
        &mut self,
        port: PortId,
        answer: Result<Option<FlowEnd>, String>,
    ) -> Result<(), Refusal>;

    /// Ends a flow or a request for one; unknown ports are ignored.
    fn deallocate(&mut self, port: PortId, reason: &str);

    /// The next event of a shim that does not run on the data plane. May change after any call.
    #[must_use]
    fn poll_event(&mut self) -> Option<crate::Event> {
        None
    }
}

/// A request for a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The port of the caller.
    pub port: PortId,
    /// The calling application.
    pub local: AppName,
    /// The called application.
    pub remote: AppName,
    /// What is asked of the flow.
    pub spec: FlowSpec,
}

/// Why a shim says no.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The name is registered already.
    #[error("the name {0} is already registered here; choose another or end the first")]
    NameTaken(AppName),
    /// The name is not registered.
    #[error("the name {0} is not registered here")]
    NotRegistered(AppName),
    /// Nobody registered the called name.
    #[error("no application is registered as {0} at the other side")]
    Unreachable(AppName),
    /// The shim cannot promise what was asked.
    #[error("the flow specification cannot be met: {0}")]
    Quality(String),
    /// No such request or flow.
    #[error("there is no flow or request with port {0}")]
    UnknownPort(PortId),
    /// The other side is not there.
    #[error("the other side is not connected: {0}")]
    LinkDown(String),
    /// The shim moves SDUs and was given no end of the flow.
    #[error("this shim needs the data plane's end of the flow")]
    NoEnd,
}
