//! Tests networks with bridges as nodes.

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet_host::Agent;

use crate::waiting::{LIMIT, TestDirectory, is_root, run, wait_until_settled};

const EXAMPLE: &str = include_str!("../../../../examples/vnets/switched.toml");
const NAME: &str = "switched";

fn document(text: &str) -> Document {
    Document::read(text, Form::Toml).expect("the text is a document")
}

fn ready(agent: &Agent) -> VnetReport {
    let report = wait_until_settled(agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    report
}

fn passes(agent: &Agent, from: &str, to: &str) {
    let to = to.parse().expect("the address is one");
    agent
        .echo(NAME, from, to, LIMIT)
        .expect("the segment is open");
}

#[test]
fn hosts_on_joined_bridges_are_on_one_segment() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&document(EXAMPLE)).unwrap();
    ready(&agent);
    let inside = |node: &str, command: &str| run(&agent, NAME, node, command);
    // h1 knows h3 by its MAC address: no node between them routes.
    passes(&agent, "h1", "10.64.0.3");
    let neighbours = inside("h1", "ip neighbour show 10.64.0.3");
    let own = inside("h3", "ip -br link show dev eth0");
    let own = own.split_whitespace().nth(2).unwrap();
    assert!(neighbours.contains(own), "{neighbours} {own}");
    let learned = inside("s1", "bridge fdb show br br0");
    assert!(learned.contains(own), "{learned}");
    let route = inside("h1", "ip route get 10.0.0.22");
    assert!(route.contains("via 10.64.0.4"), "{route}");

    // A host more; the others keep their addresses.
    let more = format!(
        "{EXAMPLE}[node.h4]\n[[link]]\nends = [\"h4\", \"s1\"]\nrate = \"1Gbps\"\nas = \"vxlan\"\n\
         [[test]]\nping = [\"h4\", \"outside\"]\n"
    );
    agent.apply(&document(&more)).unwrap();
    ready(&agent);
    let addresses = inside("h3", "ip -o address show dev eth0");
    assert!(addresses.contains("10.64.0.3/21"), "{addresses}");
    passes(&agent, "h4", "10.64.0.3");

    // The network is restored as it was.
    let place = directory.path().join("saved");
    agent.save(NAME, &place).unwrap();
    agent.remove(NAME).unwrap();
    agent.restore(&place).unwrap();
    ready(&agent);
    passes(&agent, "h4", "10.64.0.3");
    agent.remove(NAME).unwrap();
}

#[test]
fn ring_of_bridges_has_a_spanning_tree() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let ring =
        format!("{EXAMPLE}[[link]]\nends = [\"s1\", \"s2\"]\nrate = \"1Gbps\"\nas = \"gre\"\n");
    agent.create(&document(&ring)).unwrap();
    ready(&agent);
    let tree = run(&agent, NAME, "s2", "ip -d link show dev br0");
    assert!(tree.contains("stp_state 1"), "{tree}");
    agent.remove(NAME).unwrap();
}
