//! Compares incremental computation with computation from scratch, and with Bellman and Ford.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use carina_time::{Duration, Instant};

use crate::api::Route;
use crate::compute::{Computation, Paths};
use crate::database::{Database, Limits};
use crate::message::{Address, FlowState};

const LIMITS: Limits = Limits {
    objects: 1 << 20,
    age: Duration::from_millis(900_000),
    refresh: Duration::from_millis(300_000),
};

/// One step of a history: the cost of `from` -> `to` becomes `cost`; 0 withdraws the link.
type Step = (u64, u64, u32);

struct Seen {
    database: Database,
    seq: u64,
}

impl Seen {
    fn new() -> Seen {
        Seen {
            // A database without an owner: every object is reported by another member.
            database: Database::new(0, "", LIMITS),
            seq: 0,
        }
    }

    fn apply(&mut self, (from, to, cost): Step) -> Option<(Address, Address)> {
        if from == to {
            return None;
        }
        self.seq += 1;
        let object = FlowState {
            from,
            name: "m".into(),
            to,
            cost: cost.max(1),
            seq: self.seq,
            is_up: cost > 0,
            age_ms: 0,
        };
        self.database.insert(Instant::ZERO, &object);
        Some((from.min(to), from.max(to)))
    }

    fn pairs(&self) -> BTreeSet<(Address, Address)> {
        let keys = self.database.keys();
        keys.map(|(a, b)| (a.min(b), a.max(b))).collect()
    }

    /// Distances from `root`, by relaxing all links until nothing changes.
    fn bellman_ford(&self, root: Address) -> BTreeMap<Address, u64> {
        let mut dist = BTreeMap::from([(root, 0)]);
        loop {
            let mut is_settled = true;
            for (a, b) in self.database.keys() {
                let (Some(cost), Some(_)) = (self.database.cost(a, b), self.database.cost(b, a))
                else {
                    continue;
                };
                let Some(near) = dist.get(&a).copied() else {
                    continue;
                };
                let far = near + u64::from(cost);
                if dist.get(&b).is_none_or(|known| *known > far) {
                    dist.insert(b, far);
                    is_settled = false;
                }
            }
            if is_settled {
                return dist;
            }
        }
    }
}

fn fresh(seen: &Seen, paths: Paths, root: Address) -> BTreeMap<Address, Route> {
    let mut computation = Computation::new(paths);
    computation.set_root(root);
    computation.update(&seen.database, seen.pairs());
    computation.routes()
}

fn check(steps: &[Vec<Step>], paths: Paths) -> Result<(), TestCaseError> {
    let mut seen = Seen::new();
    let mut computation = Computation::new(paths);
    computation.set_root(1);
    let mut table: BTreeMap<Address, Route> = BTreeMap::new();
    for batch in steps {
        let stale = batch.iter().filter_map(|step| seen.apply(*step)).collect();
        for dst in computation.update(&seen.database, stale) {
            match computation.route(dst) {
                Some(route) => table.insert(dst, route),
                None => table.remove(&dst),
            };
        }
        prop_assert_eq!(&table, &computation.routes(), "a change went unnoticed");
        prop_assert_eq!(&table, &fresh(&seen, paths, 1));
        let mut dist = seen.bellman_ford(1);
        dist.remove(&1);
        let costs: BTreeMap<Address, u64> = table
            .iter()
            .map(|(dst, route)| (*dst, route.cost))
            .collect();
        prop_assert_eq!(costs, dist);
        for route in table.values() {
            check_next(&seen, route, paths.max)?;
            check_alternates(&seen, route)?;
        }
    }
    Ok(())
}

/// Checks that the next hops are the neighbours on shortest paths, limited to `max`.
fn check_next(seen: &Seen, route: &Route, max: usize) -> Result<(), TestCaseError> {
    let mut right = Vec::new();
    for (near, cost) in neighbours(seen) {
        let rest = seen.bellman_ford(near).get(&route.dst).copied();
        if rest.map(|rest| rest + u64::from(cost)) == Some(route.cost) {
            right.push(near);
        }
    }
    right.truncate(max);
    prop_assert_eq!(&route.next, &right);
    Ok(())
}

