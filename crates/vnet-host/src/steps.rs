//! What has to happen so that one part of a network becomes another.

use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, LinkPart, NodePart};

/// The difference between two parts. What is in neither list stays as it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Nodes that end; one that is made anew is among them, too.
    pub ended: Vec<String>,
    /// Links that go, with their ports.
    pub unlinked: Vec<u32>,
    /// Links that come.
    pub linked: Vec<u32>,
    /// Nodes that are made.
    pub made: Vec<String>,
    /// Nodes that stay and whose interfaces or routes are others.
    pub changed: Vec<String>,
}

impl Steps {
    /// The steps from `old` to `new`.
    pub fn between(old: &HostPart, new: &HostPart) -> Steps {
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
        // The rate of a link that stays is the engine's to change.
        let stays = |link: &LinkPart, others: &[LinkPart]| {
            !is_touched(link) && others.iter().any(|other| same_ends(link, other))
        };
        let goes = old.links.iter().filter(|link| !stays(link, &new.links));
        let comes = new.links.iter().filter(|link| !stays(link, &old.links));
        steps.unlinked = goes.map(|link| link.number).collect();
        steps.linked = comes.map(|link| link.number).collect();
        // The port of a namespace goes with its link: the interface in the node is its other end.
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

/// Whether a node cannot become the other while it runs.
fn must_be_replaced(before: &NodePart, after: &NodePart) -> bool {
    let substance = |node: &NodePart| {
        let image = node.image.clone();
        // Only some images have a Carina node.
        let is_member = node.kind == Kind::Vm && node.founder.is_some();
        (node.kind, image, node.cpus, node.memory_mib, is_member)
    };
    substance(before) != substance(after)
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use carina_vnet::division::{Placement, divide};
    use carina_vnet::document::{Document, Form};
    use carina_vnet::host_part::VnetId;
    use carina_vnet::layout::Layout;

    use super::*;

    /// The part of the only host, of nodes a, b, c and these links.
    pub fn part(links: &[&str]) -> HostPart {
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
    fn link_that_comes_changes_its_ends_and_makes_no_node() {
        let (first, layout) = part_with(&["a b"], "", &Layout::default());
        let second = part_with(&["a b", "b c"], "", &layout).0;
        let steps = Steps::between(&first, &second);
        assert_eq!(
            (&steps.linked[..], &steps.unlinked[..]),
            (&[1][..], &[][..])
        );
        assert!(steps.made.is_empty() && steps.ended.is_empty());
        // The routes of a are others, too.
        assert_eq!(steps.changed, ["a", "b", "c"]);
        let back = Steps::between(&second, &first);
        assert_eq!((&back.linked[..], &back.unlinked[..]), (&[][..], &[1][..]));
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
