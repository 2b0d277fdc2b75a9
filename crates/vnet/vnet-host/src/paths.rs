//! Which links use the kernel's path, which are held on the engine, and what the kernel's path has
//! carried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet::document::Rate;
use carina_vnet::host_part::LinkEnd;
use carina_vnet::report::Passed;

use crate::interface_counts::InterfaceCounts;
use crate::names::port;

/// The paths of a network's links.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// The links whose ports are prepared for filters.
    pub prepared: BTreeSet<u32>,
    /// Numbers of the links whose ports have the kernel's filters, which pass frames to the other
    /// port.
    pub made: BTreeSet<u32>,
    /// The rates of the limits that links have; `None` if an earlier agent has made the limit.
    pub limits: BTreeMap<u32, Option<Rate>>,
    /// The links that use the kernel's path, which are not in the engine's graph. While a link
    /// changes its path, `made` may have it and this set not.
    pub kernel: BTreeSet<u32>,
    /// Links that have to be in the engine's graph, with the number of [`Hold`]s of each.
    held: BTreeMap<u32, usize>,
    /// Whether a hold has ended since the paths were chosen.
    is_stale: bool,
    /// Whether the kernel has refused filters, so that all links stay in the engine's graph.
    pub is_refused: bool,
    /// What link ends have sent over paths that they do not use any more.
    before: BTreeMap<LinkEnd, Passed>,
    /// What the kernel had counted when an end's link began to use the kernel's path.
    since: BTreeMap<LinkEnd, InterfaceCounts>,
    /// Frames that limits have dropped, by port, and when this was read.
    dropped: (Option<Instant>, BTreeMap<String, u64>),
}

impl Paths {
    /// The paths of links for which an earlier agent has made filters and limits.
    pub(crate) fn of_earlier(made: BTreeSet<u32>, limits: BTreeSet<u32>) -> Paths {
        Paths {
            kernel: made.clone(),
            made,
            limits: limits.into_iter().map(|link| (link, None)).collect(),
            ..Paths::default()
        }
    }

    /// Whether a link has to be in the engine's graph.
    pub(crate) fn is_held(&self, link: u32) -> bool {
        self.held.contains_key(&link)
    }

    /// Whether a [hold of a link](crate::link_hold) has ended since the last call of this function.
    pub(crate) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// Forgets links whose ports were removed or made again.
    pub(crate) fn forget(&mut self, links: &[u32]) {
        self.prepared.retain(|link| !links.contains(link));
        self.made.retain(|link| !links.contains(link));
        self.limits.retain(|link, _| !links.contains(link));
        self.kernel.retain(|link| !links.contains(link));
        self.before.retain(|(link, _), _| !links.contains(link));
        self.since.retain(|(link, _), _| !links.contains(link));
    }

    /// Records that a port of these links is removed or made, so that both ports have to be
    /// prepared for the kernel's path.
    pub(crate) fn repoint(&mut self, links: impl Iterator<Item = u32>) {
        for link in links {
            self.prepared.remove(&link);
            self.limits.remove(&link);
        }
    }

    /// Records that a link begins to use the kernel's path. `sent` is what its ends have sent
    /// through the engine.
    pub(crate) fn begin(
        &mut self,
        link: u32,
        sent: [Passed; 2],
        counted: &BTreeMap<String, InterfaceCounts>,
    ) {
        for (side, sent) in sent.into_iter().enumerate() {
            add(self.before.entry((link, side)).or_default(), sent);
            let own = counted.get(&port(link, side)).copied().unwrap_or_default();
            let other = counted.get(&port(link, 1 - side)).copied();
            let since = InterfaceCounts {
                dropped: other.unwrap_or_default().dropped,
                ..own
            };
            self.since.insert((link, side), since);
        }
    }

    /// Records that a link ends to use the kernel's path.
    pub(crate) fn end(&mut self, link: u32, counted: &BTreeMap<String, InterfaceCounts>) {
        for side in [0, 1] {
            let passed = self.by_kernel((link, side), counted);
            add(self.before.entry((link, side)).or_default(), passed);
            self.since.remove(&(link, side));
        }
    }

    /// What an end has sent, apart from what the engine's graph counts.
    pub(crate) fn sent(&self, end: LinkEnd, counted: &BTreeMap<String, InterfaceCounts>) -> Passed {
        let mut sent = self.before.get(&end).copied().unwrap_or_default();
        if self.kernel.contains(&end.0) {
            add(&mut sent, self.by_kernel(end, counted));
        }
        // A limit counts from the time when its port was made, whatever path the link uses.
        let of_limit = self.dropped.1.get(&port(end.0, 1 - end.1));
        sent.dropped += of_limit.copied().unwrap_or_default();
        sent
    }

