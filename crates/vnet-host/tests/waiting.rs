//! Waiting for networks, and looking at what is left of them.

use std::time::{Duration, Instant};

use carina_lab::NamespaceAccess;
use carina_vnet_host::Agent;
use carina_vnet_host::report::{VnetReport, VnetState};

/// How long anything may take on a slow machine.
pub const LIMIT: Duration = Duration::from_secs(300);

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIP: network namespaces are made by root");
    }
    is_root
}

pub fn wait_until_settled(agent: &Agent, name: &str) -> VnetReport {
    let deadline = Instant::now() + LIMIT;
    loop {
        let report = agent.report(name).expect("the network is there");
        if report.state != VnetState::Changing {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn left_of(id: &str) -> Vec<String> {
    let mut all = NamespaceAccess::of_root().list().expect("ip is there");
    all.retain(|namespace| namespace.contains(id));
    all
}

pub fn run(agent: &Agent, name: &str, node: &str, command: &str) -> String {
    let output = agent
        .run(name, node, command, LIMIT)
        .expect("the node answers");
    assert_eq!(output.status, 0, "{command}: {}", output.error_text());
    output.text()
}
