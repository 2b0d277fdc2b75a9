//! The interface between the IPC Manager and an IPC process of any kind, shim or normal.

use carina_api::{AppName, FlowSpec, PortId};
use carina_ipcp::ConnectReader;
use thiserror::Error;

use crate::command::FlowEnd;
use crate::qos::{QosError, QosOffered};

/// An IPC process as the manager sees it: names in, flows out. Answers that take time come as
/// [`Event`](crate::Event)s, from the data plane or from [`IpcProcess::poll_event`].
pub trait IpcProcess {
    /// The kind as the configuration writes it, such as `hv` or `normal`.
    fn kind(&self) -> &'static str;

    /// The quality of service that it promises for every flow.
    fn qos_offered(&self) -> QosOffered;

    /// Makes an application of this system reachable.
    ///
    /// # Errors
    /// [`Refusal::NameTaken`] when the name is registered.
    fn register(&mut self, name: &AppName) -> Result<(), Refusal>;

    /// Makes a normal IPCP of this system reachable, as [`IpcProcess::register`] does for an
    /// application. Where the medium has no message that begins a flow, `reader` finds the first
    /// PDU of one, which may be all that says who calls.
    ///
    /// # Errors
    /// As of [`IpcProcess::register`].
    fn register_ipcp(&mut self, name: &AppName, reader: ConnectReader) -> Result<(), Refusal> {
        let _ = reader;
        self.register(name)
    }

    /// True when [`IpcProcess::register`] is confirmed or refused later, with an event.
    fn registers_later(&self) -> bool {
        false
    }

    /// Withdraws the registration of `name`.
    ///
    /// # Errors
    /// [`Refusal::NotRegistered`] when `name` is not registered.
    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal>;

    /// True when `name` is known to be reachable.
    fn reaches(&self, name: &AppName) -> bool;

    /// True when `name` may be reachable, which only a request for a flow can tell.
    fn may_reach(&self, _name: &AppName) -> bool {
        false
    }

    /// Requests a flow; the result comes as `AllocateResult`. `end` is the data plane's end of the
    /// caller's flow; an IPCP whose flows stay in this system takes none.
    ///
    /// # Errors
    /// Every [`Refusal`] that can be known at once; `end` is closed then.
    fn allocate(&mut self, call: FlowRequest, end: Option<FlowEnd>) -> Result<(), Refusal>;

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

    /// Takes note of an event of the data plane; events of other IPCPs are ignored.
    fn handle(&mut self, _event: &crate::Event) {}

    /// True when both ends of its flows are in this system, so that the manager connects them.
    fn is_local(&self) -> bool {
        false
    }

    /// The other port of an allocated flow of a local IPCP.
    fn local_peer(&self, _port: PortId) -> Option<PortId> {
        None
    }

    /// The next event of an IPCP that does not run on the data plane. May change after any call.
    #[must_use]
    fn poll_event(&mut self) -> Option<crate::Event> {
        None
    }
}

/// A request for a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRequest {
    /// The port-id of the flow on this system.
    pub port: PortId,
    /// The calling application.
    pub local: AppName,
    /// The called application.
    pub remote: AppName,
    /// The requested quality.
    pub spec: FlowSpec,
}

/// Why an IPCP refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The name is registered already.
    #[error("the name {0} is already registered here; choose another or end the first")]
    NameTaken(AppName),
    /// The name is not registered.
    #[error("the name {0} is not registered here")]
    NotRegistered(AppName),
    /// No application is registered under the called name.
    #[error("no application is registered as {0} at the other side")]
    Unreachable(AppName),
    /// The IPCP cannot promise the requested quality.
    #[error("the flow specification cannot be met: {0}")]
    Quality(QosError),
    /// No such request or flow.
    #[error("there is no flow or request with port {0}")]
    UnknownPort(PortId),
    /// The peer is not connected.
    #[error("the other side is not connected: {0}")]
    LinkDown(String),
    /// The IPCP moves SDUs and was given no end of the flow.
    #[error("this shim needs the data plane's end of the flow")]
    NoEnd,
}