fn check_alternates(seen: &Seen, route: &Route) -> Result<(), TestCaseError> {
    for alternate in &route.alternates {
        let from = seen.bellman_ford(*alternate);
        prop_assert!(!route.next.contains(alternate));
        prop_assert!(from[&route.dst] < from[&1] + route.cost);
    }
    Ok(())
}

fn neighbours(seen: &Seen) -> Vec<(Address, u32)> {
    let links = seen.database.keys_of(1).map(|(_, to)| to);
    let usable = links.filter(|to| seen.database.cost(*to, 1).is_some());
    usable
        .filter_map(|to| Some((to, seen.database.cost(1, to)?)))
        .collect()
}

fn steps(nodes: u64, max_cost: u32) -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = (1..=nodes, 1..=nodes, 0..=max_cost);
    // Most links are reported by both ends, as in a real DIF.
    let pair = (step.clone(), any::<bool>(), 1..=max_cost).prop_map(|(step, both, back)| {
        let (from, to, cost) = step;
        if both && cost > 0 {
            vec![(from, to, cost), (to, from, back)]
        } else {
            vec![step]
        }
    });
    let batch = prop::collection::vec(pair, 1..12).prop_map(|pairs| pairs.concat());
    prop::collection::vec(batch, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn incremental_equals_full_with_many_equal_costs(steps in steps(9, 3)) {
        check(&steps, Paths { max: 8, has_alternates: true })?;
    }

    #[test]
    fn incremental_equals_full_with_few_next_hops(steps in steps(12, 2)) {
        check(&steps, Paths { max: 2, has_alternates: false })?;
    }

    #[test]
    fn incremental_equals_full_with_one_next_hop(steps in steps(14, 20)) {
        check(&steps, Paths { max: 1, has_alternates: true })?;
    }
}

#[test]
fn link_that_only_one_end_reports_is_not_used() {
    let mut seen = Seen::new();
    let paths = Paths {
        max: 8,
        has_alternates: true,
    };
    seen.apply((1, 2, 1));
    assert!(fresh(&seen, paths, 1).is_empty());
    seen.apply((2, 1, 1));
    assert_eq!(fresh(&seen, paths, 1)[&2].next, vec![2]);
    seen.apply((2, 1, 0));
    assert!(fresh(&seen, paths, 1).is_empty());
}

#[test]
fn node_protecting_alternates_come_first() {
    // Member 1 reaches 5 through 2 (cost 2). Member 3 also goes through 2 and is cheap; 4 has its
    // own path.
    let mut seen = Seen::new();
    for (a, b, cost) in [
        (1, 2, 1),
        (2, 5, 1),
        (1, 3, 1),
        (3, 2, 1),
        (1, 4, 2),
        (4, 5, 3),
    ] {
        seen.apply((a, b, cost));
        seen.apply((b, a, cost));
    }
    let paths = Paths {
        max: 8,
        has_alternates: true,
    };
    let route = &fresh(&seen, paths, 1)[&5];
    assert_eq!(route.next, vec![2]);
    assert_eq!(route.alternates, vec![4, 3]);
}

#[test]
fn numbers_of_members_that_are_gone_are_used_again() {
    let mut seen = Seen::new();
    let paths = Paths {
        max: 8,
        has_alternates: true,
    };
    let mut computation = Computation::new(paths);
    computation.set_root(1);
    for member in 2..500 {
        for cost in [1, 0] {
            let stale = [(1, member, cost), (member, 1, cost)]
                .into_iter()
                .filter_map(|step| seen.apply(step));
            let stale = stale.collect();
            computation.update(&seen.database, stale);
        }
    }
    assert!(computation.routes().is_empty());
    assert!(computation.nodes() <= 2, "{}", computation.nodes());
}
