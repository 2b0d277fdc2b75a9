//! Commands of the owner: leaving the DIF, and access to the RIB.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::Opcode;
use carina_ipcp::api::{Event, RibObject, RibOp, Scalar};
use carina_ipcp::config::PolicySpec;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::rib_view::{ReadError, passing};
use carina_time::Instant;
use carina_wire::dif::Address;

use super::Rlite;
use super::dissemination::directory_entry;
use super::error::WriteError;
use crate::interop::rib_view::{Neighbour, RibView};

impl Rlite {
    /// Leaves the DIF: ends flows, withdraws registrations and lower flows, releases neighbours.
    pub(super) fn leave(&mut self, now: Instant, reason: &str, dt: &mut dyn DataTransfer) {
        self.has_left = true;
        self.wanted_n1s.clear();
        if self.member.is_none() {
            return;
        }
        self.flows.end_all(now, reason, true, dt);
        self.send_flow_messages(now, dt);
        let to = self.neighbours_but(None);
        let apps: Vec<(String, u64)> = self
            .directory
            .registered()
            .map(|(app, seq)| (app.to_string(), seq))
            .collect();
        let entries: Vec<_> = apps
            .iter()
            .map(|(app, seq)| directory_entry(app, &self.own, *seq))
            .collect();
        self.send_directory(now, Opcode::Delete, &entries, &to, dt);
        self.release_all(now, reason, dt);
        // Only the own registrations are kept; their next versions are later ones.
        self.directory.clear();
        for (app, _) in apps {
            self.directory.unregister(now, &app);
            self.directory.register(&app);
        }
        self.members.clear();
        self.outdated.clear();
        self.allocated_addresses.clear();
        let own = self.own.clone();
        self.links.clear(&own);
        self.member = None;
        self.are_routes_stale = true;
        self.update_neighbours(now, dt);
        dt.set_address(Address(self.first_address()));
        let reason = reason.to_string();
        self.log.push(Event::Left { reason });
    }

    /// Answers that expulsion is not possible, since rlite has no message for it.
    pub(super) fn expel(&mut self, id: u64, member: &str) {
        let text =
            format!("{member:?} cannot be expelled: members of an rlite DIF have no such message");
        self.log.notice("expel", &text);
        let result = Err(text.into());
        self.log.push(Event::Answer { id, result });
    }

    /// Reads or writes this member's RIB.
    pub(super) fn rib_command(
        &mut self,
        now: Instant,
        id: u64,
        member: Option<String>,
        op: RibOp,
        dt: &mut dyn DataTransfer,
    ) {
        let own_address = self.own_address().map(|address| address.to_string());
        let is_here = member
            .as_ref()
            .is_none_or(|member| *member == self.own || Some(member) == own_address.as_ref());
        let result = if is_here {
            match op {
                RibOp::Read {
                    path,
                    scope,
                    filter,
                } => self
                    .show(now, &path, scope, dt)
                    .and_then(|objects| passing(objects, &filter))
                    .map_err(|error| error.to_string().into()),
                RibOp::Write { path, fields } => self
                    .write(now, &path, &fields, dt)
                    .map_err(|error| error.to_string().into()),
            }
        } else {
            Err(format!(
                "only this member's RIB can be read: {:?} is in an rlite DIF, whose members do not answer RIB requests",
                member.unwrap_or_default()
            )
            .into())
        };
        self.log.push(Event::Answer { id, result });
    }

