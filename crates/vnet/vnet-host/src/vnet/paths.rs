//! Moves links between the kernel's path and the engine's graph.
//!
//! A link that leaves the kernel's path gets its ports in the engine first; only then are its
//! filters removed. A link that enters it gets its filters first. So no frame is lost, but some may
//! arrive twice meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carina_vnet::host_part::{HostPart, LinkEnd};
use carina_vnet::report::{LinkPath, Passed};

use super::{Vnet, lock};
use crate::error::Result;
use crate::kernel_path::{self, needs_limit};
use crate::names::{port_app, ports_namespace};
use crate::namespace::change_ports;
use crate::paths::Hold;

impl Vnet {
    /// Chooses the path of each link of a part, and makes the engine run the others.
    pub(super) fn run_links(&self, part: &HostPart) -> Result<()> {
        self.enter_kernel_paths(part);
        self.plane.become_graph(self.graph(part)?)?;
        self.leave_kernel_paths(part)
    }

    /// Chooses the path of each link of a part, and makes the filters of links that get on the
    /// kernel's path. The next graph is without these links. If the kernel refuses the filters, the
    /// links stay in the graph.
    pub(super) fn enter_kernel_paths(&self, part: &HostPart) {
        let mut possible = kernel_path::possible(part);
        possible.retain(|link| !lock(&self.second).has_second(*link));
        let mut wanted = kernel_path::plain(part, &lock(&self.impairments));
        let mut limits = BTreeMap::new();
        let mut requests = Vec::new();
        let entering: Vec<u32> = {
            let paths = lock(&self.paths);
            let is_allowed = |link: u32| possible.contains(&link) && !paths.is_held(link);
            wanted.retain(|link| !paths.is_refused && is_allowed(*link));
            for link in &part.links {
                let (number, rate) = (link.number, link.rate);
                let before = paths.limits.get(&number);
                // A limit stays when its link moves to the engine, and must not be below the rate.
                let is_left = before.is_some() && rate.bps() >= kernel_path::RATE_MIN;
                if paths.is_refused || !(possible.contains(&number) || is_left) {
                    continue;
                }
                if before.map_or(needs_limit(rate), |before| *before != Some(rate)) {
                    requests.extend(kernel_path::limits(number, rate));
                    limits.insert(number, Some(rate));
                }
                if possible.contains(&number) && !paths.prepared.contains(&number) {
                    requests.extend(kernel_path::preparation(number));
                }
                if wanted.contains(&number) && !paths.made.contains(&number) {
                    requests.extend(kernel_path::filters(number));
                }
            }
            let entering = wanted.iter().filter(|link| !paths.kernel.contains(link));
            entering.copied().collect()
        };
        let namespace = ports_namespace(part.vnet);
        if !requests.is_empty() {
            let made = change_ports(&namespace, &requests);
            if let Err(error) = made {
                return self.refuse_kernel_paths(&namespace, &possible, &error.to_string());
            }
        }
        // Read at the same time: from now on the kernel's counters count.
        let sent = self.sent_through_engine(&entering);
        let counted = self.plane.interface_counts();
        if !sent.is_empty() {
            // The engine still has frames of these links, which are sent before their ports close.
            std::thread::sleep(DRAIN);
        }
        let mut paths = lock(&self.paths);
        for link in entering {
            let sent = [0, 1].map(|side| sent.get(&(link, side)).copied().unwrap_or_default());
            paths.begin(link, sent, &counted);
        }
        paths.limits.extend(limits);
        paths.prepared.extend(possible);
        paths.made.extend(&wanted);
        paths.kernel = wanted;
    }

    /// Removes the filters of links that are not on the kernel's path any more. Called when the
    /// engine runs these links.
    pub(super) fn leave_kernel_paths(&self, part: &HostPart) -> Result<()> {
        let leaving: Vec<u32> = {
            let paths = lock(&self.paths);
            paths.made.difference(&paths.kernel).copied().collect()
        };
        if leaving.is_empty() {
            return Ok(());
        }
        kernel_path::leave(&ports_namespace(part.vnet), leaving.iter().copied())?;
        let counted = self.plane.interface_counts();
        let mut paths = lock(&self.paths);
        for link in leaving {
            paths.end(link, &counted);
            paths.made.remove(&link);
        }
        Ok(())
    }

