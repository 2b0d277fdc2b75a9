//! How many flows other members have to this one, over all of its workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::prefix::IpPrefix;

/// Counts the incoming flows of a member.
#[derive(Clone, Debug)]
pub(crate) struct Admissions(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    by_member: BTreeMap<IpPrefix, usize>,
    by_worker: Vec<usize>,
}

/// The right of a flow to exist, which ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Admissions,
    remote: IpPrefix,
    worker: usize,
}

impl Admissions {
    /// Makes the counts of a member with so many workers.
    pub(crate) fn new(workers: usize) -> Admissions {
        Admissions(Arc::new(Mutex::new(Counts {
            by_member: BTreeMap::new(),
            by_worker: vec![0; workers],
        })))
    }

    /// Admits a flow of the member with this prefix to the worker that has the fewest flows. `None`
    /// if this member, or all of them, have too many.
    pub(crate) fn admit(&self, remote: IpPrefix) -> Option<Admission> {
        let mut counts = self.lock();
        let of_member = counts.by_member.get(&remote).copied().unwrap_or(0);
        let all: usize = counts.by_worker.iter().sum();
        if all >= INCOMING_MAX || of_member >= OF_MEMBER_MAX {
            return None;
        }
        let workers = counts.by_worker.iter_mut().enumerate();
        let (worker, count) = workers.min_by_key(|(_, count)| **count)?;
        *count += 1;
        *counts.by_member.entry(remote).or_default() += 1;
        Some(Admission {
            all: self.clone(),
            remote,
            worker,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission {
    /// The worker that reads the flow.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        counts.by_worker[self.worker] -= 1;
        if let Some(count) = counts.by_member.get_mut(&self.remote) {
            *count -= 1;
            if *count == 0 {
                counts.by_member.remove(&self.remote);
            }
        }
    }
}

/// Largest number of flows that other members may have to this one.
const INCOMING_MAX: usize = 4096;
/// Largest number of flows of one other member.
const OF_MEMBER_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_spread_over_workers_and_bounded() {
        let all = Admissions::new(3);
        let prefix = |text: &str| text.parse::<IpPrefix>().unwrap();
        let mut of_one: Vec<Admission> = (0..OF_MEMBER_MAX)
            .map(|_| all.admit(prefix("10.9.1.2/32")).unwrap())
            .collect();
        assert!(all.admit(prefix("10.9.1.2/32")).is_none());
        let of_worker = |worker| of_one.iter().filter(|one| one.worker() == worker).count();
        assert_eq!([0, 1, 2].map(of_worker), [22, 21, 21]);
        // A flow that ends makes room for another, at the same worker.
        let ended = of_one.remove(1);
        assert_eq!(ended.worker(), 1);
        drop(ended);
        let other = all.admit(prefix("10.9.1.2/32")).unwrap();
        assert_eq!(other.worker(), 1);
        let mut others = Vec::new();
        for n in 0_u32.. {
            let remote = IpPrefix::host(std::net::Ipv4Addr::from_bits(n).into());
            match all.admit(remote) {
                Some(admission) => others.push(admission),
                None => break,
            }
        }
        assert_eq!(of_one.len() + 1 + others.len(), INCOMING_MAX);
    }
}
