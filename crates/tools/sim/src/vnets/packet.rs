//! Messages between the parties of the simulated world.

use std::fmt;
use std::sync::Arc;

use carina_vnet::message::{FromAgent, FromPip, FromVnp, ToAgent, ToPip, ToVnp};

use super::host::Guest;

/// A message between two parties.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    ToPip(usize, ToPip),
    FromPip(usize, FromPip),
    ToHost(ToAgent),
    /// A guest that moves to another host, with the number of the move.
    Guest(u64, Guest),
    FromHost(HostReport),
    ToVnp(usize, ToVnp),
    FromVnp(FromVnp),
}

/// A report that a host has sent and a provider has not yet received.
#[derive(Clone)]
pub(super) struct HostReport {
    /// Number of the host.
    pub(super) host: usize,
    pub(super) words: Arc<FromAgent>,
}

impl fmt::Debug for HostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}
