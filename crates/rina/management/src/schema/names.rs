//! Names and classes of the objects of an IPCP's RIB.
//!
//! A name is a path; a part that holds a name of a member or an application has `/`, `%` and
//! nothing else written as `%2F` and `%25`.

use alloc::format;
use alloc::string::String;

use carina_ipcp::rib_view::escape;

/// What an object name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The root of the tree.
    Root,
    /// Messages of an authentication.
    Authentication,
    /// The management channel of an N-1 flow.
    Channel,
    /// The DIF's configuration.
    Dif,
    /// One QoS cube, or all.
    Cube(Option<u16>),
    /// The policy of a component, or all.
    Policy(Option<String>),
    /// Joining the DIF.
    Enrollment,
    /// Sign of life.
    KeepAlive,
    /// Replicated entries on their way.
    Entries,
    /// Digests of replicated entries.
    Digests,
    /// A member, or all.
    Member(Option<String>),
    /// A neighbour, or all.
    Neighbour(Option<String>),
    /// An N-1 DIF of the member, or all.
    N1Dif(Option<String>),
    /// Where an application is, or all.
    Application(Option<String>),
    /// Messages of the routing policy.
    Routing,
    /// A link as routing knows it, or all.
    RoutingLinks,
    /// Routes.
    RoutingTable,
    /// A flow, or all; as a name of a flow that two members share.
    Flow(Option<String>),
    /// State of data transfer.
    Transfer,
    /// Counters of management.
    Counters,
}

/// Classes.
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
    /// Reads an object name; `None` when no object can be called so.
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

    /// Its name.
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

    /// Its class.
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

/// Name of a link in the RIB.
pub(crate) fn link_path(from: u64, to: u64) -> String {
    format!("/routing/links/{from}-{to}")
}

/// Name of a route in the RIB.
pub(crate) fn route_path(dst: u64) -> String {
    format!("/routing/table/{dst}")
}

/// Name of a flow in the RIB of one member.
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
    // Only what `escape` makes is a name: no two spellings of one object.
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
