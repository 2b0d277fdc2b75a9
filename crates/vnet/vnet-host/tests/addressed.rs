//! Tests links with addresses and MTUs that their document gives.

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::VnetState;
use carina_vnet_host::Agent;

use crate::waiting::{LIMIT, TestDirectory, is_root, run, wait_until_settled};

const EXAMPLE: &str = include_str!("../../../../examples/vnets/addressed.toml");
const NAME: &str = "addressed";

fn document(text: &str) -> Document {
    Document::read(text, Form::Toml).expect("the text is a document")
}

fn agent_with_example(directory: &TestDirectory) -> Agent {
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&document(EXAMPLE)).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    agent
}

/// A counter of the kernel of a node, as `/proc/net/snmp` and `/proc/net/snmp6` have it: the
/// protocol and the name, or the name alone.
fn counter(agent: &Agent, node: &str, name: &str) -> u64 {
    let text = run(agent, NAME, node, "cat /proc/net/snmp /proc/net/snmp6");
    let lines: Vec<&str> = text.lines().collect();
    let value = match name.split_once(' ') {
        None => lines.iter().find_map(|line| {
            let (word, value) = line.split_once(char::is_whitespace)?;
            (word == name).then(|| value.trim().to_owned())
        }),
        // A line of names, then a line of values.
        Some((protocol, name)) => lines.windows(2).find_map(|two| {
            let names = two[0].strip_prefix(protocol)?.split_whitespace();
            let values = two[1].strip_prefix(protocol)?.split_whitespace();
            let mut pairs = names.zip(values);
            pairs.find_map(|(it, value)| (it == name).then(|| value.to_owned()))
        }),
    };
    let value = value.unwrap_or_else(|| panic!("no {name}: {text}"));
    value.parse().unwrap()
}

/// Sends datagrams of `bytes` bytes from a node until node `at` has counted one for a closed port.
fn send_until_counted(agent: &Agent, from: &str, (to, bytes): (&str, u32), at: &str) {
    let name = if to.contains(':') {
        "Udp6NoPorts"
    } else {
        "Udp: NoPorts"
    };
    let before = counter(agent, at, name);
    let deadline = std::time::Instant::now() + LIMIT;
    while counter(agent, at, name) == before {
        assert!(std::time::Instant::now() < deadline, "nothing came to {to}");
        let send = format!("exec 3<>/dev/udp/{to}/9; dd if=/dev/zero bs={bytes} count=1 >&3");
        run(
            agent,
            NAME,
            from,
            &format!("bash -c '{send}' 2>/dev/null || true"),
        );
    }
    assert_eq!(counter(agent, at, "Ip: ReasmReqds"), 0);
}

#[test]
fn links_have_the_addresses_and_the_mtu_of_the_document() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = agent_with_example(&directory);
    let addresses = |node: &str| run(&agent, NAME, node, "ip -o address show dev eth0");
    for address in ["192.168.1.1/24", "2001:db8:1::1/64"] {
        assert!(addresses("a").contains(address), "{}", addresses("a"));
    }
    // IPv6 is routed, and packets of the whole MTU pass in one piece.
    send_until_counted(&agent, "a", ("2001:db8:2::2", 64), "c");
    send_until_counted(&agent, "a", ("192.168.1.2", 8900), "b");
    let report = agent.report(NAME).unwrap();
    assert_eq!(report.links[0].passed[0].dropped, 0, "{report:?}");
    let interface = &report.nodes[0].interfaces[0];
    assert_eq!(interface.mtu, 9000);
    assert_eq!(interface.address6.as_deref(), Some("2001:db8:1::1/64"));

    // A change replaces the addresses, and leaves none of the old ones.
    let other = EXAMPLE
        .replace("192.168.1.", "172.20.0.")
        .replace("2001:db8:1:", "2001:db8:7:")
        .replace("mtu = 9000", "mtu = 1400");
    agent.apply(&document(&other)).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    let now = addresses("a");
    for address in ["172.20.0.1/24", "2001:db8:7::1/64"] {
        assert!(now.contains(address), "{now}");
    }
    assert!(
        !now.contains("192.168.1.1") && !now.contains("db8:1:"),
        "{now}"
    );
    send_until_counted(&agent, "a", ("2001:db8:2::2", 64), "c");

    // The network is restored with them.
    let place = directory.path().join("saved");
    agent.save(NAME, &place).unwrap();
    agent.remove(NAME).unwrap();
    agent.restore(&place).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert!(addresses("a").contains("172.20.0.1/24"));
    agent.remove(NAME).unwrap();
}

#[test]
fn running_network_gets_long_packets() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent
        .create(&document(&EXAMPLE.replace("mtu = 9000", "mtu = 1500")))
        .unwrap();
    assert_eq!(wait_until_settled(&agent, NAME).state, VnetState::Ready);
    agent.apply(&document(EXAMPLE)).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    send_until_counted(&agent, "a", ("192.168.1.2", 8900), "b");
    // Another agent takes the network over with its long packets.
    drop(agent);
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    send_until_counted(&agent, "a", ("192.168.1.2", 8900), "b");
    agent.remove(NAME).unwrap();
}

#[test]
fn machine_has_ipv6_and_long_packets() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let text = EXAMPLE.replace("[node.b]", "[node.b]\nkind = \"vm\"");
    agent.create(&document(&text)).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    send_until_counted(&agent, "a", ("2001:db8:1::2", 64), "b");
    send_until_counted(&agent, "a", ("192.168.1.2", 8900), "b");
    // The machine routes IPv6 between its links.
    send_until_counted(&agent, "a", ("2001:db8:2::2", 64), "c");
    agent.remove(NAME).unwrap();
}
