//! Computes the steps that change one part of a network into another.

use carina_vnet::document::{Carrier, Kind};
use carina_vnet::host_part::{Far, HostPart, LinkPart, NodePart};

/// The difference between two parts. What is in none of the lists stays as it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Nodes to end; includes nodes that are replaced.
    pub ended: Vec<String>,
    /// Numbers of the links to remove; their ports are removed too.
    pub unlinked: Vec<u32>,
    /// Numbers of the links to make.
    pub linked: Vec<u32>,
    /// Links whose one end stays while the other changes its host, including to or from this one.
    pub repointed: Vec<Repointed>,
    /// Nodes to make; includes nodes that are replaced.
    pub made: Vec<String>,
    /// Nodes that stay and whose interfaces or routes change.
    pub changed: Vec<String>,
}

/// A link whose other end changes its host. The node at the end that stays does not notice: its
/// port is kept, perhaps under another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repointed {
    /// Number of the link whose other end changes its host.
    pub number: u32,
    /// The side of the link (0 or 1) at which the end is that stays on this host: before and after.
    pub side: [usize; 2],
    /// Whether the other end was on this host before the change, and is not after it.
    pub goes: bool,
    /// Whether the other end is on this host after the change, and was not before.
    pub comes: bool,
}

impl Steps {
    /// The steps that change `old` into `new`.
    pub(crate) fn between(old: &HostPart, new: &HostPart) -> Steps {
        let mut steps = Steps::default();
        for node in &new.nodes {
            match old.node(&node.name) {
                None => steps.made.push(node.name.clone()),
                Some(before) if must_be_replaced(before, node) => {
                    steps.ended.push(node.name.clone());
                    steps.made.push(node.name.clone());
                }
                Some(before) if before == node => {}
                Some(_) => steps.changed.push(node.name.clone()),
            }
        }
        let gone = old
            .nodes
            .iter()
            .filter(|node| new.node(&node.name).is_none());
        steps.ended.extend(gone.map(|node| node.name.clone()));
        let is_touched = |link: &LinkPart| {
            let mut ends = link.ends();
            ends.any(|end| steps.ended.contains(&end.node))
        };
        let same_ends = |a: &LinkPart, b: &LinkPart| {
            (a.number, a.carrier, &a.near) == (b.number, b.carrier, &b.near)
                && a.far.is_same_end(&b.far)
        };
        // Ports keep their MTU, and interfaces would keep their old addresses beside the new ones.
        let readdressed: Vec<u32> = new
            .links
            .iter()
            .filter(|link| is_readdressed(old, new, link))
            .map(|link| link.number)
            .collect();
        // The engine changes the rate of a link that stays.
        let is_unchanged = |link: &LinkPart, others: &HostPart| {
            !is_touched(link)
                && !readdressed.contains(&link.number)
                && others
                    .link(link.number)
                    .is_some_and(|other| same_ends(link, other))
        };
        let repointed = new.links.iter().filter_map(|link| {
            let before = old.link(link.number)?;
            let is_readdressed = readdressed.contains(&link.number);
            repointed(before, link, &steps).filter(|_| !is_readdressed)
        });
        let repointed: Vec<Repointed> = repointed.collect();
        let is_kept = |link: &&LinkPart| {
            let mut numbers = repointed.iter().map(|repointed| repointed.number);
            numbers.all(|number| number != link.number)
        };
        let goes = old.links.iter().filter(|link| !is_unchanged(link, new));
        let comes = new.links.iter().filter(|link| !is_unchanged(link, old));
        let goes: Vec<u32> = goes.filter(is_kept).map(|link| link.number).collect();
        let comes: Vec<u32> = comes.filter(is_kept).map(|link| link.number).collect();
        (steps.unlinked, steps.linked, steps.repointed) = (goes, comes, repointed);
        // The port of a namespace is replaced together with its link, because the node's interface
        // is the veth's other end.
        let rewired = new
            .links
            .iter()
            .filter(|link| steps.linked.contains(&link.number));
        for end in rewired.flat_map(LinkPart::ends) {
            let (made, changed) = (&steps.made, &mut steps.changed);
            if !made.contains(&end.node) && !changed.contains(&end.node) {
                changed.push(end.node.clone());
            }
        }
        steps
    }
}

