//! The interface between the IPC Manager and an IPC process of any kind, shim or normal.

use carina_api::{AppName, FlowSpec, PortId};
use carina_ipcp::ConnectReader;
use thiserror::Error;

use crate::command::FlowEnd;
use crate::qos::{QosError, QosOffered};

/// An IPC process as the manager uses it: registers names and allocates flows. Results that take
/// time arrive as [`Event`](crate::Event)s, from the data plane or from [`IpcProcess::poll_event`].
pub trait IpcProcess {
    /// Returns the kind of the IPCP as configurations write it, such as `hv` or `normal`.
    fn kind(&self) -> &'static str;

    /// Returns the QoS that the IPCP promises for every flow.
    fn qos_offered(&self) -> QosOffered;

    /// Registers an application of this system, so that peers can reach it.
    ///
    /// # Errors
    /// [`Refusal::NameTaken`] if the name is registered already.
    fn register(&mut self, name: &AppName) -> Result<(), Refusal>;

    /// Registers a normal IPCP of this system, like [`IpcProcess::register`]. On a medium without
    /// messages that start a flow, `reader` decodes the first PDU of a flow, which may be the only
    /// place that names the caller.
    ///
    /// # Errors
    /// As for [`IpcProcess::register`].
    fn register_ipcp(&mut self, name: &AppName, reader: ConnectReader) -> Result<(), Refusal> {
        let _ = reader;
        self.register(name)
    }

    /// Whether an event confirms or refuses the registration some time after
    /// [`IpcProcess::register`].
    fn registers_later(&self) -> bool {
        false
    }

    /// Withdraws the registration of `name`.
    ///
    /// # Errors
    /// [`Refusal::NotRegistered`] if `name` is not registered.
    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal>;

    /// Whether an application with this name is known to be reachable through the IPCP.
    fn reaches(&self, name: &AppName) -> bool;

    /// Whether an application with this name may be reachable through the IPCP, which only a
    /// request for a flow can show.
    fn may_reach(&self, _name: &AppName) -> bool {
        false
    }

    /// Requests a flow. The result arrives as `AllocateResult`. `end` is the data plane's end of
    /// the caller's flow; an IPCP whose flows stay on this system ignores it.
    ///
    /// # Errors
    /// A [`Refusal`] that is known at once; `end` is closed then.
    fn allocate(&mut self, call: FlowRequest, end: Option<FlowEnd>) -> Result<(), Refusal>;

    /// Answers an `IncomingFlow` event.
    ///
    /// # Errors
    /// [`Refusal::UnknownPort`] if the request no longer exists.
    fn respond(
        &mut self,
        port: PortId,
        answer: Result<Option<FlowEnd>, String>,
    ) -> Result<(), Refusal>;

    /// Ends a flow of the IPCP, or a request for a flow. Unknown port-ids are ignored.
    fn deallocate(&mut self, port: PortId, reason: &str);

    /// Processes an event of the data plane. The IPCP ignores events about other IPCPs.
    fn handle(&mut self, _event: &crate::Event) {}

    /// Whether both ends of the IPCP's flows are on this system, so that the manager connects the
    /// ends itself.
    fn is_local(&self) -> bool {
        false
    }

    /// For a local IPCP: returns the port-id of the other end of an allocated flow.
    fn local_peer(&self, _port: PortId) -> Option<PortId> {
        None
    }

    /// Returns the next event of an IPCP that does not run on the data plane; `None` if there is
    /// none. Any call may produce an event.
    #[must_use]
    fn poll_event(&mut self) -> Option<crate::Event> {
        None
    }
}

/// A flow that an application of this system requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRequest {
    /// Port-id of the flow on this system.
    pub port: PortId,
    /// Name of the application that requests the flow.
    pub local: AppName,
    /// Name of the application to which the flow is requested.
    pub remote: AppName,
    /// The flow specification that the application requests.
    pub spec: FlowSpec,
}

/// Why an IPCP refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The application name to register is already registered on this system.
    #[error("the name {0} is already registered here; choose another or end the first")]
    NameTaken(AppName),
    /// The application name to withdraw is not registered at present.
    #[error("the name {0} is not registered here")]
    NotRegistered(AppName),
    /// No application is registered with the called name at the other side.
    #[error("no application is registered as {0} at the other side")]
    Unreachable(AppName),
    /// The IPCP cannot promise the requested QoS.
    #[error("the flow specification cannot be met: {0}")]
    Quality(QosError),
    /// The IPCP has no request and no flow with this port-id.
    #[error("there is no flow or request with port {0}")]
    UnknownPort(PortId),
    /// The IPCP's peer is not connected; the text gives the reason.
    #[error("the other side is not connected: {0}")]
    LinkDown(String),
    /// The IPCP moves SDUs, but the caller gave no end of the flow.
    #[error("this shim needs the data plane's end of the flow")]
    NoEnd,
}
