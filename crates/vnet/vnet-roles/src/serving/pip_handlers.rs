//! What the HTTP handlers of a PIP share: the PIP's name, its state machine, and the requests that
//! wait for agents.

use std::sync::Arc;

use carina_vnet::pip::Pip;

use crate::driver::Handle;
use crate::inside::request_queue::RequestQueue;

/// What the HTTP handlers of a PIP share. They take requests about nodes from the role above or
/// from the PIP's operator, and the hosts' agents fetch them. `S` is the PIP's store.
#[derive(Debug)]
pub struct PipHandlers<S> {
    /// Name of the PIP.
    pub name: String,
    /// The PIP's state machine.
    pub handle: Handle<Pip<S>>,
    /// Requests about nodes that wait until the agents of the nodes' hosts fetch them.
    pub queue: Arc<RequestQueue>,
}

impl<S> Clone for PipHandlers<S> {
    fn clone(&self) -> PipHandlers<S> {
        PipHandlers {
            name: self.name.clone(),
            handle: self.handle.clone(),
            queue: Arc::clone(&self.queue),
        }
    }
}
