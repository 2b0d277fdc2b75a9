//! N-1 flows from an IPCP to itself, which happen because the IPCP also has the DIF's name.

use crate::rlite::net::{Net, SECOND, line};

#[test]
fn member_that_reaches_itself_returns_the_n1_flow() {
    let mut net = line(71, &["a", "b"]);
    net.wire("a", "a");
    net.run(10 * SECOND);
    assert_eq!(net.names("a", "/routing/table").len(), 1);
    assert!(net.count("a", "n1-to-itself") >= 1);
    let [lost, dropped, wanted] = net.partings("a");
    assert_eq!(lost, 0);
    assert!(dropped >= 2 && wanted >= 1, "{dropped}, {wanted}");
}

#[test]
fn ipcp_that_joins_and_reaches_itself_goes_on_elsewhere() {
    let mut net = Net::new(72);
    net.bootstrap("a");
    net.add("b");
    net.wire("b", "b");
    net.run(SECOND);
    let failures = net.failures("b");
    assert!(
        failures.concat().contains("this IPCP itself"),
        "{failures:?}"
    );
    assert!(net.refusals("b").is_empty(), "another attempt may succeed");
    net.wire("b", "a");
    net.run(10 * SECOND);
    assert_ne!(net.address("b"), 0, "{:?}", net.failures("b"));
}

#[test]
fn ipcp_above_that_asks_for_its_dif_reaches_another_system() {
    for (at, other) in [("x", "z"), ("z", "x")] {
        let mut net = line(73, &["x", "y", "z"]);
        assert_eq!(net.asked_by_upper(at, &["x", "z"]), [other]);
        // With no other system, the IPCP's own system is asked.
        let mut net = line(74, &["x", "y", "z"]);
        assert_eq!(net.asked_by_upper(at, &[at]), [at]);
    }
}
