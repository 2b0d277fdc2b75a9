//! Finds the shortest simple paths between two hosts, by hops.
//!
//! J. Yen, *Finding the K shortest loopless paths in a network*, 1971.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::{HostId, LinkId};
use crate::substrate::Substrate;

/// The shortest paths between pairs of hosts, cached as long as the substrate stays the same. Free
/// resources play no part.
#[derive(Clone, Debug)]
pub(crate) struct ShortestPaths {
    count: usize,
    substrate: Option<Arc<Substrate>>,
    known: BTreeMap<(u32, u32), Vec<Vec<u32>>>,
}

impl ShortestPaths {
    /// Finds at most `count` paths for each pair.
    pub(crate) fn new(count: usize) -> ShortestPaths {
        ShortestPaths {
            count,
            substrate: None,
            known: BTreeMap::new(),
        }
    }

    /// The shortest paths from one host to another, shortest first.
    pub(crate) fn between(
        &mut self,
        substrate: &Arc<Substrate>,
        from: u32,
        to: u32,
    ) -> Vec<Vec<u32>> {
        if from == to {
            return vec![Vec::new()];
        }
        if !self
            .substrate
            .as_ref()
            .is_some_and(|candidate| Arc::ptr_eq(candidate, substrate))
        {
            self.substrate = Some(substrate.clone());
            self.known.clear();
        }
        let pair = (from.min(to), from.max(to));
        let count = self.count;
        let known = self.known.entry(pair);
        let mut paths = known
            .or_insert_with(|| find(substrate, pair.0, pair.1, count))
            .clone();
        if from > to {
            paths.iter_mut().for_each(|path| path.reverse());
        }
        paths
    }
}

fn find(substrate: &Substrate, from: u32, to: u32, count: usize) -> Vec<Vec<u32>> {
    let mut search = Breadth::new(substrate);
    let Some(first) = search.path(from, to, &[], &BTreeSet::new()) else {
        return Vec::new();
    };
    let mut found = vec![first];
    let mut candidates: BTreeSet<(usize, Vec<u32>)> = BTreeSet::new();
    while found.len() < count {
        let last = found[found.len() - 1].clone();
        let mut passed = vec![from];
        for (at, hop) in last.iter().enumerate() {
            let root = &last[..at];
            let begins_so = |path: &&Vec<u32>| path.len() > at && path[..at] == *root;
            let taken: BTreeSet<u32> = found
                .iter()
                .filter(begins_so)
                .map(|path| path[at])
                .collect();
            let spur = passed[at];
            if let Some(rest) = search.path(spur, to, &passed[..at], &taken) {
                let path = [root, &rest].concat();
                candidates.insert((path.len(), path));
            }
            passed.push(substrate.other_end(LinkId(*hop), HostId(spur)).0);
        }
        match candidates.pop_first() {
            Some((_, path)) => found.push(path),
            None => break,
        }
    }
    found
}

/// A breadth-first search for one path.
struct Breadth<'a> {
    substrate: &'a Substrate,
    reached: Vec<Option<(u32, u32)>>,
    queue: Vec<u32>,
}

impl Breadth<'_> {
    fn new(substrate: &Substrate) -> Breadth<'_> {
        Breadth {
            substrate,
            reached: vec![None; substrate.hosts().len()],
            queue: Vec::new(),
        }
    }

    /// The shortest path that avoids the given hosts, and does not begin with one of the given
    /// links.
    fn path(
        &mut self,
        from: u32,
        to: u32,
        hosts: &[u32],
        links: &BTreeSet<u32>,
    ) -> Option<Vec<u32>> {
        self.reached.fill(None);
        self.queue.clear();
        self.queue.push(from);
        let mut next = 0;
        while next < self.queue.len() && self.reached[to as usize].is_none() {
            let host = self.queue[next];
            next += 1;
            for beside in self.substrate.beside(host) {
                let is_taken = host == from && links.contains(&beside.link);
                let is_passed = beside.host == from || hosts.contains(&beside.host);
                let reached = &mut self.reached[beside.host as usize];
                if is_taken || is_passed || reached.is_some() {
                    continue;
                }
                *reached = Some((host, beside.link));
                self.queue.push(beside.host);
            }
        }
        let mut path = Vec::new();
        let mut at = to;
        while at != from {
            let (before, link) = self.reached[at as usize]?;
            path.push(link);
            at = before;
        }
        path.reverse();
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::substrate::{Host, Link};

    fn substrate(links: &[(u32, u32)], hosts: usize) -> Arc<Substrate> {
        let link = |(a, b): &(u32, u32)| Link::new(HostId(*a), HostId(*b), 1);
        let links = links.iter().map(link).collect();
        Arc::new(Substrate::new(vec![Host::default(); hosts], links, 0).unwrap())
    }

    #[test]
    fn paths_come_by_length_and_each_once() {
        // A square with one diagonal.
        let square = substrate(&[(0, 1), (1, 2), (2, 3), (3, 0), (1, 3)], 4);
        let mut paths = ShortestPaths::new(10);
        let found = paths.between(&square, 0, 2);
        let expected = [vec![0, 1], vec![3, 2], vec![0, 4, 2], vec![3, 4, 1]];
        assert_eq!(found, expected);
        let back = paths.between(&square, 2, 0);
        assert_eq!(back[0], [1, 0]);
        assert_eq!(back.len(), 4);
        assert_eq!(ShortestPaths::new(2).between(&square, 0, 2), expected[..2]);
    }

    #[test]
    fn another_substrate_has_other_paths() {
        let mut paths = ShortestPaths::new(10);
        let near = substrate(&[(0, 1)], 2);
        assert_eq!(paths.between(&near, 0, 1), [vec![0]]);
        let apart = substrate(&[], 2);
        assert!(paths.between(&apart, 0, 1).is_empty());
        assert_eq!(paths.between(&apart, 1, 1), [Vec::<u32>::new()]);
    }
}
