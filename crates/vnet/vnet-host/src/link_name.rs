//! Finds links by the names that users give: a number, an end, or two nodes.

use carina_vnet::report::{LinkReport, VnetReport};

/// A link that a user has named, seen from one of its ends.
#[derive(Clone, Copy, Debug)]
pub struct NamedLink<'a> {
    /// The link with this name.
    pub link: &'a LinkReport,
    /// The side of the link that the name means, 0 or 1; 0 if the name means no particular side.
    pub side: usize,
}

/// Why a name matches no link, or more than one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkNameError {
    /// No link has the name.
    #[error(
        "network {vnet} has no link {name}: name a link by its number, an end (NODE:INTERFACE) or \
         its nodes (NODE,NODE); the links are: {known}"
    )]
    Unknown {
        /// Name of the network in which no link has the name.
        vnet: String,
        /// The text with which the user named the link.
        name: String,
        /// The links of the network.
        known: String,
    },
    /// Several links have the name.
    #[error("{name} matches several links of network {vnet}; name one of {which}")]
    Several {
        /// Name of the network in which several links have the name.
        vnet: String,
        /// The text with which the user named the link.
        name: String,
        /// The ends that distinguish these links.
        which: String,
    },
}

impl<'a> NamedLink<'a> {
    /// Finds the link that `name` names. Valid names are the link's number (`3`), one of its ends
    /// as node and interface (`r1:eth0`), its two nodes (`r1,r2`), or a node that has only one link
    /// (`r1`).
    ///
    /// # Errors
    /// No link of the network matches the name, or several do.
    pub fn find(report: &'a VnetReport, name: &str) -> Result<NamedLink<'a>, LinkNameError> {
        let mut found: Vec<NamedLink<'a>> = Vec::new();
        for link in &report.links {
            if let Some(side) = side_named(link, name) {
                found.push(NamedLink { link, side });
            }
        }
        let (vnet, name) = (report.name.clone(), name.to_owned());
        let list = |links: Vec<String>| {
            if links.is_empty() {
                "none".to_owned()
            } else {
                links.join(", ")
            }
        };
        match found[..] {
            [only] => Ok(only),
            [] => Err(LinkNameError::Unknown {
                vnet,
                name,
                known: list(report.links.iter().map(words).collect()),
            }),
            _ => Err(LinkNameError::Several {
                vnet,
                name,
                which: list(found.iter().map(|link| link.near().to_owned()).collect()),
            }),
        }
    }

    /// The named end, `NODE:INTERFACE`.
    #[must_use]
    pub fn near(&self) -> &'a str {
        &self.link.ends[self.side]
    }

    /// The end of the link that is not the named one, `NODE:INTERFACE`.
    #[must_use]
    pub fn far(&self) -> &'a str {
        &self.link.ends[1 - self.side]
    }
}

/// The link as text: `0 (a:eth0 -- b:eth0)`.
fn words(link: &LinkReport) -> String {
    format!("{} ({})", link.number, link.ends.join(" -- "))
}

/// The side of a link that a name refers to; `None` if it does not refer to the link.
fn side_named(link: &LinkReport, name: &str) -> Option<usize> {
    let node = |side: usize| link.ends[side].split(':').next().unwrap_or_default();
    if name.parse() == Ok(link.number) {
        return Some(0);
    }
    if let Some((one, other)) = name.split_once(',') {
        let sides = [0, 1];
        return sides
            .into_iter()
            .find(|side| node(*side) == one && node(1 - side) == other);
    }
    (0..2).find(|side| link.ends[*side] == name || node(*side) == name)
}

#[cfg(test)]
mod tests {
    use carina_vnet::document::{Carrier, Rate};
    use carina_vnet::host_part::{LinkState, VnetId};

    use super::*;
    use carina_vnet::report::VnetState;

    fn report(links: &[(&str, &str)]) -> VnetReport {
        let link = |(number, (one, other)): (usize, &(&str, &str))| LinkReport {
            number: number as u32,
            ends: [(*one).to_owned(), (*other).to_owned()],
            carrier: Carrier::Ipip,
            rate: Rate::from_bps(1).unwrap(),
            path: None,
            state: LinkState::Up,
            rtt_ns: None,
            passed: Default::default(),
            impairment: Default::default(),
        };
        VnetReport {
            name: "x".into(),
            vnet: VnetId::new(1),
            generation: 1,
            state: VnetState::Ready,
            obstacles: Vec::new(),
            nodes: Vec::new(),
            links: links.iter().enumerate().map(link).collect(),
            phases: Vec::new(),
            ready_after_ms: None,
        }
    }

    #[test]
    fn links_are_named_by_number_end_or_nodes() {
        let report = report(&[("a:eth0", "b:eth0"), ("b:eth1", "c:eth0"), ("c:x", "b:y")]);
        let find = |name: &str| {
            let found = NamedLink::find(&report, name).map_err(|error| error.to_string());
            found.map(|found| (found.link.number, found.near().to_owned()))
        };
        assert_eq!(find("1"), Ok((1, "b:eth1".to_owned())));
        assert_eq!(find("c:eth0"), Ok((1, "c:eth0".to_owned())));
        assert_eq!(find("b,a"), Ok((0, "b:eth0".to_owned())));
        assert_eq!(find("a"), Ok((0, "a:eth0".to_owned())));
        let several = find("b,c").unwrap_err();
        assert!(several.ends_with("name one of b:eth1, b:y"), "{several}");
        let none = find("a,c").unwrap_err();
        assert!(none.contains("0 (a:eth0 -- b:eth0), 1"), "{none}");
    }
}
