//! A small network for tests.

use std::collections::BTreeMap;

use crate::division::{Placement, divide};
use crate::document::{Document, Form};
use crate::host_part::{HostPart, VnetId};
use crate::layout::Layout;

/// The part of a single host with nodes a, b, c, bridges s1, s2 and these links.
pub(super) fn part(links: &[&str]) -> HostPart {
    let mut text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[node.c]\n\
                    [node.s1]\nkind = \"bridge\"\n[node.s2]\nkind = \"bridge\"\n\
                    [defaults]\nkind = \"namespace\"\n"
        .to_owned();
    for link in links {
        let mut words = link.split(' ');
        let (one, other) = (words.next().unwrap(), words.next().unwrap());
        let carrier = words.next().unwrap_or("ipip");
        text.push_str(&format!(
            "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"1Mbps\"\nas = \"{carrier}\"\n"
        ));
    }
    let document = Document::read(&text, Form::Toml).unwrap();
    let layout = Layout::of(&document, &Layout::default());
    let placement = Placement {
        hosts: ["a", "b", "c", "s1", "s2"]
            .map(|node| (node.into(), "h".into()))
            .into(),
        tags: (0..9).map(|number| (number, number)).collect(),
        outer: BTreeMap::new(),
    };
    let mut parts = divide(&document, (VnetId::new(5), 1), &layout, &placement).unwrap();
    parts.remove("h").unwrap()
}
