//! Networks and nodes that go on elsewhere: in another QEMU, or from a directory.

use std::path::Path;
use std::time::Instant;

use super::{Agent, others};
use crate::directory::Wanted;
use crate::error::{Error, Result};
use crate::remains;
use crate::saved::{Manifest, Saved, SavedError};
use carina_vnet::report::{MigrationReport, SaveReport, VnetReport};

impl Agent {
    /// Moves a machine of a network from its QEMU to a new one of this host while it runs.
    ///
    /// # Errors
    /// There is no such network or node, the node is a namespace, or it cannot be moved; then it
    /// goes on where it was.
    pub fn migrate(&self, name: &str, node: &str) -> Result<MigrationReport> {
        self.network(name)?.vnet()?.migrate(node)
    }

    /// Saves a network into a new directory while it runs: document, layout, and the state of its
    /// machines.
    ///
    /// # Errors
    /// There is no such network, it is a part of one that a provider has handed over, or it cannot
    /// be saved.
    pub fn save(&self, name: &str, into: &Path) -> Result<SaveReport> {
        let network = self.network(name)?;
        let record = network.record();
        let Wanted::Here { document, layout } = &record.wanted else {
            return Err(Error::OfProvider(name.to_owned()));
        };
        if !record.is_settled {
            return Err(Error::NotMade(name.to_owned()));
        }
        let manifest = Manifest::new(record.vnet, document, layout);
        network.vnet()?.save(manifest, into)
    }

    /// Begins to make a network that was saved, with the addresses that it had. Its machines go on
    /// where they were saved.
    ///
    /// # Errors
    /// The directory is damaged or of something else, there is a network of this name or uid, it
    /// does not fit, or its record cannot be written.
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
        let same = networks.iter().find(|(_, it)| it.record().vnet == vnet);
        if let Some((other, _)) = same {
            return Err(SavedError::IsThere(other.clone()).into());
        }
        if !remains::namespaces(vnet)?.is_empty() {
            // Of another agent of this host.
            return Err(SavedError::IsThere(vnet.to_string()).into());
        }
        let parts = others(&networks, None);
        let dir = self.vnets.vnet(name);
        let mut record = saved.record()?;
        self.judge().judge(document, &record.part, parts.iter())?;
        self.choose_nics(&mut record.part, None, &parts)?;
        let network = self.begin_with(dir, record, began, Some(&saved))?;
        let report = network.report();
        networks.insert(name.clone(), network);
        Ok(report)
    }
}
