//! Waits for networks, and finds what they leave behind.

use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_namespaces::NamespaceAccess;
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet_host::Agent;
use tempfile::TempDir;

/// Longest time for anything on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// The directory of an agent. Networks outlive their agent, so that those of a failed test are
/// removed here.
pub(crate) struct TestDirectory(TempDir);

impl TestDirectory {
    pub(crate) fn new() -> TestDirectory {
        TestDirectory(tempfile::tempdir().expect("a directory can be made"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // The test's own agent was created after the directory, and is already dropped.
        let Ok(agent) = Agent::new(&RunDir::new(self.path())) else {
            return;
        };
        for network in agent.list() {
            if let Err(error) = agent.remove(&network.name) {
                println!("{} is left behind: {error}", network.name);
            }
        }
    }
}

pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIP: network namespaces are made by root");
    }
    is_root
}

pub(crate) fn wait_until_settled(agent: &Agent, name: &str) -> VnetReport {
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

pub(crate) fn left_of(id: &str) -> Vec<String> {
    let mut all = NamespaceAccess::of_root().list().expect("ip is there");
    all.retain(|namespace| namespace.contains(id));
    all
}

pub(crate) fn run(agent: &Agent, name: &str, node: &str, command: &str) -> String {
    let output = agent
        .run(name, node, command, LIMIT)
        .expect("the node answers");
    assert_eq!(output.status, 0, "{command}: {}", output.error_text());
    output.text()
}