impl Steps {
    /// The links to remove whose ends here are all at nodes that were `sent` to another host. Their
    /// ports are removed after the engine has the new graph.
    pub(crate) fn unlinked_by_sending(&self, current: &HostPart, sent: &[&String]) -> Vec<u32> {
        let links = current.links.iter();
        let links = links.filter(|link| {
            let mut ends = link.ends();
            let is_sent = ends.all(|end| sent.iter().any(|node| **node == end.node));
            is_sent && self.unlinked.contains(&link.number) && !self.linked.contains(&link.number)
        });
        links.map(|link| link.number).collect()
    }

    /// Whether the ports of a link are made or may be renamed.
    pub(crate) fn touches(&self, number: u32) -> bool {
        let mut repointed = self.repointed.iter();
        self.linked.contains(&number) || repointed.any(|candidate| candidate.number == number)
    }

    /// Whether the steps make links between nodes that stay, and nothing else.
    pub(crate) fn have_only_links(&self) -> bool {
        let others = [&self.ended, &self.made];
        let is_without_others = others.iter().all(|nodes| nodes.is_empty());
        is_without_others
            && self.unlinked.is_empty()
            && self.repointed.is_empty()
            && !self.linked.is_empty()
    }

    /// Whether the steps can be interrupted and repeated at any point: they end no node, rename no
    /// port, and make only nodes that have `arrived`.
    pub(crate) fn is_light(&self, arrived: &[String]) -> bool {
        let mut repointed = self.repointed.iter();
        self.ended.is_empty()
            && self.unlinked.is_empty()
            && self.changed.is_empty()
            && self.made.iter().all(|name| arrived.contains(name))
            && repointed.all(|candidate| !candidate.goes && candidate.side[0] == candidate.side[1])
    }
}

/// `wanted` with the routes of `before`, if it only adds links between namespaces to `before`.
pub(crate) fn with_new_links(before: &HostPart, wanted: &HostPart) -> Option<HostPart> {
    let mut part = wanted.clone();
    for node in &mut part.nodes {
        let before = before.node(&node.name)?;
        (node.routes, node.routes6) = (before.routes.clone(), before.routes6.clone());
    }
    let steps = Steps::between(before, &part);
    let is_plain = |number: &u32| {
        let link = part.link(*number);
        link.is_some_and(|link| {
            matches!(link.far, Far::Here(_))
                && link.carrier != Carrier::Dif
                && link.timetable.is_empty()
        })
    };
    let is_namespace = |name: &String| {
        let node = part.node(name);
        node.is_some_and(|node| node.kind == Kind::Namespace)
    };
    let is_suitable = steps.have_only_links()
        && steps.linked.iter().all(is_plain)
        && steps.changed.iter().all(is_namespace);
    is_suitable.then_some(part)
}

/// How the far end of a link moves to another host; `None` if neither part has the far end on
/// another host, or if no end of the link stays on this host.
fn repointed(before: &LinkPart, after: &LinkPart, steps: &Steps) -> Option<Repointed> {
    let is_far = |link: &LinkPart| matches!(link.far, Far::Host(_));
    let is_local = |link: &LinkPart| matches!(link.far, Far::Host(_) | Far::Here(_));
    let differs = (&before.near, &before.far) != (&after.near, &after.far);
    if before.carrier != after.carrier
        || !differs
        || !(is_far(before) || is_far(after))
        || !(is_local(before) && is_local(after))
    {
        return None;
    }
    let mut ends = after.ends().enumerate();
    ends.find_map(|(side, end)| {
        if steps.ended.contains(&end.node) || steps.made.contains(&end.node) {
            return None;
        }
        let earlier = before.ends().position(|candidate| candidate == end)?;
        Some(Repointed {
            number: after.number,
            side: [earlier, side],
            goes: before.ends().count() == 2,
            comes: after.ends().count() == 2,
        })
    })
}

/// Whether an end of a link that both parts have gets another MTU or other addresses.
fn is_readdressed(old: &HostPart, new: &HostPart, link: &LinkPart) -> bool {
    link.ends().any(|end| {
        let of = |part: &HostPart| {
            let found = part
                .interface(end)
                .filter(|interface| interface.link == link.number)?;
            Some((found.mtu, found.address, found.address6))
        };
        let (before, after) = (of(old), of(new));
        before.is_some() && before != after
    })
}

