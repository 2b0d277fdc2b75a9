//! Tests links that go down and up by their timetables.

use std::time::{Duration, Instant};

use carina_vnet::host_part::LinkState;
use carina_vnet::report::VnetState;

use crate::network::TestNetwork;
use crate::waiting::{LIMIT, is_root};

const EXAMPLE: &str = include_str!("../../../../examples/vnets/flapping.toml");

/// The reason for which a link is down; `None` if it is up.
fn reason(network: &TestNetwork, link: usize) -> Option<String> {
    match &network.report().links[link].state {
        LinkState::Down { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

/// Waits until a link is down by its timetable, or up.
fn await_link(network: &TestNetwork, link: usize, is_down: bool) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let reason = reason(network, link);
        let by_timetable = reason
            .as_ref()
            .is_some_and(|reason| reason.contains("timetable"));
        if (is_down && by_timetable) || (!is_down && reason.is_none()) {
            return;
        }
        assert!(Instant::now() < deadline, "link {link}: {reason:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn has_carrier(network: &TestNetwork, node: &str, interface: &str) -> bool {
    let shown = network.run(node, &format!("ip -o link show dev {interface}"));
    !shown.contains("NO-CARRIER")
}

#[test]
fn link_goes_down_and_up_by_its_timetable() {
    if !is_root() {
        return;
    }
    let mut network = TestNetwork::ready(EXAMPLE);
    // Two periods, so that the timetable has begun again.
    for _ in 0..2 {
        await_link(&network, 0, true);
        await_link(&network, 0, false);
    }
    let events = network.agent().events("flapping", 0, Duration::ZERO);
    let events = format!("{:?}", events.unwrap());
    for words in [
        "link 0 is down: its timetable has taken it down",
        "link 0 is up by its timetable",
    ] {
        assert!(events.contains(words), "{words}: {events}");
    }
    // A network with a link that is down on purpose is ready, and its tests pass.
    await_link(&network, 0, true);
    assert_eq!(network.report().state, VnetState::Ready);
    assert!(reason(&network, 1).is_none() && reason(&network, 2).is_none());
    let tests = network.agent().test("flapping").unwrap();
    assert!(tests.iter().all(|test| test.holds), "{tests:?}");
    assert!(tests[0].seen.contains("link 0 is down"), "{tests:?}");

    // The next agent follows the timetable where this one has left it.
    network.restart_agent();
    await_link(&network, 0, false);
    await_link(&network, 0, true);

    // Another timetable begins when the changed network is ready.
    let longer = EXAMPLE
        .replace("\"1s-3s\"", "\"0s-1h\"")
        .replace("6s", "2h");
    let plan = network.plan(&longer);
    assert_eq!(
        plan,
        ["link a:eth0 -- b:eth0: down 1s-3s, every 6s -> 0ns-1h, every 2h"]
    );
    network.apply(&longer);
    await_link(&network, 0, true);
    assert!(!has_carrier(&network, "a", "eth0"));
    network.restart_agent();
    assert!(reason(&network, 0).is_some());

    // A restored network begins from the start.
    network.save_and_restore();
    await_link(&network, 0, true);

    // Without a timetable the link is up.
    let steady = EXAMPLE.replace("down = [\"1s-3s\"]\ndown_every = \"6s\"\n", "");
    network.apply(&steady);
    await_link(&network, 0, false);
    assert!(has_carrier(&network, "a", "eth0"));
    network.remove();
}
