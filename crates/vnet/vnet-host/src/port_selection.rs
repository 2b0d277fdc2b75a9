//! Tracks which link ends use their second port.
//!
//! A machine that moves to another QEMU on the same host needs a new tap while the old one is still
//! in use. Therefore each end of a link has two names for its port; except during a move, only one
//! of the two exists. Which one is read from the namespace of the ports and stored nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use carina_frame_engine::counter_file;
use carina_vnet::host_part::LinkEnd;

use crate::names::{port, port_app};

/// The link ends that use their second port. Each link end has two names for its port, because a
/// machine that moves to another QEMU on the same host needs a new tap while the old one is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSelection {
    second: BTreeSet<LinkEnd>,
    /// While a node moves: ends whose port still has a name of the end that they were before, with
    /// that end, and whether the port is its second one.
    former: BTreeMap<LinkEnd, (LinkEnd, bool)>,
}

impl PortSelection {
    /// The ends of which only the second port is among these interfaces of the ports' namespace.
    pub fn among(interfaces: &BTreeSet<String>) -> PortSelection {
        let exists = |name: &str| interfaces.contains(name);
        let ends = interfaces.iter().filter_map(|name| {
            let (link, side) = name
                .strip_prefix('l')?
                .strip_suffix(SECOND)?
                .split_once('.')?;
            Some((link.parse().ok()?, side.parse().ok()?))
        });
        let only = ends.filter(|(link, side)| !exists(&port(*link, *side)));
        PortSelection {
            second: only.collect(),
            former: BTreeMap::new(),
        }
    }

    /// Name of the port that an end uses.
    pub fn port(&self, end: LinkEnd) -> String {
        self.name(end, port)
    }

    /// Name of the app for the port that an end uses.
    pub fn app(&self, end: LinkEnd) -> String {
        self.name(end, port_app)
    }

    fn name(&self, end: LinkEnd, name: fn(u32, usize) -> String) -> String {
        let own = || (end, self.second.contains(&end));
        let ((link, side), is_second) = self.former.get(&end).copied().unwrap_or_else(own);
        let first = name(link, side);
        if is_second { first + SECOND } else { first }
    }

    /// Whether an end uses its second port.
    pub fn is_second(&self, end: LinkEnd) -> bool {
        self.second.contains(&end)
    }

    /// A copy in which the given ends use their respective other port.
    pub fn with_others(&self, ends: &[LinkEnd]) -> PortSelection {
        let ends = ends.iter().copied().collect();
        PortSelection {
            second: self.second.symmetric_difference(&ends).copied().collect(),
            former: self.former.clone(),
        }
    }

    /// Records whether an end uses its second port.
    pub fn set(&mut self, end: LinkEnd, is_second: bool) {
        if is_second {
            self.second.insert(end);
        } else {
            self.second.remove(&end);
        }
    }

    /// Removes the entry of an end; the end then counts as using its first port.
    pub fn forget_end(&mut self, end: LinkEnd) {
        self.second.remove(&end);
    }

    /// Whether the link `link` has an end that uses its second port.
    pub fn has_second(&self, link: u32) -> bool {
        self.second.iter().any(|(of, _)| *of == link)
    }

    /// Moves the entry of end `from` to `to`, for an end that gets another side number.
    pub fn change_side(&mut self, from: LinkEnd, to: LinkEnd) {
        if self.second.remove(&from) {
            self.second.insert(to);
        }
    }

    /// Lets end `to` use the port that end `from` has used, under its present name.
    pub fn keep_name(&mut self, from: LinkEnd, to: LinkEnd) {
        let is_second = self.second.remove(&from);
        self.former.insert(to, (from, is_second));
    }

    /// Removes the entries of all ends of removed links, so that a later link of the same number
    /// uses its first ports.
    pub fn forget(&mut self, links: &[u32]) {
        self.second.retain(|(link, _)| !links.contains(link));
    }
}

/// Both possible names of an end's port.
pub(crate) fn both_ports((link, side): LinkEnd) -> [String; 2] {
    let first = port(link, side);
    let second = first.clone() + SECOND;
    [first, second]
}

/// Both possible names of the app for an end's port.
pub(crate) fn both_apps((link, side): LinkEnd) -> [String; 2] {
    let first = port_app(link, side);
    let second = first.clone() + SECOND;
    [first, second]
}

/// Name of the app that an end's port currently has, according to the counters of its network.
#[must_use]
pub fn port_app_now(counters: &Path, link: u32, side: usize) -> String {
    let [first, second] = both_apps((link, side));
    let of_second = format!("{second}.");
    let all = counter_file::read(counters).unwrap_or_default();
    if all
        .iter()
        .any(|candidate| candidate.name.starts_with(&of_second))
    {
        second
    } else {
        first
    }
}

/// Whether `app` is the name of the first or the second port of a link end.
pub(crate) fn is_port_app(app: &str, end: LinkEnd) -> bool {
    both_apps(end).iter().any(|name| name == app)
}

/// Suffix of a second port's name.
const SECOND: &str = "b";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_ports_are_those_without_a_first_one() {
        let names =
            |list: &[&str]| -> Vec<String> { list.iter().map(|name| (*name).to_owned()).collect() };
        let interfaces = names(&["lo", "l0.0", "l0.1b", "l12.0", "l12.0b", "lx.0b", "l1b"]);
        let second = PortSelection::among(&interfaces.into_iter().collect());
        assert_eq!(second.port((0, 1)), "l0.1b");
        assert_eq!(second.app((0, 1)), "l0-1b");
        assert_eq!(
            (second.port((0, 0)), second.port((12, 0))),
            ("l0.0".into(), "l12.0".into())
        );
        let mut moved = second.with_others(&[(0, 0), (0, 1)]);
        assert_eq!(
            (moved.port((0, 0)), moved.port((0, 1))),
            ("l0.0b".into(), "l0.1".into())
        );
        let mut moves = moved.clone();
        moves.keep_name((0, 0), (0, 1));
        moves.set((0, 0), false);
        assert_eq!(
            (moves.port((0, 0)), moves.app((0, 1))),
            ("l0.0".into(), "l0-0b".into())
        );
        moved.forget(&[0]);
        assert_eq!(moved, PortSelection::default());
        assert_eq!(both_ports((3, 1)), ["l3.1", "l3.1b"]);
    }

    #[test]
    fn apps_of_ports_are_known_by_either_name() {
        assert!(is_port_app("l1-0", (1, 0)) && is_port_app("l1-0b", (1, 0)));
        for app in ["l1-0-rate", "l1-1", "l11-0", "l1-0bb"] {
            assert!(!is_port_app(app, (1, 0)), "{app}");
        }
    }
}
