//! Tests nodes that end, are stopped and started, and links that are taken down.

use carina_api::paths::RunDir;
use carina_namespaces::NamespaceAccess;
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::{LinkState, NodeState};
use carina_vnet::report::NodeSwitch;
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet::trace::TraceQuery;
use carina_vnet_host::plan::Action;
use carina_vnet_host::{Agent, Vnets};

use crate::waiting::{LIMIT, TestDirectory, is_root, left_of, run, wait_until_settled};

/// Nodes a, b and c of these kinds in a chain.
fn chain(kinds: [&str; 3]) -> Document {
    let mut text = "[vnet]\nname = \"sw\"\n".to_owned();
    for (name, kind) in ["a", "b", "c"].iter().zip(kinds) {
        text.push_str(&format!("[node.{name}]\nkind = \"{kind}\"\n"));
    }
    for (one, other) in [("a", "b"), ("b", "c")] {
        text.push_str(&format!(
            "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"100Mbps\"\n"
        ));
    }
    Document::read(&text, Form::Toml).expect("the text is a document")
}

fn ready(agent: &Agent) -> VnetReport {
    let report = wait_until_settled(agent, "sw");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    report
}

fn state(report: &VnetReport, node: &str) -> NodeState {
    let found = report.nodes.iter().find(|candidate| candidate.name == node);
    found.expect("the network has it").state.clone()
}

fn is_down(report: &VnetReport, link: usize) -> bool {
    matches!(report.links[link].state, LinkState::Down { .. })
}

/// Process IDs of the machines, by name.
fn pids(run_dir: &RunDir) -> Vec<(String, i32)> {
    let machines = carina_vm::list(&Vnets::of(run_dir).vnet("sw").machines()).unwrap();
    machines
        .into_iter()
        .map(|machine| (machine.name, machine.pid))
        .collect()
}

fn planned(agent: &Agent, document: &Document) -> Vec<(Action, String)> {
    let steps = agent.plan(document).unwrap().steps;
    steps
        .into_iter()
        .map(|step| (step.action, step.subject))
        .collect()
}

fn passes(agent: &Agent, from: &str, to: &str) {
    let to = to.parse().expect("the address is one");
    agent.echo("sw", from, to, LIMIT).expect("the way is open");
}

/// Whether an interface of a namespace has a carrier.
fn has_carrier(agent: &Agent, node: &str, interface: &str) -> bool {
    let text = run(
        agent,
        "sw",
        node,
        &format!("ip -o link show dev {interface}"),
    );
    assert!(
        text.contains("LOWER_UP") != text.contains("NO-CARRIER"),
        "{text}"
    );
    text.contains("LOWER_UP")
}

#[test]
fn machine_whose_qemu_died_is_made_again_alone() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    let document = chain(["vm", "vm", "namespace"]);
    agent.create(&document).unwrap();
    let made = ready(&agent);
    assert_eq!(planned(&agent, &document), []);
    let before = pids(&run_dir);
    let [a, b] = [before[0].1, before[1].1];
    run(&agent, "sw", "b", "echo here >/tmp/mark");
    let pid = rustix::process::Pid::from_raw(a).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();

    let replaced = (Action::Replace, "node a".to_owned());
    // The process may not have ended yet.
    while planned(&agent, &document).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(planned(&agent, &document), [replaced]);
    agent.apply(&document).unwrap();
    ready(&agent);
    let after = pids(&run_dir);
    assert!(after[0].1 != a && after[1].1 == b, "{before:?} {after:?}");
    assert_eq!(run(&agent, "sw", "b", "cat /tmp/mark"), "here");
    passes(&agent, "c", "10.0.0.1");
    assert_eq!(planned(&agent, &document), []);

    // So does a restart of a running node.
    agent.switch_node("sw", "a", NodeSwitch::Restart).unwrap();
    ready(&agent);
    let again = pids(&run_dir);
    assert!(again[0].1 != after[0].1 && again[1].1 == b, "{again:?}");

    // The guest sees that its link is down.
    agent.switch_link("sw", 0, false).unwrap();
    assert_eq!(
        run(&agent, "sw", "a", "cat /sys/class/net/eth0/carrier"),
        "0"
    );
    agent.switch_link("sw", 0, true).unwrap();
    ready(&agent);
    assert_eq!(
        run(&agent, "sw", "a", "cat /sys/class/net/eth0/carrier"),
        "1"
    );
    agent.remove("sw").unwrap();
    assert_eq!(left_of(&made.vnet.to_string()), Vec::<String>::new());
}

