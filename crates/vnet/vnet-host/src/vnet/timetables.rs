//! Takes links down and up as their timetables say.

use std::time::Duration;

use carina_vnet::host_part::{HostPart, LinkPart};

use super::{Vnet, lock};
use crate::alone::now_ms;
use crate::error::Result;
use crate::timetables;

impl Vnet {
    /// Finds out which links of `part` are down by timetables that have begun. Their ports are not
    /// changed yet.
    pub(super) fn recall_timetables(&self, part: &HostPart) {
        let mut begun = lock(&self.begun);
        *begun = begun.of_part(part);
        lock(&self.off).by_timetable = begun.down(now_ms());
    }

    /// Begins the timetables of a part that is ready, as far as they have not begun.
    ///
    /// # Errors
    /// The file that says when they have begun cannot be written.
    pub(crate) fn begin_timetables(&self, part: &HostPart) -> Result<()> {
        let mut begun = lock(&self.begun);
        let before = begun.clone();
        begun.begin(part, now_ms());
        if *begun == before && timetables::read(&self.dir)? == before {
            return Ok(());
        }
        timetables::write(&self.dir, &begun)
    }

    /// Takes links of `part` down and up as their timetables say now. Returns the time until the
    /// next change; `None` if all timetables have ended.
    ///
    /// # Errors
    /// The ports of a link cannot be changed.
    pub(crate) fn follow_timetables(&self, part: &HostPart) -> Result<Option<Duration>> {
        let (down, next) = {
            let (begun, now) = (lock(&self.begun), now_ms());
            let next = begun.next_change_ms(now);
            let wait = next.map(|at| Duration::from_millis(at.saturating_sub(now)));
            (begun.down(now), wait)
        };
        let risen = {
            // Locked, so that no other change interferes.
            let _part = lock(&self.part);
            let before = std::mem::replace(&mut lock(&self.off).by_timetable, down.clone());
            let links = part.links.iter();
            let changed =
                links.filter(|link| before.contains(&link.number) != down.contains(&link.number));
            let changed: Vec<&LinkPart> = changed.collect();
            if let Err(error) = self.keep_links_off(part, &changed) {
                lock(&self.off).by_timetable = before;
                return Err(error);
            }
            let off = self.switched_off();
            let is_up = |link: &&LinkPart| off.reason(link).is_none();
            changed.into_iter().filter(is_up).collect::<Vec<_>>()
        };
        for link in &risen {
            self.progress
                .tell_frequent(format!("link {} is up by its timetable", link.number));
        }
        // A link that does not answer at once is asked again with all others that are silent.
        let _ = self.probe_links(part, &risen, RISE);
        Ok(next)
    }
}

/// How long a link may take to answer after it was taken up.
const RISE: Duration = Duration::from_millis(500);
