//! Networks whose nodes are virtual machines.

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet_host::Agent;
use carina_vnet_host::report::VnetState;

use crate::waiting::{is_root, left_of, run, wait_until_settled};

/// Two machines and a namespace in a row; with a link more, in a ring.
fn document(is_ring: bool) -> Document {
    let mut text = "[vnet]\nname = \"vms\"\n[defaults]\nboot = \"clone\"\nmemory = 128\n\
        [node.a]\n[node.b]\n[node.c]\nkind = \"namespace\"\nboot = \"cold\"\n\
        [[link]]\nends = [\"a\", \"b:lan\"]\nrate = \"100Mbps\"\n\
        [[link]]\nends = [\"b\", \"c\"]\nrate = \"100Mbps\"\n\
        [[test]]\nping = [\"a\", \"c\"]\n"
        .to_owned();
    if is_ring {
        text.push_str("[[link]]\nends = [\"c\", \"a\"]\nrate = \"100Mbps\"\n");
    }
    Document::read(&text, Form::Toml).expect("the text is a document")
}

#[test]
fn running_machines_get_and_lose_links_without_a_restart() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&document(false)).unwrap();
    let report = wait_until_settled(&agent, "vms");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert_eq!(run(&agent, "vms", "b", "hostname"), "b");
    let text = run(&agent, "vms", "b", "ip address show dev lan");
    assert!(
        text.contains("10.0.0.2/30") && text.contains("mtu 1480"),
        "{text}"
    );
    let tests = agent.test("vms").unwrap();
    assert!(tests.iter().all(|test| test.holds), "{tests:?}");
    for node in ["a", "b"] {
        run(&agent, "vms", node, "echo here >/tmp/mark");
    }
    agent.apply(&document(true)).unwrap();
    let report = wait_until_settled(&agent, "vms");
    assert_eq!(
        (report.state, report.links.len()),
        (VnetState::Ready, 3),
        "{report:?}"
    );
    // What was written into a guest's memory before is there: it was not restarted.
    for node in ["a", "b"] {
        assert_eq!(run(&agent, "vms", node, "cat /tmp/mark"), "here");
    }
    agent.apply(&document(false)).unwrap();
    let report = wait_until_settled(&agent, "vms");
    assert_eq!(
        (report.state, report.links.len()),
        (VnetState::Ready, 2),
        "{report:?}"
    );
    assert_eq!(
        run(&agent, "vms", "a", "cat /tmp/mark; ls /sys/class/net"),
        "here\neth0\nlo"
    );
    agent.remove("vms").unwrap();
    assert_eq!(left_of(&report.vnet.to_string()), Vec::<String>::new());
    assert!(agent.is_empty());
}