#[test]
fn stopped_node_stays_so_until_it_is_started() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    let document = chain(["namespace"; 3]);
    agent.create(&document).unwrap();
    let made = ready(&agent);
    let id = made.vnet.to_string();
    let before = left_of(&id);
    let report = agent.switch_node("sw", "c", NodeSwitch::Stop).unwrap();
    assert_eq!(state(&report, "c"), NodeState::Stopped);
    assert!(!is_down(&report, 0) && is_down(&report, 1), "{report:?}");
    // A node that was stopped on purpose does not count as failed; its neighbour has lost the
    // carrier.
    assert_eq!(report.state, VnetState::Ready);
    assert!(!has_carrier(&agent, "b", "eth1"));
    let refused = agent.run("sw", "c", "true", LIMIT).unwrap_err();
    assert!(
        refused.to_string().contains("carina vnet start c"),
        "{refused}"
    );
    assert!(agent.save("sw", &directory.path().join("saved")).is_err());
    // Neither an `apply` nor another agent starts the node.
    agent.apply(&document).unwrap();
    assert_eq!(state(&ready(&agent), "c"), NodeState::Stopped);
    drop(agent);
    let agent = Agent::new(&run_dir).unwrap();
    let report = ready(&agent);
    assert_eq!(state(&report, "c"), NodeState::Stopped);
    assert!(is_down(&report, 1), "{report:?}");
    assert_eq!(planned(&agent, &document), []);

    agent.switch_node("sw", "c", NodeSwitch::Start).unwrap();
    let report = ready(&agent);
    assert_eq!(state(&report, "c"), NodeState::Up);
    assert!(!is_down(&report, 1), "{report:?}");
    passes(&agent, "a", "10.0.0.6");
    let unknown = agent.switch_node("sw", "z", NodeSwitch::Stop).unwrap_err();
    assert!(unknown.to_string().contains("it has: a, b, c"), "{unknown}");
    assert_eq!(left_of(&id), before);
    agent.remove("sw").unwrap();
    assert_eq!(left_of(&id), Vec::<String>::new());
}

#[test]
fn link_that_is_down_carries_nothing_until_it_is_up() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    let document = chain(["namespace"; 3]);
    agent.create(&document).unwrap();
    ready(&agent);
    let report = agent.switch_link("sw", 0, false).unwrap();
    assert!(is_down(&report, 0) && !is_down(&report, 1), "{report:?}");
    let carriers = || ["a", "b"].map(|node| has_carrier(&agent, node, "eth0"));
    assert_eq!(carriers(), [false, false]);
    agent.apply(&document).unwrap();
    assert!(is_down(&ready(&agent), 0));
    assert_eq!(carriers(), [false, false]);
    agent.switch_link_at("sw", ["b", "eth0"], true).unwrap();
    assert!(!is_down(&ready(&agent), 0));
    assert_eq!(carriers(), [true, true]);
    let unknown = agent.switch_link("sw", 9, false).unwrap_err().to_string();
    assert_eq!(unknown, "network sw has no link 9");
    agent.remove("sw").unwrap();
}

