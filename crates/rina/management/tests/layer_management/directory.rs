//! The directory under both policies.

use carina_ipcp::{Command, DifConfig};
use carina_wire::FlowSpec;

use crate::layer_management::net::{Net, SECOND, chain, config, with_policy};

fn on_demand() -> DifConfig {
    with_policy(config(), "directory", "on-demand", &[])
}

pub(super) fn call(net: &mut Net, at: &str, to: &str) -> Result<(), String> {
    let key = net.allocate(at, "client", to, FlowSpec::reliable());
    net.run(20 * SECOND);
    net.allocated(at, key).expect("a result")
}

#[test]
fn applications_are_found_by_both_policies() {
    for config in [config(), on_demand()] {
        let mut net = chain(1, &["a", "b", "c", "d", "e"], config);
        for (member, app) in [("a", "one"), ("c", "two"), ("e", "three")] {
            net.accepts.insert(app.into());
            net.order(member, Command::Register { name: app.into() });
        }
        net.run(3 * SECOND);
        for at in ["a", "b", "c", "d", "e"] {
            for app in ["one", "two", "three"] {
                assert_eq!(call(&mut net, at, app), Ok(()), "{at} {app}");
            }
        }
        let error = call(&mut net, "b", "four").unwrap_err();
        assert!(
            error.contains("no member of DIF \"net\" has \"four\""),
            "{error}"
        );
    }
}

#[test]
fn the_nearest_of_several_registrants_is_called() {
    let mut net = chain(2, &["a", "b", "c", "d"], config());
    net.accepts.insert("any".into());
    for member in ["a", "d"] {
        net.order(member, Command::Register { name: "any".into() });
    }
    net.run(SECOND);
    assert_eq!(call(&mut net, "b", "any"), Ok(()));
    assert_eq!(
        (net.incoming["a"].len(), net.incoming.get("d").map(Vec::len)),
        (1, None)
    );
    assert_eq!(call(&mut net, "c", "any"), Ok(()));
    assert_eq!((net.incoming["a"].len(), net.incoming["d"].len()), (1, 1));
    net.order("a", Command::Unregister { name: "any".into() });
    net.run(SECOND);
    assert_eq!(call(&mut net, "b", "any"), Ok(()));
    assert_eq!((net.incoming["a"].len(), net.incoming["d"].len()), (1, 2));
}

#[test]
fn a_request_goes_to_the_next_member_after_not_here() {
    for config in [config(), on_demand()] {
        let mut net = chain(3, &["a", "b", "c"], config);
        net.accepts.insert("any".into());
        for member in ["b", "c"] {
            net.order(member, Command::Register { name: "any".into() });
        }
        net.run(3 * SECOND);
        assert_eq!(call(&mut net, "a", "any"), Ok(()));
        // A does not know of the withdrawal yet, or still uses a cached answer.
        net.order("b", Command::Unregister { name: "any".into() });
        let key = net.allocate("a", "client", "any", FlowSpec::reliable());
        net.run(5 * SECOND);
        assert_eq!(net.allocated("a", key), Some(Ok(())));
        assert_eq!(net.incoming["c"].len(), 1);
    }
}

#[test]
fn homes_that_die_are_replaced() {
    let mut net = chain(4, &["a", "b", "c", "d"], on_demand());
    net.wire("a", "c");
    net.wire("a", "d");
    net.wire("b", "d");
    net.run(3 * SECOND);
    net.accepts.insert("server".into());
    net.order(
        "a",
        Command::Register {
            name: "server".into(),
        },
    );
    net.run(3 * SECOND);
    net.kill("c");
    // The registration is sent again when the set of members has changed.
    net.run(120 * SECOND);
    for at in ["b", "d"] {
        assert_eq!(call(&mut net, at, "server"), Ok(()), "{at}");
    }
}
