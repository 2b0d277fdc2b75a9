//! What the handlers of a PIP's requests share.

use std::sync::Arc;

use carina_vnet::pip::Pip;

use crate::driver::Handle;
use crate::inside::desk::Desk;

/// The state of a PIP's server for requests to nodes.
#[derive(Debug)]
pub struct PipAsks<S> {
    /// Name of the PIP.
    pub name: String,
    /// The PIP's state machine.
    pub handle: Handle<Pip<S>>,
    /// Requests that wait for agents.
    pub desk: Arc<Desk>,
}

impl<S> Clone for PipAsks<S> {
    fn clone(&self) -> PipAsks<S> {
        PipAsks {
            name: self.name.clone(),
            handle: self.handle.clone(),
            desk: Arc::clone(&self.desk),
        }
    }
}
