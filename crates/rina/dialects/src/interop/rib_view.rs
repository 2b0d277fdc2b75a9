//! The objects of the RIB, as management applications read them. Paths, classes and fields are the
//! same in every dialect.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::{RibObject, Scalar};
use carina_ipcp::config::DifConfig;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::event_log::EventLog;
use carina_ipcp::rib_view::{
    self, ReadError, agreed, depth_below, escape, flag, in_scope, text, uint,
};
use carina_time::Instant;

use super::flow_allocator::{Flow, Role, State};
use super::link_state::{Key, LinkReport, ReachableMember};

/// Collects all objects of a RIB; [`RibView::within`] selects those that a read asks for.
#[derive(Debug, Default)]
pub(crate) struct RibView {
    objects: Vec<RibObject>,
}

/// A neighbour, reached through one or more N-1 flows.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pub(crate) name: String,
    pub(crate) address: u64,
    /// Numbers of the N-1 flows to the neighbour.
    pub(crate) n1s: Vec<u32>,
    /// N-1 DIF of each of these flows.
    pub(crate) n1_difs: Vec<String>,
    pub(crate) cost: u32,
    /// When the last message of the neighbour arrived.
    pub(crate) heard: Instant,
}

impl RibView {
    /// A view that contains only the root object.
    pub(crate) fn new() -> RibView {
        let mut shown = RibView::default();
        shown.add("/", "rib", Vec::new());
        shown
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, path: &str, class: &str, fields: Vec<(String, Scalar)>) {
        self.objects.push(RibObject {
            path: path.to_string(),
            class: class.to_string(),
            fields,
        });
    }

    /// Adds `/dif` and its cubes. `member` is address and configuration, if this IPCP is a member.
    /// `longest` is the longest PDU, which may be derived from the N-1 flows.
    pub(crate) fn dif(
        &mut self,
        dif: &str,
        own: &str,
        dialect: &str,
        member: Option<(u64, &DifConfig)>,
        longest: usize,
    ) {
        let mut fields = alloc::vec![
            text("name", dif),
            text("member", own),
            text("dialect", dialect),
            flag("is_member", member.is_some()),
        ];
        let Some((address, config)) = member else {
            return self.add("/dif", "dif", fields);
        };
        fields.push(uint("address", address));
        fields.extend(agreed(config, longest as u64));
        self.add("/dif", "dif", fields);
        self.add("/dif/cubes", "qos_cube", Vec::new());
        for cube in &config.cubes {
            let path = format!("/dif/cubes/{}", cube.id);
            self.add(&path, "qos_cube", rib_view::cube(cube));
        }
    }

    /// Adds the policy of a component, with its parameters.
    pub(crate) fn policy(&mut self, component: &str, name: &str, params: &[(&str, String)]) {
        let mut fields = alloc::vec![text("name", name)];
        fields.extend(params.iter().map(|(name, value)| text(name, value)));
        self.add(&format!("/policies/{component}"), "policy", fields);
    }

    /// Adds a member of the DIF.
    pub(crate) fn member(&mut self, name: &str, address: u64, is_reachable: bool) {
        let fields = alloc::vec![
            uint("address", address),
            flag("is_reachable", is_reachable),
            flag("is_visible", true),
        ];
        self.add(&place("members", name), "member", fields);
    }

    /// Adds a neighbour.
    pub(crate) fn neighbour(&mut self, now: Instant, neighbour: Neighbour) {
        let Neighbour { name, n1s, .. } = neighbour;
        let ports = n1s.iter().map(u32::to_string).collect();
        let fields = alloc::vec![
            uint("address", neighbour.address),
            ("n1".to_string(), Scalar::List(ports)),
            ("n1_difs".to_string(), Scalar::List(neighbour.n1_difs)),
            uint("cost", u64::from(neighbour.cost)),
            uint("heard_at_ms", neighbour.heard.as_millis()),
            uint("heard_ago_ms", now.since(neighbour.heard).as_millis()),
        ];
        self.add(&place("neighbours", &name), "neighbour", fields);
    }

    /// Adds an N-1 flow that leads to no neighbour yet.
    pub(crate) fn attempt(&mut self, n1: u32, state: &str, n1_dif: &str, remote: &str) {
        let fields = alloc::vec![
            text("state", state),
            text("n1_dif", n1_dif),
            text("remote", remote),
        ];
        self.add(&format!("/neighbours/n1-{n1}"), "neighbour", fields);
    }

    /// Adds to the last [`RibView::attempt`] why its N-1 flow leads to no neighbour.
    pub(crate) fn reason(&mut self, reason: &str) {
        if let Some(object) = self.objects.last_mut() {
            object.fields.push(text("reason", reason));
        }
    }

