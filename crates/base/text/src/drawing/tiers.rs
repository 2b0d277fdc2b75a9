//! Tiers of networks that have tiers: a Clos network, a fat tree, a tree.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The neighbours of each point, each neighbour once.
pub(super) type Neighbours = Vec<BTreeSet<usize>>;

/// The neighbours of `count` points. A line from a point to itself does not count.
pub(super) fn neighbours(count: usize, lines: &[(usize, usize)]) -> Neighbours {
    let mut all = vec![BTreeSet::new(); count];
    for (one, other) in lines.iter().filter(|(one, other)| one != other) {
        all[*one].insert(*other);
        all[*other].insert(*one);
    }
    all
}

/// The tier of each point, 0 at the top; `None` if the network has no tiers. Lines of a network
/// with tiers lead from each tier to the next.
pub(super) fn tiers_of(names: &[&str], next: &Neighbours) -> Option<Vec<usize>> {
    let lines = next.iter().map(BTreeSet::len).sum::<usize>() / 2;
    if names.len() < POINTS_MIN || lines + 1 < names.len() {
        return None;
    }
    let tiers = by_names(names, next)
        .or_else(|| by_distance(next))
        .or_else(|| of_tree(next))?;
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for tier in &tiers {
        *counts.entry(*tier).or_default() += 1;
    }
    // A star is drawn as a star.
    let is_star = counts.len() == 2 && counts.values().any(|count| *count == 1);
    let is_flat = !(2..=TIERS_MAX).contains(&counts.len()) || is_star;
    (!is_flat).then_some(tiers)
}

/// Tiers of points whose names begin alike, as `spine1` and `leaf4`.
fn by_names(names: &[&str], next: &Neighbours) -> Option<Vec<usize>> {
    let group = |name: &&str| {
        let begin = name.split(|c: char| c.is_ascii_digit()).next();
        begin.unwrap_or_default().to_ascii_lowercase()
    };
    let of: Vec<String> = names.iter().map(group).collect();
    let groups: BTreeSet<&String> = of.iter().collect();
    if !(2..=TIERS_MAX).contains(&groups.len()) || groups.len() * 2 > names.len() {
        return None;
    }
    let mut beside: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    let mut sizes: BTreeMap<&String, usize> = BTreeMap::new();
    for (point, own) in of.iter().enumerate() {
        *sizes.entry(own).or_default() += 1;
        let others = next[point].iter().map(|other| &of[*other]);
        beside.entry(own).or_default().extend(others);
    }
    // The groups must form a chain.
    let is_chain = beside
        .iter()
        .all(|(group, others)| !others.contains(group) && (1..=2).contains(&others.len()));
    let tips: Vec<&String> = groups
        .iter()
        .filter(|group| beside[**group].len() == 1)
        .copied()
        .collect();
    let [one, other] = tips[..] else {
        return None;
    };
    if !is_chain {
        return None;
    }
    // Hosts are at the bottom, else the larger group.
    let weight = |group: &String| (is_host(group), sizes[group]);
    let mut here = if weight(one) <= weight(other) {
        one
    } else {
        other
    };
    let mut tier_of = BTreeMap::from([(here, 0)]);
    while tier_of.len() < groups.len() {
        let mut below = beside[here].iter();
        here = below.find(|group| !tier_of.contains_key(**group))?;
        tier_of.insert(here, tier_of.len());
    }
    Some(of.iter().map(|group| tier_of[group]).collect())
}

/// Whether `begin`, the beginning of a node's name, is a usual one for hosts.
fn is_host(begin: &str) -> bool {
    let word = begin.trim_end_matches(['-', '_', '.']);
    HOSTS.contains(&word)
}

