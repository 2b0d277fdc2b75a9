//! Requests in GENI RSpec, version 3: nodes with interfaces, links with references to them and
//! properties (GENI, *RSpec 3 schema*, `request.xsd`).

use std::collections::BTreeMap;

use carina_vnet::document::xml_tree::Element;
use carina_vnet::document::{Carrier, Kind, Rate};

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::graphml::{parse, wrong};
use super::{Imported, Source};
use crate::error::ImportError;

pub fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let root = parse(source)?;
    if root.local_name() != "rspec" {
        return Err(wrong(source, root.line, "the root element is no <rspec>"));
    }
    let mut draft = Draft::new(source, Kind::Vm);
    let mut interfaces = BTreeMap::new();
    for child in &root.children {
        match child.local_name() {
            "node" => read_node(&mut draft, child, &mut interfaces),
            "link" => {}
            other => draft.note(child.line, format!("<{}>", beginning(other)), OTHER),
        }
    }
    let links = root.children.iter().filter(|it| it.local_name() == "link");
    for link in links {
        read_link(&mut draft, link, &interfaces);
    }
    draft.finish()
}

/// The nodes of interfaces, by the ids of these.
type Interfaces = BTreeMap<String, String>;

fn read_node(draft: &mut Draft, node: &Element, interfaces: &mut Interfaces) {
    let line = node.line;
    let Some(name) = node.text("client_id") else {
        return draft.note(line, "a <node> without client_id", "a node has a name");
    };
    draft.node(name, line);
    if node.text("component_id").is_some() {
        let what = format!("component_id of {}", beginning(name));
        draft.note(
            line,
            what,
            "a document says what is wanted, not where it is",
        );
    }
    for child in &node.children {
        match child.local_name() {
            "interface" => {
                if let Some(id) = child.text("client_id") {
                    interfaces.insert(id.to_owned(), name.to_owned());
                }
                for _ in child.children.iter().filter(|it| it.local_name() == "ip") {
                    let what = format!("an address of {}", beginning(name));
                    draft.note(
                        child.line,
                        what,
                        "addresses are made of the numbers of links",
                    );
                }
            }
            "location" => {
                let country = child.text("country").map(str::to_owned);
                let country = country.filter(|it| !it.trim().is_empty());
                draft.node(name, line).location = country.into_iter().collect();
            }
            other => {
                let what = format!("<{}> of {}", beginning(other), beginning(name));
                draft.note(child.line, what, OTHER);
            }
        }
    }
}

fn read_link(draft: &mut Draft, link: &Element, interfaces: &Interfaces) {
    let name = link.text("client_id").unwrap_or("link");
    let (mut ends, mut of) = (Vec::new(), DraftLink::default());
    for child in &link.children {
        match child.local_name() {
            "interface_ref" => {
                let id = child.text("client_id").unwrap_or_default();
                match interfaces.get(id) {
                    Some(node) => ends.push(node.as_str()),
                    None => {
                        let what =
                            format!("the interface {:?} of {}", beginning(id), beginning(name));
                        draft.note(child.line, what, "no node has it");
                    }
                }
            }
            "property" => read_property(draft, child, &mut of),
            "link_type" => match child.text("name").map(str::to_ascii_lowercase).as_deref() {
                Some("gre-tunnel" | "egre-tunnel") => of.carrier = Carrier::Gre,
                Some("vxlan") => of.carrier = Carrier::Vxlan,
                _ => {}
            },
            "component_manager" => {}
            other => {
                let what = format!("<{}> of {}", beginning(other), beginning(name));
                draft.note(child.line, what, OTHER);
            }
        }
    }
    let ends: Vec<DraftEnd<'_>> = ends
        .into_iter()
        .map(|node| DraftEnd {
            node,
            interface: None,
        })
        .collect();
    draft.join(name, &ends, of, link.line);
}

/// Capacity in kbit/s, latency in ms, loss as a share; each direction has a property of its own,
/// and the link what satisfies both.
fn read_property(draft: &mut Draft, property: &Element, of: &mut DraftLink) {
    let number = |key: &str| -> Option<f64> {
        let number: f64 = property.text(key)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    };
    for key in ["capacity", "latency", "packet_loss"] {
        if property.text(key).is_some() && number(key).is_none() {
            let what = format!(
                "{key} = {:?}",
                beginning(property.text(key).unwrap_or_default())
            );
            draft.note(property.line, what, "it is no number");
        }
    }
    let rate = number("capacity").and_then(|kbps| Rate::from_bps((kbps * 1000.0) as u64));
    of.rate = of.rate.max(rate);
    let delay = number("latency").filter(|ms| *ms > 0.0);
    let delay = delay.map(|ms| (ms * 1e6) as u64);
    of.delay_ns = [of.delay_ns, delay].into_iter().flatten().min();
    let loss = number("packet_loss").filter(|loss| (0.0..=1.0).contains(loss));
    let loss = loss.map(|loss| (loss * 1e6) as u32);
    of.loss = [of.loss, loss].into_iter().flatten().min();
}

const OTHER: &str = "a document has nothing like it";
