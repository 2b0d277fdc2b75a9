//! Tests of explanations: why a request does not fit, and what would.

use std::sync::Arc;

use carina_embed::explanation::{Constraint, Lack, Names, Numbered, Relaxation, explain};
use carina_embed::joint::Joint;
use carina_embed::request::{Node, Sharing, VirtualLink};
use carina_embed::substrate::{Host, Link};
use carina_embed::{
    Embedder, HostId, Location, NodeId, Request, Residual, Substrate, VirtualLinkId,
};
use carina_random::Random;
use carina_time::Duration;

use crate::random_cases;

/// Two hosts in each of two countries, connected in a ring, with 10 ms between the countries.
fn ring() -> Residual {
    let host = |location| Host {
        cpu: 4,
        memory: 1024,
        nics: 1,
        location: Location(location),
        ..Host::default()
    };
    let link = |a: u32, b: u32, delay_ms| Link {
        delay: Duration::from_millis(delay_ms),
        ..Link::new(HostId(a), HostId(b), 80)
    };
    let hosts = [0, 0, 1, 1].map(host).to_vec();
    let links = vec![link(0, 1, 1), link(1, 2, 10), link(2, 3, 1), link(3, 0, 10)];
    let substrate = Substrate::new(hosts, links, 0).expect("all ends are hosts");
    Residual::new(Arc::new(substrate))
}

struct Countries;

impl Names for Countries {
    fn node(&self, node: NodeId) -> String {
        format!("r{}", node.0 + 1)
    }

    fn place(&self, request: &Request, node: NodeId) -> String {
        let names = ["uk", "de"];
        let locations = request.nodes()[node.index()].locations.iter();
        let names: Vec<&str> = locations.map(|location| names[location.index()]).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!(" in {}", names.join(" or "))
        }
    }

    fn rate(&self, rate: u64) -> String {
        format!("{rate}Mbps")
    }
}

fn node(locations: &[u32]) -> Node {
    Node {
        cpu: 1,
        locations: locations.iter().copied().map(Location).collect(),
        ..Node::default()
    }
}

fn link(a: u32, b: u32, rate: u64, delay_ms: Option<u64>) -> VirtualLink {
    VirtualLink {
        ends: [NodeId(a), NodeId(b)],
        rate,
        delay_max: delay_ms.map(Duration::from_millis),
    }
}

/// The text for a request that does not fit on the ring, with its constraint and relaxation.
fn refused(nodes: Vec<Node>, links: Vec<VirtualLink>) -> (String, Constraint, Relaxation) {
    let request = Request::new(nodes, links, Sharing::Never).expect("the request is well formed");
    let why = explain(&ring(), &request, &mut Joint::default()).expect("it does not fit");
    let relaxation = why.relaxation.expect("something would fit");
    let words = why.describe(&request, &Countries);
    (words, why.constraint, relaxation)
}

#[test]
fn rate_that_would_fit_is_named() {
    let nodes = vec![node(&[0]), node(&[1])];
    let (words, constraint, relaxation) = refused(nodes, vec![link(0, 1, 100, None)]);
    let link = VirtualLinkId(0);
    assert_eq!(constraint, Constraint::Link { link });
    assert_eq!(relaxation, Relaxation::Rate(link, 80));
    assert_eq!(
        words,
        "r1-r2: no path satisfies its rate and delay; r1-r2: 80Mbps would fit"
    );
}

#[test]
fn delay_that_would_fit_is_named() {
    let nodes = vec![node(&[0]), node(&[1])];
    let (words, _, relaxation) = refused(nodes, vec![link(0, 1, 50, Some(9))]);
    let delay = Duration::from_millis(10);
    assert_eq!(relaxation, Relaxation::Delay(VirtualLinkId(0), delay));
    assert!(
        words.ends_with("r1-r2: a delay of 10ms would fit"),
        "{words}"
    );
}

#[test]
fn cards_that_a_country_has_are_named() {
    let mut wants = node(&[1]);
    wants.nics = 2;
    let (words, constraint, relaxation) = refused(vec![node(&[]), wants], vec![]);
    let (node, lack) = (NodeId(1), Lack::Nics(1));
    assert_eq!(constraint, Constraint::Host { node, lack });
    assert_eq!(relaxation, Relaxation::Nics(node, 1));
    let expected = "r2: no host in de has 2 network cards, at most 1 network card; \
                    r2: 1 network card would fit";
    assert_eq!(words, expected);
}

#[test]
fn nodes_with_too_few_hosts_are_named() {
    let nodes = vec![node(&[1]), node(&[]), node(&[1]), node(&[1])];
    let (words, constraint, relaxation) = refused(nodes, vec![]);
    let nodes = [0, 2, 3].map(NodeId).to_vec();
    let hosts = [2, 3].map(HostId).to_vec();
    assert_eq!(constraint, Constraint::Hosts { nodes, hosts });
    assert!(matches!(relaxation, Relaxation::AnyLocation(_)), "{words}");
    assert!(
        words.starts_with("r1, r3, r4 need 3 different hosts, but there are 2"),
        "{words}"
    );
}

#[test]
fn rates_are_lowered_together_where_none_alone_helps() {
    let nodes = vec![node(&[0]), node(&[1])];
    let links = vec![link(0, 1, 100, None); 4];
    let (words, constraint, relaxation) = refused(nodes, links);
    // Two paths with a rate of 80 lead from one country to the other, and each would carry two
    // links.
    assert_eq!(constraint, Constraint::Together);
    assert_eq!(relaxation, Relaxation::AllRates(40));
    assert!(words.ends_with("40 % of all rates would fit"), "{words}");
}

#[test]
fn request_that_fits_needs_no_explanation() {
    let request = Request::new(vec![node(&[0])], vec![], Sharing::Never).expect("well formed");
    assert_eq!(explain(&ring(), &request, &mut Joint::default()), None);
}

#[test]
fn named_relaxation_fits_and_less_does_not() {
    let mut explained = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let residual = Residual::new(random_cases::substrate(&mut random, 8));
        let request = random_cases::request(&mut random, 4);
        let mut joint = Joint::default();
        let Some(why) = explain(&residual, &request, &mut joint) else {
            continue;
        };
        assert!(!why.describe(&request, &Numbered).is_empty());
        let Some(relaxation) = why.relaxation else {
            continue;
        };
        let is_embeddable = |joint: &mut Joint, relaxation: Relaxation| {
            let relaxed = relaxation.apply(&request);
            relaxed.is_some_and(|request| joint.embed(&residual, &request).is_ok())
        };
        assert!(
            is_embeddable(&mut joint, relaxation),
            "seed {seed}: {why:?}"
        );
        let less = match relaxation {
            Relaxation::Cpu(node, amount) => Relaxation::Cpu(node, amount + 1),
            Relaxation::Memory(node, amount) => Relaxation::Memory(node, amount + 1),
            Relaxation::Nics(node, amount) => Relaxation::Nics(node, amount + 1),
            Relaxation::Rate(link, rate) => Relaxation::Rate(link, rate + 1),
            Relaxation::AllRates(percent) => Relaxation::AllRates(percent + 1),
            _ => continue,
        };
        assert!(!is_embeddable(&mut joint, less), "seed {seed}: {why:?}");
        explained += 1;
    }
    assert!(explained > 40, "{explained} of 400 were explained");
}
