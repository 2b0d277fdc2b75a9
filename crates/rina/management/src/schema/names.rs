//! Names and classes of the objects of an IPCP's RIB.
//!
//! An object name is a path. In a component that contains the name of a member or application, `/`
//! is written as `%2F` and `%` as `%25`; other characters are unchanged.

use alloc::format;
use alloc::string::String;

use carina_ipcp::rib_view::escape;

/// The object that an object name denotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The root of the tree.
    Root,
    /// Messages of the authentication between two IPCPs.
    Authentication,
    /// The management channel of an N-1 flow.
    Channel,
    /// The DIF's configuration.
    Dif,
    /// One QoS cube, by id, or all cubes.
    Cube(Option<u16>),
    /// The policy of one component, or of all.
    Policy(Option<String>),
    /// The procedure of joining the DIF.
    Enrollment,
    /// Keep-alive between neighbours.
    KeepAlive,
    /// Replicated entries, sent to a neighbour.
    Entries,
    /// Digests of replicated entries.
    Digests,
    /// One member, by name, or all.
    Member(Option<String>),
    /// One neighbour, by name, or all.
    Neighbour(Option<String>),
    /// One N-1 DIF of the member, by name, or all.
    N1Dif(Option<String>),
    /// The members of one application, by its name, or of all.
    Application(Option<String>),
    /// Messages of the routing policy.
    Routing,
    /// The links known to the routing policy, one or all.
    RoutingLinks,
    /// The routes: one or all.
    RoutingTable,
    /// A flow, by the name that its two members share, or all flows.
    Flow(Option<String>),
    /// State of data transfer.
    Transfer,
    /// Counters of layer management.
    Counters,
}

/// Names of object classes.
pub(crate) mod class {
    pub(crate) const ROOT: &str = "rib";
    pub(crate) const AUTHENTICATION: &str = "authentication";
    pub(crate) const CHANNEL: &str = "channel";
    pub(crate) const DIF: &str = "dif";
    pub(crate) const CUBE: &str = "qos_cube";
    pub(crate) const POLICY: &str = "policy";
    pub(crate) const ENROLLMENT: &str = "enrollment";
    pub(crate) const KEEP_ALIVE: &str = "keepalive";
    pub(crate) const ENTRIES: &str = "entries";
    pub(crate) const DIGESTS: &str = "digests";
    pub(crate) const MEMBER: &str = "member";
    pub(crate) const NEIGHBOUR: &str = "neighbour";
    pub(crate) const N1_DIF: &str = "n1_dif";
    pub(crate) const APPLICATION: &str = "application";
    pub(crate) const ROUTING: &str = "routing";
    pub(crate) const LINK: &str = "link";
    pub(crate) const ROUTE: &str = "route";
    pub(crate) const FLOW: &str = "flow";
    pub(crate) const TRANSFER: &str = "data-transfer";
    pub(crate) const COUNTERS: &str = "counters";
}

impl Object {
    /// Parses an object name; `None` when no object has such a name.
    pub(crate) fn parse(path: &str) -> Option<Object> {
        if path == "/" {
            return Some(Object::Root);
        }
        let mut parts = path.strip_prefix('/')?.splitn(2, '/');
        let (first, rest) = (parts.next()?, parts.next());
        let leaf = || match rest {
            None => Some(None),
            Some(rest) if rest.contains('/') => None,
            Some(rest) => unescape(rest).map(Some),
        };
        Some(match (first, rest) {
            ("authentication", None) => Object::Authentication,
            ("channel", None) => Object::Channel,
            ("dif", None) => Object::Dif,
            ("dif", Some("cubes")) => Object::Cube(None),
            ("dif", Some(rest)) => Object::Cube(Some(rest.strip_prefix("cubes/")?.parse().ok()?)),
            ("policies", _) => Object::Policy(leaf()?),
            ("enrollment", None) => Object::Enrollment,
            ("keepalive", None) => Object::KeepAlive,
            ("entries", None) => Object::Entries,
            ("digests", None) => Object::Digests,
            ("members", _) => Object::Member(leaf()?),
            ("neighbours", _) => Object::Neighbour(leaf()?),
            ("over", _) => Object::N1Dif(leaf()?),
            ("directory", _) => Object::Application(leaf()?),
            ("routing", None) => Object::Routing,
            ("routing", Some(rest)) if is_below(rest, "links") => Object::RoutingLinks,
            ("routing", Some(rest)) if is_below(rest, "table") => Object::RoutingTable,
            ("flows", _) => Object::Flow(leaf()?),
            ("data-transfer", _) => Object::Transfer,
            ("counters", None) => Object::Counters,
            _ => return None,
        })
    }

