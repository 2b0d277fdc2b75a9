//! N-1 flows from an IPCP to itself, which happen because the IPCP also has the DIF's name.

use crate::irati::net::{Net, SECOND, chain, config};

#[test]
fn member_that_reaches_itself_returns_the_n1_flow() {
    let mut net = chain(71, &["a", "b"], &config());
    net.wire("a", "a");
    net.run(5 * SECOND);
    assert_eq!(net.names("a", "/routing/table").len(), 1);
    assert_eq!(net.count("a", "n1-to-itself"), 1);
    let [lost, dropped, _] = net.partings("a");
    assert_eq!((lost, dropped), (0, 2));
}

#[test]
fn ipcp_that_joins_and_reaches_itself_goes_on_elsewhere() {
    let mut net = Net::new(72);
    net.bootstrap("a", config());
    net.add("b", config());
    net.wire("b", "b");
    net.run(SECOND);
    let failures = net.failures("b");
    assert!(
        failures.concat().contains("this IPCP itself"),
        "{failures:?}"
    );
    assert!(net.refusals("b").is_empty(), "another attempt may succeed");
    net.wire("b", "a");
    net.run(15 * SECOND);
    assert!(net.is_member("b"), "{:?}", net.failures("b"));
}

#[test]
fn ipcp_above_that_asks_for_its_dif_reaches_another_system() {
    for (at, other) in [("x", "z"), ("z", "x")] {
        let mut net = chain(73, &["x", "y", "z"], &config());
        assert_eq!(net.asked_by_upper(at, &["x", "z"]), [other]);
        // With no other system, the IPCP's own system is asked.
        let mut net = chain(74, &["x", "y", "z"], &config());
        assert_eq!(net.asked_by_upper(at, &[at]), [at]);
    }
}