/// Tiers by the distance to the points with one line, as in a fat tree with its hosts.
fn by_distance(next: &Neighbours) -> Option<Vec<usize>> {
    let leaves: Vec<usize> = (0..next.len())
        .filter(|candidate| next[*candidate].len() == 1)
        .collect();
    if leaves.len() < LEAVES_MIN {
        return None;
    }
    let far: Vec<usize> = distances(&leaves, next)
        .into_iter()
        .collect::<Option<_>>()?;
    let is_step = (0..next.len()).all(|point| {
        let mut others = next[point].iter();
        others.all(|other| far[point].abs_diff(far[*other]) == 1)
    });
    let depth = far.iter().copied().max().unwrap_or(0);
    (is_step && depth >= 2).then(|| far.into_iter().map(|distance| depth - distance).collect())
}

/// Tiers of a tree by the distance to its middle.
fn of_tree(next: &Neighbours) -> Option<Vec<usize>> {
    let lines = next.iter().map(BTreeSet::len).sum::<usize>() / 2;
    if lines + 1 != next.len() {
        return None;
    }
    let all = |from: usize| -> Option<Vec<usize>> {
        distances(&[from], next).into_iter().collect::<Option<_>>()
    };
    let farthest = |far: &[usize]| (0..far.len()).max_by_key(|point| far[*point]);
    let back = all(farthest(&all(0)?)?)?;
    let mut middle = farthest(&back)?;
    let length = back[middle];
    while back[middle] > length / 2 {
        let mut others = next[middle].iter();
        middle = *others.find(|other| back[**other] < back[middle])?;
    }
    let is_bushy = next.len() > 2 * length && length > 3;
    all(middle).filter(|_| is_bushy)
}

/// The distance of each point from the nearest of these; `None` for points that none reaches.
fn distances(from: &[usize], next: &Neighbours) -> Vec<Option<usize>> {
    let mut far = vec![None; next.len()];
    let mut waiting: VecDeque<(usize, usize)> = from.iter().map(|point| (*point, 0)).collect();
    while let Some((point, distance)) = waiting.pop_front() {
        if far[point].is_some() {
            continue;
        }
        far[point] = Some(distance);
        waiting.extend(next[point].iter().map(|other| (*other, distance + 1)));
    }
    far
}

/// The positions of points in rows, one for each tier, in units of the distance between two points.
/// A wide row is folded.
pub(super) fn placed(names: &[&str], next: &Neighbours, tiers: &[usize]) -> Vec<(f64, f64)> {
    let depth = tiers.iter().copied().max().unwrap_or(0) + 1;
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); depth];
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|point| natural(names[*point]));
    for point in order {
        rows[tiers[point]].push(point);
    }
    // Each row is sorted by the places of its neighbours in the row above, then below.
    let mut place = vec![0.0; names.len()];
    for round in 0..ROUNDS {
        let down = round % 2 == 0;
        let mut turns: Vec<usize> = (0..depth).collect();
        if !down {
            turns.reverse();
        }
        for tier in turns {
            let middle = |point: &usize| {
                let beside = next[*point].iter();
                let beside = beside.filter(|other| (tiers[**other] < tier) == down);
                let places: Vec<f64> = beside.map(|other| place[*other]).collect();
                let count = places.len() as f64;
                if places.is_empty() {
                    place[*point]
                } else {
                    places.iter().sum::<f64>() / count
                }
            };
            let mut row: Vec<(f64, usize)> =
                rows[tier].iter().map(|row| (middle(row), *row)).collect();
            row.sort_by(|one, other| one.0.total_cmp(&other.0));
            let count = row.len() as f64;
            for (at, (_, point)) in row.iter().enumerate() {
                place[*point] = (at as f64 + 0.5) / count;
            }
            rows[tier] = row.into_iter().map(|(_, point)| point).collect();
        }
    }
    let widest = rows.iter().map(Vec::len).max().unwrap_or(1).min(ROW_MAX) as f64;
    let mut places = vec![(0.0, 0.0); names.len()];
    let mut top = 0.0;
    for row in rows {
        let folds = row.len().div_ceil(ROW_MAX).max(1);
        let columns = row.len().div_ceil(folds).max(1) as f64;
        for (at, point) in row.into_iter().enumerate() {
            let x = ((at / folds) as f64 + 0.5) / columns * widest;
            places[point] = (x, top + (at % folds) as f64 * FOLD);
        }
        top += TIER + (folds - 1) as f64 * FOLD;
    }
    places
}

