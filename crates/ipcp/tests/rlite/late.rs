//! Words that come late, and ends that overlap with beginnings: what concerns the older of two does
//! not touch the newer one.

use carina_ipcp::{Command, FlowKey};
use carina_wire::FlowSpec;

use crate::rlite::hostile::{Liar, directory, registration};
use crate::rlite::net::{MS, Net, SECOND, line};

fn accept_last(net: &mut Net, at: &str) -> FlowKey {
    let flow = net.offered(at);
    let answer = Ok(());
    net.order(at, Command::Respond { flow, answer });
    flow
}

#[test]
fn a_decision_after_the_request_was_abandoned_opens_nothing() {
    let mut net = line(51, &["a", "b"]);
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    let key = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(100 * SECOND);
    assert!(net.allocated("b", key).is_some_and(|it| it.is_err()));
    let flow = accept_last(&mut net, "a");
    net.run(5 * SECOND);
    assert!(net.closed("a", flow).is_some(), "a believes in a flow");
    assert!(net.names("a", "/flows").is_empty());
}

#[test]
fn the_end_of_a_stale_registration_does_not_end_the_next_one() {
    let mut net = line(52, &["a", "b", "c"]);
    let register = |net: &mut Net| {
        net.accepts.insert("app".into());
        net.order("a", Command::Register { name: "app".into() });
    };
    register(&mut net);
    net.run(SECOND);
    net.wires[0].loss = 100;
    net.order("a", Command::Unregister { name: "app".into() });
    net.run(2 * SECOND);
    net.wires[0].loss = 0;
    // What b has still comes to a by some way, which tells that it is over.
    let mut liar = Liar::new(net.address("b"));
    liar.say(&mut net, 1, directory(&[registration("app", "a", 1)]));
    net.run(10 * MS);
    register(&mut net);
    net.run(2 * SECOND);
    let key = net.try_allocate("c", "client", "app", FlowSpec::reliable());
    let key = key.expect("c knows of the registration");
    net.run(SECOND);
    assert_eq!(net.allocated("c", key), Some(Ok(())));
}
