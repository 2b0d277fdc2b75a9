//! Tests roles that communicate over loopback.

use std::time::{Duration, Instant};

use carina_vnet::document::{Document, OnInsufficient};
use carina_vnet::message::ReasonCode;
use carina_vnet_roles::driver::Clock;
use carina_vnet_roles::identity::Role;

use crate::played::{LIMIT, Providers, document, wait_until, wait_until_gone};

#[test]
fn network_of_two_providers_becomes_ready_and_goes() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let operator = providers.operator();
    operator.create(&document("ring")).unwrap();
    let again = operator.create(&document("ring")).unwrap_err().to_string();
    assert!(again.contains("already exists"), "{again}");
    let seen = wait_until(&operator, "ring", |seen| seen.standing.is_ready());
    let counts = |of: &Providers| {
        let hosts = of.hosts.lock().unwrap();
        let parts = hosts.iter().map(|host| host.parts.len());
        parts.collect::<Vec<_>>()
    };
    assert_eq!(counts(&providers), [1, 1], "a part on each provider's host");
    // No answer contains a name of the substrate.
    let events = operator.events("ring", 0, Duration::ZERO).unwrap();
    let wanted = operator.document("ring").unwrap();
    assert_eq!(wanted, document("ring"));
    let list = operator.list().unwrap();
    let json = serde_json::to_string(&(&seen, &events, &wanted, &list)).unwrap();
    for name in ["secret", "172.31", "pip", "border"] {
        assert!(!json.contains(name), "{name} in {json}");
    }
    assert!(
        events.iter().any(|event| event.what == "it is ready"),
        "{json}"
    );
    operator.remove("ring").unwrap();
    wait_until_gone(&operator, "ring");
    assert!(providers.is_empty());
    let error = operator.remove("ring").unwrap_err().to_string();
    assert!(error.contains("there are: none"), "{error}");
}

#[test]
fn operator_hears_why_a_node_failed_and_of_no_host() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let operator = providers.operator();
    operator.create(&document("ring")).unwrap();
    wait_until(&operator, "ring", |seen| seen.standing.is_ready());
    let words = [
        "node a: it has failed: it ended by itself, and is recreated",
        "node a has failed: it ended by itself, and is recreated",
    ];
    let begin = Instant::now();
    let events = loop {
        assert!(
            begin.elapsed() < LIMIT,
            "{:?}",
            operator.events("ring", 0, Duration::ZERO)
        );
        // Waiting for events makes the VNO read the nodes' states; the first reading may come too
        // late.
        let again = Clock::start().now() + carina_time::Duration::from_secs(4);
        providers.hosts.lock().unwrap()[0].end_machine(again, |_| 0);
        let found = (0..60).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            let events = operator.events("ring", 0, Duration::from_secs(1)).unwrap();
            let has = |what: &&str| events.iter().any(|event| event.what == **what);
            words.iter().all(has).then_some(events)
        });
        if let Some(events) = found {
            break events;
        }
    };
    let seen = operator.seen("ring").unwrap();
    let look = operator.look("ring").unwrap();
    let json = serde_json::to_string(&(&seen, &events, &look)).unwrap();
    for name in ["secret", "172.31", "border"] {
        assert!(!json.contains(name), "{name} in {json}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let operator = providers.operator();
    let mut large = document("large");
    large.vnet.on_insufficient = OnInsufficient::Reject;
    large.node.get_mut("a").unwrap().cpus = Some(9);
    let begin = Instant::now();
    let reason = loop {
        operator.create(&large).unwrap();
        let seen = wait_until(&operator, "large", |seen| seen.standing.is_refused);
        let reason = seen.standing.reason.unwrap();
        // The VNP waits a second for the providers' advertisements, and plans without those that
        // are missing.
        if !reason.message.contains("there is no host") {
            break reason;
        }
        assert!(begin.elapsed() < LIMIT, "{reason:?}");
        operator.remove("large").unwrap();
        wait_until_gone(&operator, "large");
    };
    assert_eq!(reason.code, ReasonCode::Insufficient, "{reason:?}");
    assert!(reason.message.contains("processors"), "{reason:?}");
    // A changed document that fits is made.
    operator.apply(&document("large")).unwrap();
    wait_until(&operator, "large", |seen| seen.standing.is_ready());
    let unknown = operator.apply(&document("small")).unwrap_err().to_string();
    assert!(unknown.contains("there are: large"), "{unknown}");
    operator.remove("large").unwrap();
    wait_until_gone(&operator, "large");
    assert!(providers.is_empty());
}

#[test]
fn roles_that_come_one_after_the_other_find_each_other() {
    let providers = Providers::new();
    let vno = providers.start(&[Role::Vno]);
    let operator = providers.operator();
    let wanted: Document = document("late");
    operator.create(&wanted).unwrap();
    let _agents = [0, 1].map(|number| providers.agent(number));
    let vnp = providers.start(&[Role::Vnp]);
    std::thread::sleep(Duration::from_millis(500));
    let pips = providers.start(&[Role::Pip]);
    wait_until(&operator, "late", |seen| seen.standing.is_ready());
    // Each role is restarted; its state is in its store.
    drop(pips);
    drop(vnp);
    drop(vno);
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    wait_until(&operator, "late", |seen| seen.standing.is_ready());
    operator.remove("late").unwrap();
    wait_until_gone(&operator, "late");
    assert!(providers.is_empty());
}
