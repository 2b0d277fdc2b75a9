//! Tests what documents give nodes at their start: file systems, variables, files, commands.

use std::time::Duration;

use carina_vnet::report::{NodeSwitch, VnetState};

use crate::network::TestNetwork;
use crate::waiting::is_root;

const EXAMPLE: &str = include_str!("../../../../examples/vnets/prepared.toml");
const NAME: &str = "prepared";

/// File systems that are mounted beneath the directory of the network's agent.
fn mounts(network: &TestNetwork) -> usize {
    let all = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let path = network.directory().path().to_str().unwrap();
    all.lines().filter(|line| line.contains(path)).count()
}

fn events(network: &TestNetwork) -> String {
    let events = network.agent().events(NAME, 0, Duration::ZERO);
    format!("{:?}", events.unwrap())
}

#[test]
fn nodes_have_their_files_and_commands_and_the_host_does_not() {
    if !is_root() {
        return;
    }
    let mut network = TestNetwork::ready(EXAMPLE);
    assert_eq!(network.run("r1", "cat /etc/motd"), "this is r1");
    assert_eq!(network.run("r1", "hostname"), "r1");
    assert_eq!(network.run("r1", "echo $ROLE"), "edge router");
    let route = network.run("h1", "ip route get 192.0.2.1");
    assert!(route.contains("via 10.0.0.1"), "{route}");
    assert!(events(&network).contains("edge router r1"));
    // Other nodes and the host have none of it.
    network.run("h1", "test ! -e /opt/lab/hello");
    assert!(!std::path::Path::new("/opt/lab/hello").exists());
    network.run("h1", "echo mine >/etc/motd");
    assert_eq!(network.run("r1", "cat /etc/motd"), "this is r1");

    // A restart repeats the start; an agent that adopts the node does not.
    network.run("r1", "echo other >/etc/motd");
    let restarted = network.agent().switch_node(NAME, "r1", NodeSwitch::Restart);
    restarted.unwrap();
    network.wait_until_ready();
    assert_eq!(network.run("r1", "cat /etc/motd"), "this is r1");
    network.run("r1", "echo other >/etc/motd");
    network.restart_agent();
    assert_eq!(network.run("r1", "cat /etc/motd"), "other");

    // A network that is restored gets them again.
    let place = network.directory().path().join("saved");
    network.agent().save(NAME, &place).unwrap();
    network.agent().remove(NAME).unwrap();
    assert_eq!(mounts(&network), 0);
    network.agent().restore(&place).unwrap();
    network.wait_until_ready();
    assert_eq!(network.run("r1", "cat /etc/motd"), "this is r1");
    network.agent().remove(NAME).unwrap();
    assert_eq!(mounts(&network), 0);
}

#[test]
fn machine_has_its_files_its_variables_and_its_commands() {
    if !is_root() {
        return;
    }
    let of_namespaces = "kind = \"namespace\"\nfilesystem = \"host\"\n";
    let of_machines = "exec_deadline = \"60s\"\n";
    assert!(EXAMPLE.contains(of_namespaces));
    let network = TestNetwork::ready(&EXAMPLE.replace(of_namespaces, of_machines));
    assert_eq!(network.run("r1", "cat /etc/motd"), "this is r1");
    assert_eq!(network.run("r1", "echo $ROLE"), "edge router");
    assert_eq!(
        network.run("r1", "ls -l /opt/lab/hello | cut -c1-10"),
        "-rwxr-xr-x"
    );
    let address = network.run("r1", "ip address show dev lo");
    assert!(address.contains("192.0.2.1/32"), "{address}");
    let route = network.run("h1", "ip route get 192.0.2.1");
    assert!(route.contains("via 10.0.0.1"), "{route}");
    // The command has run in the machine, with its variables and its host name.
    let events = events(&network);
    assert!(events.contains("edge router r1"), "{events}");
    network.passes("h1", "192.0.2.1");

    // A restart boots the machine, which is given all again.
    network.run("r1", "echo other >/etc/motd");
    let restarted = network.agent().switch_node(NAME, "r1", NodeSwitch::Restart);
    restarted.unwrap();
    network.wait_until_ready();
    assert_eq!(network.run("r1", "cat /etc/motd"), "this is r1");
    network.passes("h1", "192.0.2.1");
    network.remove();
}

#[test]
fn command_that_fails_or_hangs_is_named_with_its_node() {
    if !is_root() {
        return;
    }
    for (command, what) in [
        ("echo no >&2; exit 7", "exit status 7: no"),
        ("sleep 500", "not ended"),
    ] {
        let text = EXAMPLE
            .replace("/opt/lab/hello\",\n]", &format!("{command}\",\n]"))
            .replace("\"10s\"", "\"1s\"");
        let network = TestNetwork::begun(&text);
        let report = network.settled();
        assert_eq!(report.state, VnetState::Failed, "{report:?}");
        let words = format!("{report:?}");
        for part in ["node r1", command, what] {
            assert!(words.contains(part), "{part}: {words}");
        }
        network.agent().remove(NAME).unwrap();
        assert_eq!(mounts(&network), 0);
    }
}
