//! Cases of channels: order on each of many, independence, fairness, close and reopen.

use super::node::{Node, Nodes, WINDOW};
use super::{Fixture, Random};

/// SDUs of 0 bytes to many pieces arrive whole and in order on eight channels in both directions.
pub fn sdus_of_all_sizes_keep_their_order_on_every_channel<F: Fixture>(make: impl Fn() -> F) {
    let mut nodes = Nodes::up(make());
    let channels: Vec<_> = (0..8)
        .map(|n| {
            if n % 2 == 0 {
                nodes.host.allocate()
            } else {
                nodes.guest.allocate()
            }
        })
        .collect();
    nodes.run_until("allocation", |nodes| {
        [&nodes.host, &nodes.guest]
            .iter()
            .all(|node| node.flows.values().filter(|flow| flow.is_open).count() == 8)
    });
    let mut random = Random::new(8);
    let mut sdus = || -> Vec<Vec<u8>> {
        let mut sdu = |n: u8| {
            let len = [0, 1, random.below(100), random.below(20_000)][usize::from(n % 4)];
            vec![n; len]
        };
        (0..30).map(&mut sdu).collect()
    };
    let all: Vec<_> = channels.iter().map(|c| (*c, sdus(), sdus())).collect();
    for (channel, down, up) in &all {
        nodes.host.flow(*channel).to_send = down.clone().into();
        nodes.guest.flow(*channel).to_send = up.clone().into();
    }
    let is_complete = |node: &Node| node.flows.values().all(|flow| flow.received.len() >= 30);
    nodes.run_until("SDUs on eight channels", |nodes| {
        is_complete(&nodes.host) && is_complete(&nodes.guest)
    });
    for (channel, down, up) in &all {
        assert!(nodes.guest.flow(*channel).received == *down, "{channel}");
        assert!(nodes.host.flow(*channel).received == *up, "{channel}");
    }
    assert_eq!((nodes.host.violations, nodes.guest.violations), (0, 0));
}

/// An application that stops reading uses up the credit of its channel and no more. The other
/// channel runs on, and the stopped one continues without loss.
pub fn stopped_reader_stops_its_channel_only<F: Fixture>(make: impl Fn() -> F) {
    let mut nodes = Nodes::up(make());
    let (stopped, running) = (nodes.host.allocate(), nodes.host.allocate());
    nodes.run_until("allocation", |nodes| nodes.guest.flows.len() == 2);
    nodes.guest.flow(stopped).is_stopped = true;
    for channel in [stopped, running] {
        nodes.host.flow(channel).to_send = vec![vec![7; 500]; 300].into();
    }
    nodes.run_until("the running channel", |nodes| {
        nodes.guest.flows[&running].received.len() == 300
    });
    let arrived = nodes.guest.flow(stopped).received.len();
    assert!((1..=WINDOW as usize / 500).contains(&arrived), "{arrived}");
    assert!(nodes.host.endpoint.tx_credit(stopped) < 512);
    nodes.guest.flow(stopped).is_stopped = false;
    nodes.run_until("the stopped channel", |nodes| {
        nodes.guest.flows[&stopped].received.len() == 300
    });
}

/// Eight channels that always have data get the same share of the link, to within two windows. A
/// ninth channel that sends now and then waits for no more than the windows of the others.
pub fn channels_share_the_link_fairly<F: Fixture>(make: impl Fn() -> F) {
    let mut nodes = Nodes::up(make());
    let busy: Vec<_> = (0..8).map(|_| nodes.host.allocate()).collect();
    let idle = nodes.host.allocate();
    nodes.run_until("allocation", |nodes| nodes.guest.flows.len() == 9);
    for channel in &busy {
        nodes.host.flow(*channel).to_send = vec![vec![1; 500]; 4000].into();
    }
    let window_sdus = WINDOW as usize / 500;
    for probe in 1..=50 {
        let received = |nodes: &Nodes<F>| -> Vec<usize> {
            busy.iter()
                .map(|c| nodes.guest.flows[c].received.len())
                .collect()
        };
        let before: usize = received(&nodes).iter().sum();
        nodes.host.flow(idle).to_send.push_back(vec![2; 64]);
        nodes.run_until("the idle channel", |nodes| {
            nodes.guest.flows[&idle].received.len() == probe
        });
        let now = received(&nodes);
        let ahead = now.iter().sum::<usize>() - before;
        assert!(ahead <= 2 * 9 * window_sdus, "{ahead} SDUs went first");
        let (least, largest) = (now.iter().min(), now.iter().max());
        let gap = largest
            .zip(least)
            .map_or(0, |(largest, least)| largest - least);
        assert!(
            gap <= 2 * window_sdus,
            "shares differ by {gap} SDUs: {now:?}"
        );
    }
}

/// A channel that closes with data on the way is used again for a new flow, which sees no byte of
/// the old one. All channel numbers are free at the end.
pub fn closed_channels_open_again_without_old_data<F: Fixture>(make: impl Fn() -> F) {
    let mut nodes = Nodes::up(make());
    let mut random = Random::new(5);
    let mut first = None;
    for round in 0..100_u8 {
        let channel = nodes.host.allocate();
        let first = *first.get_or_insert(channel);
        assert_eq!(channel, first, "the lowest number is free again");
        nodes.run_until("allocation", |nodes| {
            nodes.host.flows[&channel].is_open && nodes.guest.flows.contains_key(&channel)
        });
        nodes.host.flow(channel).to_send = vec![vec![round; 3000]; 5].into();
        nodes.guest.flow(channel).to_send = vec![vec![round; 3000]; 5].into();
        for _ in 0..random.below(20) {
            nodes.turn();
        }
        for node in [&mut nodes.host, &mut nodes.guest] {
            let sdus = node.flows.values().flat_map(|flow| &flow.received);
            assert!(sdus.flatten().all(|byte| *byte == round), "round {round}");
        }
        let both = random.below(3);
        if both != 1 {
            nodes.host.endpoint.deallocate(channel, "done");
            nodes.host.flows.remove(&channel);
        }
        if both != 0 {
            nodes.guest.endpoint.deallocate(channel, "done");
            nodes.guest.flows.remove(&channel);
        }
        nodes.run_until("the end of the channel", |nodes| {
            [&nodes.host, &nodes.guest]
                .iter()
                .all(|node| node.flows.values().all(|flow| flow.closed.is_some()))
        });
        for _ in 0..40 {
            nodes.turn();
        }
        nodes.host.flows.clear();
        nodes.guest.flows.clear();
    }
    assert_eq!((nodes.host.violations, nodes.guest.violations), (0, 0));
}
