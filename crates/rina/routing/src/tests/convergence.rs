//! Members that exchange messages end up with the same database, and forward without loops.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::network::{MILLI, Network, SECOND};
use crate::message::{Address, FlowState, Message};
use carina_time::Instant;

type Link = (Address, Address, u32);

/// A history of links: which link, whether it comes up, and how many milliseconds pass.
fn history() -> impl Strategy<Value = Vec<(prop::sample::Index, bool, u64)>> {
    prop::collection::vec(
        (any::<prop::sample::Index>(), any::<bool>(), 0..40u64),
        0..30,
    )
}

/// A connected network: a random tree with additional links.
fn connected(members: u64) -> impl Strategy<Value = Vec<Link>> {
    let parents = prop::collection::vec((any::<u64>(), 1..6u32), members as usize - 1);
    let more = prop::collection::vec((1..=members, 1..=members, 1..6u32), 0..members as usize);
    (parents, more).prop_map(|(parents, more)| {
        let tree = parents
            .into_iter()
            .zip(2..)
            .map(|((pick, cost), child)| (1 + pick % (child - 1), child, cost));
        let mut seen = BTreeSet::new();
        tree.chain(more)
            .filter(|(a, b, _)| a != b && seen.insert((*a.min(b), *a.max(b))))
            .collect()
    })
}

fn network(members: u64, links: &[Link], params: &[(&str, &str)]) -> Network {
    let mut network = Network::new(members, params);
    for (a, b, cost) in links {
        network.up(*a, *b, *cost);
    }
    network
}

fn links_of(network: &Network, member: Address) -> Vec<(Address, Address, u64, bool)> {
    let state = network.members[&member].show(Instant::from_nanos(network.now));
    let links = state.links.into_iter();
    links.map(|o| (o.from, o.to, o.seq, o.is_up)).collect()
}

fn agree(network: &Network) -> bool {
    let all: BTreeSet<_> = network
        .members
        .keys()
        .map(|member| links_of(network, *member))
        .collect();
    all.len() == 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn converged_forwarding_reaches_everybody_without_loops(
        links in connected(10), pick in 0..8usize,
    ) {
        let mut network = network(10, &links, &[]);
        network.run(5 * SECOND);
        prop_assert!(agree(&network));
        for from in 1..=10 {
            for dst in 1..=10 {
                prop_assert!(network.walk(from, dst, pick).is_some(), "{} to {}", from, dst);
            }
        }
    }

    #[test]
    fn members_agree_after_any_history_of_links(
        links in connected(8),
        history in history(),
    ) {
        let mut network = network(8, &links, &[]);
        for (which, is_up, pause) in history {
            let (a, b, cost) = links[which.index(links.len())];
            if is_up {
                network.up(a, b, cost);
            } else {
                network.down(a, b);
            }
            network.run(pause * MILLI);
        }
        for (a, b, cost) in &links {
            network.up(*a, *b, *cost);
        }
        network.run(200 * SECOND);
        prop_assert!(agree(&network));
        for from in 1..=8 {
            prop_assert_eq!(network.members[&from].table().len(), 7);
        }
    }

    /// Members next to the failed link use their alternates; all other members use their old
    /// tables.
    #[test]
    fn alternates_do_not_loop_when_one_link_fails(
        links in connected(9), failed in any::<prop::sample::Index>(), ecmp in any::<bool>(),
    ) {
        let params = [("ecmp", if ecmp { "true" } else { "false" })];
        let mut network = network(9, &links, &params);
        network.run(5 * SECOND);
        let (a, b, _) = links[failed.index(links.len())];
        let is_failed = |x: Address, y: Address| (x, y) == (a, b) || (x, y) == (b, a);
        for from in 1..=9u64 {
            for dst in (1..=9).filter(|dst| *dst != from) {
                let mut here = from;
                for hop in 0.. {
                    prop_assert!(hop <= 9, "a loop from {} to {} without {}-{}", from, dst, a, b);
                    if here == dst {
                        break;
                    }
                    let route = &network.members[&here].table()[&dst];
                    let ways = route.next.iter().find(|next| !is_failed(here, **next));
                    let Some(next) = ways.or(route.alternates.first()) else {
                        // No alternate exists, so the PDU is dropped and does not loop.
                        break;
                    };
                    prop_assert!(!is_failed(here, *next));
                    here = *next;
                }
            }
        }
    }

    #[test]
    fn lost_messages_are_made_good_by_comparing(links in connected(8), cost in 7..20u32) {
        let mut network = network(8, &links, &[("sync_s", "20")]);
        network.run(5 * SECOND);
        let (a, b, _) = links[0];
        network.up(a, b, cost);
        network.lose();
        network.run(5 * SECOND);
        prop_assert!(!agree(&network));
        network.run(60 * SECOND);
        prop_assert!(agree(&network));
    }
}

