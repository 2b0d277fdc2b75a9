//! Membership in a DIF: the IPCP's address, joining and leaving.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;
use carina_wire::dif::Address;

use super::addresses::AddressError;
use super::error::AddressRefused;
use super::links::Topology;
use super::n1::Peer;
use super::{EXPELLED_MAX, Irati, REFRESH_INTERVAL, addresses, objects};

impl Irati {
    pub(super) fn last_address(&self) -> u64 {
        addresses::last(self.config.widths.address)
    }

    /// Addresses of other members, with the names of their owners.
    pub(super) fn taken(&self) -> BTreeMap<u64, String> {
        let members = self.topology.members.iter();
        let mut taken: BTreeMap<u64, String> = members
            .flat_map(|(name, all)| all.iter().map(|address| (*address, name.clone())))
            .collect();
        // Includes IPCPs that are enrolling now.
        let peers = self.n1s.values().map(|flow| &flow.peer);
        let peers = peers.filter(|peer| peer.address != 0);
        taken.extend(peers.map(|peer| (peer.address, peer.name.clone())));
        if self.address != 0 {
            taken.insert(self.address, self.own.clone());
        }
        taken
    }

    /// Chooses the address of a joining IPCP, which claims to have `wanted` (0 for none).
    ///
    /// # Errors
    /// Why it gets no address, and so is not admitted.
    pub(super) fn assign(&self, peer: &Peer, wanted: u64) -> Result<u64, AddressError> {
        let mut taken = self.taken();
        taken.retain(|_, owner| *owner != peer.name);
        let last = self.last_address();
        self.addresses
            .assign(&peer.name, &peer.instance, wanted, last, &taken)
    }

    /// Takes the address that a member assigned to this joining IPCP.
    ///
    /// # Errors
    /// This IPCP cannot use the address.
    pub(super) fn take_address(
        &mut self,
        address: u64,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), AddressRefused> {
        if address == 0 || address > self.last_address() {
            return Err(AddressRefused::Outside(address));
        }
        if address == self.address {
            return Ok(());
        }
        if self.is_member {
            return Err(AddressRefused::Other {
                given: address,
                own: self.address,
            });
        }
        self.address = address;
        dt.set_address(Address(address));
        Ok(())
    }

    /// Restores the address that this IPCP had before a failed attempt.
    pub(super) fn reset_address(&mut self, dt: &mut dyn DataTransfer) {
        if self.is_member {
            return;
        }
        let own = self.addresses.own(&self.own, objects::INSTANCE);
        self.address = own.unwrap_or_default();
        dt.set_address(Address(self.address));
    }

    /// Becomes a member, if this IPCP is not one yet.
    pub(super) fn become_member(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if self.is_member {
            return;
        }
        self.is_member = true;
        self.refresh_at = now + REFRESH_INTERVAL;
        let address = Address(self.address);
        dt.set_address(address);
        self.directory.set_own(self.address);
        self.directory.touch_all();
        self.flows.codec.own = self.address;
        let config = self.config.clone();
        self.log.push(Event::Enrolled { address, config });
    }

    pub(super) fn bootstrap(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if self.is_member {
            let text = "this IPCP is a member already";
            return self.log.notice("bootstrap", text);
        }
        if !self.configure(now, dt) {
            return;
        }
        let own = Peer {
            name: self.own.clone(),
            instance: objects::INSTANCE.to_string(),
            address: 0,
        };
        match self.assign(&own, self.address) {
            Ok(address) => self.address = address,
            Err(error) => {
                let reason = error.to_string();
                return self.log.push(Event::Left { reason });
            }
        }
        self.has_left = false;
        self.become_member(now, dt);
    }

    /// Leaves the DIF: ends flows, withdraws registrations and releases neighbours.
    pub(super) fn leave(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if !self.is_member {
            let text = "this IPCP is no member of a DIF";
            return self.log.notice("leave", text);
        }
        let reason = "this member leaves the DIF";
        self.flows.end_all(now, reason, true, dt);
        self.drain_flows(now, dt);
        let registered = self.directory.registered();
        let registered: Vec<String> = registered.map(|(name, _)| name.to_string()).collect();
        for name in &registered {
            self.unregister(now, name, dt);
        }
        let n1s: Vec<N1Port> = self.n1s.keys().copied().collect();
        for n1 in n1s {
            self.disconnect(now, n1, reason, true, dt);
            self.stop_retrying(n1);
        }
        self.has_left = true;
        self.is_member = false;
        self.wanted_n1s.clear();
        self.ended.clear();
        self.questioned.clear();
        self.topology = Topology::new(&self.own);
        dt.set_forwarding(&[]);
        self.directory.clear();
        let is_reachable = |_: &u64| false;
        for event in self.directory.changes(&is_reachable) {
            self.log.push(event);
        }
        // The applications stay registered here, for the next membership.
        for name in registered {
            self.directory.register(&name);
        }
        self.reset_address(dt);
        let reason = "the node ordered it to leave".to_string();
        self.log.push(Event::Left { reason });
    }

    /// Releases a neighbour, and does not admit it any more.
    pub(super) fn expel(&mut self, now: Instant, id: u64, member: &str, dt: &mut dyn DataTransfer) {
        let Some(n1) = self.n1_of(member) else {
            let text = format!(
                "{member:?} cannot be expelled: it is no neighbour, and in an irati DIF only \
                 neighbours can be released"
            );
            self.log.notice("expel", &text);
            let result = Err(text.into());
            return self.log.push(Event::Answer { id, result });
        };
        if self.expelled.len() < EXPELLED_MAX {
            self.expelled.insert(member.to_string());
        }
        self.disconnect(now, n1, "the member was expelled", true, dt);
        self.stop_retrying(n1);
        let result = Ok(Vec::new());
        self.log.push(Event::Answer { id, result });
    }
}