#[test]
fn namespace_of_ports_removed_by_hand_has_its_name_again() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let document = chain(["namespace"; 3]);
    agent.create(&document).unwrap();
    let made = ready(&agent);
    let before = left_of(&made.vnet.to_string());
    let ports = format!("cv-{}", made.vnet);
    let access = NamespaceAccess::of_root();
    let removes = || access.ip(&["netns", "del", &ports]).unwrap();
    removes();
    let deadline = std::time::Instant::now() + LIMIT;
    while !carina_namespaces::is_namespace(&ports) {
        assert!(std::time::Instant::now() < deadline, "it has no name");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    passes(&agent, "a", "10.0.0.6");
    agent.switch_link("sw", 0, false).unwrap();
    agent.switch_link("sw", 0, true).unwrap();
    ready(&agent);
    // A change does not wait for the next check. A file in the namespace's place does not count as
    // a namespace.
    removes();
    std::fs::write(carina_namespaces::namespace_file(&ports), "").unwrap();
    agent.apply(&document).unwrap();
    ready(&agent);
    assert!(carina_namespaces::is_namespace(&ports));
    passes(&agent, "a", "10.0.0.6");
    assert_eq!(left_of(&made.vnet.to_string()), before);
    agent.remove("sw").unwrap();
    assert_eq!(left_of(&made.vnet.to_string()), Vec::<String>::new());
}

/// If the two indices are equal, Linux may handle a change of the carrier a second late.
#[test]
fn interfaces_have_other_indices_than_their_ports() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&chain(["namespace"; 3])).unwrap();
    ready(&agent);
    for node in ["a", "b", "c"] {
        // A line of output: `2: eth0@if10001: <…`
        let shown = run(&agent, "sw", node, "ip -o link show type veth");
        let of_line = |line: &str| {
            let (index, rest) = line.split_once(": ").expect("an index");
            let (_, peer) = rest.split(':').next().unwrap().split_once("@if").unwrap();
            [index, peer].map(|text| text.trim().parse::<u32>().unwrap())
        };
        let indices: Vec<[u32; 2]> = shown.lines().map(of_line).collect();
        assert_eq!(indices.len(), if node == "b" { 2 } else { 1 }, "{shown}");
        assert!(indices.iter().all(|[own, peer]| own != peer), "{shown}");
    }
    agent.remove("sw").unwrap();
}

#[test]
fn way_is_open_after_each_restart_and_link_up() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&chain(["namespace"; 3])).unwrap();
    ready(&agent);
    let query = TraceQuery {
        from: "a".to_owned(),
        to: "c".to_owned(),
        echoes: 3,
    };
    let open = || {
        ready(&agent);
        let trace = agent.trace("sw", &query).unwrap();
        assert_eq!(
            (trace.answered, &trace.findings[..]),
            (3, &[][..]),
            "{trace:?}"
        );
    };
    for node in ["a", "b", "c"] {
        agent.switch_node("sw", node, NodeSwitch::Restart).unwrap();
        open();
    }
    for link in [0, 1, 0] {
        agent.switch_link("sw", link, false).unwrap();
        agent.switch_link("sw", link, true).unwrap();
        open();
    }
    agent.remove("sw").unwrap();
}

#[test]
fn namespace_removed_by_hand_is_made_again_with_its_links() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    let document = chain(["namespace"; 3]);
    agent.create(&document).unwrap();
    let made = ready(&agent);
    let removed = format!("cv-{}-b", made.vnet);
    let access = NamespaceAccess::of_root();
    carina_namespaces::remove_namespaces(&access, std::slice::from_ref(&removed)).unwrap();
    let replaced = (Action::Replace, "node b".to_owned());
    assert_eq!(planned(&agent, &document), [replaced]);
    agent.apply(&document).unwrap();
    ready(&agent);
    passes(&agent, "a", "10.0.0.6");
    // A file that is not a namespace does not count as a node either.
    carina_namespaces::remove_namespaces(&access, std::slice::from_ref(&removed)).unwrap();
    std::fs::write(carina_namespaces::namespace_file(&removed), "").unwrap();
    drop(agent);
    let agent = Agent::new(&run_dir).unwrap();
    ready(&agent);
    passes(&agent, "a", "10.0.0.6");
    agent.remove("sw").unwrap();
    assert_eq!(left_of(&made.vnet.to_string()), Vec::<String>::new());
}
