//! The server of a measurement, as its client names it, and the allocation of flows to it.

use std::time::{Duration, Instant};

use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec};
use carina_client::{Error, Flow, Node};

use crate::transport::TransportError;
use crate::transport::error::Attempt;

/// The server of a measurement: its name, the node that reaches it, and the parameters of flows to
/// it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The node through which flows are allocated.
    pub node: Node,
    /// Application name of the caller.
    pub local: AppName,
    /// The application to reach.
    pub remote: AppName,
    /// DIF of the flows; `None` for the first DIF that knows the name.
    pub dif: Option<DifName>,
    /// Flow specification with which flows are requested.
    pub spec: FlowSpec,
    /// How long to retry while the server's name is not registered yet, or the DIF not joined yet.
    pub wait: Duration,
}

impl Target {
    /// Allocates a flow to the target. Blocks for up to `wait`, as long as refusals are temporary
    /// ([`may_succeed_later`]).
    ///
    /// # Errors
    /// The node refuses for another reason, or still refuses at the end.
    pub fn allocate(&self) -> Result<Flow, TransportError> {
        let deadline = Instant::now() + self.wait;
        let (dif, spec) = (self.dif.as_ref(), &self.spec);
        loop {
            match self.node.allocate(&self.local, &self.remote, dif, spec) {
                Err(Error::Refused(body))
                    if may_succeed_later(&body) && Instant::now() < deadline =>
                {
                    std::thread::sleep(RETRY_PAUSE);
                }
                outcome => {
                    return outcome.attempt(format!("allocating a flow to {}", self.remote));
                }
            }
        }
    }
}

/// Whether a refusal may be temporary, because something does not exist *yet*. `SpecNotMet` counts
/// too: the name may become known in a lower DIF before the DIF that meets the specification knows
/// it.
pub fn may_succeed_later(refusal: &ErrorBody) -> bool {
    use ErrorCode::{LinkDown, NotFound, SpecNotMet, UnknownName};
    let may = matches!(refusal.code, UnknownName | SpecNotMet | LinkDown | NotFound);
    may && !refusal.is_final
}

/// Time between two requests for a flow.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
