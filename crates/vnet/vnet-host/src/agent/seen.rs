//! Properties of an agent, and the locations of its networks.

use std::path::PathBuf;
use std::time::Duration;

use carina_api::paths::RunDir;

use super::Agent;
use crate::error::Result;
use crate::whereabouts::{self, Whereabouts};

impl Agent {
    /// Name of this host at its provider.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Run directory of the agent.
    #[must_use]
    pub fn run_dir(&self) -> RunDir {
        let path = self.vnets.path();
        RunDir::new(path.parent().unwrap_or(path))
    }

    /// The interface through which links to other hosts leave; `None` if the host has none.
    #[must_use]
    pub fn underlay(&self) -> Option<&str> {
        let underlay = self.host.underlay.as_ref();
        underlay.map(|underlay| underlay.interface.as_str())
    }

    /// The location of every node of all networks.
    ///
    /// # Errors
    /// Namespaces or machines of this host cannot be listed.
    pub fn whereabouts(&self) -> Result<Vec<Whereabouts>> {
        whereabouts::nodes(&self.vnets)
    }

    /// Path of the counter file of a network's links.
    #[must_use]
    pub fn counters(&self, name: &str) -> PathBuf {
        self.vnets.vnet(name).counters()
    }

    /// Time since this agent created the network or took it over; times of events count from then.
    ///
    /// # Errors
    /// There is no such network.
    pub fn age(&self, name: &str) -> Result<Duration> {
        Ok(self.network(name)?.age())
    }
}
