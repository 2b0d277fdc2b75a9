//! Results of registrations, as applications receive them.

use carina_ipcp::{Command, DifConfig, Event, Reason};

use crate::layer_management::directory::call;
use crate::layer_management::net::{Net, SECOND, chain, config, with_policy};

fn register(net: &mut Net, at: &str, app: &str) {
    net.accepts.insert(app.into());
    net.order(at, Command::Register { name: app.into() });
}

/// The results reported for an application, in order.
fn results(net: &Net, at: &str, app: &str) -> Vec<Result<(), Reason>> {
    net.told(at, |event| match event {
        Event::Registered { name, result } if name == app => Some(result.clone()),
        _ => None,
    })
}

fn on_demand(names_max: &str) -> DifConfig {
    with_policy(
        config(),
        "directory",
        "on-demand",
        &[("names-max", names_max)],
    )
}

#[test]
fn more_applications_than_a_member_may_have_are_refused() {
    let mut net = chain(5, &["a", "b"], config());
    for number in 0..4097 {
        register(&mut net, "b", &format!("app-{number}"));
    }
    net.run(3 * SECOND);
    let refused = net.told("b", |event| match event {
        Event::Registered {
            name,
            result: Err(reason),
        } => Some((name.clone(), reason.clone())),
        _ => None,
    });
    let [(name, reason)] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert_eq!(name, "app-4096");
    assert!(
        reason.contains("4096 replicated entries, the maximum for one member"),
        "{reason}"
    );
    assert_eq!(results(&net, "b", "app-4095"), [Ok(())]);
    assert_eq!(net.names("a", "/directory").len(), 4096);
}

#[test]
fn a_name_that_is_empty_is_refused() {
    let mut net = chain(6, &["a"], config());
    register(&mut net, "a", "");
    let results = results(&net, "a", "");
    assert!(matches!(&results[..], [Err(_)]), "{results:?}");
}

#[test]
fn homes_that_are_full_refuse_and_nothing_else_is_disturbed() {
    let mut net = chain(7, &["a", "b"], on_demand("2"));
    for app in ["one", "two", "three"] {
        register(&mut net, "b", app);
        net.run(SECOND);
    }
    assert_eq!(results(&net, "b", "one"), [Ok(())]);
    assert_eq!(results(&net, "b", "two"), [Ok(())]);
    let refused = results(&net, "b", "three");
    let [Err(reason)] = &refused[..] else {
        panic!("{refused:?}");
    };
    for words in [
        "holds 2 registrations",
        "names-max",
        "let more members join",
    ] {
        assert!(reason.contains(words), "{reason}");
    }
    // The renewals of the stored registrations find a full directory, too.
    net.run(200 * SECOND);
    for app in ["one", "two"] {
        assert_eq!(results(&net, "b", app), [Ok(())], "{app}");
        assert_eq!(call(&mut net, "a", app), Ok(()), "{app}");
    }
    assert!(call(&mut net, "a", "three").is_err());
    assert!(call(&mut net, "b", "three").is_err());
    net.order("b", Command::Unregister { name: "one".into() });
    net.run(SECOND);
    register(&mut net, "b", "three");
    net.run(SECOND);
    assert_eq!(results(&net, "b", "three").last(), Some(&Ok(())));
    assert_eq!(call(&mut net, "a", "three"), Ok(()));
}

#[test]
fn an_early_registration_is_refused_by_a_full_dif() {
    let mut net = chain(8, &["a"], on_demand("1"));
    register(&mut net, "a", "first");
    net.add("b", None, "secret");
    for app in ["x", "y"] {
        register(&mut net, "b", app);
        assert_eq!(results(&net, "b", app), [Ok(())], "{app}");
    }
    net.wire("b", "a");
    net.run(5 * SECOND);
    // The home at a is full; the one at b itself has room for one.
    assert_eq!(results(&net, "b", "x"), [Ok(())]);
    let results = results(&net, "b", "y");
    assert!(matches!(&results[..], [Ok(()), Err(_)]), "{results:?}");
    assert_eq!(call(&mut net, "a", "x"), Ok(()));
}

#[test]
fn silent_homes_do_not_hold_up_a_registration_for_ever() {
    let mut net = chain(9, &["a", "b", "c"], on_demand("65536"));
    net.kill("b");
    let apps: Vec<String> = (0..12).map(|n| format!("app-{n}")).collect();
    for app in &apps {
        register(&mut net, "c", app);
    }
    let answered = |net: &Net| {
        let registered = apps.iter().filter(|app| results(net, "c", app) == [Ok(())]);
        registered.count()
    };
    // Some names have this member as a home; the homes of the others cannot be reached.
    assert!((1..12).contains(&answered(&net)), "{}", answered(&net));
    net.run(15 * SECOND);
    assert_eq!(answered(&net), 12);
}

#[test]
fn homes_without_a_route_are_not_waited_for() {
    let mut net = chain(9, &["a", "b", "c"], on_demand("65536"));
    net.kill("b");
    // The loss of b is detected, and with it the loss of the route to a.
    net.run(20 * SECOND);
    for n in 0..12 {
        let app = format!("app-{n}");
        register(&mut net, "c", &app);
        assert_eq!(results(&net, "c", &app), [Ok(())], "{app}");
    }
}

#[test]
fn a_member_that_leaves_registers_again_in_the_next_dif() {
    let mut net = chain(10, &["a", "b", "c"], on_demand("65536"));
    net.kill("b");
    for n in 0..12 {
        register(&mut net, "c", &format!("app-{n}"));
    }
    net.order("c", Command::Leave);
    net.run(2 * SECOND);
    for n in 0..12 {
        assert_eq!(results(&net, "c", &format!("app-{n}")), [Ok(())]);
    }
}

#[test]
fn more_registrations_than_pending_requests_reach_homes() {
    let mut net = chain(11, &["a", "b"], on_demand("65536"));
    for n in 0..1_500 {
        register(&mut net, "b", &format!("app-{n}"));
    }
    net.run(10 * SECOND);
    for n in 0..1_500 {
        assert_eq!(results(&net, "b", &format!("app-{n}")), [Ok(())]);
    }
    assert_eq!(net.names("a", "/directory").len(), 1_500);
    // All are renewed before they expire.
    net.run(300 * SECOND);
    assert_eq!(net.names("a", "/directory").len(), 1_500);
}

#[test]
fn a_name_unregistered_and_registered_at_once_is_found() {
    let mut net = chain(12, &["a", "b"], on_demand("65536"));
    register(&mut net, "b", "server");
    net.run(SECOND);
    net.order(
        "b",
        Command::Unregister {
            name: "server".into(),
        },
    );
    register(&mut net, "b", "server");
    net.run(5 * SECOND);
    assert_eq!(results(&net, "b", "server"), [Ok(()), Ok(())]);
    assert_eq!(call(&mut net, "a", "server"), Ok(()));
}
