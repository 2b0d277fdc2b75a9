//! What an agent tells of itself and of the places of its networks.

use std::path::PathBuf;
use std::time::Duration;

use carina_api::paths::RunDir;

use super::Agent;
use crate::error::Result;
use crate::whereabouts::{self, Whereabouts};

impl Agent {
    /// The name of this host at its provider.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its run directory.
    #[must_use]
    pub fn run_dir(&self) -> RunDir {
        let path = self.vnets.path();
        RunDir::new(path.parent().unwrap_or(path))
    }

    /// The interface over which links to other hosts leave.
    #[must_use]
    pub fn underlay(&self) -> Option<&str> {
        let underlay = self.host.underlay.as_ref();
        underlay.map(|it| it.interface.as_str())
    }

    /// Where the nodes of all networks are.
    ///
    /// # Errors
    /// Namespaces or machines of this host cannot be listed.
    pub fn whereabouts(&self) -> Result<Vec<Whereabouts>> {
        whereabouts::nodes(&self.vnets)
    }

    /// The file of the counters of a network's links.
    #[must_use]
    pub fn counters(&self, name: &str) -> PathBuf {
        self.vnets.vnet(name).counters()
    }

    /// How long ago the network was taken up: what times of events count from.
    ///
    /// # Errors
    /// There is no such network.
    pub fn age(&self, name: &str) -> Result<Duration> {
        Ok(self.network(name)?.age())
    }
}
