//! Reads requests in GENI RSpec, version 3: nodes with interfaces, and links that refer to
//! interfaces and have properties (GENI, *RSpec 3 schema*, `request.xsd`).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_vnet::document::xml_tree::Element;
use carina_vnet::document::{Carrier, InterfaceAddress, Kind, Rate, limits};

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::graphml::{parse, wrong};
use super::quantities::{milliseconds, share};
use super::{Imported, Source};
use crate::error::ImportError;

pub(super) fn read(source: Source<'_>) -> Result<Imported, ImportError> {
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
    let links = root
        .children
        .iter()
        .filter(|child| child.local_name() == "link");
    for link in links {
        read_link(&mut draft, link, &interfaces);
    }
    draft.finish()
}

/// The node and the IPv4 address of each interface, by the id of the interface.
type Interfaces = BTreeMap<String, (String, Option<InterfaceAddress>)>;

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
                let mut address = None;
                for ip in child
                    .children
                    .iter()
                    .filter(|child| child.local_name() == "ip")
                {
                    let read = address_of(ip).filter(|_| address.is_none());
                    if read.is_none() {
                        let what = format!("an address of {}", beginning(name));
                        draft.note(child.line, what, "one IPv4 address with a netmask is read");
                    }
                    address = address.or(read);
                }
                if let Some(id) = child.text("client_id") {
                    interfaces.insert(id.to_owned(), (name.to_owned(), address));
                }
            }
            "location" => match child.text("country").filter(|text| !text.trim().is_empty()) {
                Some(country) => draft.node(name, line).location = vec![country.to_owned()],
                // An element of the same name in an extension, such as jFed's position on its
                // canvas.
                None => {
                    let what = format!("a <location> of {} without country", beginning(name));
                    draft.note(child.line, what, OTHER);
                }
            },
            "sliver_type" => read_sliver(draft, child, name),
            other => {
                let what = format!("<{}> of {}", beginning(other), beginning(name));
                draft.note(child.line, what, OTHER);
            }
        }
    }
}

/// The address of an `<ip address="…" netmask="…"/>`; `None` without a valid netmask.
fn address_of(ip: &Element) -> Option<InterfaceAddress> {
    let address = ip.text("address")?.trim().parse().ok()?;
    let mask: Ipv4Addr = ip.text("netmask")?.trim().parse().ok()?;
    let bits = mask.to_bits().leading_ones();
    let is_mask = bits + mask.to_bits().trailing_zeros() >= 32;
    InterfaceAddress::new(address, bits as u8).filter(|_| is_mask)
}

/// Reads kind and size of a node: `<sliver_type name="…">`, which may contain `<emulab:xen
/// cores="…" ram="…"/>`.
fn read_sliver(draft: &mut Draft, sliver: &Element, name: &str) {
    let kind = sliver.text("name").unwrap_or_default();
    match kind {
        // `carina vnet export` writes these words.
        "namespace" => draft.node(name, sliver.line).kind = Some(Kind::Namespace),
        "bridge" => draft.node(name, sliver.line).kind = Some(Kind::Bridge),
        "vm" | "emulab-xen" | "default-vm" => {}
        other => {
            let what = format!("sliver type {:?} of {}", beginning(other), beginning(name));
            draft.note(sliver.line, what, "the node is a VM");
        }
    }
    for child in &sliver.children {
        if child.local_name() != "xen" {
            let what = format!("<{}> of {}", beginning(child.local_name()), beginning(name));
            draft.note(child.line, what, OTHER);
            continue;
        }
        for key in ["cores", "ram", "disk"] {
            let Some(text) = child.text(key) else {
                continue;
            };
            let number: Option<u64> = text.trim().parse().ok();
            let node = draft.node(name, sliver.line);
            let cpus = number.and_then(|number| u32::try_from(number).ok());
            match (key, number, cpus) {
                ("cores", _, Some(cpus)) if (1..=limits::CPUS_MAX).contains(&cpus) => {
                    node.cpus = Some(cpus);
                }
                ("ram", Some(mib), _) if limits::MEMORY_MIB.contains(&mib) => {
                    node.memory = Some(mib);
                }
                ("disk", Some(0), _) => {}
                _ => {
                    let what = format!("{key}={:?} of {}", beginning(text), beginning(name));
                    draft.note(child.line, what, "a node cannot have it");
                }
            }
        }
    }
}