#[test]
fn partition_that_heals_leaves_no_trace() {
    let links = [(1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 5, 1)];
    let mut network = network(5, &links, &[]);
    network.run(SECOND);
    network.down(2, 3);
    network.run(SECOND);
    assert_eq!(network.members[&1].table().len(), 1);
    network.down(4, 5);
    network.run(SECOND);
    assert!(
        links_of(&network, 1).contains(&(4, 5, 1, true)),
        "1 cannot know"
    );
    network.up(2, 3, 1);
    network.run(SECOND);
    let table = network.members[&1].table();
    assert_eq!(table.keys().copied().collect::<Vec<_>>(), vec![2, 3, 4]);
    network.members.remove(&5);
    assert!(agree(&network));
}

#[test]
fn member_that_returns_with_its_old_address_is_heard_at_once() {
    let links = [(1, 2, 1), (2, 3, 1)];
    let mut network = network(3, &links, &[]);
    network.run(SECOND);
    network.down(2, 3);
    network.run(SECOND);
    network.up(2, 3, 1);
    network.run(SECOND);
    // Member 3 loses all its state, including its sequence numbers.
    network.down(2, 3);
    let newborn = Network::new(3, &[]).members.remove(&3).expect("a member");
    network.members.insert(3, newborn);
    network.up(2, 3, 5);
    network.run(SECOND);
    assert!(agree(&network));
    assert_eq!(network.members[&1].table()[&3].cost, 6);
    assert_eq!(network.members[&3].table()[&1].cost, 6);
}

#[test]
fn a_leaving_members_routes_go_at_once_its_objects_in_time() {
    let params = [("max_age_s", "60")];
    let mut network = network(3, &[(1, 2, 1), (2, 3, 1), (3, 1, 1)], &params);
    network.run(SECOND);
    let now = network.now;
    network
        .members
        .get_mut(&3)
        .expect("a member")
        .handle_leave(Instant::from_nanos(now));
    network.run(SECOND);
    assert!(!network.members[&1].table().contains_key(&3));
    network.down(2, 3);
    network.down(1, 3);
    network.members.remove(&3);
    network.run(200 * SECOND);
    for member in [1, 2] {
        let known = links_of(&network, member);
        assert!(
            known.iter().all(|link| link.0 != 3 && link.1 != 3),
            "{known:?}"
        );
        assert_eq!(network.members[&member].table().len(), 1);
    }
}

#[test]
fn crashed_member_ages_out_and_living_ones_are_renewed() {
    let params = [("max_age_s", "60")];
    let mut network = network(4, &[(1, 2, 1), (2, 3, 1), (3, 4, 1)], &params);
    network.run(SECOND);
    network.members.remove(&4);
    network.down_one_sided(3, 4);
    network.run(600 * SECOND);
    let known = links_of(&network, 1);
    assert!(known.iter().all(|link| link.0 != 4), "{known:?}");
    assert_eq!(network.members[&1].table().len(), 2);
    assert!(known.iter().all(|link| link.2 > 10), "renewed: {known:?}");
}

#[test]
fn address_that_changes_takes_the_links_along() {
    let mut network = network(3, &[(1, 2, 1), (2, 3, 1)], &[]);
    network.run(SECOND);
    let now = network.now;
    // Member 3 changes its address to 7. Its neighbour notices, as in a real DIF.
    network.down(2, 3);
    let mut member = network.members.remove(&3).expect("a member");
    member.set_own(Instant::from_nanos(now), 7, "m3");
    network.members.insert(7, member);
    network.up(2, 7, 1);
    network.run(SECOND);
    assert!(agree(&network));
    let table = network.members[&1].table();
    assert_eq!(table.keys().copied().collect::<Vec<_>>(), vec![2, 7]);
}

/// The links that `member` knows to be up.
fn up_at(network: &Network, member: Address) -> Vec<(Address, Address)> {
    let known = links_of(network, member).into_iter();
    known
        .filter(|link| link.3)
        .map(|link| (link.0, link.1))
        .collect()
}

/// Member 3 crashes. It restarts as 7, at the other end of the line.
fn reborn_elsewhere() -> Network {
    let mut network = network(4, &[(1, 2, 1), (2, 3, 1), (4, 1, 1)], &[]);
    network.run(SECOND);
    network.down_one_sided(2, 3);
    network.members.remove(&3);
    let mut newborn = Network::new(1, &[]).members.remove(&1).expect("a member");
    newborn.set_own(Instant::from_nanos(network.now), 7, "m3");
    network.members.insert(7, newborn);
    network.up(4, 7, 1);
    network
}

