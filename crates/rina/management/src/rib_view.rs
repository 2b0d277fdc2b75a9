//! The objects of the RIB, as management applications read them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::{RibObject, Scalar};
use carina_ipcp::config::QosCube;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::rib_view::{self, ReadError, agreed, flag, in_scope, text, uint};
use carina_time::Instant;

use super::Management;
use super::entries::Kind;
use super::flow_table::{Role, State};
use super::neighbours::{Stage, Up};
use super::schema::{self, MemberValue, Object, class, flow_path, link_path, route_path};

impl Management {
    /// The object at `path` and the objects up to `scope` levels below it.
    ///
    /// # Errors
    /// There is no such object.
    pub(super) fn show(
        &self,
        now: Instant,
        path: &str,
        scope: u32,
        dt: &dyn DataTransfer,
    ) -> Result<Vec<RibObject>, ReadError> {
        let none = || ReadError::NoObject(path.to_string());
        let object = Object::parse(path).ok_or_else(none)?;
        let mut all = Vec::new();
        let is_root = object == Object::Root;
        if is_root {
            all.push(new(&Object::Root, Vec::new()));
        }
        let wants =
            |first: &str| is_root || path == first || path.starts_with(&format!("{first}/"));
        if wants("/dif") {
            self.show_dif(&mut all);
        }
        if wants("/policies") {
            self.show_policies(&mut all);
        }
        if wants("/members") {
            self.show_members(&mut all);
        }
        if wants("/neighbours") {
            self.show_neighbours(now, &mut all);
        }
        if wants("/over") {
            self.show_n1_difs(&mut all);
        }
        if wants("/directory") {
            self.show_directory(&mut all);
        }
        if wants("/routing") {
            self.show_routing(&mut all);
        }
        if wants("/flows") {
            self.show_flows(&mut all);
        }
        let mut of_transfer = Vec::new();
        if wants("/data-transfer") || wants("/counters") {
            dt.show(&mut of_transfer);
        }
        let (counted, of_transfer): (Vec<_>, Vec<_>) = of_transfer
            .into_iter()
            .partition(|object| object.path == "/counters");
        if wants("/data-transfer") {
            all.push(new(&Object::Transfer, Vec::new()));
            let below = of_transfer.into_iter();
            all.extend(below.filter(|object| object.path != "/data-transfer"));
        }
        if wants("/counters") {
            // The counters of layer management and data transfer form one object.
            let counters = self.log.counters().iter();
            let own = counters.map(|(name, count)| uint(name, *count));
            let fields = own.chain(counted.into_iter().flat_map(|object| object.fields));
            all.push(new(&Object::Counters, fields.collect()));
        }
        let found = in_scope(all, path, scope);
        if found.is_empty() {
            Err(none())
        } else {
            Ok(found)
        }
    }

    fn show_dif(&self, all: &mut Vec<RibObject>) {
        let mut fields = alloc::vec![text("name", &self.dif), text("member", &self.own)];
        let Some(member) = &self.member else {
            fields.push(flag("is_member", false));
            return all.push(new(&Object::Dif, fields));
        };
        let config = &member.config;
        fields.extend([
            flag("is_member", true),
            text("identity", &format!("{:016x}", member.dif_id)),
            uint("address", member.address),
        ]);
        fields.extend(agreed(config, u64::from(config.max_pdu)));
        all.push(new(&Object::Dif, fields));
        all.push(new(&Object::Cube(None), Vec::new()));
        all.extend(config.cubes.iter().map(show_cube));
    }

    fn show_policies(&self, all: &mut Vec<RibObject>) {
        all.push(new(&Object::Policy(None), Vec::new()));
        for component in self.catalogue.components() {
            let spec = self
                .member
                .as_ref()
                .and_then(|member| member.config.policies.get(component));
            let spec = spec.cloned().unwrap_or_default();
            let Ok((descriptor, params)) = self.catalogue.resolve(component, &spec) else {
                continue;
            };
            let choices = self
                .catalogue
                .policies(component)
                .map(|policy| policy.name.to_string())
                .collect();
            let mut fields = alloc::vec![
                text("name", descriptor.name),
                flag("is_live", descriptor.is_live),
                ("choices".to_string(), Scalar::List(choices)),
            ];
            // Parameters of an authentication policy may be secrets.
            if component != carina_ipcp::policy::component::AUTHENTICATION {
                fields.extend(
                    params
                        .values()
                        .iter()
                        .map(|(name, value)| text(name, value)),
                );
            }
            all.push(new(&Object::Policy(Some(component.to_string())), fields));
        }
    }

    fn show_members(&self, all: &mut Vec<RibObject>) {
        all.push(new(&Object::Member(None), Vec::new()));
        for (origin, _, value) in self.store.all(Kind::Member) {
            let Some(value) = schema::decode::<MemberValue>(value) else {
                continue;
            };
            let fields = alloc::vec![
                uint("address", value.address),
                text("incarnation", &format!("{:016x}", value.incarnation)),
                flag("is_reachable", self.distance(value.address).is_some()),
                flag("is_visible", self.store.is_visible(origin)),
            ];
            all.push(new(&Object::Member(Some(origin.to_string())), fields));
        }
    }