/// Whether a node cannot be changed from `before` to `after` while it runs.
fn must_be_replaced(before: &NodePart, after: &NodePart) -> bool {
    let substance = |node: &NodePart| {
        let image = node.image.clone();
        // Only some images have a Carina node.
        let is_member = node.kind == Kind::Vm && node.founder.is_some();
        let start = node.start.clone();
        (
            node.kind,
            image,
            node.cpus,
            node.memory_mib,
            is_member,
            start,
        )
    };
    substance(before) != substance(after)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use carina_vnet::division::{Placement, divide};
    use carina_vnet::document::{Document, Form};
    use carina_vnet::host_part::VnetId;
    use carina_vnet::layout::Layout;

    use super::*;

    /// The part of a single host with nodes a, b, c and these links.
    pub(crate) fn part(links: &[&str]) -> HostPart {
        part_with(links, "", &Layout::default()).0
    }

    fn part_with(links: &[&str], of_c: &str, before: &Layout) -> (HostPart, Layout) {
        let mut text = format!(
            "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[node.c]\n{of_c}\n\
                 [defaults]\nkind = \"namespace\"\n"
        );
        for link in links {
            let mut words = link.split(' ');
            let (one, other) = (words.next().unwrap(), words.next().unwrap());
            let carrier = words.next().unwrap_or("ipip");
            text.push_str(&format!(
                "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"1Mbps\"\n\
                 as = \"{carrier}\"\n"
            ));
        }
        let document = Document::read(&text, Form::Toml).unwrap();
        let layout = Layout::of(&document, before);
        let placement = Placement {
            hosts: ["a", "b", "c"].map(|node| (node.into(), "h".into())).into(),
            tags: (0..9).map(|number| (number, number)).collect(),
            outer: BTreeMap::new(),
        };
        let mut parts = divide(&document, (VnetId::new(5), 1), &layout, &placement).unwrap();
        (parts.remove("h").unwrap(), layout)
    }

    #[test]
    fn same_part_needs_no_step() {
        let (first, layout) = part_with(&["a b", "b c"], "", &Layout::default());
        let again = part_with(&["a b", "b c"], "", &layout).0;
        assert_eq!(Steps::between(&first, &again), Steps::default());
    }

    #[test]
    fn new_links_are_made_before_routes_are_known() {
        let (first, layout) = part_with(&["a b"], "", &Layout::default());
        let second = part_with(&["a b", "b c"], "", &layout).0;
        let links = with_new_links(&first, &second).unwrap();
        assert_eq!(links.links, second.links);
        let [a, b, c] = ["a", "b", "c"].map(|name| links.node(name).unwrap());
        assert_eq!(a, first.node("a").unwrap());
        assert_eq!((b.interfaces.len(), c.interfaces.len()), (2, 1));
        assert!(c.routes.is_empty() && !second.node("c").unwrap().routes.is_empty());
        // Afterwards only routes are left to change.
        let rest = Steps::between(&links, &second);
        assert_eq!(
            (&rest.linked[..], &rest.changed[..]),
            (&[][..], &["a".into(), "c".into()][..])
        );
        assert_eq!(with_new_links(&second, &first), None);
        assert_eq!(with_new_links(&first, &first), None);
        let mut with_machine = second.clone();
        with_machine.nodes[2].kind = Kind::Vm;
        assert_eq!(with_new_links(&first, &with_machine), None);
        let by_dif = part_with(&["a b", "b c dif"], "", &layout).0;
        assert_eq!(with_new_links(&first, &by_dif), None);
    }

    #[test]
    fn link_that_comes_changes_its_ends_and_makes_no_node() {
        let (first, layout) = part_with(&["a b"], "", &Layout::default());
        let second = part_with(&["a b", "b c"], "", &layout).0;
        let steps = Steps::between(&first, &second);
        assert_eq!(
            (&steps.linked[..], &steps.unlinked[..]),
            (&[1][..], &[][..])
        );
        assert!(steps.made.is_empty() && steps.ended.is_empty());
        // The routes of a change, too.
        assert_eq!(steps.changed, ["a", "b", "c"]);
        let back = Steps::between(&second, &first);
        assert_eq!((&back.linked[..], &back.unlinked[..]), (&[][..], &[1][..]));
    }

    /// The part of one host with the nodes `here`; the other nodes are on another host.
    pub(crate) fn divided(here: &[&str]) -> HostPart {
        let text = "[vnet]\nname = \"x\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n\
                    [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\nas = \"gre\"\n";
        let document = Document::read(text, Form::Toml).unwrap();
        let layout = Layout::of(&document, &Layout::default());
        let host = |node: &str| if here.contains(&node) { "h" } else { "there" };
        let address = |node: &str| std::net::Ipv4Addr::new(192, 0, 2, host(node).len() as u8);
        let placement = Placement {
            hosts: ["a", "b"]
                .map(|node| (node.into(), host(node).into()))
                .into(),
            tags: [(0, 1)].into(),
            outer: [(0, ["a", "b"].map(address))].into(),
        };
        let mut parts = divide(&document, (VnetId::new(5), 1), &layout, &placement).unwrap();
        parts.remove("h").unwrap()
    }

    #[test]
    fn node_that_moves_leaves_the_port_of_its_neighbour() {
        let (both, a, b) = (divided(&["a", "b"]), divided(&["a"]), divided(&["b"]));
        let of = |old: &HostPart, new: &HostPart| Steps::between(old, new);
        let repointed = |side, goes, comes| Repointed {
            number: 0,
            side,
            goes,
            comes,
        };
        let leaves = of(&both, &a);
        assert_eq!(leaves.repointed, [repointed([0, 0], true, false)]);
        assert_eq!(
            (&leaves.ended[..], leaves.linked.len()),
            (&["b".to_owned()][..], 0)
        );
        assert!(leaves.unlinked.is_empty() && leaves.changed.is_empty());
        // The end that stays has side 1 while both ends are here, and side 0 afterwards.
        assert_eq!(of(&both, &b).repointed, [repointed([1, 0], true, false)]);
        assert_eq!(of(&b, &both).repointed, [repointed([0, 1], false, true)]);
        let mut elsewhere = a.clone();
        if let Far::Host(far) = &mut elsewhere.links[0].far {
            far.host = "third".into();
        }
        assert_eq!(
            of(&a, &elsewhere).repointed,
            [repointed([0, 0], false, false)]
        );
        assert_eq!(of(&a, &b).repointed, []);
    }

    #[test]
    fn ports_outlast_the_graph_only_if_both_ends_were_sent() {
        let both = divided(&["a", "b"]);
        let empty = HostPart {
            nodes: Vec::new(),
            links: Vec::new(),
            ..both.clone()
        };
        let steps = Steps::between(&both, &empty);
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(steps.unlinked_by_sending(&both, &[&a, &b]), [0]);
        assert!(steps.unlinked_by_sending(&both, &[&b]).is_empty());
    }

    #[test]
    fn link_with_another_mtu_or_other_addresses_is_made_again() {
        let (first, layout) = part_with(&["a b", "b c"], "", &Layout::default());
        let second = part_with(&["a b", "b c"], "", &layout).0;
        let change = |change: fn(&mut carina_vnet::host_part::InterfacePart)| {
            let mut second = second.clone();
            change(&mut second.nodes[1].interfaces[1]);
            let steps = Steps::between(&first, &second);
            assert!(steps.made.is_empty() && steps.ended.is_empty());
            assert_eq!(steps.changed, ["b", "c"]);
            (steps.linked, steps.unlinked)
        };
        let all = (vec![1], vec![1]);
        assert_eq!(change(|interface| interface.mtu = 9000), all);
        assert_eq!(
            change(|interface| interface.address = "10.9.0.1/24".parse().unwrap()),
            all
        );
        assert_eq!(
            change(|interface| interface.address6 = "2001:db8::1/64".parse().ok()),
            all
        );
    }

    #[test]
    fn node_of_another_size_is_made_anew_with_its_links() {
        let (first, layout) = part_with(&["a b", "b c"], "", &Layout::default());
        let second = part_with(&["a b", "b c"], "cpus = 2", &layout).0;
        let steps = Steps::between(&first, &second);
        assert_eq!(
            (&steps.ended[..], &steps.made[..]),
            (&["c".to_owned()][..], &["c".to_owned()][..])
        );
        assert_eq!(
            (&steps.unlinked[..], &steps.linked[..]),
            (&[1][..], &[1][..])
        );
        assert_eq!(steps.changed, ["b"]);
    }
}
