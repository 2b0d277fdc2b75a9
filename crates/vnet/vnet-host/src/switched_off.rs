//! Nodes that the operator of a network has stopped, and links that the operator has taken down.
//! They stay off across changes of the network and restarts of the agent, until the operator starts
//! the node or takes the link up again. Links can also be down by their timetables.

use std::collections::BTreeSet;

use carina_vnet::host_part::{HostPart, LinkPart};
use serde::{Deserialize, Serialize};

use crate::directory::VnetDir;
use crate::error::Result;
use crate::state_file;

/// Nodes that the operator has stopped, and links that the operator has taken down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchedOff {
    /// Nodes that are stopped.
    #[serde(default)]
    pub nodes: BTreeSet<String>,
    /// Links that are down, by number.
    #[serde(default)]
    pub links: BTreeSet<u32>,
    /// Links that are down by their timetables, by number. The agent computes them.
    #[serde(skip)]
    pub by_timetable: BTreeSet<u32>,
}

impl SwitchedOff {
    /// True if no node is stopped and no link is down.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.links.is_empty() && self.by_timetable.is_empty()
    }

    /// Returns why a link is off: the operator has taken the link down, or has stopped a node at
    /// one of its ends, or the link's timetable has taken it down. `None` if the link is not off.
    #[must_use]
    pub(crate) fn reason(&self, link: &LinkPart) -> Option<String> {
        let mut ends = link.ends();
        if let Some(end) = ends.find(|end| self.nodes.contains(&end.node)) {
            return Some(format!("node {} is stopped", end.node));
        }
        if self.links.contains(&link.number) {
            return Some("its operator has taken it down".to_owned());
        }
        let is_down = self.by_timetable.contains(&link.number);
        is_down.then(|| BY_TIMETABLE.to_owned())
    }

    /// Removes nodes and links that `part` does not contain. Returns whether it removed any.
    pub(crate) fn keep_only(&mut self, part: &HostPart) -> bool {
        let before = self.clone();
        self.nodes.retain(|name| part.node(name).is_some());
        let exists = |number: u32| part.links.iter().any(|link| link.number == number);
        self.links.retain(|number| exists(*number));
        *self != before
    }
}

/// Why a link is down that its timetable has taken down.
pub(crate) const BY_TIMETABLE: &str = "its timetable has taken it down";

/// Reads which nodes and links of a network are off: none if the file does not exist.
pub(crate) fn read(dir: &VnetDir) -> Result<SwitchedOff> {
    Ok(state_file::read(&dir.switched_off())?.unwrap_or_default())
}

/// Writes which nodes and links of a network are off. Replaces the file atomically.
pub(crate) fn write(dir: &VnetDir, off: &SwitchedOff) -> Result<()> {
    state_file::write(&dir.switched_off(), off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn stopped_node_takes_its_links_down() {
        let part = part(&["a b", "b c", "a c"]);
        let off = SwitchedOff {
            nodes: BTreeSet::from(["c".to_owned()]),
            links: BTreeSet::from([0]),
            by_timetable: BTreeSet::from([0]),
        };
        let reasons = part.links.iter().map(|link| off.reason(link));
        let reasons: Vec<String> = reasons.map(Option::unwrap_or_default).collect();
        let stopped = "node c is stopped";
        assert_eq!(
            reasons,
            ["its operator has taken it down", stopped, stopped]
        );
        let scheduled = SwitchedOff {
            by_timetable: BTreeSet::from([0]),
            ..SwitchedOff::default()
        };
        let reason = scheduled.reason(&part.links[0]);
        assert_eq!(reason.as_deref(), Some(BY_TIMETABLE));
        assert_eq!(SwitchedOff::default().reason(&part.links[0]), None);
    }

    #[test]
    fn what_is_off_is_read_as_written_and_goes_with_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let dir = VnetDir::at(directory.path());
        assert!(read(&dir).unwrap().is_empty());
        let mut off = SwitchedOff {
            nodes: BTreeSet::from(["a".to_owned(), "gone".to_owned()]),
            links: BTreeSet::from([0, 7]),
            ..SwitchedOff::default()
        };
        write(&dir, &off).unwrap();
        assert_eq!(read(&dir).unwrap(), off);
        assert!(off.keep_only(&part(&["a b"])));
        assert_eq!(off.nodes, BTreeSet::from(["a".to_owned()]));
        assert_eq!(off.links, BTreeSet::from([0]));
        assert!(!off.keep_only(&part(&["a b"])));
    }
}