    /// The N-1 DIFs of the member. The N-1 flows themselves are in `/data-transfer/n1`.
    fn show_n1_difs(&self, all: &mut Vec<RibObject>) {
        all.push(new(&Object::N1Dif(None), Vec::new()));
        for dif in &self.n1_difs {
            let flows = self.n1s.values().filter(|n1| n1.props.dif == dif.name);
            let (remotes, reasons) = dif.wanted.iter().cloned().unzip();
            let mut fields = alloc::vec![
                uint("flows", flows.count() as u64),
                ("wanted".to_string(), Scalar::List(remotes)),
                ("reasons".to_string(), Scalar::List(reasons)),
            ];
            fields.extend(dif.refused.iter().map(|why| text("refused", why)));
            all.push(new(&Object::N1Dif(Some(dif.name.clone())), fields));
        }
    }

    fn show_neighbours(&self, now: Instant, all: &mut Vec<RibObject>) {
        all.push(new(&Object::Neighbour(None), Vec::new()));
        for n1s in self.neighbours().into_values() {
            let Some(first) = n1s.first().and_then(|n1| self.neighbour(*n1)) else {
                continue;
            };
            let Up {
                name,
                address,
                heard,
                ..
            } = first;
            let ports = n1s.iter().map(|n1| n1.0.to_string()).collect();
            let difs = n1s
                .iter()
                .map(|n1| self.n1s[n1].props.dif.clone())
                .collect();
            let fields = alloc::vec![
                uint("address", *address),
                ("n1".to_string(), Scalar::List(ports)),
                ("n1_difs".to_string(), Scalar::List(difs)),
                uint("cost", u64::from(self.n1s[&n1s[0]].props.cost)),
                uint("heard_at_ms", heard.as_millis()),
                uint("heard_ago_ms", now.since(*heard).as_millis()),
            ];
            all.push(new(&Object::Neighbour(Some(name.clone())), fields));
        }
        let others = self
            .n1s
            .iter()
            .filter(|(n1, _)| self.neighbour(**n1).is_none());
        for (n1, flow) in others {
            let state = match (&flow.up, &flow.initiator, &flow.responder) {
                (
                    Some(Up {
                        stage: Stage::Joining(_),
                        ..
                    }),
                    _,
                    _,
                ) => "joining",
                (Some(_), _, _) => "admitting",
                (None, Some(_), _) => "connecting",
                (None, None, Some(_)) => "accepting",
                (None, None, None) => "idle",
            };
            let fields = alloc::vec![
                text("state", state),
                text("n1_dif", &flow.props.dif),
                text("remote", &flow.props.remote),
            ];
            all.push(new(
                &Object::Neighbour(Some(format!("n1-{}", n1.0))),
                fields,
            ));
        }
    }

    fn show_directory(&self, all: &mut Vec<RibObject>) {
        all.push(new(&Object::Application(None), Vec::new()));
        for (name, members) in self.holders() {
            let fields = alloc::vec![
                ("members".to_string(), Scalar::List(members.clone())),
                flag("is_here", self.own_applications().contains(name)),
            ];
            all.push(new(&Object::Application(Some(name.clone())), fields));
        }
    }

    fn show_routing(&self, all: &mut Vec<RibObject>) {
        let Some(routing) = &self.routing else { return };
        let state = routing.show(self.refresh_at);
        let fields = state
            .counters
            .iter()
            .map(|(name, count)| uint(name, *count))
            .collect();
        all.push(new(&Object::Routing, fields));
        all.push(new(&Object::RoutingLinks, Vec::new()));
        for link in state.links {
            let fields = alloc::vec![
                text("name", &link.name),
                uint("from", link.from),
                uint("to", link.to),
                uint("cost", u64::from(link.cost)),
                uint("seq", link.seq),
                flag("is_up", link.is_up),
            ];
            let path = link_path(link.from, link.to);
            all.push(RibObject {
                path,
                class: class::LINK.to_string(),
                fields,
            });
        }
        all.push(new(&Object::RoutingTable, Vec::new()));
        let list = |addresses: &[u64]| Scalar::List(addresses.iter().map(u64::to_string).collect());
        for route in routing.table().values() {
            let fields = alloc::vec![
                uint("cost", route.cost),
                ("next".to_string(), list(&route.next)),
                ("alternates".to_string(), list(&route.alternates)),
            ];
            let path = route_path(route.dst);
            all.push(RibObject {
                path,
                class: class::ROUTE.to_string(),
                fields,
            });
        }
    }

    fn show_flows(&self, all: &mut Vec<RibObject>) {
        all.push(new(&Object::Flow(None), Vec::new()));
        for (key, flow) in &self.flows.flows {
            let state = match flow.state {
                State::Resolving => "resolving",
                State::Requesting { .. } => "requesting",
                State::Pending { .. } => "pending",
                State::Open { .. } => "open",
                State::Draining => "draining",
                State::Lingering { .. } => "lingering",
            };
            let role = match flow.role {
                Role::Initiator => "initiator",
                Role::Responder => "responder",
            };
            let fields = alloc::vec![
                text("local", &flow.local),
                text("remote", &flow.remote),
                text("member", &flow.member),
                uint("address", flow.address),
                text("role", role),
                text("state", state),
                text("cube", &flow.cube.name),
                text("flow_name", &flow.name),
                uint("cep", u64::from(flow.local_cep.0)),
                uint("remote_cep", u64::from(flow.remote_cep.0)),
            ];
            let path = flow_path(key.0);
            all.push(RibObject {
                path,
                class: class::FLOW.to_string(),
                fields,
            });
        }
    }
}

fn show_cube(cube: &QosCube) -> RibObject {
    new(&Object::Cube(Some(cube.id)), rib_view::cube(cube))
}

fn new(object: &Object, fields: Vec<(String, Scalar)>) -> RibObject {
    RibObject {
        path: object.path(),
        class: object.class().to_string(),
        fields,
    }
}
