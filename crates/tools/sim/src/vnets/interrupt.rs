//! Processes that work while another one waits for the store.

use std::fmt;
use std::rc::Weak;

use carina_time::Instant;

/// A process that may work while another one waits for the store.
pub(super) trait Interrupt: fmt::Debug {
    /// Does its next work, unless it waits for the store itself or is dead.
    fn go_on(&self, now: Instant);
}

/// The processes of a role, without the one that holds this list.
pub(super) type Others = Vec<Weak<dyn Interrupt>>;
