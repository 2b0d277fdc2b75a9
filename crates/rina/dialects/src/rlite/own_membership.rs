//! This member's own membership: joining, and its address.

use alloc::string::ToString;

use carina_ipcp::api::Event;
use carina_ipcp::config::DifConfig;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;
use carina_wire::dif::{Address, Dialect};

use super::{
    ADDRESS_OF_NEW, HOUSEKEEPING_INTERVAL, Membership, REFRESH_INTERVAL, Rlite, link_limits,
};

impl Rlite {
    /// The configuration that this IPCP was given, or else the dialect's default; with the default
    /// cubes if it has none.
    pub(super) fn template(&self) -> DifConfig {
        let defaults = DifConfig::of_dialect(Dialect::Rlite);
        let mut config = self.given.clone().unwrap_or_else(|| defaults.clone());
        if config.cubes.is_empty() {
            config.cubes = defaults.cubes;
        }
        config
    }

    pub(super) fn bootstrap(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if self.member.is_some() {
            self.log
                .notice("bootstrap", "this IPCP is a member already");
            return;
        }
        let config = self.template();
        if let Err(error) = dt.configure(now, &config) {
            let reason = error.to_string();
            self.log.push(Event::Left { reason });
            return;
        }
        self.become_member(now, self.first_address(), config, dt);
        self.connect_idle_flows(now, dt);
    }

    /// The address of an IPCP that is not a member yet.
    pub(super) fn first_address(&self) -> u64 {
        let configured = self.policies.configured_address();
        configured.unwrap_or(ADDRESS_OF_NEW)
    }

    /// Becomes a member; data transfer is configured already.
    pub(super) fn become_member(
        &mut self,
        now: Instant,
        address: u64,
        config: DifConfig,
        dt: &mut dyn DataTransfer,
    ) {
        self.refusals.clear();
        self.links.set_limits(link_limits(&self.policies));
        self.take_address(address, dt);
        self.housekeeping_at = now + HOUSEKEEPING_INTERVAL;
        self.refresh_at = now + REFRESH_INTERVAL;
        self.directory.touch_all();
        self.member = Some(Membership {
            address,
            config: config.clone(),
        });
        let address = Address(address);
        self.log.push(Event::Enrolled { address, config });
    }

    /// Sets this member's address.
    pub(super) fn take_address(&mut self, address: u64, dt: &mut dyn DataTransfer) {
        dt.set_address(Address(address));
        self.flows.codec.address = address;
        if let Some(member) = &mut self.member {
            member.address = address;
        }
        self.are_routes_stale = true;
    }

    pub(super) fn own_address(&self) -> Option<u64> {
        self.member.as_ref().map(|member| member.address)
    }

    /// The address of a member or of this one; `None` if it is unknown.
    pub(super) fn address_of(&self, name: &str) -> Option<u64> {
        if name == self.own {
            return self.own_address();
        }
        self.members.get(name).map(|member| member.address)
    }
}