    /// Leaves all links to the engine, because the kernel has refused filters, and says so.
    fn refuse_kernel_paths(&self, namespace: &str, links: &BTreeSet<u32>, reason: &str) {
        // What was made of the filters would carry frames beside the engine.
        let _ = kernel_path::leave(namespace, links.iter().copied());
        let mut paths = lock(&self.paths);
        paths.is_refused = true;
        paths.kernel.clear();
        paths.made.clear();
        drop(paths);
        let reason: String = reason.chars().rev().take(REASON_MAX).collect();
        let reason: String = reason.chars().rev().collect();
        self.progress.tell(format!(
            "links between namespaces stay on the engine, because the kernel refuses its own \
             path: {reason}"
        ));
    }

    /// What ends of these links have sent through the engine since it has run them.
    fn sent_through_engine(&self, links: &[u32]) -> BTreeMap<LinkEnd, Passed> {
        if links.is_empty() {
            return BTreeMap::new();
        }
        let counts = self.plane.counts().unwrap_or_default();
        let counts: BTreeMap<&str, _> = counts
            .iter()
            .map(|(name, counts)| (name.from.app.as_str(), counts))
            .collect();
        let ends = links.iter().flat_map(|link| [(*link, 0), (*link, 1)]);
        let of_end = |end: LinkEnd| {
            let counts = counts.get(port_app(end.0, end.1).as_str())?;
            let passed = Passed {
                frames: counts.packets,
                bytes: counts.bytes,
                dropped: counts.drops,
                lost: 0,
            };
            Some((end, passed))
        };
        ends.filter_map(of_end).collect()
    }

    /// Reads what the limits of links on the kernel's path have dropped, if that is due.
    fn read_limits(&self, part: &HostPart) {
        if !lock(&self.paths).are_limits_due() {
            return;
        }
        // Without `tc`, only these drops are unknown.
        let dropped = kernel_path::dropped_by_limits(&ports_namespace(part.vnet));
        lock(&self.paths).note_limits(dropped.unwrap_or_default());
    }

    /// The path of each link of a part.
    pub(crate) fn path_of(&self, link: u32) -> LinkPath {
        if lock(&self.paths).kernel.contains(&link) {
            LinkPath::Kernel
        } else {
            LinkPath::Engine
        }
    }

    /// What link ends have sent, apart from what the engine's graph counts.
    pub(crate) fn sent_outside_engine(&self, part: &HostPart) -> BTreeMap<LinkEnd, Passed> {
        self.read_limits(part);
        let counted = self.plane.interface_counts();
        let paths = lock(&self.paths);
        let ends = part.links.iter();
        let ends = ends.flat_map(|link| [(link.number, 0), (link.number, 1)]);
        ends.map(|end| (end, paths.sent(end, &counted))).collect()
    }

    /// Holds links in the engine's graph, where their frames can be captured.
    ///
    /// # Errors
    /// The engine cannot run a link.
    pub(crate) fn hold(&self, links: &[u32]) -> Result<Hold> {
        let hold = Hold::of(&self.paths, links);
        let is_kernel = |link: &u32| lock(&self.paths).kernel.contains(link);
        if links.iter().any(is_kernel) {
            self.run_links(&lock(&self.part))?;
        }
        Ok(hold)
    }

    /// Returns links to the kernel's path whose holds have ended.
    ///
    /// # Errors
    /// The engine has ended.
    pub(crate) fn look_after_paths(&self) -> Result<()> {
        if lock(&self.paths).take_stale() {
            self.run_links(&lock(&self.part))?;
        }
        Ok(())
    }
}

/// Largest number of characters of the kernel's refusal that an event has; the end of the text has
/// the reason.
const REASON_MAX: usize = 200;
/// How long the engine keeps the ports of links that get on the kernel's path.
const DRAIN: Duration = Duration::from_millis(20);
