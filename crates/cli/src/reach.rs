//! Asking for a flow with patience: to a name that is just being registered, or in a DIF that is
//! just being joined.

use std::time::{Duration, Instant};

use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec};
use carina_client::{Error, Flow, Node};

use crate::LOOK_AGAIN;
use crate::failure::{Attempt, Failure};

/// Whom to ask for a flow, and how.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The name under which to ask.
    pub local: &'a AppName,
    /// The application to reach.
    pub remote: &'a AppName,
    /// The DIF; `None` for the first that knows the name.
    pub dif: Option<&'a DifName>,
    /// What is asked of the flow.
    pub spec: &'a FlowSpec,
}

/// Allocates a flow; asks again within `patience` where time may help.
///
/// # Errors
/// The node refuses for another reason, or still does so at the end.
pub fn allocate(node: &Node, wanted: Wanted<'_>, patience: Duration) -> Result<Flow, Failure> {
    let deadline = Instant::now() + patience;
    let Wanted {
        local,
        remote,
        dif,
        spec,
    } = wanted;
    loop {
        match node.allocate(local, remote, dif, spec) {
            Err(Error::Refused(body)) if may_pass(&body) && Instant::now() < deadline => {
                std::thread::sleep(LOOK_AGAIN);
            }
            reached => return reached.attempt(format!("allocating a flow to {remote}")),
        }
    }
}

/// Whether a refusal may come from something that is not there *yet*. `SpecNotMet` is one: the name
/// may be known in a DIF below before it is in the DIF that meets the specification.
pub fn may_pass(refusal: &ErrorBody) -> bool {
    use ErrorCode::{LinkDown, NotFound, SpecNotMet, UnknownName};
    let may = matches!(refusal.code, UnknownName | SpecNotMet | LinkDown | NotFound);
    may && !refusal.is_final
}