/// Sorts `leaf10` behind `leaf9`.
fn natural(name: &str) -> (&str, u64, &str) {
    let begin = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[begin.len()..].parse().unwrap_or(u64::MAX);
    (begin, number, name)
}

/// What names of hosts begin with.
const HOSTS: [&str; 14] = [
    "h",
    "host",
    "hosts",
    "pc",
    "client",
    "clients",
    "server",
    "servers",
    "srv",
    "user",
    "users",
    "workstation",
    "laptop",
    "vm",
];
const TIERS_MAX: usize = 7;
/// A smaller network is drawn without tiers.
const POINTS_MIN: usize = 6;
const LEAVES_MIN: usize = 3;
const ROUNDS: usize = 8;
/// Largest number of points beside one another.
const ROW_MAX: usize = 24;
/// Distances of two tiers, and of two rows of one tier.
const TIER: f64 = 1.1;
const FOLD: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(
        count: usize,
        name: impl Fn(usize) -> String,
        lines: &[(usize, usize)],
    ) -> Option<Vec<usize>> {
        let names: Vec<String> = (0..count).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tiers_of(&names, &neighbours(count, lines))
    }

    #[test]
    fn leaves_are_below_spines_and_hosts_below_leaves() {
        // Two spines, four leaves, four hosts.
        let name = |node| match node {
            0..2 => format!("spine{node}"),
            2..6 => format!("leaf{node}"),
            _ => format!("h{node}"),
        };
        let mut lines: Vec<(usize, usize)> =
            (2..6).flat_map(|leaf| [(0, leaf), (1, leaf)]).collect();
        lines.extend((2..6).map(|leaf| (leaf, leaf + 4)));
        let wanted = [0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
        assert_eq!(tiers(10, name, &lines).unwrap(), wanted);
        // The same by the distance to the hosts, without telling names.
        let plain = |node| format!("n{node}x");
        assert_eq!(tiers(10, plain, &lines).unwrap(), wanted);
    }

    #[test]
    fn tree_hangs_from_its_middle_and_a_ring_does_not() {
        let tree: Vec<(usize, usize)> = (1..31).map(|node| ((node - 1) / 2, node)).collect();
        let found = tiers(31, |node| format!("n{node}"), &tree).unwrap();
        assert_eq!((found[0], found[1], found[30]), (0, 1, 4));
        let ring: Vec<(usize, usize)> = (0..10).map(|node| (node, (node + 1) % 10)).collect();
        assert_eq!(tiers(10, |node| format!("n{node}"), &ring), None);
        let star: Vec<(usize, usize)> = (1..10).map(|node| (0, node)).collect();
        assert_eq!(tiers(10, |node| format!("n{node}"), &star), None);
        assert_eq!(tiers(0, |node| node.to_string(), &[]), None);
    }

    #[test]
    fn rows_are_apart_and_no_two_points_are_at_one_place() {
        let tree: Vec<(usize, usize)> = (1..200).map(|node| ((node - 1) / 6, node)).collect();
        let names: Vec<String> = (0..200).map(|node| format!("n{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let next = neighbours(200, &tree);
        let tiers = tiers_of(&names, &next).unwrap();
        let places = placed(&names, &next, &tiers);
        for one in 0..200 {
            for other in 0..one {
                let ((ax, ay), (bx, by)) = (places[one], places[other]);
                assert!((ax - bx).hypot(ay - by) > 0.4, "{one} {other}");
            }
        }
        assert!(places[0].1 < places[1].1 && places[1].1 < places[199].1);
    }
}
