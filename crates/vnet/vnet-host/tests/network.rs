//! A network of a test, with its agent and its directory.

use std::net::Ipv4Addr;
use std::time::Duration;

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet_host::Agent;

use crate::waiting::{LIMIT, TestDirectory, left_of, run, wait_until_settled};

/// A network, its agent, and the directory of the agent.
pub(crate) struct TestNetwork {
    name: String,
    /// `None` while no agent runs.
    agent: Option<Agent>,
    directory: TestDirectory,
}

impl TestNetwork {
    /// Makes the network of a document, and waits until it is ready.
    pub(crate) fn ready(text: &str) -> TestNetwork {
        let network = TestNetwork::begun(text);
        network.wait_until_ready();
        network
    }

    /// Begins to make the network of a document.
    pub(crate) fn begun(text: &str) -> TestNetwork {
        let directory = TestDirectory::new();
        let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
        let document = document(text);
        agent.create(&document).unwrap();
        TestNetwork {
            name: document.vnet.name,
            agent: Some(agent),
            directory,
        }
    }

    pub(crate) fn agent(&self) -> &Agent {
        self.agent.as_ref().expect("an agent runs")
    }

    pub(crate) fn directory(&self) -> &TestDirectory {
        &self.directory
    }

    pub(crate) fn report(&self) -> VnetReport {
        self.agent().report(&self.name).unwrap()
    }

    /// Waits until the network no longer changes, and returns its report.
    pub(crate) fn settled(&self) -> VnetReport {
        wait_until_settled(self.agent(), &self.name)
    }

    /// Waits until the network is ready.
    pub(crate) fn wait_until_ready(&self) -> VnetReport {
        let report = self.settled();
        assert_eq!(report.state, VnetState::Ready, "{report:?}");
        report
    }

    /// Changes the network to match another document, and waits until it is ready.
    pub(crate) fn apply(&self, text: &str) {
        self.agent().apply(&document(text)).unwrap();
        self.wait_until_ready();
    }

    /// The steps that lead to another document.
    pub(crate) fn plan(&self, text: &str) -> Vec<String> {
        let steps = self.agent().plan(&document(text)).unwrap().steps;
        let steps = steps.iter();
        steps
            .map(|step| format!("{}: {}", step.subject, step.reason))
            .collect()
    }

    /// Runs a shell command in a node, and returns its output.
    pub(crate) fn run(&self, node: &str, command: &str) -> String {
        run(self.agent(), &self.name, node, command)
    }

    /// Waits until a node answers an echo request of another one.
    pub(crate) fn passes(&self, from: &str, to: &str) -> Duration {
        let to: Ipv4Addr = to.parse().expect("the address is one");
        let answered = self.agent().echo(&self.name, from, to, LIMIT);
        answered.expect("the path is open")
    }

    /// Ends the agent. The network stays.
    pub(crate) fn drop_agent(&mut self) {
        drop(self.agent.take());
    }

    /// Replaces the agent by another one, which adopts the network.
    pub(crate) fn restart_agent(&mut self) {
        self.drop_agent();
        let run_dir = RunDir::new(self.directory.path());
        self.agent = Some(Agent::new(&run_dir).unwrap());
        self.wait_until_ready();
    }

    /// Saves the network, removes it, and restores it.
    pub(crate) fn save_and_restore(&self) {
        let place = self.directory.path().join("saved");
        self.agent().save(&self.name, &place).unwrap();
        self.agent().remove(&self.name).unwrap();
        self.agent().restore(&place).unwrap();
        self.wait_until_ready();
    }

    /// Removes the network. Nothing of it is left.
    pub(crate) fn remove(self) {
        let id = self.report().vnet.to_string();
        self.agent().remove(&self.name).unwrap();
        assert_eq!(left_of(&id), Vec::<String>::new());
    }
}

fn document(text: &str) -> Document {
    Document::read(text, Form::Toml).expect("the text is a document")
}
