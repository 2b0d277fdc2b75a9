//! Tests that delegates may do what the operator has granted, and nothing else.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carina_vnet::document::{Document, Form};
use carina_vnet::grant::{Grant, Verb};
use carina_vnet::report::Exec;
use carina_vnet_roles::identity::Role;
use carina_vnet_roles::inside::{Answer, NodeRequest};
use carina_vnet_roles::operator::{self, Client};

use crate::played::{Providers, document, wait_until, wait_until_gone};

fn grant(may: &[Verb], nodes: &[&str]) -> Grant {
    Grant {
        may: may.iter().copied().collect(),
        nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
        until: None,
    }
}

fn exec(client: &Client, name: &str, node: &str) -> operator::Answer<String> {
    let wanted = Exec {
        node: node.to_owned(),
        command: "who".to_owned(),
        limit_ms: 1000,
    };
    let reply = client.exec(name, &wanted)?;
    Ok(String::from_utf8(reply.stdout).unwrap())
}

fn watch(client: &Client, node: &str) -> operator::Answer<Answer> {
    let ask = NodeRequest::Watch {
        node: node.to_owned(),
        session: 1,
        since: 0,
        wait_ms: 0,
    };
    client.ask("ring", &ask)
}

fn type_at(client: &Client, node: &str) -> operator::Answer<Answer> {
    let ask = NodeRequest::Type {
        node: node.to_owned(),
        session: 1,
        bytes: b"x".to_vec(),
    };
    client.ask("ring", &ask)
}

/// The text of a refusal for lack of a right.
fn refusal<T: std::fmt::Debug>(answer: operator::Answer<T>) -> String {
    let words = answer.unwrap_err().to_string();
    assert!(words.contains("right"), "{words}");
    words
}

/// Network `name` with an access point at node `a`.
fn open(name: &str) -> Document {
    let text = document(name).write(Form::Toml);
    let text = format!("{text}\n[access.home]\nnode = \"a\"\nusers = [\"alice\"]\n");
    Document::read(&text, Form::Toml).unwrap()
}

fn names(client: &Client) -> BTreeSet<String> {
    client
        .list()
        .unwrap()
        .into_iter()
        .map(|grant| grant.name)
        .collect()
}

#[test]
fn delegate_may_do_what_was_granted_and_nothing_else() {
    let providers = Providers::new();
    let _roles = providers.start(&[Role::Pip, Role::Vnp, Role::Vno]);
    let _agents = [0, 1].map(|number| providers.agent(number));
    let operator = providers.operator();
    let [bob, eve] = ["bob", "eve"].map(|name| providers.delegate(name));
    for document in [open("ring"), document("other")] {
        operator.create(&document).unwrap();
        wait_until(&operator, &document.vnet.name, |seen| {
            seen.standing.is_ready()
        });
    }
    without_a_grant_nothing_is_learnt(&bob);
    // Some verbs on one node.
    let some = grant(&[Verb::Exec, Verb::Watch], &["a"]);
    operator.grant("ring", "bob", Some(&some)).unwrap();
    assert_eq!(operator.grants("ring").unwrap()["bob"], some);
    assert_eq!(names(&bob), ["ring".to_owned()].into());
    assert!(bob.seen("ring").unwrap().standing.is_ready());
    let output = exec(&bob, "ring", "a").unwrap();
    assert_eq!(output, "a: delegate bob, vno acme, vnp net");
    watch(&bob, "a").unwrap();
    let words = refusal(exec(&bob, "ring", "b"));
    assert!(
        words.contains("`exec` at node b") && words.contains("exec, watch at a"),
        "{words}"
    );
    for words in [
        refusal(watch(&bob, "b")),
        refusal(type_at(&bob, "a")),
        refusal(bob.migrate("ring", "a")),
        refusal(bob.look("ring")),
        refusal(bob.document("ring")),
        refusal(bob.events("ring", 0, Duration::ZERO)),
        refusal(bob.test("ring")),
        refusal(bob.users("ring")),
        refusal(bob.token("ring", "home", "alice", (60, BTreeSet::new()))),
        refusal(bob.revoke("ring", "home", "alice")),
        refusal(bob.apply(&open("ring"))),
        refusal(bob.remove("ring")),
        refusal(exec(&bob, "other", "a")),
    ] {
        assert!(words.contains("acme can grant"), "{words}");
    }
    only_operators_grant_and_make(&providers, &bob);
    grant_is_over_at_its_end(&operator, &bob);
    // Another delegate gets no rights by this.
    assert!(names(&eve).is_empty());
    refusal(exec(&eve, "ring", "a"));
    whole_networks_are_granted_verb_by_verb(&operator, &bob);
    // A withdrawn grant ends at once; a grant is removed with its network.
    operator.grant("ring", "bob", None).unwrap();
    refusal(exec(&bob, "ring", "a"));
    let again = operator.grant("ring", "bob", None).unwrap_err().to_string();
    assert!(again.contains("has no grant"), "{again}");
    operator
        .grant("other", "bob", Some(&grant(&[Verb::Remove], &[])))
        .unwrap();
    bob.remove("other").unwrap();
    wait_until_gone(&operator, "other");
    operator.create(&document("other")).unwrap();
    refusal(bob.seen("other"));
}

