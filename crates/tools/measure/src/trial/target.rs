//! The server of a measurement as its client names it, and flows to it.

use std::time::{Duration, Instant};

use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec};
use carina_client::{Error, Flow, Node};

use crate::transport::TransportError;
use crate::transport::error::Attempt;

/// An application to reach, and how to ask for a flow to it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The node through which flows are allocated.
    pub node: Node,
    /// The name under which to ask.
    pub local: AppName,
    /// The application to reach.
    pub remote: AppName,
    /// The DIF; `None` for the first that knows the name.
    pub dif: Option<DifName>,
    /// What is asked of the flow.
    pub spec: FlowSpec,
    /// How long to wait for a name that is just being registered, or a DIF that is just being
    /// joined.
    pub wait: Duration,
}

impl Target {
    /// Allocates a flow; asks again within the time to wait where [`may_succeed_later`].
    ///
    /// # Errors
    /// The node refuses for another reason, or still does so at the end.
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

/// Whether a refusal may come from something that is not there *yet*. `SpecNotMet` is one: the name
/// may be known in a DIF below before it is in the DIF that meets the specification.
pub fn may_succeed_later(refusal: &ErrorBody) -> bool {
    use ErrorCode::{LinkDown, NotFound, SpecNotMet, UnknownName};
    let may = matches!(refusal.code, UnknownName | SpecNotMet | LinkDown | NotFound);
    may && !refusal.is_final
}

/// Time between two requests for a flow.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
