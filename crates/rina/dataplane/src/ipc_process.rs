//! The interface between the IPC Manager and an IPC process of any kind, shim or normal.

use carina_api::{AppName, FlowSpec, PortId};
use carina_ipcp::ConnectReader;
use thiserror::Error;

use crate::command::FlowEnd;
use crate::qos::{QosError, QosOffered};

/// An IPC process as the manager uses it: registers names and allocates flows. Results that take
/// time arrive as [`Event`](crate::Event)s, from the data plane or from [`IpcProcess::poll_event`].
pub trait IpcProcess {
    /// Kind of the IPCP as in the configuration, such as `hv` or `normal`.
    fn kind(&self) -> &'static str;

    /// The QoS that the IPCP promises for every flow.
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

    /// Whether `name` is known to be reachable.
    fn reaches(&self, name: &AppName) -> bool;

    /// Whether `name` may be reachable, which only a request for a flow can show.
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

    /// Ends a flow or a request for one. Unknown port-ids are ignored.
    fn deallocate(&mut self, port: PortId, reason: &str);

    /// Processes an event of the data plane. Events of other IPCPs are ignored.
    fn handle(&mut self, _event: &crate::Event) {}

    /// Whether both ends of the IPCP's flows are on this system, so that the manager connects them.
    fn is_local(&self) -> bool {
        false
    }

    /// For a local IPCP: the port-id of the other end of an allocated flow.
    fn local_peer(&self, _port: PortId) -> Option<PortId> {
        None
    }

    /// The next event of an IPCP that does not run on the data plane. Any call may produce one.
    #[must_use]
    fn poll_event(&mut self) -> Option<crate::Event> {
        None
    }
}

/// A request for a flow by an application of this system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRequest {
    /// Port-id of the flow on this system.
    pub port: PortId,
    /// Name of the calling application.
    pub local: AppName,
    /// Name of the called application.
    pub remote: AppName,
    /// The flow specification.
    pub spec: FlowSpec,
}

/// Why an IPCP refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The name is registered already.
    #[error("the name {0} is already registered here; choose another or end the first")]
    NameTaken(AppName),
    /// The name is not registered.
    #[error("the name {0} is not registered here")]
    NotRegistered(AppName),
    /// No application is registered with the called name at the other side.
    #[error("no application is registered as {0} at the other side")]
    Unreachable(AppName),
    /// The IPCP cannot promise the requested QoS.
    #[error("the flow specification cannot be met: {0}")]
    Quality(QosError),
    /// No request or flow has this port-id.
    #[error("there is no flow or request with port {0}")]
    UnknownPort(PortId),
    /// The peer is not connected.
    #[error("the other side is not connected: {0}")]
    LinkDown(String),
    /// The IPCP moves SDUs, but the caller gave no end of the flow.
    #[error("this shim needs the data plane's end of the flow")]
    NoEnd,
}