fn grant_is_over_at_its_end(operator: &Client, bob: &Client) {
    let unix_now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap().as_secs()
    };
    let mut short = grant(&[Verb::Exec], &["b"]);
    short.until = Some(unix_now());
    let words = refusal_of_operator(operator.grant("ring", "bob", Some(&short)));
    assert!(words.contains("would end in the past"), "{words}");
    // The earlier grant is unchanged.
    exec(bob, "ring", "a").unwrap();
    short.until = Some(unix_now() + 8);
    operator.grant("ring", "bob", Some(&short)).unwrap();
    assert_eq!(operator.grants("ring").unwrap()["bob"], short);
    let until = short.until.unwrap();
    let last = loop {
        let before = unix_now();
        match exec(bob, "ring", "b") {
            Ok(_) => assert!(before <= until, "it goes on"),
            refused => break refusal(refused),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(
        unix_now() + 1 >= until && last.contains("no rights"),
        "{last}"
    );
}

/// Without a grant, a delegate does not even learn which networks exist.
fn without_a_grant_nothing_is_learnt(bob: &Client) {
    assert!(names(bob).is_empty());
    for name in ["ring", "none"] {
        let words = [
            refusal(bob.seen(name)),
            refusal(bob.document(name)),
            refusal(bob.events(name, 0, Duration::ZERO)),
            refusal(bob.look(name)),
            refusal(exec(bob, name, "a")),
            refusal(bob.users(name)),
            refusal(bob.token(name, "home", "alice", (60, BTreeSet::new()))),
            refusal(bob.remove(name)),
            refusal(bob.apply(&document(name))),
        ];
        let all_alike = words.iter().all(|word| *word == words[0]);
        assert!(
            all_alike && words[0].contains("bob has no rights in a network"),
            "{words:?}"
        );
    }
}

fn whole_networks_are_granted_verb_by_verb(operator: &Client, bob: &Client) {
    operator
        .grant("ring", "bob", Some(&grant(&[Verb::Token], &[])))
        .unwrap();
    assert!(bob.revoke("ring", "home", "alice").unwrap().was_joined);
    let words = bob.revoke("ring", "away", "alice").unwrap_err().to_string();
    assert!(words.contains("no access point away"), "{words}");
    refusal(exec(bob, "ring", "a"));
    operator
        .grant("ring", "bob", Some(&grant(&[Verb::Apply], &[])))
        .unwrap();
    let before = bob.document("ring").unwrap();
    assert_eq!(before, open("ring"));
    let changed = bob.apply(&document("ring")).unwrap();
    assert_eq!(changed.generation, 2);
    // The grant stays when the document changes, and actions are recorded in the events.
    refusal(bob.remove("ring"));
    let events = operator.events("ring", 0, Duration::ZERO).unwrap();
    for what in [
        "operator acme lets delegate bob do this: exec, watch at a",
        "node a: delegate bob runs `who`",
        "node a: delegate bob cuts alice off at access point home",
        "delegate bob has changed what is wanted",
    ] {
        assert!(
            events.iter().any(|event| event.what == what),
            "{what}: {events:?}"
        );
    }
}

fn only_operators_grant_and_make(providers: &Providers, bob: &Client) {
    let all: Vec<Verb> = Verb::ALL.into();
    for words in [
        refusal_of_operator(bob.grant("ring", "bob", Some(&grant(&all, &[])))),
        refusal_of_operator(bob.grant("ring", "bob", None)),
        refusal_of_operator(bob.grants("ring")),
        refusal_of_operator(bob.create(&document("mine"))),
    ] {
        assert!(words.contains("operator acme may"), "{words}");
    }
    let operator = providers.operator();
    for (to, grant, words) in [
        ("Bob", grant(&[Verb::Exec], &[]), "is not a name"),
        ("bob", grant(&[], &[]), "at least one verb"),
        ("bob", grant(&[Verb::Exec], &["z"]), "no node z"),
        ("bob", grant(&[Verb::Remove], &["a"]), "whole network"),
    ] {
        let error = operator
            .grant("ring", to, Some(&grant))
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
    let unknown = operator.grants("none").unwrap_err().to_string();
    assert!(unknown.contains("there is no network none"), "{unknown}");
}

fn refusal_of_operator<T: std::fmt::Debug>(answer: operator::Answer<T>) -> String {
    answer.unwrap_err().to_string()
}
