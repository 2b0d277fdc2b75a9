//! Tests networks whose nodes are virtual machines.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet::trace::TraceQuery;
use carina_vnet_host::{Agent, Vnets};

use crate::waiting::{LIMIT, TestDirectory, is_root, left_of, run, wait_until_settled};

/// Two machines and a namespace in a row, or, with one more link, in a ring.
fn document(boot: &str, is_ring: bool) -> Document {
    let mut text = format!("[vnet]\nname = \"vms\"\n[defaults]\nboot = \"{boot}\"\n");
    text.push_str(
        "memory = 128\n\
        [node.a]\n[node.b]\n[node.c]\nkind = \"namespace\"\nboot = \"cold\"\n\
        [[link]]\nends = [\"a\", \"b:lan\"]\nrate = \"100Mbps\"\n\
        [[link]]\nends = [\"b\", \"c\"]\nrate = \"100Mbps\"\n\
        [[test]]\nping = [\"a\", \"c\"]\n",
    );
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
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let report = links_come_and_go(&agent, "clone");
    assert_eq!(run(&agent, "vms", "a", "ls /sys/class/net"), "eth0\nlo");
    agent.remove("vms").unwrap();
    assert_eq!(left_of(&report.vnet.to_string()), Vec::<String>::new());
    assert!(agent.is_empty());
}

#[test]
fn nodes_are_machines_of_the_pool_and_change_as_others_do() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.keep_ready(2).unwrap();
    wait_for_pool(&agent, 2);
    let standing = carina_vm::list(&Vnets::of(&run_dir).pool()).unwrap();
    let report = links_come_and_go(&agent, "pool");
    let machines = carina_vm::list(&Vnets::of(&run_dir).vnet("vms").machines()).unwrap();
    let pids = |machines: &[carina_vm::Record]| -> BTreeSet<i32> {
        machines.iter().map(|machine| machine.pid).collect()
    };
    assert_eq!(pids(&machines), pids(&standing));
    // Other machines have replaced them in the pool.
    wait_for_pool(&agent, 2);
    agent.remove("vms").unwrap();
    assert_eq!(left_of(&report.vnet.to_string()), Vec::<String>::new());
    drop(agent);
    assert!(
        carina_vm::list(&Vnets::of(&run_dir).pool())
            .unwrap()
            .is_empty()
    );
}

fn wait_for_pool(agent: &Agent, wanted: usize) {
    let deadline = Instant::now() + LIMIT;
    while agent.count_ready() < wanted {
        assert!(
            Instant::now() < deadline,
            "{} are ready",
            agent.count_ready()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes the network, adds a link to it and removes the link again.
fn links_come_and_go(agent: &Agent, boot: &str) -> VnetReport {
    agent.create(&document(boot, false)).unwrap();
    let report = wait_until_settled(agent, "vms");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert_eq!(run(agent, "vms", "b", "hostname"), "b");
    let text = run(agent, "vms", "b", "ip address show dev lan");
    assert!(
        text.contains("10.0.0.2/30") && text.contains("mtu 1480"),
        "{text}"
    );
    let tests = agent.test("vms").unwrap();
    assert!(tests.iter().all(|test| test.holds), "{tests:?}");
    for node in ["a", "b"] {
        run(agent, "vms", node, "echo here >/tmp/mark");
    }
    agent.apply(&document(boot, true)).unwrap();
    let report = wait_until_settled(agent, "vms");
    assert_eq!(
        (report.state, report.links.len()),
        (VnetState::Ready, 3),
        "{report:?}"
    );
    // What was written into a guest's memory before still exists: the guest was not restarted.
    for node in ["a", "b"] {
        assert_eq!(run(agent, "vms", node, "cat /tmp/mark"), "here");
    }
    agent.apply(&document(boot, false)).unwrap();
    let report = wait_until_settled(agent, "vms");
    assert_eq!(
        (report.state, report.links.len()),
        (VnetState::Ready, 2),
        "{report:?}"
    );
    assert_eq!(run(agent, "vms", "a", "cat /tmp/mark"), "here");
    report
}

#[test]
fn machines_are_traced_and_their_throughput_is_tested() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let text = "[vnet]\nname = \"fast\"\n[defaults]\nmemory = 128\n[node.a]\n[node.b]\n[node.c]\n\
        kind = \"namespace\"\nboot = \"cold\"\n\
        [[link]]\nends = [\"a\", \"b\"]\nrate = \"10Mbps\"\n\
        [[link]]\nends = [\"b\", \"c\"]\nrate = \"10Mbps\"\n\
        [[test]]\nthroughput = [\"a\", \"b\"]\nrate_min = \"100kbps\"\n\
        [[test]]\nthroughput = [\"c\", \"a\"]\nrate_min = \"100kbps\"\n\
        [[test]]\nthroughput = [\"a\", \"b\"]\nrate_min = \"100Mbps\"\n";
    agent
        .create(&Document::read(text, Form::Toml).expect("the text is a document"))
        .unwrap();
    let report = wait_until_settled(&agent, "fast");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    let tests = agent.test("fast").unwrap();
    let holds: Vec<bool> = tests.iter().map(|test| test.holds).collect();
    // No stream is faster than its link.
    assert_eq!(holds, [true, true, true, false], "{tests:?}");
    let query = TraceQuery {
        from: "a".into(),
        to: "c".into(),
        echoes: 1,
    };
    let trace = agent.trace("fast", &query).unwrap();
    assert!(
        trace.places.iter().all(|place| place.is_expected),
        "{trace:?}"
    );
    assert_eq!(trace.places.len(), 8);
    agent.remove("fast").unwrap();
}
