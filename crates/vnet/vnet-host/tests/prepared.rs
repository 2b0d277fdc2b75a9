//! Tests what documents give nodes at their start: file systems, variables, files, commands.

use std::time::Duration;

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::{NodeSwitch, VnetReport, VnetState};
use carina_vnet_host::Agent;

use crate::waiting::{TestDirectory, is_root, run, wait_until_settled};

const EXAMPLE: &str = include_str!("../../../../examples/vnets/prepared.toml");
const NAME: &str = "prepared";

fn document(text: &str) -> Document {
    Document::read(text, Form::Toml).expect("the text is a document")
}

fn ready(agent: &Agent) -> VnetReport {
    let report = wait_until_settled(agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    report
}

fn mounts(directory: &TestDirectory) -> usize {
    let all = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let path = directory.path().to_str().unwrap();
    all.lines().filter(|line| line.contains(path)).count()
}

#[test]
fn nodes_have_their_files_and_commands_and_the_host_does_not() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&document(EXAMPLE)).unwrap();
    ready(&agent);
    let inside = |node: &str, command: &str| run(&agent, NAME, node, command);
    assert_eq!(inside("r1", "cat /etc/motd"), "this is r1");
    assert_eq!(inside("r1", "hostname"), "r1");
    assert_eq!(inside("r1", "echo $ROLE"), "edge router");
    let route = inside("h1", "ip route get 192.0.2.1");
    assert!(route.contains("via 10.0.0.1"), "{route}");
    let events = agent.events(NAME, 0, Duration::ZERO).unwrap();
    let events = format!("{events:?}");
    assert!(events.contains("edge router r1"), "{events}");
    // Other nodes and the host have none of it.
    inside("h1", "test ! -e /opt/lab/hello");
    assert!(!std::path::Path::new("/opt/lab/hello").exists());
    inside("h1", "echo mine >/etc/motd");
    assert_eq!(inside("r1", "cat /etc/motd"), "this is r1");

    // A restart repeats the start; an agent that adopts the node does not.
    inside("r1", "echo other >/etc/motd");
    agent.switch_node(NAME, "r1", NodeSwitch::Restart).unwrap();
    ready(&agent);
    assert_eq!(inside("r1", "cat /etc/motd"), "this is r1");
    inside("r1", "echo other >/etc/motd");
    drop(agent);
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert_eq!(run(&agent, NAME, "r1", "cat /etc/motd"), "other");

    // A network that is restored gets them again.
    let place = directory.path().join("saved");
    agent.save(NAME, &place).unwrap();
    agent.remove(NAME).unwrap();
    assert_eq!(mounts(&directory), 0);
    agent.restore(&place).unwrap();
    ready(&agent);
    assert_eq!(run(&agent, NAME, "r1", "cat /etc/motd"), "this is r1");
    agent.remove(NAME).unwrap();
    assert_eq!(mounts(&directory), 0);
}

#[test]
fn command_that_fails_or_hangs_is_named_with_its_node() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    for (command, what) in [
        ("echo no >&2; exit 7", "exit status 7: no"),
        ("sleep 500", "not ended"),
    ] {
        let text = EXAMPLE
            .replace("/opt/lab/hello\",\n]", &format!("{command}\",\n]"))
            .replace("\"10s\"", "\"1s\"");
        agent.create(&document(&text)).unwrap();
        let report = wait_until_settled(&agent, NAME);
        assert_eq!(report.state, VnetState::Failed, "{report:?}");
        let words = format!("{report:?}");
        for part in ["node r1", command, what] {
            assert!(words.contains(part), "{part}: {words}");
        }
        agent.remove(NAME).unwrap();
        assert_eq!(mounts(&directory), 0);
    }
}
