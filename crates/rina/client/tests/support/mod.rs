//! Nodes with their own directories, and further processes of the test program.
#![allow(dead_code, missing_docs)]

pub(crate) mod sleeping;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carina_client::{AppName, Node, name};
use carina_node::{Config, NodeHandle};
use sleeping::PATIENCE;

/// The directory in which one test keeps its sockets.
pub(crate) struct House {
    pub directory: tempfile::TempDir,
}

impl House {
    pub(crate) fn new() -> House {
        House {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub(crate) fn config(&self) -> Config {
        config_in(self.run_dir())
    }

    /// Starts a node in this process.
    pub(crate) fn node(&self) -> NodeHandle {
        carina_node::Node::spawn(self.config()).unwrap()
    }

    /// Connects to the node; retries until it answers.
    pub(crate) fn client(&self) -> Node {
        let patience = Instant::now() + PATIENCE;
        loop {
            match Node::connect_to(self.run_dir().join("ipc.sock")) {
                Ok(node) => return node,
                Err(error) => assert!(Instant::now() < patience, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts this test program again as the process `role`, which the ignored test
    /// `process_of_another_test` implements.
    pub(crate) fn process(&self, role: &str) -> Killed {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "node::process_of_another_test",
                "--nocapture",
            ])
            .env("CARINA_RUN", self.run_dir())
            .env("CARINA_TEST_ROLE", role)
            // The pipe stays open until this process ends, so that the child can notice the end.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Killed(child)
    }
}

pub(crate) fn config_in(run_dir: PathBuf) -> Config {
    let mut config = Config::parse("", None).unwrap();
    config.node.run_dir = Some(run_dir);
    config
}

/// A process that is killed when the test ends, however it ends.
pub(crate) struct Killed(pub Child);

impl Killed {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn app(text: &str) -> AppName {
    name(text).unwrap()
}

/// Waits until `holds` returns `true`; panics after the time limit.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < patience, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