    /// The object at `path` and the objects up to `scope` levels below it.
    ///
    /// # Errors
    /// There is no such object.
    fn show(
        &self,
        now: Instant,
        path: &str,
        scope: u32,
        dt: &dyn DataTransfer,
    ) -> Result<Vec<RibObject>, ReadError> {
        let mut shown = RibView::new();
        let member = self.member.as_ref();
        let member = member.map(|member| (member.address, &member.config));
        shown.dif(&self.dif, &self.own, "rlite", member, dt.max_pdu());
        for (component, spec) in self.policies.here() {
            let params: Vec<(&str, String)> = spec
                .params
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone()))
                .collect();
            shown.policy(component, &spec.name, &params);
        }
        if let Some((address, config)) = member {
            let mine = self.policies.here();
            let others = config.policies.iter();
            for (component, spec) in
                others.filter(|(name, _)| mine.iter().all(|candidate| candidate.0 != *name))
            {
                let params = spec.params.iter();
                let params: Vec<(&str, String)> = params
                    .map(|(name, value)| (name.as_str(), value.clone()))
                    .collect();
                shown.policy(component, &spec.name, &params);
            }
            shown.member(&self.own, address, true);
        }
        for (name, member) in &self.members {
            shown.member(name, member.address, self.can_reach(member.address));
        }
        self.show_neighbours(now, &mut shown);
        for (app, holders) in self.directory.places() {
            let is_here = self.directory.is_registered(app);
            shown.application(app, holders, is_here);
        }
        for (key, report) in self.links.iter(now) {
            let address = |name| self.address_of(name).unwrap_or_default();
            shown.link(key, (address(&key.0), address(&key.1)), &report);
        }
        for reach in &self.routes {
            shown.route(reach);
        }
        for (_, flow) in self.flows.iter() {
            shown.flow(flow);
        }
        shown.counters(&self.log);
        shown.within(path, scope, dt)
    }

    fn show_neighbours(&self, now: Instant, shown: &mut RibView) {
        let mut neighbours: BTreeMap<&str, Neighbour> = BTreeMap::new();
        for (n1, flow) in &self.n1s {
            let Some(name) = flow.neighbour() else {
                shown.attempt(n1.0, flow.stage_name(), &flow.props.dif, &flow.props.remote);
                if !flow.why.is_empty() {
                    shown.reason(&flow.why);
                }
                continue;
            };
            let entry = neighbours.entry(name).or_insert_with(|| Neighbour {
                name: name.to_string(),
                address: self.address_of(name).unwrap_or_default(),
                n1s: Vec::new(),
                n1_difs: Vec::new(),
                cost: flow.props.cost,
                heard: flow.heard,
            });
            entry.n1s.push(n1.0);
            entry.n1_difs.push(flow.props.dif.clone());
            entry.cost = entry.cost.min(flow.props.cost);
            entry.heard = entry.heard.max(flow.heard);
        }
        for neighbour in neighbours.into_values() {
            shown.neighbour(now, neighbour);
        }
    }

    /// Changes a policy or its parameters, in layer management or data transfer.
    ///
    /// # Errors
    /// The policy or parameter cannot be changed.
    fn write(
        &mut self,
        now: Instant,
        path: &str,
        fields: &[(String, Scalar)],
        dt: &mut dyn DataTransfer,
    ) -> Result<Vec<RibObject>, WriteError> {
        let Some(component) = path.strip_prefix("/policies/") else {
            return Err(WriteError::NotWritable(path.to_string()));
        };
        let Some(member) = &self.member else {
            return Err(WriteError::NotMember(self.dif.clone()));
        };
        let mut config = member.config.clone();
        for (name, spec) in self.policies.here() {
            config.policies.insert(name.to_string(), spec);
        }
        let present = config.policies.get(component).cloned().unwrap_or_default();
        let spec = present.changed(fields);
        self.set_policy(now, component, spec, config, dt)?;
        Ok(self.show(now, path, 0, dt)?)
    }

    fn set_policy(
        &mut self,
        now: Instant,
        component: &str,
        spec: PolicySpec,
        mut config: carina_ipcp::config::DifConfig,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), WriteError> {
        config.policies.insert(component.to_string(), spec.clone());
        let mine = self.policies.here();
        if mine.iter().any(|(name, _)| *name == component) {
            self.policies = super::Policies::of(&config)?;
            self.links.set_limits(super::link_limits(&self.policies));
            self.are_routes_stale = true;
        } else {
            dt.set_policy(now, component, &spec)?;
        }
        if let Some(member) = &mut self.member {
            member.config = config;
        }
        Ok(())
    }
}
