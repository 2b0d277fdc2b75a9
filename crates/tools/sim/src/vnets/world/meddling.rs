//! Parties that send requests about networks of others.

use std::collections::BTreeMap;

use carina_vnet::host_part::VnetId;
use carina_vnet::message::{PartKey, ToPip, ToVnp};
use carina_vnet::pip::round_of;

use super::{Broken, Packet, Who, World};

impl World<'_> {
    /// Lets every VNP and every operator request changes and removals of networks of others.
    pub(super) fn meddle(&mut self) {
        self.before_meddling = self.all_parts();
        let owners = self.owners();
        let mut messages = Vec::new();
        for (host, vnet, generation) in &self.before_meddling {
            let key = PartKey {
                vnet: *vnet,
                round: round_of(*generation),
            };
            let owner = owners.get(vnet).map(|vno| self.operators[*vno].1);
            for vnp in (0..self.vnps.len()).filter(|vnp| Some(*vnp) != owner) {
                let wishes = [
                    ToPip::Cancel { key },
                    ToPip::Commit { key, far: vec![] },
                    ToPip::Release { key },
                ];
                let pip = Who::Pip(self.host_of[*host], 0);
                let packets = wishes.map(|message| (pip, Packet::ToPip(vnp, message)));
                messages.extend(packets);
            }
        }
        for (vnet, owner) in &owners {
            let vnp = self.operators[*owner].1;
            for vno in (0..self.operators.len()).filter(|vno| vno != owner) {
                let remove = ToVnp::Remove { vnet: *vnet };
                messages.push((Who::Vnp(vnp, 0), Packet::ToVnp(vno, remove)));
            }
        }
        for (to, packet) in messages {
            self.send(to, to, packet);
        }
    }

    /// Checks that these requests have changed nothing.
    pub(super) fn check_unmoved(&self) -> Result<(), Broken> {
        let after = self.all_parts();
        if after == self.before_meddling {
            return Ok(());
        }
        let before = &self.before_meddling;
        Err(Broken(format!(
            "what others asked for has changed {before:?} to {after:?}"
        )))
    }

    /// All parts on all hosts: number of the host, network and generation.
    fn all_parts(&self) -> Vec<(usize, VnetId, u64)> {
        let hosts = self.hosts.iter().enumerate();
        let parts = hosts.flat_map(|(number, host)| {
            let parts = host.parts.iter();
            parts.map(move |(vnet, (part, _))| (number, *vnet, part.generation))
        });
        parts.collect()
    }

    /// The operator of each network, except networks of a lost VNP.
    pub(super) fn owners(&self) -> BTreeMap<VnetId, usize> {
        let mut owners = BTreeMap::new();
        for (number, process) in self.vnos.iter().enumerate() {
            if self.is_vnp_lost(self.operators[number].1) {
                continue;
            }
            let machine = process.machine.borrow();
            let Some(machine) = machine.as_ref() else {
                continue;
            };
            let seen = machine.names().filter_map(|name| machine.seen(name));
            owners.extend(seen.map(|seen| (seen.vnet, number)));
        }
        owners
    }
}
