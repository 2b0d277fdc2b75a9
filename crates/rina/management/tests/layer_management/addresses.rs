//! Addresses become unique, whichever members assigned them.

use std::collections::BTreeSet;

use carina_ipcp::Command;
use carina_wire::FlowSpec;

use crate::layer_management::net::{Net, SECOND, chain, config, with_policy};

fn addresses(net: &Net) -> BTreeSet<u64> {
    net.members
        .values()
        .filter_map(|member| member.address())
        .map(|address| address.0)
        .collect()
}

#[test]
fn members_that_enroll_others_at_once_give_unique_addresses() {
    for policy in ["blocks", "random", "sequential"] {
        for seed in 1..6 {
            let config = with_policy(config(), "address-assignment", policy, &[]);
            let mut net = chain(seed, &["a", "b", "c"], config);
            for (new, old) in [("d", "a"), ("e", "b"), ("f", "c"), ("g", "a")] {
                net.add(new, None, "secret");
                net.wire(new, old);
            }
            net.run(20 * SECOND);
            assert_eq!(addresses(&net).len(), 7, "{policy} {seed}");
            for name in ["a", "b", "c", "d", "e", "f", "g"] {
                let members = net.names(name, "/members");
                assert_eq!(members.len(), 7, "{policy} {seed} {name}: {members:?}");
                let table = net.names(name, "/routing/table");
                assert_eq!(table.len(), 6, "{policy} {seed} {name}");
            }
        }
    }
}

#[test]
fn conflict_after_a_partition_is_resolved_and_flows_go_on() {
    let config = with_policy(config(), "address-assignment", "sequential", &[]);
    let mut net = chain(3, &["a", "b"], config);
    net.wires[0].is_cut = true;
    net.run(10 * SECOND);
    // Both halves of the partitioned DIF assign the same address.
    net.add("c", None, "secret");
    net.wire("c", "a");
    net.add("d", None, "secret");
    net.wire("d", "b");
    net.run(5 * SECOND);
    assert_eq!(addresses(&net).len(), 3);
    net.accepts.insert("server".into());
    net.order(
        "d",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(SECOND);
    let key = net.allocate("b", "client", "server", FlowSpec::reliable());
    net.run(SECOND);
    assert_eq!(net.allocated("b", key), Some(Ok(())));
    net.wires[0].is_cut = false;
    net.run(60 * SECOND);
    assert_eq!(addresses(&net).len(), 4);
    assert!(!net.notices("d").is_empty());
    assert!(
        net.notices("c")
            .iter()
            .all(|text| !text.contains("address")),
        "{:?}",
        net.notices("c")
    );
    let other = net.incoming["d"][0];
    net.write("b", key, b"after all");
    net.write("d", other, b"as before");
    net.run(5 * SECOND);
    assert_eq!(
        net.read("d", other),
        b"after all",
        "{:?}",
        net.closed("b", key)
    );
    assert_eq!(net.read("b", key), b"as before");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(net.names(name, "/routing/table").len(), 3, "{name}");
    }
}
