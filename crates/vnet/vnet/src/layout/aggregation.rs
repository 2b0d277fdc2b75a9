//! Aggregates the routes of a node: prefixes that lie side by side, and are reached over the same
//! next hop, become one route.
//!
//! The result leads each address of the given prefixes over the same next hop as before, by the
//! longest prefix that matches, and covers no other address. It has the fewest possible routes.
//! (Draves, King, Venkatachary, Zill: Constructing Optimal IP Routing Tables, 1999)

/// A prefix: its first address, whose bits begin at the highest bit, and its length in bits.
pub(super) type Prefix = (u128, u8);

/// Aggregates prefixes, which must not overlap, each with the number of its next hop. Prefixes
/// without a number need no route, but a route may cover them.
pub(super) fn aggregate(mut prefixes: Vec<(Prefix, Option<u32>)>) -> Vec<(Prefix, u32)> {
    prefixes.sort_unstable();
    let mut routes = Vec::new();
    add(&tree_of(&prefixes, (0, 0)), (0, 0), None, &mut routes);
    routes
}

/// The prefixes within one prefix.
enum Tree {
    /// An address in it belongs to no prefix. Has the trees of both halves.
    Partial(Box<[Tree; 2]>),
    /// Contains no prefix.
    Empty,
    /// A prefix that is shorter than the tree's own by itself.
    Lone(Prefix, Option<u32>),
    /// All addresses in it belong to prefixes. Has the next hops of which one is best for the
    /// whole; without a next hop, it needs no route.
    Full(Vec<u32>, Option<Box<[Tree; 2]>>),
}

fn tree_of(prefixes: &[(Prefix, Option<u32>)], (start, bits): Prefix) -> Tree {
    match prefixes {
        [] => Tree::Empty,
        [(prefix, hop)] if prefix.1 == bits => Tree::Full(hop.iter().copied().collect(), None),
        [(prefix, hop)] => Tree::Lone(*prefix, *hop),
        // Longer than an address: only prefixes that overlap get here.
        [(prefix, hop), ..] if bits == 128 => Tree::Lone(*prefix, *hop),
        _ => {
            let second = start | 1 << (127 - bits);
            let at = prefixes.partition_point(|((first, _), _)| *first < second);
            let (low, high) = prefixes.split_at(at);
            let halves = [
                tree_of(low, (start, bits + 1)),
                tree_of(high, (second, bits + 1)),
            ];
            match &halves {
                [Tree::Full(one, _), Tree::Full(other, _)] => {
                    Tree::Full(merged(one, other), Some(Box::new(halves)))
                }
                _ => Tree::Partial(Box::new(halves)),
            }
        }
    }
}

/// The next hops that both halves share; all, if they share none.
fn merged(one: &[u32], other: &[u32]) -> Vec<u32> {
    if one.is_empty() || other.is_empty() {
        return [one, other].concat();
    }
    let both: Vec<u32> = one
        .iter()
        .copied()
        .filter(|candidate| other.contains(candidate))
        .collect();
    if both.is_empty() {
        [one, other].concat()
    } else {
        both
    }
}

/// Adds the routes of a tree at `prefix`, whose addresses follow a route over `covering` already.
fn add(tree: &Tree, prefix: Prefix, covering: Option<u32>, routes: &mut Vec<(Prefix, u32)>) {
    let halves = |(start, bits): Prefix| [(start, bits + 1), (start | 1 << (127 - bits), bits + 1)];
    match tree {
        Tree::Empty => {}
        Tree::Lone(at, hop) => routes.extend(hop.map(|hop| (*at, hop))),
        Tree::Partial(trees) => {
            for (tree, half) in trees.iter().zip(halves(prefix)) {
                add(tree, half, None, routes);
            }
        }
        Tree::Full(hops, trees) => {
            let is_covered = covering.is_some_and(|hop| hops.contains(&hop));
            let hop = if is_covered {
                covering
            } else {
                hops.first().copied()
            };
            if !is_covered {
                routes.extend(hop.map(|hop| (prefix, hop)));
            }
            for (tree, half) in trees
                .iter()
                .flat_map(|tree| tree.iter())
                .zip(halves(prefix))
            {
                add(tree, half, hop.or(covering), routes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(prefixes: &[(u32, u8, Option<u32>)]) -> Vec<(u32, u8, u32)> {
        let prefixes = prefixes.iter();
        let prefixes = prefixes.map(|(start, bits, hop)| ((u128::from(*start) << 96, *bits), *hop));
        let routes = aggregate(prefixes.collect()).into_iter();
        let routes = routes.map(|((start, bits), hop)| ((start >> 96) as u32, bits, hop));
        routes.collect()
    }

    #[test]
    fn neighbouring_prefixes_of_one_next_hop_are_one_route() {
        let four = [
            (0, 30, Some(1)),
            (4, 30, Some(1)),
            (8, 30, Some(1)),
            (12, 30, Some(1)),
        ];
        assert_eq!(of(&four), [(0, 28, 1)]);
        let mut exception = four;
        exception[2].2 = Some(2);
        assert_eq!(of(&exception), [(0, 28, 1), (8, 30, 2)]);
        // The node's own prefix needs no route.
        exception[2].2 = None;
        assert_eq!(of(&exception), [(0, 28, 1)]);
        // No route covers addresses that no prefix has.
        assert_eq!(of(&four[..3]), [(0, 29, 1), (8, 30, 1)]);
        assert_eq!(of(&[(8, 30, None)]), []);
    }

    #[test]
    fn each_address_keeps_its_next_hop() {
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..500 {
            // Some places are empty, and some prefixes are the node's own.
            let places = (0..1 + draw(80)).map(|_| match draw(12) {
                0 => None,
                1 => Some(None),
                other => Some(Some(other as u32 % 3)),
            });
            let places: Vec<Option<Option<u32>>> = places.collect();
            let prefixes = places.iter().enumerate();
            let prefixes = prefixes.filter_map(|(at, hop)| Some((at as u32 * 4, 30, (*hop)?)));
            let prefixes: Vec<_> = prefixes.collect();
            let routes = of(&prefixes);
            assert!(routes.len() <= prefixes.iter().filter(|prefix| prefix.2.is_some()).count());
            for (at, hop) in places.iter().enumerate() {
                let address = at as u32 * 4 + 1;
                let covers =
                    |route: &&(u32, u8, u32)| (address ^ route.0).leading_zeros() >= route.1.into();
                let found = routes.iter().filter(covers).max_by_key(|route| route.1);
                let found = found.map(|found| found.2);
                match hop {
                    Some(None) => {}
                    other => assert_eq!(found, other.flatten(), "{places:?}: {routes:?}"),
                }
            }
        }
    }
}