fn read_link(draft: &mut Draft, link: &Element, interfaces: &Interfaces) {
    let name = link.text("client_id").unwrap_or("link");
    let (mut ends, mut of) = (Vec::new(), DraftLink::default());
    let references = link.children.iter();
    let mut references = references.filter(|reference| reference.local_name() == "interface_ref");
    let first = references
        .next()
        .and_then(|reference| reference.text("client_id"));
    let has_two = references.count() == 1;
    for child in &link.children {
        match child.local_name() {
            "interface_ref" => {
                let id = child.text("client_id").unwrap_or_default();
                match interfaces.get(id) {
                    Some((node, address)) => ends.push((node.as_str(), *address)),
                    None => {
                        let what =
                            format!("the interface {:?} of {}", beginning(id), beginning(name));
                        draft.note(child.line, what, "no node has it");
                    }
                }
            }
            "property" => {
                // A property applies to what its source sends.
                let side = usize::from(child.text("source_id") != first);
                read_property(draft, child, (name, has_two.then_some(side)), &mut of);
            }
            "link_type" => match child.text("name").map(str::to_ascii_lowercase).as_deref() {
                Some("gre-tunnel" | "egre-tunnel" | "gre") => of.carrier = Carrier::Gre,
                Some("vxlan") => of.carrier = Carrier::Vxlan,
                Some("dif") => of.carrier = Carrier::Dif,
                _ => {}
            },
            "component_manager" => {}
            other => {
                let what = format!("<{}> of {}", beginning(other), beginning(name));
                draft.note(child.line, what, OTHER);
            }
        }
    }
    of.addresses = match ends[..] {
        [(_, Some(one)), (_, Some(other))] => Some([one, other]),
        [(_, None), (_, None)] => None,
        _ => {
            if ends.iter().any(|(_, address)| address.is_some()) {
                let what = format!("addresses of {}", beginning(name));
                draft.note(link.line, what, "a link has addresses at both of two ends");
            }
            None
        }
    };
    let ends: Vec<DraftEnd<'_>> = ends
        .into_iter()
        .map(|(node, _)| DraftEnd {
            node,
            interface: None,
        })
        .collect();
    draft.join(name, &ends, of, link.line);
}

/// Reads a property of a link. Each direction has a property with its capacity in kbit/s, `latency`
/// in ms and `packet_loss` as a share. The link gets the greater capacity. `side` is the end whose
/// frames the property describes; `None` if the link has not two ends.
fn read_property(
    draft: &mut Draft,
    property: &Element,
    (link, side): (&str, Option<usize>),
    of: &mut DraftLink,
) {
    let number = |key: &str| -> Option<f64> {
        let number: f64 = property.text(key)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    };
    for key in ["capacity", "latency", "packet_loss"] {
        let Some(text) = property.text(key) else {
            continue;
        };
        match number(key) {
            None => {
                let what = format!("{key} = {:?}", beginning(text));
                draft.note(property.line, what, "the value is not a number");
            }
            Some(number) if key != "capacity" && number > 0.0 => {
                let is_read = side.is_some_and(|side| impair(of, side, key, number));
                if !is_read {
                    let what = format!("{key} = {number} of {}", beginning(link));
                    draft.note(property.line, what, UNSHAPED);
                }
            }
            Some(_) => {}
        }
    }
    let rate = number("capacity").and_then(|kbps| Rate::from_bps((kbps * 1000.0) as u64));
    of.rate = of.rate.max(rate);
}

/// Sets the delay or the loss of what the end `side` sends; false if a link cannot have it.
fn impair(of: &mut DraftLink, side: usize, key: &str, number: f64) -> bool {
    let both = &mut of.impairment;
    let impairment = [&mut both.there, &mut both.back][side].get_or_insert_default();
    match key {
        "latency" => impairment.delay = milliseconds(number),
        _ => impairment.loss = share(number),
    }
    match key {
        "latency" => impairment.delay.is_some(),
        _ => impairment.loss.is_some(),
    }
}

const UNSHAPED: &str = "only links with two ends are shaped, by a time or a share from 0 to 1";
const OTHER: &str = "a document has no equivalent";