    /// What an end has sent since its link began to use the kernel's path.
    fn by_kernel(
        &self,
        (link, side): LinkEnd,
        counted: &BTreeMap<String, InterfaceCounts>,
    ) -> Passed {
        let since = self.since.get(&(link, side)).copied().unwrap_or_default();
        let other = port(link, 1 - side);
        let now = counted.get(&port(link, side)).copied().unwrap_or_default();
        let dropped = counted.get(&other).map_or(0, |count| count.dropped);
        Passed {
            frames: now.frames.saturating_sub(since.frames),
            bytes: now.bytes.saturating_sub(since.bytes),
            dropped: dropped.saturating_sub(since.dropped),
            lost: 0,
        }
    }

    /// Whether what limits have dropped should be read again.
    pub(crate) fn are_limits_due(&self) -> bool {
        let is_due = |read: Instant| read.elapsed() > LIMITS_EVERY;
        !self.limits.is_empty() && self.dropped.0.is_none_or(is_due)
    }

    /// Records what limits have dropped.
    pub(crate) fn note_limits(&mut self, dropped: BTreeMap<String, u64>) {
        self.dropped = (Some(Instant::now()), dropped);
    }
}

fn add(sum: &mut Passed, more: Passed) {
    sum.frames += more.frames;
    sum.bytes += more.bytes;
    sum.dropped += more.dropped;
}

/// Holds links in the engine's graph until it is dropped, so that their frames can be captured.
#[derive(Debug)]
pub struct Hold {
    paths: Arc<Mutex<Paths>>,
    links: Vec<u32>,
}

impl Hold {
    /// Holds links from the next change of the paths on.
    pub(crate) fn of(paths: &Arc<Mutex<Paths>>, links: &[u32]) -> Hold {
        let mut all = lock(paths);
        for link in links {
            *all.held.entry(*link).or_default() += 1;
        }
        drop(all);
        Hold {
            paths: Arc::clone(paths),
            links: links.to_vec(),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut all = lock(&self.paths);
        for link in &self.links {
            if let Some(count) = all.held.get_mut(link) {
                *count -= 1;
                if *count == 0 {
                    all.held.remove(link);
                }
            }
        }
        all.is_stale = true;
    }
}

fn lock(paths: &Mutex<Paths>) -> MutexGuard<'_, Paths> {
    // A thread that panicked in a critical section has left the value consistent.
    paths.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time between two readings of what limits have dropped, each of which starts a process.
const LIMITS_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(frames: u64, dropped: u64) -> BTreeMap<String, InterfaceCounts> {
        let counts = InterfaceCounts {
            frames,
            bytes: 100 * frames,
            dropped,
        };
        [("l0.0".to_owned(), counts), ("l0.1".to_owned(), counts)].into()
    }

    #[test]
    fn counters_go_on_over_changes_of_the_path() {
        let mut paths = Paths::default();
        let sent = |frames| Passed {
            frames,
            bytes: 100 * frames,
            ..Passed::default()
        };
        paths.begin(0, [sent(7), sent(0)], &counted(10, 1));
        paths.kernel.insert(0);
        let now = paths.sent((0, 0), &counted(15, 3));
        assert_eq!((now.frames, now.bytes, now.dropped), (12, 1200, 2));
        paths.end(0, &counted(16, 3));
        paths.kernel.remove(&0);
        // What the kernel counts while the engine carries the frames does not count twice.
        assert_eq!(paths.sent((0, 0), &counted(99, 9)).frames, 13);
        paths.begin(0, [sent(4), sent(0)], &counted(99, 9));
        paths.kernel.insert(0);
        assert_eq!(paths.sent((0, 0), &counted(100, 9)).frames, 18);
        paths.forget(&[0]);
        assert_eq!(paths.sent((0, 0), &counted(100, 9)), Passed::default());
    }

    #[test]
    fn link_is_held_until_its_last_hold_is_dropped() {
        let paths = Arc::default();
        let first = Hold::of(&paths, &[1, 2]);
        let second = Hold::of(&paths, &[2]);
        drop(first);
        let held = |link| lock(&paths).is_held(link);
        assert_eq!([held(1), held(2)], [false, true]);
        assert!(lock(&paths).take_stale() && !lock(&paths).take_stale());
        drop(second);
        assert!(!held(2));
    }
}
