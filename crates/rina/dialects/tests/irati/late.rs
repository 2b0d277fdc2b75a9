//! Late messages, and ends that overlap with beginnings: a message about an earlier flow or entry
//! does not affect a later one.

use carina_ipcp::{Command, FlowKey};
use carina_wire::FlowSpec;

use crate::irati::net::{MS, Net, SECOND, chain, config};

/// A net with an application at `a` whose flows the test accepts or refuses.
fn undecided(seed: u64) -> Net {
    let mut net = chain(seed, &["a", "b"], &config());
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    net
}

fn accept_last(net: &mut Net) {
    let flow = net.offered("a");
    let answer = Ok(());
    net.order("a", Command::Respond { flow, answer });
}

fn ask(net: &mut Net) -> FlowKey {
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    key
}

#[test]
fn an_answer_that_comes_twice_does_not_open_the_next_flow() {
    let mut net = undecided(51);
    let first = ask(&mut net);
    net.take_sent(0, 1);
    accept_last(&mut net);
    net.run(SECOND);
    assert_eq!(net.allocated("b", first), Some(Ok(())));
    let answers = net.take_sent(0, 1);
    // The second request has the same invoke id as the first, whose flow is answered and open.
    let second = ask(&mut net);
    for pdu in answers {
        net.inject(0, 0, pdu);
    }
    net.run(SECOND);
    assert_eq!(net.allocated("b", second), None, "nobody has decided");
    accept_last(&mut net);
    net.run(SECOND);
    assert_eq!(net.allocated("b", second), Some(Ok(())));
    let theirs = net.offered("a");
    net.write("b", second, b"to the second");
    net.run(SECOND);
    assert_eq!(net.read("a", theirs), [b"to the second".to_vec()]);
}

#[test]
fn one_of_two_n1_flows_to_a_neighbour_may_end() {
    for ends in 0..2 {
        let mut net = chain(52, &["a", "b"], &config());
        net.register("a", "app");
        net.run(SECOND);
        net.end_wire(0);
        net.run(SECOND);
        // Both come up at the same time, so neither leads to a neighbour when the other starts.
        net.mend_wire(0);
        let wires = [0, net.wire("b", "a")];
        net.run(3 * SECOND);
        net.end_wire(wires[ends]);
        net.run(SECOND);
        assert_eq!(net.names("b", "/neighbours").len(), 1, "{ends}");
        assert_eq!(net.names("b", "/routing/table").len(), 1, "{ends}");
        let key = net.allocate("b", "client", "app", FlowSpec::reliable());
        net.run(SECOND);
        assert_eq!(net.allocated("b", key), Some(Ok(())), "{ends}");
    }
}

#[test]
fn entries_of_a_member_that_returns_are_kept() {
    for pause in 0..70 {
        let mut net = chain(53, &["a", "b", "c"], &config());
        net.register("c", "app");
        net.run(SECOND);
        net.end_wire(1);
        net.run(4 * SECOND + pause * 20 * MS);
        net.mend_wire(1);
        net.run(3 * SECOND);
        let asked = net.try_allocate("a", "client", "app", FlowSpec::reliable());
        let key = asked.unwrap_or_else(|reason| panic!("{pause}: {reason}"));
        net.run(SECOND);
        assert_eq!(net.allocated("a", key), Some(Ok(())), "{pause}");
    }
}