    /// Adds an application, with the members that hold it.
    pub(crate) fn application(&mut self, name: &str, members: Vec<String>, is_here: bool) {
        let fields = alloc::vec![
            ("members".to_string(), Scalar::List(members)),
            flag("is_here", is_here),
        ];
        self.add(&place("directory", name), "application", fields);
    }

    /// Adds a link as one of its ends reports it. `addresses` are those of its ends; 0 for an
    /// unknown one.
    pub(crate) fn link(&mut self, key: &Key, addresses: (u64, u64), report: &LinkReport) {
        let (from, to) = addresses;
        let fields = alloc::vec![
            text("name", &key.0),
            text("neighbour", &key.1),
            uint("from", from),
            uint("to", to),
            uint("cost", u64::from(report.cost)),
            uint("seq", report.seq),
            uint("age_ms", report.age.as_millis()),
            flag("is_up", report.is_up),
        ];
        self.add(&format!("/routing/links/{from}-{to}"), "link", fields);
    }

    /// Adds a route.
    pub(crate) fn route(&mut self, reach: &ReachableMember) {
        let list = |addresses: &[carina_wire::dif::Address]| {
            Scalar::List(addresses.iter().map(|at| at.0.to_string()).collect())
        };
        let fields = alloc::vec![
            text("name", &reach.name),
            uint("cost", reach.cost),
            ("next".to_string(), list(&reach.route.next)),
            ("alternates".to_string(), list(&reach.route.alternates)),
        ];
        let path = format!("/routing/table/{}", reach.route.dst.0);
        self.add(&path, "route", fields);
    }

    /// Adds a flow.
    pub(crate) fn flow<R>(&mut self, flow: &Flow<R>) {
        let state = match flow.state {
            State::Requesting { .. } => "requesting",
            State::Abandoned { .. } => "abandoned",
            State::Pending { .. } => "pending",
            State::Open => "open",
            State::Draining { .. } => "draining",
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
            uint("remote_port", u64::from(flow.remote_port)),
            uint("cep", u64::from(flow.local_cep.0)),
            uint("remote_cep", u64::from(flow.remote_cep.0)),
        ];
        self.add(&format!("/flows/{}", flow.port), "flow", fields);
    }

    /// Adds the counters.
    pub(crate) fn counters(&mut self, log: &EventLog) {
        let counters = log.counters().iter();
        let fields = counters.map(|(name, count)| uint(name, *count)).collect();
        self.add("/counters", "counters", fields);
    }

    /// The object at `path` and the objects up to `scope` levels below it, including those of data
    /// transfer.
    ///
    /// # Errors
    /// There is no such object.
    pub(crate) fn within(
        mut self,
        path: &str,
        scope: u32,
        dt: &dyn DataTransfer,
    ) -> Result<Vec<RibObject>, ReadError> {
        for parent in PARENTS {
            if !self.objects.iter().any(|object| object.path == parent.0) {
                self.add(parent.0, parent.1, Vec::new());
            }
        }
        let mut of_transfer = Vec::new();
        dt.show(&mut of_transfer);
        of_transfer.retain(|object| object.path != "/data-transfer");
        for object in of_transfer {
            // The counters of layer management and data transfer form one object.
            match self
                .objects
                .iter_mut()
                .find(|candidate| candidate.path == object.path)
            {
                Some(same) => same.fields.extend(object.fields),
                None => self.objects.push(object),
            }
        }
        // Sorts parents before their children; the order within one parent stays.
        self.objects.sort_by_key(|object| parent_of(&object.path));
        let found = in_scope(self.objects, path, scope);
        if found.is_empty() {
            Err(ReadError::NoObject(path.to_string()))
        } else {
            Ok(found)
        }
    }
}

/// The path of a child of `parent`.
fn place(parent: &str, name: &str) -> String {
    format!("/{parent}/{}", escape(name))
}

/// Objects that exist only as parents of others: path and class.
const PARENTS: [(&str, &str); 9] = [
    ("/policies", "policy"),
    ("/members", "member"),
    ("/neighbours", "neighbour"),
    ("/directory", "application"),
    ("/routing", "routing"),
    ("/routing/links", "link"),
    ("/routing/table", "route"),
    ("/flows", "flow"),
    ("/data-transfer", "data-transfer"),
];

/// The longest of [`PARENTS`] at or above a path, and whether the path is below it; a sort key.
fn parent_of(path: &str) -> (String, bool) {
    let parents = PARENTS.iter().map(|(parent, _)| *parent);
    let at = parents.filter(|parent| depth_below(parent, path).is_some());
    match at.max_by_key(|parent| parent.len()) {
        Some(parent) => (parent.to_string(), parent != path),
        None => {
            let first = path.split('/').nth(1).unwrap_or_default();
            (format!("/{first}"), path.matches('/').count() > 1)
        }
    }
}
