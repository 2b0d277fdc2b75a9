//! Networks and nodes that continue elsewhere: machines in another QEMU, networks from a directory.

use std::path::Path;
use std::time::Instant;

use super::{Agent, others};
use crate::directory::Requester;
use crate::error::{Error, Result};
use crate::leftovers;
use crate::saved::{Manifest, Saved, SavedError};
use carina_vnet::report::{MigrationReport, SaveReport, VnetReport};

impl Agent {
    /// Migrates a running machine of a network from its QEMU to a new one on this host.
    ///
    /// # Errors
    /// There is no such network or node, the node is no virtual machine, or the migration fails;
    /// the machine then continues in its old QEMU.
    pub fn migrate(&self, name: &str, node: &str) -> Result<MigrationReport> {
        self.network(name)?.vnet()?.migrate(node)
    }

    /// Saves a running network into a new directory: its document, its layout, and the state of its
    /// machines.
    ///
    /// # Errors
    /// There is no such network, a provider has ordered it, or it cannot be saved.
    pub fn save(&self, name: &str, into: &Path) -> Result<SaveReport> {
        let network = self.network(name)?;
        let record = network.record();
        let Requester::Here { document, layout } = &record.wanted else {
            return Err(Error::OfProvider(name.to_owned()));
        };
        if !record.is_settled {
            return Err(Error::NotMade(name.to_owned()));
        }
        let manifest = Manifest::new(record.vnet, document, layout);
        network.vnet()?.save(manifest, into)
    }

    /// Begins to restore a saved network with its previous addresses. Its machines resume from
    /// their saved state.
    ///
    /// # Errors
    /// The directory is damaged or is not a saved network, a network of this name or uid exists,
    /// this host lacks the resources or abilities that the network needs, or its record cannot be
    /// written.
    pub fn restore(&self, from: &Path) -> Result<VnetReport> {
        let began = Instant::now();
        let saved = Saved::open(from)?;
        let document = &saved.manifest().document;
        let name = &document.vnet.name;
        let mut networks = self.lock();
        self.check_open()?;
        if networks.contains_key(name) {
            return Err(Error::Exists(name.clone()));
        }
        let vnet = saved.manifest().vnet;
        let same = networks
            .iter()
            .find(|(_, network)| network.record().vnet == vnet);
        if let Some((other, _)) = same {
            return Err(SavedError::AlreadyExists(other.clone()).into());
        }
        if !leftovers::namespaces(vnet)?.is_empty() {
            // Another agent of this host has a network with this uid.
            return Err(SavedError::AlreadyExists(vnet.to_string()).into());
        }
        let parts = others(&networks, None);
        let dir = self.vnets.vnet(name);
        let mut record = saved.record()?;
        self.admission_check()
            .check_network(document, &record.part, parts.iter())?;
        self.choose_nics(&mut record.part, None, &parts)?;
        let network = self.begin_with(dir, record, began, Some(&saved))?;
        let report = network.report();
        networks.insert(name.clone(), network);
        Ok(report)
    }
}
