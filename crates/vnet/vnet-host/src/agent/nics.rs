//! Assigns physical cards of the host to nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use carina_vnet::host_part::{Far, HostPart};

use super::network::Network;
use super::{Agent, others};
use crate::admission::Capacity;
use crate::admission_check::{AdmissionCheck, limits_of_this_host};
use crate::error::{Error, Result};
use crate::nics::{check_interface, chosen, keep};

impl Agent {
    /// Sets the interfaces of the host that nodes may use as physical cards. Nodes that already
    /// have a card keep it.
    ///
    /// # Errors
    /// An interface does not exist, is not Ethernet, has an address, or is named twice.
    pub fn offer_nics(&self, names: &[String]) -> Result<()> {
        let mut seen = BTreeSet::new();
        for name in names {
            check_interface(name)?;
            if !seen.insert(name) {
                return Err(Error::Unsupported {
                    what: format!("interface {name}, twice"),
                    instead: "a network card can belong to one node only",
                });
            }
        }
        *self.nics.lock().unwrap_or_else(PoisonError::into_inner) = names.to_vec();
        Ok(())
    }

    /// The capacity of this host, including its cards, and its limits.
    pub(super) fn admission_check(&self) -> AdmissionCheck {
        let nics = self.nics.lock().unwrap_or_else(PoisonError::into_inner);
        AdmissionCheck {
            capacity: Capacity {
                nics: nics.len() as u64,
                ..self.capacity
            },
            limits: limits_of_this_host(),
        }
    }

    /// Chooses cards for the nodes of a part: the ones they have in `before`, else free ones.
    pub(super) fn choose_nics(
        &self,
        part: &mut HostPart,
        before: Option<&HostPart>,
        others: &[HostPart],
    ) -> Result<()> {
        keep(part, before);
        let all = others.iter().chain([&*part]).flat_map(chosen);
        let mut taken: BTreeSet<String> = all.map(|(_, interface)| interface).collect();
        let offered = self.nics.lock().unwrap_or_else(PoisonError::into_inner);
        for link in &mut part.links {
            let Far::Nic(nic) = &mut link.far else {
                continue;
            };
            if nic.interface.is_some() {
                continue;
            }
            let free = offered.iter().find(|name| !taken.contains(*name));
            let Some(interface) = free.cloned() else {
                return Err(Error::NotAdmitted {
                    vnet: part.name.clone(),
                    reason: format!(
                        "node {} needs a network card, but none of the {} cards that this host \
                         offers to nodes (`carina vnet agent --nic`) is free",
                        link.near.node,
                        offered.len()
                    ),
                });
            };
            taken.insert(interface.clone());
            nic.interface = Some(interface);
        }
        Ok(())
    }

    /// Like [`Agent::choose_nics`], for a part of a provider, which must not choose cards itself.
    pub(super) fn choose_for_provider(
        &self,
        part: &mut HostPart,
        existing: Option<&Arc<Network>>,
        networks: &BTreeMap<String, Arc<Network>>,
        name: &str,
    ) -> Result<()> {
        for link in &mut part.links {
            if let Far::Nic(nic) = &mut link.far {
                nic.interface = None;
            }
        }
        let before = existing.map(|network| network.record().part.clone());
        let others = others(networks, Some(name));
        self.choose_nics(part, before.as_ref(), &others)
    }
}
