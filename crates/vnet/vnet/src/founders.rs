//! Chooses the node that creates the network's DIF, if links of the network are flows of a DIF.

use std::collections::BTreeMap;

use crate::document::{Carrier, Document};
use crate::layout::Layout;

/// For each node that is a member of a DIF, the node that creates that DIF. Nodes joined by links
/// with carrier `dif` form one DIF, which the first end of the lowest-numbered of those links
/// creates: links keep their numbers while others are added or removed. Nodes without such a link
/// are not in the map.
pub(crate) fn founders(document: &Document, layout: &Layout) -> BTreeMap<String, String> {
    let links: Vec<[&str; 2]> = layout
        .links()
        .filter(|(_, laid)| document.link[laid.place].carrier == Carrier::Dif)
        .map(|(_, laid)| [laid.ends[0].node.as_str(), laid.ends[1].node.as_str()])
        .collect();
    let mut beside: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for [one, other] in &links {
        beside.entry(one).or_default().push(other);
        beside.entry(other).or_default().push(one);
    }
    let mut founders: BTreeMap<String, String> = BTreeMap::new();
    for [first, _] in links {
        let mut left = vec![first];
        while let Some(node) = left.pop() {
            if !founders.contains_key(node) {
                founders.insert(node.to_owned(), first.to_owned());
                left.extend(&beside[node]);
            }
        }
    }
    founders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Form;

    fn document(links: &[&str]) -> Document {
        let mut text = "[vnet]\nname = \"x\"\n".to_owned();
        for node in ["a", "b", "c", "d", "e"] {
            text.push_str(&format!("[node.{node}]\n"));
        }
        for link in links {
            let [one, other, carrier]: [&str; 3] =
                link.split(' ').collect::<Vec<_>>().try_into().unwrap();
            text.push_str(&format!(
                "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"1Mbps\"\n\
                 as = \"{carrier}\"\n"
            ));
        }
        Document::read(&text, Form::Toml).unwrap()
    }

    fn of(links: &[&str], before: &Layout) -> (Vec<String>, Layout) {
        let document = document(links);
        let layout = Layout::of(&document, before);
        let founders = founders(&document, &layout);
        let words = founders.iter().map(|(node, by)| format!("{node} {by}"));
        (words.collect(), layout)
    }

    #[test]
    fn nodes_that_flows_join_have_one_founder() {
        let links = ["c b dif", "b a ipip", "a d gre", "d e dif"];
        let (founders, layout) = of(&links, &Layout::default());
        assert_eq!(founders, ["b c", "c c", "d d", "e d"]);
        let more = ["a b dif", "c b dif", "d e dif"];
        // The link that existed first has kept its number.
        assert_eq!(of(&more, &layout).0, ["a c", "b c", "c c", "d d", "e d"]);
        assert!(of(&["a b vxlan"], &Layout::default()).0.is_empty());
    }
}
