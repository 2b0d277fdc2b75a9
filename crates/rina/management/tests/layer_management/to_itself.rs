//! N-1 flows from an IPCP to itself, which happen because the IPCP also has the DIF's name.

use crate::layer_management::net::{Net, SECOND, chain, config, with_policy};

#[test]
fn member_that_reaches_itself_returns_the_n1_flow() {
    let mut net = chain(1, &["a", "b"], config());
    let wire = net.wire("a", "a");
    net.run(5 * SECOND);
    assert_eq!(net.names("a", "/neighbours"), ["b"]);
    assert_eq!(net.names("a", "/routing/table").len(), 1);
    assert!(net.count("a", "n1-to-itself") >= 1);
    let [_, dropped, wanted] = net.partings("a");
    assert!(dropped >= 2 && wanted >= 1, "{dropped}, {wanted}");
    assert!(net.refusals("a").is_empty());
    net.end_wire(wire);
    net.run(20 * SECOND);
    assert_eq!(net.names("b", "/neighbours"), ["a"]);
}

#[test]
fn ipcp_that_joins_and_reaches_itself_goes_on_elsewhere() {
    let mut net = Net::new(2);
    net.bootstrap("a", config());
    net.add("b", None, "secret");
    net.wire("b", "b");
    net.run(2 * SECOND);
    assert!(!net.is_member("b"));
    let failures = net.failures("b");
    assert!(
        failures.concat().contains("this IPCP itself"),
        "{failures:?}"
    );
    assert!(net.refusals("b").is_empty(), "another attempt may succeed");
    net.wire("b", "a");
    net.run(10 * SECOND);
    assert!(net.is_member("b"), "{:?}", net.failures("b"));
}

#[test]
fn ipcp_above_that_asks_for_its_dif_reaches_another_system() {
    let on_demand = with_policy(config(), "directory", "on-demand", &[]);
    for config in [config(), on_demand] {
        for (at, other) in [("x", "z"), ("z", "x")] {
            let mut net = chain(3, &["x", "y", "z"], config.clone());
            assert_eq!(net.asked_by_upper(at, &["x", "z"]), [other]);
            // With no other system, the IPCP's own system is asked.
            let mut net = chain(4, &["x", "y", "z"], config.clone());
            assert_eq!(net.asked_by_upper(at, &[at]), [at]);
        }
    }
}
