//! Tests of what a substrate has left: what placements take and give back, and broken constraints.

use super::*;
use crate::embedder::Embedder;
use crate::joint::Joint;
use crate::request::{Sharing, VirtualLink};
use crate::substrate::Link;

fn line() -> Residual {
    let host = Host {
        cpu: 10,
        memory: 10,
        nics: 1,
        ..Host::default()
    };
    let links = (0..2).map(|at| Link {
        delay: Duration::from_millis(5),
        ..Link::new(HostId(at), HostId(at + 1), 100)
    });
    let substrate = Substrate::new(vec![host; 3], links.collect(), 0).unwrap();
    Residual::new(Arc::new(substrate))
}

fn pair(rate: u64, delay_max: Option<Duration>, sharing: Sharing) -> Request {
    let node = Node {
        cpu: 6,
        ..Node::default()
    };
    let link = VirtualLink {
        ends: [NodeId(0), NodeId(1)],
        rate,
        delay_max,
    };
    Request::new(vec![node; 2], vec![link], sharing).unwrap()
}

fn on(hosts: [u32; 2], path: &[u32]) -> Embedding {
    Embedding {
        hosts: hosts.map(HostId).to_vec(),
        paths: vec![path.iter().copied().map(LinkId).collect()],
    }
}

#[test]
fn what_was_taken_is_given_back_exactly_and_once() {
    let mut residual = line();
    let before = residual.clone();
    let request = pair(40, None, Sharing::Never);
    let embedding = on([0, 2], &[0, 1]);
    residual.take(&request, &embedding).unwrap();
    assert_eq!(residual.rates(), [60, 60]);
    assert_eq!(residual.hosts()[2].cpu, 4);
    assert_eq!(residual.hosts()[1].cpu, 10);
    residual.give_back(&request, &embedding).unwrap();
    assert_eq!(residual, before);
    assert_eq!(residual.give_back(&request, &embedding), Err(NotTaken));
    assert_eq!(residual, before);
}

#[test]
fn host_that_a_node_must_not_be_on_takes_others() {
    let mut residual = line();
    let barred = vec![HostId(1), HostId(2), HostId(7)];
    let node = Node {
        cpu: 6,
        barred,
        ..Node::default()
    };
    let other = Node {
        barred: Vec::new(),
        ..node.clone()
    };
    let request = Request::new(vec![node.clone(), other], vec![], Sharing::Never).unwrap();
    let found = Joint::default().embed(&residual, &request).unwrap();
    assert_eq!(found.hosts[0], HostId(0));
    assert!(found.hosts[1] != HostId(0) && residual.check(&request, &found).is_ok());
    let swapped = Embedding {
        hosts: vec![HostId(1), HostId(0)],
        paths: vec![],
    };
    let misfit = residual.take(&request, &swapped).unwrap_err();
    assert!(matches!(misfit, Misfit::WrongHost { .. }), "{misfit}");
    let both = Request::new(vec![node; 2], vec![], Sharing::Never).unwrap();
    assert!(Joint::default().embed(&residual, &both).is_err());
}

#[test]
fn broken_constraints_are_found_and_nothing_is_taken() {
    let mut residual = line();
    let before = residual.clone();
    let plain = pair(40, None, Sharing::Never);
    let slow = pair(40, Some(Duration::from_millis(9)), Sharing::Never);
    let fat = pair(101, None, Sharing::Never);
    let shared = pair(40, None, Sharing::UnlessApart);
    let cases = [
        (
            &plain,
            on([0, 2], &[0]),
            "does not connect the hosts of its two ends",
        ),
        (
            &plain,
            on([0, 2], &[1, 0]),
            "does not connect the hosts of its two ends",
        ),
        (&plain, on([0, 1], &[0, 1, 1]), "does not connect"),
        (&plain, on([0, 7], &[0, 1]), "there is no host 7"),
        (&plain, on([0, 1], &[9]), "there is no link 9"),
        (&plain, on([1, 1], &[]), "must be on different hosts"),
        (
            &slow,
            on([0, 2], &[0, 1]),
            "a delay of 10ms; must be at most 9ms",
        ),
        (&fat, on([0, 1], &[0]), "has a rate of 100"),
        (&shared, on([1, 1], &[]), "its nodes need"),
    ];
    for (request, embedding, words) in cases {
        let misfit = residual.take(request, &embedding).unwrap_err();
        assert!(misfit.to_string().contains(words), "{misfit}");
        assert_eq!(residual, before);
    }
}
