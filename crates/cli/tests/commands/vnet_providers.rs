//! Networks that an operator gets of two providers, whose processes are killed at any step.

use carina_vnet::document::Form;
use carina_vnet::message::Condition;
use carina_vnet::vno::Seen;

use crate::commands::providers::{
    PROCESSES, Providers, SECRETS, document, document_with, is_root, namespaces_of,
};

#[test]
fn operator_gets_a_network_of_two_providers() {
    if !is_root() {
        return;
    }
    let providers = Providers::start("op");
    let logs = || providers.logs();
    let file = providers.path("two.toml");
    std::fs::write(&file, document("two").write(Form::Toml)).unwrap();
    providers.wait("the VNO", || providers.ask(|client| client.list()).ok());
    let output = providers.command(&["up", &file]);
    assert!(output.status.success(), "{output:?}\n{}", logs());
    let seen: Seen = serde_json::from_slice(&output.stdout).unwrap();
    assert!(seen.standing.is_ready());
    // Each host has its two nodes and the namespace of their ports.
    let uids = providers.uids();
    let made = namespaces_of(&uids);
    assert_eq!(made.len(), 6, "{made:?}");
    operator_goes_into_nodes(&providers);
    for words in [
        &["status"][..],
        &["list"],
        &["events", "two"],
        &["test"],
        &["show"],
    ] {
        let output = providers.command(words);
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", logs());
        has_no_secrets(&output.stdout);
    }
    let again = providers.command(&["up", &file]);
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    let output = providers.command(&["down", "--all"]);
    assert!(output.status.success(), "{output:?}\n{}", logs());
    providers.wait_until_gone("two", &uids);
    // What does not fit is refused for good, with the reason.
    let large = document_with("large", "reject", "2Gbps");
    std::fs::write(&file, large.write(Form::Toml)).unwrap();
    let refused = providers.command(&["up", &file]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}\n{}", logs());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("network large is refused"), "{said}");
    assert_eq!(providers.records().len(), 0);
}

/// Commands, consoles and refusals: they work wherever the node is, and are noted there.
fn operator_goes_into_nodes(providers: &Providers) {
    for node in ["a", "d"] {
        let words = [node, "sh", "-c", "ip -br address show dev eth0; exit 3"];
        let output = providers.command_inside("exec", &words, b"");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            output.status.code(),
            Some(3),
            "{output:?}\n{}",
            providers.logs()
        );
        assert!(said.contains("10.0.0."), "{said}");
        let typed = b"echo it is $CARINA_NODE\n";
        let output = providers.command_inside("console", &[node], typed);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}\n{}", providers.logs());
        assert!(said.contains(&format!("it is {node}")), "{said}");
    }
    let test = providers.command(&["test"]);
    let said = String::from_utf8_lossy(&test.stdout).into_owned();
    assert!(said.contains("probes have passed 3 links"), "{said}");
    for (verb, words) in [
        ("exec", &["z", "true"][..]),
        ("migrate", &["a"]),
        ("console", &["z"]),
    ] {
        let output = providers.command_inside(verb, words, b"");
        assert!(!output.status.success(), "{output:?}");
        has_no_secrets(&output.stderr);
    }
    let notes = providers.accesses();
    for what in [
        "\"operator acme\",\"vno acme\",\"vnp net\"",
        "runs `'sh' '-c'",
        "watches the console",
        "leaves the console",
    ] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
}

/// No name of a provider, a host or an address of one is among the words.
fn has_no_secrets(said: &[u8]) {
    let said = String::from_utf8_lossy(said);
    let is_of_word = |c: char| c.is_alphanumeric() || c == '.';
    for secret in SECRETS {
        let mut words = said.split(|c| !is_of_word(c));
        assert!(!words.any(|word| word == secret), "{secret}: {said}");
    }
}

/// Each role is killed as soon as each condition holds: afterwards the network becomes ready, and
/// when it is removed nothing of it is left.
#[test]
fn network_becomes_ready_whichever_role_is_killed() {
    if !is_root() {
        return;
    }
    let mut providers = Providers::start("kill");
    let steps = [
        None,
        Some(Condition::Admitted),
        Some(Condition::Reserved),
        Some(Condition::Ready),
    ];
    let mut number = 0;
    for process in PROCESSES {
        for step in steps {
            number += 1;
            let name = format!("n{number}");
            let wanted = document(&name);
            providers.wait("the VNO", || {
                providers.ask(|client| client.create(&wanted)).ok()
            });
            if let Some(step) = step {
                providers.wait_until(&name, |seen| seen.standing.holds.contains(&step));
            }
            providers.kill_and_begin(process);
            providers.wait_until(&name, |seen| seen.standing.is_ready());
            let uids = providers.uids();
            assert_eq!(namespaces_of(&uids).len(), 6, "{}", providers.logs());
            // Also while it is being removed.
            providers.wait("the VNO", || {
                providers.ask(|client| client.remove(&name)).ok()
            });
            providers.kill_and_begin(process);
            providers.wait_until_gone(&name, &uids);
        }
    }
}
