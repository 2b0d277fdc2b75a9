//! A member that restarts and enrolls over another N-1 flow, while its neighbour still has the old
//! one.

use carina_ipcp::{Command, Event, FlowKey};
use carina_wire::FlowSpec;

use crate::rlite::enrollment::is_up;
use crate::rlite::net::{MS, Net, SECOND, line};

/// A reliable flow from one member to an application of another: both ends.
fn open(net: &mut Net, from: &str, to: &str) -> (FlowKey, FlowKey) {
    let app = format!("app-{to}");
    net.accepts.insert(app.clone());
    let name = app.clone();
    net.order(to, Command::Register { name });
    net.run(SECOND);
    let key = net.allocate(from, "client", &app, FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated(from, key), Some(Ok(())));
    (key, net.offered(to))
}

/// Removes a member without notice, and lets it return over an N-1 flow that it requests.
fn restart(net: &mut Net, name: &str, at: &str) {
    net.run(20 * SECOND);
    net.vanish(name);
    net.add(name);
    net.wire(name, at);
}

fn drops(net: &Net, at: &str) -> usize {
    let dropped = |event: &Event| matches!(event, Event::DropN1 { .. }).then_some(());
    net.told(at, dropped).len()
}

#[test]
fn neighbour_that_enrolls_anew_has_everything_at_once() {
    let mut net = line(41, &["c", "a", "b"]);
    let (_, offered) = open(&mut net, "b", "a");
    net.order("c", Command::Register { name: "far".into() });
    let address = net.address("b");
    restart(&mut net, "b", "a");
    net.run(3 * SECOND);
    assert_eq!(net.address("b"), address);
    assert!(is_up(&net, "a", "b") && is_up(&net, "b", "a"));
    assert_eq!(net.names("b", "/directory"), ["app-a", "far"]);
    assert_eq!(net.names("b", "/routing/table").len(), 2);
    // The old N-1 flow is returned, and the flow of the earlier incarnation has failed.
    assert_eq!(drops(&net, "a"), 1);
    assert_eq!(net.count("a", "n1-superseded"), 1);
    let closed = net.closed("a", offered);
    assert_eq!(closed, Some((false, "b has restarted".to_string())));
    open(&mut net, "b", "a");
}

#[test]
fn first_member_that_begins_anew_leaves_no_flow_behind() {
    // The member's address is 1, which an IPCP without an address also claims.
    let mut net = line(42, &["a", "b"]);
    let (key, _) = open(&mut net, "b", "a");
    restart(&mut net, "a", "b");
    net.run(3 * SECOND);
    assert_eq!(net.address("a"), 1);
    assert!(is_up(&net, "a", "b") && is_up(&net, "b", "a"));
    let closed = net.closed("b", key);
    assert_eq!(closed, Some((false, "a has restarted".to_string())));
    assert_eq!(drops(&net, "b"), 1);
}

#[test]
fn member_that_lost_its_neighbour_keeps_its_flows() {
    // One end of the N-1 flow between a and c ends; the other end is not informed.
    for (lost, kept) in [("a", "c"), ("c", "a")] {
        let mut net = line(43, &["a", "b", "c"]);
        net.wire("c", "a");
        net.run(SECOND);
        let ends = [open(&mut net, "c", "a"), open(&mut net, "a", "c")];
        net.run(20 * SECOND);
        let (name, n1) = net.wires[2].ends[usize::from(lost == "a")].clone();
        assert_eq!(name, lost);
        let reason = "lost".to_string();
        net.order(lost, Command::N1Down { n1, reason });
        net.run(100 * MS);
        net.wire(lost, kept);
        net.run(5 * SECOND);
        assert!(is_up(&net, "a", "c") && is_up(&net, "c", "a"));
        assert_eq!(net.count(kept, "n1-superseded"), 1);
        for ((c, a), (from, to)) in ends.into_iter().zip([("c", "a"), ("a", "c")]) {
            assert_eq!((net.closed(from, c), net.closed(to, a)), (None, None));
            net.write(from, c, b"still here");
            net.run(SECOND);
            assert_eq!(net.read(to, a), b"still here", "{lost}: {from} to {to}");
        }
    }
}

#[test]
fn attempts_over_two_n1_flows_at_once_keep_both() {
    let mut net = line(44, &["a", "b", "c"]);
    let (key, offered) = open(&mut net, "c", "a");
    net.wire("c", "a");
    net.wire("a", "c");
    net.run(10 * SECOND);
    for (at, other) in [("a", "c"), ("c", "a")] {
        let shown = format!("{:?}", net.objects(at, &format!("/neighbours/{other}")));
        assert!(shown.contains("\"below\", \"below\""), "{at}: {shown}");
        assert_eq!(net.count(at, "n1-superseded"), 0);
    }
    assert_eq!(
        (net.closed("c", key), net.closed("a", offered)),
        (None, None)
    );
}

#[test]
fn n1_flow_of_another_dif_below_is_asked_for_again() {
    let mut net = line(45, &["a", "b"]);
    net.wire_over("other", "a", "b");
    net.wire("a", "b");
    net.run(SECOND);
    net.events.clear();
    restart(&mut net, "b", "a");
    net.run(4 * SECOND);
    let wanted = net.told("a", |event| match event {
        Event::NeedN1 { dif, remote } => Some((dif.clone(), remote.clone())),
        _ => None,
    });
    // In the N-1 DIF of the new flow, there is one already.
    assert_eq!(wanted, [("other".to_string(), "b".to_string())]);
}
