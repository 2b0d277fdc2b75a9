//! When the timetables of links have begun. The times are in a file, so that the next agent follows
//! the timetables where an earlier one has left them.

use std::collections::{BTreeMap, BTreeSet};

use carina_time::Duration;
use carina_vnet::document::Timetable;
use carina_vnet::host_part::HostPart;
use serde::{Deserialize, Serialize};

use crate::directory::VnetDir;
use crate::error::Result;
use crate::state_file;

/// The timetables that have begun, by the numbers of their links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct BegunTimetables(BTreeMap<u32, BegunTimetable>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BegunTimetable {
    /// Time at which the timetable began, in ms since 1970.
    since_ms: u64,
    timetable: Timetable,
}

impl BegunTimetables {
    /// The timetables that have begun, of links which `part` still has with the same timetable.
    pub(crate) fn of_part(&self, part: &HostPart) -> BegunTimetables {
        let links = part.links.iter();
        let begun = links.filter_map(|link| {
            let begun = self.0.get(&link.number)?;
            let is_same = begun.timetable == link.timetable;
            is_same.then(|| (link.number, begun.clone()))
        });
        BegunTimetables(begun.collect())
    }

    /// Begins the timetables of `part` that have not begun.
    pub(crate) fn begin(&mut self, part: &HostPart, now_ms: u64) {
        let links = part.links.iter();
        for link in links.filter(|link| !link.timetable.is_empty()) {
            self.0.entry(link.number).or_insert_with(|| BegunTimetable {
                since_ms: now_ms,
                timetable: link.timetable.clone(),
            });
        }
    }

    /// The links that are down now.
    pub(crate) fn down(&self, now_ms: u64) -> BTreeSet<u32> {
        let all = self.0.iter();
        let down = all.filter(|(_, entry)| entry.timetable.is_down(entry.passed(now_ms)));
        down.map(|(number, _)| *number).collect()
    }

    /// The next time at which a link goes down or up, in ms since 1970; `None` if all timetables
    /// have ended.
    pub(crate) fn next_change_ms(&self, now_ms: u64) -> Option<u64> {
        let changes = self.0.values().filter_map(|timetable| {
            let next = timetable.timetable.next_change(timetable.passed(now_ms))?;
            // A part of a millisecond counts as a whole one, so that the change is due then.
            let after = next.as_nanos().div_ceil(NANOS_PER_MS);
            Some(timetable.since_ms.saturating_add(after))
        });
        changes.min()
    }
}

impl BegunTimetable {
    fn passed(&self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.since_ms))
    }
}

/// Reads which timetables have begun: none if the file does not exist.
pub(crate) fn read(dir: &VnetDir) -> Result<BegunTimetables> {
    Ok(state_file::read(&dir.timetables())?.unwrap_or_default())
}

/// Writes which timetables have begun. Replaces the file atomically.
pub(crate) fn write(dir: &VnetDir, begun: &BegunTimetables) -> Result<()> {
    state_file::write(&dir.timetables(), begun)
}

const NANOS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    fn flapping(number: usize, down: &str) -> HostPart {
        let mut part = part(&["a b", "b c"]);
        part.links[number].timetable.down = vec![down.parse().unwrap()];
        part
    }

    #[test]
    fn timetable_is_followed_from_its_begin_until_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let dir = VnetDir::at(directory.path());
        let mut begun = read(&dir).unwrap();
        let part = flapping(1, "10s-15s");
        begun.begin(&part, 1_000_000);
        write(&dir, &begun).unwrap();
        let mut begun = read(&dir).unwrap();
        // A second begin changes nothing.
        begun.begin(&part, 1_004_000);
        assert_eq!(begun.next_change_ms(1_000_000), Some(1_010_000));
        assert_eq!(begun.down(1_009_999), BTreeSet::new());
        assert_eq!(begun.down(1_010_000), BTreeSet::from([1]));
        assert_eq!(begun.next_change_ms(1_010_000), Some(1_015_000));
        assert_eq!(begun.next_change_ms(1_015_000), None);
        assert_eq!(begun.of_part(&part), begun);
        // A clock that was set back counts as the begin.
        assert_eq!(begun.next_change_ms(5), Some(1_010_000));
        let other = flapping(1, "10s-16s");
        assert_eq!(begun.of_part(&other), BegunTimetables::default());
    }
}
