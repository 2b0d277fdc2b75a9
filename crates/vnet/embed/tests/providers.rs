//! Tests of requests over several providers.

use std::sync::Arc;

use carina_embed::joint::Joint;
use carina_embed::request::{Node, Sharing, VirtualLink};
use carina_embed::substrate::{Host, Link};
use carina_embed::{
    Embedder, Embedding, HostId, Location, NodeId, ProviderId, Request, Residual, Substrate,
};

/// Three providers, each with a ring of four hosts in a location of its own. Their first hosts are
/// fully meshed.
fn three_providers(provider_price: u32) -> Residual {
    let host = |index: u32| Host {
        cpu: 10,
        location: Location(index / 4),
        provider: ProviderId(index / 4),
        ..Host::default()
    };
    let hosts: Vec<Host> = (0..12).map(host).collect();
    let ring = (0..12).map(|at| (at, at / 4 * 4 + (at + 1) % 4));
    let between = [(0, 4), (4, 8), (8, 0)];
    let links = ring.chain(between);
    let links = links.map(|(a, b)| Link::new(HostId(a), HostId(b), 100));
    let substrate = Substrate::new(hosts, links.collect(), provider_price);
    Residual::new(Arc::new(substrate.expect("all ends are hosts")))
}

/// A chain of nodes, each at the given location, or anywhere.
fn chain(locations: &[Option<u32>]) -> Request {
    let node = |location: &Option<u32>| Node {
        cpu: 6,
        locations: location.iter().copied().map(Location).collect(),
        ..Node::default()
    };
    let nodes: Vec<Node> = locations.iter().map(node).collect();
    let link = |at: u32| VirtualLink {
        ends: [NodeId(at), NodeId(at + 1)],
        rate: 10,
        delay_max: None,
    };
    let links = (0..nodes.len() as u32 - 1).map(link).collect();
    Request::new(nodes, links, Sharing::Never).expect("all ends are nodes")
}

fn crossings(residual: &Residual, embedding: &Embedding) -> usize {
    let substrate = residual.substrate();
    let provider = |host: HostId| substrate.hosts()[host.index()].provider;
    let crosses = |link: &&carina_embed::LinkId| {
        let [a, b] = substrate.links()[link.index()].ends;
        provider(a) != provider(b)
    };
    embedding.paths.iter().flatten().filter(crosses).count()
}

#[test]
fn request_stays_with_one_provider_where_it_can() {
    let residual = three_providers(20);
    let request = chain(&[None; 4]);
    let embedding = Joint::default()
        .embed(&residual, &request)
        .expect("it fits");
    assert_eq!(crossings(&residual, &embedding), 0);
}

#[test]
fn request_over_three_locations_crosses_twice() {
    let residual = three_providers(20);
    let request = chain(&[Some(0), None, Some(1), None, Some(2), None]);
    let embedding = Joint::default()
        .embed(&residual, &request)
        .expect("it fits");
    assert_eq!(residual.check(&request, &embedding), Ok(()));
    assert_eq!(crossings(&residual, &embedding), 2);
}

#[test]
fn request_too_large_for_one_provider_is_split() {
    let residual = three_providers(20);
    let request = chain(&[None; 7]);
    let embedding = Joint::default()
        .embed(&residual, &request)
        .expect("it fits");
    assert_eq!(residual.check(&request, &embedding), Ok(()));
    assert_eq!(crossings(&residual, &embedding), 1);
}
