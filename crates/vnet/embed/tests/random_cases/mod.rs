//! Small random substrates and requests with every kind of constraint, from a seed.

use std::sync::Arc;

use carina_embed::request::{Node, Sharing, VirtualLink};
use carina_embed::substrate::{Host, Link};
use carina_embed::{HostId, Label, Location, NodeId, ProviderId, Request, Substrate};
use carina_random::Random;
use carina_time::Duration;

/// A substrate of 3 to `hosts_max` hosts of up to three providers; not always connected.
pub(crate) fn substrate(random: &mut Random, hosts_max: u64) -> Arc<Substrate> {
    let count = random.within(3, hosts_max) as u32;
    let host = |_| Host {
        cpu: random.within(0, 40),
        memory: random.within(0, 64),
        nics: random.below(3),
        location: Location(random.below(3) as u32),
        labels: some_labels(random, 6_000),
        provider: ProviderId(random.below(3) as u32),
    };
    let hosts: Vec<Host> = (0..count).map(host).collect();
    let mut links = Vec::new();
    for a in 0..count {
        for b in a + 1..count {
            for _ in 0..2 {
                // Two hosts may have two links between them.
                if random.chance(2_500) {
                    links.push(Link {
                        delay: Duration::from_millis(random.within(0, 9)),
                        price: random.within(1, 3) as u32,
                        ..Link::new(HostId(a), HostId(b), random.within(0, 100))
                    });
                }
            }
        }
    }
    let provider_price = random.below(6) as u32;
    Arc::new(Substrate::new(hosts, links, provider_price).expect("all ends are hosts"))
}

/// A request of 1 to `nodes_max` nodes.
pub(crate) fn request(random: &mut Random, nodes_max: u64) -> Request {
    let count = random.within(1, nodes_max) as u32;
    let sharing = *random.pick(&[Sharing::Never, Sharing::UnlessApart]);
    let mut nodes = Vec::new();
    for index in 0..count {
        let locations = (0..3)
            .map(Location)
            .filter(|_| random.chance(2_000))
            .collect();
        let others = (0..count).filter(|other| *other != index);
        let others: Vec<NodeId> = others.map(NodeId).collect();
        nodes.push(Node {
            cpu: random.within(0, 15),
            memory: random.within(0, 20),
            nics: u64::from(random.chance(1_500)),
            locations,
            labels: some_labels(random, 1_000),
            apart_from: others
                .into_iter()
                .filter(|_| random.chance(2_000))
                .collect(),
            barred: Vec::new(),
        });
    }
    let mut links = Vec::new();
    for a in 0..count {
        for b in a + 1..count {
            if random.chance(6_000) {
                let delay = Duration::from_millis(random.within(0, 20));
                links.push(VirtualLink {
                    ends: [NodeId(a), NodeId(b)],
                    rate: random.within(0, 45),
                    delay_max: Some(delay).filter(|_| random.chance(4_000)),
                });
            }
        }
    }
    Request::new(nodes, links, sharing).expect("all ends are nodes")
}

fn some_labels(random: &mut Random, share: u32) -> Vec<Label> {
    (0..2).map(Label).filter(|_| random.chance(share)).collect()
}
