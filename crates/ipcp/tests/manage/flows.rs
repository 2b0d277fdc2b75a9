//! Registration, allocation and deallocation.

use carina_ipcp::{Command, Event};
use carina_wire::FlowSpec;

use crate::net::{SECOND, chain, config};

#[test]
fn a_flow_carries_data_over_two_hops_and_ends_in_order() {
    let mut net = chain(1, &["a", "b", "c"], config());
    net.accepts.insert("server".into());
    net.order(
        "c",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let reachable = net.told("a", |event| match event {
        Event::Reachable { name } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(reachable, ["server"]);
    let key = net.allocate("a", "client", "server", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("a", key), Some(Ok(())));
    let other = net.incoming["c"][0];
    net.write("a", key, b"hello");
    net.write("c", other, b"good day");
    net.run(SECOND);
    assert_eq!(net.read("c", other), b"hello");
    assert_eq!(net.read("a", key), b"good day");
    net.write("a", key, b"bye");
    net.order(
        "a",
        Command::Deallocate {
            flow: key,
            reason: String::new(),
        },
    );
    net.run(SECOND);
    assert_eq!(net.read("c", other), b"bye");
    assert_eq!(net.closed("c", other), Some((true, String::new())));
    for name in ["a", "c"] {
        assert!(net.names(name, "/flows").is_empty());
    }
}