#[test]
fn links_of_a_former_address_are_withdrawn_after_a_crash() {
    let mut network = reborn_elsewhere();
    network.run(10 * SECOND);
    for member in [1, 2, 4, 7] {
        let known = up_at(&network, member);
        assert!(!known.contains(&(3, 2)), "{member}: {known:?}");
        assert_eq!(known.len(), 6, "{member}: {known:?}");
    }
    assert!(agree(&network));
}

#[test]
fn former_address_of_another_member_now_is_left_alone() {
    let mut network = reborn_elsewhere();
    // Address 3 is given to m5. Its neighbour is 2, which was also the neighbour of the crashed
    // member.
    let mut heir = Network::new(1, &[]).members.remove(&1).expect("a member");
    heir.set_own(Instant::from_nanos(network.now), 3, "m5");
    network.members.insert(3, heir);
    network.up(2, 3, 1);
    network.run(20 * SECOND);
    assert!(up_at(&network, 7).contains(&(3, 2)));
    assert!(agree(&network));
}

#[test]
fn two_living_members_of_one_name_do_not_drown_the_others() {
    let mut network = network(3, &[(1, 2, 1), (2, 3, 1)], &[]);
    let now = network.now;
    let twin = network.members.get_mut(&3).expect("a member");
    twin.set_own(Instant::from_nanos(now), 3, "m1");
    network.run(10 * SECOND);
    let before = network.objects;
    network.run(100 * SECOND);
    let spent = network.objects - before;
    assert!(spent < 300, "{spent} objects in 100 s");
    assert_eq!(network.members[&1].table().len(), 2);
}

#[test]
fn agreeing_neighbours_exchange_digests_only() {
    let mut network = network(
        6,
        &[(1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 5, 1), (5, 6, 1)],
        &[],
    );
    network.run(10 * SECOND);
    let (objects, messages) = (network.objects, network.messages);
    network.run(120 * SECOND);
    assert_eq!(network.objects, objects);
    assert_eq!(network.messages - messages, 2 * 10);
}

#[test]
fn two_members_with_one_address_do_not_drown_the_others() {
    let mut network = network(3, &[(1, 2, 1)], &[]);
    network.run(SECOND);
    // A second member behind 3 repeatedly sends reports as member 1.
    network.up(2, 3, 1);
    for round in 0..2000u64 {
        let ghost = FlowState {
            from: 1,
            name: "m1".into(),
            to: 9,
            cost: 1,
            seq: 10 * (round + 1),
            is_up: true,
            age_ms: 0,
        };
        let now = network.now;
        let member = network.members.get_mut(&1).expect("a member");
        member.handle_message(Instant::from_nanos(now), 2, Message::Objects(vec![ghost]));
        network.run(MILLI / 10);
    }
    assert!(network.objects < 2_000, "{}", network.objects);
}

#[test]
fn newcomer_learns_a_large_network_in_few_messages() {
    let members = 300;
    let mut links: Vec<Link> = (2..=members).map(|child| (child / 2, child, 1)).collect();
    links.push((members, members - 1, 1));
    let mut network = network(members + 1, &links, &[]);
    network.run(20 * SECOND);
    let before = network.objects;
    network.up(1, members + 1, 1);
    network.run(20 * SECOND);
    assert_eq!(
        network.members[&(members + 1)].table().len() as u64,
        members
    );
    // Each object is sent once to the new member. The two new objects cross every link, perhaps in
    // both directions.
    let needed = 2 * links.len() + 2 * 2 * (links.len() + 1) + 10;
    assert!(
        network.objects - before < needed,
        "{} of {needed}",
        network.objects - before
    );
}

#[test]
fn switches_change_the_table_of_a_living_member() {
    let links = [(1, 2, 1), (2, 4, 1), (1, 3, 1), (3, 4, 1)];
    let mut network = network(4, &links, &[]);
    network.run(SECOND);
    let now = network.now;
    let member = network.members.get_mut(&1).expect("a member");
    assert_eq!(member.table()[&4].next, vec![2, 3]);
    let params = [("ecmp", "false"), ("lfa", "false")];
    let params = params.map(|(name, value)| (name.into(), value.into()));
    member
        .set_params(Instant::from_nanos(now), &params.into())
        .expect("good");
    assert_eq!(member.table()[&4].next, vec![2]);
    assert!(member.table()[&4].alternates.is_empty());
    let bad = [("max_age_s".into(), format!("{}", 0))];
    assert!(
        member
            .set_params(Instant::from_nanos(now), &bad.into())
            .is_err()
    );
}