    /// The name of the object.
    pub(crate) fn path(&self) -> String {
        let below = |parent: &str, leaf: &Option<String>| match leaf {
            None => format!("/{parent}"),
            Some(leaf) => format!("/{parent}/{}", escape(leaf)),
        };
        match self {
            Object::Root => "/".into(),
            Object::Authentication => "/authentication".into(),
            Object::Channel => "/channel".into(),
            Object::Dif => "/dif".into(),
            Object::Cube(None) => "/dif/cubes".into(),
            Object::Cube(Some(id)) => format!("/dif/cubes/{id}"),
            Object::Policy(component) => below("policies", component),
            Object::Enrollment => "/enrollment".into(),
            Object::KeepAlive => "/keepalive".into(),
            Object::Entries => "/entries".into(),
            Object::Digests => "/digests".into(),
            Object::Member(name) => below("members", name),
            Object::Neighbour(name) => below("neighbours", name),
            Object::N1Dif(name) => below("over", name),
            Object::Application(name) => below("directory", name),
            Object::Routing => "/routing".into(),
            Object::RoutingLinks => "/routing/links".into(),
            Object::RoutingTable => "/routing/table".into(),
            Object::Flow(name) => below("flows", name),
            Object::Transfer => "/data-transfer".into(),
            Object::Counters => "/counters".into(),
        }
    }

    /// The class of the object.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Object::Root => class::ROOT,
            Object::Authentication => class::AUTHENTICATION,
            Object::Channel => class::CHANNEL,
            Object::Dif => class::DIF,
            Object::Cube(_) => class::CUBE,
            Object::Policy(_) => class::POLICY,
            Object::Enrollment => class::ENROLLMENT,
            Object::KeepAlive => class::KEEP_ALIVE,
            Object::Entries => class::ENTRIES,
            Object::Digests => class::DIGESTS,
            Object::Member(_) => class::MEMBER,
            Object::Neighbour(_) => class::NEIGHBOUR,
            Object::N1Dif(_) => class::N1_DIF,
            Object::Application(_) => class::APPLICATION,
            Object::Routing => class::ROUTING,
            Object::RoutingLinks => class::LINK,
            Object::RoutingTable => class::ROUTE,
            Object::Flow(_) => class::FLOW,
            Object::Transfer => class::TRANSFER,
            Object::Counters => class::COUNTERS,
        }
    }
}

/// Object name of a link, by the addresses of its ends.
pub(crate) fn link_path(from: u64, to: u64) -> String {
    format!("/routing/links/{from}-{to}")
}

/// Object name of a route, by its destination.
pub(crate) fn route_path(dst: u64) -> String {
    format!("/routing/table/{dst}")
}

/// Object name of a flow in the RIB of one member.
pub(crate) fn flow_path(key: u32) -> String {
    format!("/flows/{key}")
}

fn is_below(path: &str, parent: &str) -> bool {
    path == parent
        || path
            .strip_prefix(parent)
            .is_some_and(|rest| rest.starts_with('/'))
}

fn unescape(part: &str) -> Option<String> {
    if part.is_empty() {
        return None;
    }
    let name = part.replace("%2F", "/").replace("%25", "%");
    // Only a string that `escape` produces is valid, so that no object has two names.
    (escape(&name) == part).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_read_back_unchanged() {
        for object in [
            Object::Root,
            Object::Dif,
            Object::Cube(Some(3)),
            Object::Policy(Some("routing".into())),
            Object::Member(Some("a/b%2F".into())),
            Object::Application(None),
            Object::N1Dif(Some("a/b".into())),
            Object::Flow(Some("3-00ff".into())),
            Object::RoutingLinks,
        ] {
            assert_eq!(Object::parse(&object.path()), Some(object));
        }
        for wrong in [
            "",
            "dif",
            "/nothing",
            "/members/a/b",
            "/members/",
            "/dif/cubes/x",
            "/members/%",
        ] {
            assert_eq!(Object::parse(wrong), None, "{wrong}");
        }
    }
}
