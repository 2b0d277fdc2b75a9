//! The objects of the RIB, as management applications read them, and
//! [`Command::Rib`](carina_ipcp::Command::Rib).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::{Event, RibObject, RibOp};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::policy::component;
use carina_ipcp::rib_view::{ReadError, passing};
use carina_time::Instant;

use super::Irati;
use crate::interop::rib_view::{Neighbour, RibView};

impl Irati {
    /// Answers [`Command::Rib`](carina_ipcp::Command::Rib).
    pub(super) fn rib_command(
        &mut self,
        now: Instant,
        id: u64,
        member: Option<String>,
        op: RibOp,
        dt: &mut dyn DataTransfer,
    ) {
        let is_own = |name: &String| *name == self.own || *name == self.address.to_string();
        let result = match (member.filter(|name| !is_own(name)), op) {
            (Some(member), _) => Err(format!(
                "the RIB of {member:?} cannot be read from here: members of an irati DIF read \
                 only their neighbours' enrollment; run the command on the system of that \
                 member"
            )
            .into()),
            (
                None,
                RibOp::Read {
                    path,
                    scope,
                    filter,
                },
            ) => self
                .show(now, &path, scope, dt)
                .and_then(|objects| passing(objects, &filter))
                .map_err(|error| error.to_string().into()),
            (None, RibOp::Write { path, fields }) => {
                let component = path.strip_prefix("/policies/").unwrap_or(&path);
                let _ = fields;
                Err(format!(
                    "{component:?} cannot be changed while an irati DIF runs: each member takes \
                     it from its own configuration"
                )
                .into())
            }
        };
        self.log.push(Event::Answer { id, result });
    }

    fn show(
        &self,
        now: Instant,
        path: &str,
        scope: u32,
        dt: &dyn DataTransfer,
    ) -> Result<Vec<RibObject>, ReadError> {
        let mut shown = RibView::new();
        let member = self.is_member.then_some((self.address, &self.config));
        shown.dif(&self.dif, &self.own, "irati", member, dt.max_pdu());
        self.show_policies(&mut shown);
        if self.is_member {
            shown.member(&self.own, self.address, true);
        }
        for (name, all) in &self.topology.members {
            if let Some(address) = all.first().filter(|_| *name != self.own) {
                let is_reachable = self.topology.routes.contains_key(address);
                shown.member(name, *address, is_reachable);
            }
        }
        for (name, (n1, flow)) in self.neighbours() {
            let neighbour = Neighbour {
                name: name.to_string(),
                address: flow.peer.address,
                n1s: alloc::vec![n1.0],
                n1_difs: alloc::vec![flow.props.dif.clone()],
                cost: flow.props.cost,
                heard: flow.heard,
            };
            shown.neighbour(now, neighbour);
        }
        for (n1, flow) in self.n1s.iter().filter(|(_, flow)| !flow.is_up()) {
            shown.attempt(
                n1.0,
                flow.state_name(),
                &flow.props.dif,
                flow.display_name(),
            );
        }
        for (name, holders) in self.directory.places() {
            let is_here = self.directory.is_registered(name);
            let members = holders.into_iter().map(|holder| self.name_of(holder));
            shown.application(name, members.collect(), is_here);
        }
        let address = |name: &String| {
            if *name == self.own {
                self.address
            } else {
                let all = self.topology.members.get(name);
                all.and_then(|all| all.first()).copied().unwrap_or_default()
            }
        };
        for (key, report) in self.topology.links.iter(now) {
            shown.link(key, (address(&key.0), address(&key.1)), &report);
        }
        for reach in &self.topology.reaches {
            shown.route(reach);
        }
        for (_, flow) in self.flows.iter() {
            shown.flow(flow);
        }
        shown.counters(&self.log);
        shown.within(path, scope, dt)
    }

    fn show_policies(&self, shown: &mut RibView) {
        for component in self.catalogue.components() {
            let spec = self.config.policies.get(component);
            let spec = spec.cloned().unwrap_or_default();
            let Ok((descriptor, params)) = self.catalogue.resolve(component, &spec) else {
                continue;
            };
            // Parameters of an authentication policy may be secrets.
            let params: Vec<(&str, String)> = match component {
                component::AUTHENTICATION => Vec::new(),
                _ => params
                    .values()
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.clone()))
                    .collect(),
            };
            shown.policy(component, descriptor.name, &params);
        }
    }
}
