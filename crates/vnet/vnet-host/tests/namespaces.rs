//! Tests networks whose nodes are namespaces.

use std::path::Path;

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::VnetState;
use carina_vnet_host::{Agent, Vnets, leftovers};

use crate::waiting::{TestDirectory, is_root, left_of, run, wait_until_settled};

/// A chain of namespaces `a`, `b`, `c`, … of this length.
fn chain(name: &str, length: u8) -> Document {
    let names: Vec<char> = (b'a'..b'a' + length).map(char::from).collect();
    let mut text = format!("[vnet]\nname = \"{name}\"\n[defaults]\nkind = \"namespace\"\n");
    for name in &names {
        text.push_str(&format!("[node.{name}]\n"));
    }
    for pair in names.windows(2) {
        let [one, other] = [pair[0], pair[1]];
        text.push_str(&format!(
            "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"100Mbps\"\n"
        ));
    }
    let (first, last) = (names[0], names[names.len() - 1]);
    text.push_str(&format!("[[test]]\nping = [\"{first}\", \"{last}\"]\n"));
    Document::read(&text, Form::Toml).expect("the text is a document")
}

#[test]
fn network_is_ready_when_probes_passed_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&chain("one", 3)).unwrap();
    let report = wait_until_settled(&agent, "one");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert!(report.links.iter().all(|link| link.rtt_ns.is_some()));
    assert_eq!(report.phases.len(), 5, "{:?}", report.phases);
    // The interfaces are those of the report, and the path leads over the middle node.
    let text = run(&agent, "one", "a", "ip -o -4 address show dev eth0");
    assert!(text.contains("10.0.0.1/30"), "{text}");
    let tests = agent.test("one").unwrap();
    assert!(tests.iter().all(|test| test.holds), "{tests:?}");
    assert_eq!(tests[1].test, "ping a c");
    // Frames have passed in both directions, and none of them twice.
    let report = agent.report("one").unwrap();
    for link in &report.links {
        assert!(
            link.passed.iter().all(|passed| passed.frames > 1),
            "{link:?}"
        );
        assert!(
            link.passed.iter().all(|passed| passed.dropped == 0),
            "{link:?}"
        );
    }
    let id = report.vnet.to_string();
    assert_eq!(left_of(&id).len(), 4);
    agent.remove("one").unwrap();
    assert_eq!(left_of(&id), Vec::<String>::new());
    assert!(!Vnets::of(&run_dir).vnet("one").path().exists());
    assert!(agent.is_empty());
}

#[test]
fn networks_with_the_same_addresses_never_meet() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    for name in ["red", "blue"] {
        agent.create(&chain(name, 2)).unwrap();
    }
    for name in ["red", "blue"] {
        assert_eq!(wait_until_settled(&agent, name).state, VnetState::Ready);
    }
    // The number of echo requests that the node at the far end has received.
    let asked = |name: &str| -> u64 {
        let text = run(&agent, name, "b", "grep ^Icmp: /proc/net/snmp");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let place = lines[0].iter().position(|word| *word == "InEchos");
        lines[1][place.expect("the kernel counts echos")]
            .parse()
            .expect("a number")
    };
    let (red, blue) = (asked("red"), asked("blue"));
    for _ in 0..20 {
        assert!(agent.test("red").unwrap().iter().all(|test| test.holds));
    }
    assert!(asked("red") >= red + 20);
    // The agents themselves probe links now and then.
    assert!(asked("blue") < blue + 10);
    for name in ["red", "blue"] {
        agent.remove(name).unwrap();
    }
}

#[test]
fn change_touches_only_what_differs() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&chain("grow", 2)).unwrap();
    assert_eq!(wait_until_settled(&agent, "grow").state, VnetState::Ready);
    run(&agent, "grow", "a", "sleep 300 >/dev/null 2>&1 &");
    let before = run(&agent, "grow", "a", "cat /sys/class/net/eth0/ifindex");
    agent.apply(&chain("grow", 4)).unwrap();
    let report = wait_until_settled(&agent, "grow");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert_eq!(
        (report.generation, report.nodes.len(), report.links.len()),
        (2, 4, 3)
    );
    // The interface of a node that stays was not replaced.
    assert_eq!(
        run(&agent, "grow", "a", "cat /sys/class/net/eth0/ifindex"),
        before
    );
    assert!(agent.test("grow").unwrap().iter().all(|test| test.holds));
    agent.apply(&chain("grow", 2)).unwrap();
    let report = wait_until_settled(&agent, "grow");
    assert_eq!((report.state, report.nodes.len()), (VnetState::Ready, 2));
    assert_eq!(left_of(&report.vnet.to_string()).len(), 3);
    agent.remove("grow").unwrap();
    assert_eq!(left_of(&report.vnet.to_string()), Vec::<String>::new());
}

#[test]
fn network_of_an_agent_that_has_gone_is_taken_up_or_removed() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&chain("gone", 2)).unwrap();
    let first = wait_until_settled(&agent, "gone");
    let index = run(&agent, "gone", "a", "cat /sys/class/net/eth0/ifindex");
    // As after a kill: nothing is removed, and the engine's threads have ended.
    drop(agent);
    let agent = Agent::new(&run_dir).unwrap();
    let report = wait_until_settled(&agent, "gone");
    assert_eq!((report.state, report.vnet), (VnetState::Ready, first.vnet));
    assert_eq!(
        run(&agent, "gone", "a", "cat /sys/class/net/eth0/ifindex"),
        index
    );
    drop(agent);
    let vnets = Vnets::of(&run_dir);
    let record = vnets.vnet("gone").read().unwrap();
    leftovers::remove(&vnets.vnet("gone"), &record).unwrap();
    assert_eq!(left_of(&first.vnet.to_string()), Vec::<String>::new());
    assert!(is_empty(vnets.path()));
}

fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
