//! Checks of a part that a VNP requests, before the provider reserves anything: which links leave
//! the part, and whether it can be made at all.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::document::limits::{LINKS_MAX, LIST_MAX, NICS_MAX, TEXT_VALUE_MAX};
use crate::host_part::{EndPart, Far, FarHost, HostPart, LinkPart, PartError, VnetId};

use super::{PartEnd, PartLink, PartNode, PartRequest};

impl PartLink {
    /// The border over which this piece leads to another provider; `None` if it ends at nodes only.
    #[must_use]
    pub fn border(&self) -> Option<&str> {
        self.ends.iter().find_map(|end| match end {
            PartEnd::Border(border) => Some(border.as_str()),
            PartEnd::Node(_) => None,
        })
    }
}

impl PartRequest {
    /// The border over which the link at this end leaves the part; `None` if it does not leave it.
    #[must_use]
    pub fn border_of(&self, near: &EndPart) -> Option<&str> {
        let here = |end: &PartEnd| matches!(end, PartEnd::Node(node) if node == near);
        let mut links = self.links.iter().filter(|link| link.ends.iter().any(here));
        links.find_map(PartLink::border)
    }

    /// Checks what does not depend on the provider: names, sizes, and that links and interfaces
    /// match. The check is that of [`HostPart::check`], as if the whole part were on one host.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), PartError> {
        if self.links.len() > 2 * LINKS_MAX {
            return Err(PartError::TooMany {
                what: "pieces of links",
                count: self.links.len(),
                max: 2 * LINKS_MAX,
            });
        }
        for node in &self.nodes {
            check_wishes(node)?;
        }
        let mut ends: BTreeMap<u32, (&PartLink, Vec<&EndPart>)> = BTreeMap::new();
        for link in &self.links {
            let (_, known) = ends.entry(link.number).or_insert((link, Vec::new()));
            for end in &link.ends {
                match end {
                    PartEnd::Node(end) => known.push(end),
                    PartEnd::Border(name) => check_text("border", name)?,
                }
            }
        }
        let mut links = self.access.clone();
        for (number, (link, ends)) in ends {
            let (near, far) = match &ends[..] {
                // A link that only crosses the provider ends at no node of the part.
                [] => continue,
                [near] => (*near, beyond()),
                [near, far] => (*near, Far::Here((*far).clone())),
                [.., last] => {
                    return Err(PartError::End {
                        link: number,
                        end: last.to_string(),
                    });
                }
            };
            links.push(LinkPart {
                number,
                tag: 0,
                carrier: link.carrier,
                rate: link.rate,
                near: near.clone(),
                far,
                path: link.path,
                impairment: link.impairment,
                timetable: link.timetable.clone(),
            });
        }
        let whole = HostPart {
            vnet: VnetId::new(0),
            name: self.name.clone(),
            generation: 0,
            nodes: self.nodes.iter().map(|node| node.node.clone()).collect(),
            links,
        };
        whole.check()
    }
}

/// A placeholder for the far end of a link that leaves the provider; the check does not look at it.
fn beyond() -> Far {
    Far::Host(FarHost {
        host: "beyond".to_owned(),
        local: Ipv4Addr::UNSPECIFIED,
        remote: Ipv4Addr::UNSPECIFIED,
    })
}

fn check_wishes(node: &PartNode) -> Result<(), PartError> {
    for (what, count) in [
        ("locations of a node", node.location.len()),
        ("labels of a node", node.labels.len()),
        ("nodes to be apart from", node.apart_from.len()),
    ] {
        if count > LIST_MAX {
            let max = LIST_MAX;
            return Err(PartError::TooMany { what, count, max });
        }
    }
    if node.nics > NICS_MAX {
        return Err(PartError::TooMany {
            what: "cards of a node",
            count: node.nics as usize,
            max: NICS_MAX as usize,
        });
    }
    for location in &node.location {
        check_text("location", location)?;
    }
    for text in node.labels.iter().flat_map(|(key, value)| [key, value]) {
        check_text("label", text)?;
    }
    for name in &node.apart_from {
        check_text("node", name)?;
    }
    Ok(())
}

fn check_text(what: &'static str, text: &str) -> Result<(), PartError> {
    if text.chars().count() <= TEXT_VALUE_MAX {
        Ok(())
    } else {
        Err(PartError::Long {
            what,
            text: text.chars().take(TEXT_SHOWN).collect(),
        })
    }
}

/// Characters of an overlong text that the error shows.
const TEXT_SHOWN: usize = 32;
