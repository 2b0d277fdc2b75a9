//! Test of the crowd of flows of `carina bench hv --crowd`, over one node.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use carina_api::{AppName, FlowSpec};
use carina_measure::crowd::Crowd;
use carina_measure::trial::target::Target;

use crate::commands::node::{CARINA, Node, PATIENCE};

/// Number of flows of a crowd.
const FLOWS: usize = 8;

/// A server that ends with its test.
struct Server(Child);

impl Server {
    /// Number of files that the server has open.
    fn files(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.0.id());
        std::fs::read_dir(directory).unwrap().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn finished_crowd_leaves_no_flow_at_its_server() {
    let node = Node::new();
    let run = node.directory.path().join("run");
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(&run);
    command.args(["--wait", "600s", "bench-peer", "crowd", "--drain"]);
    let server = Server(command.spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    let connected = loop {
        match carina_client::Node::connect_to(run.join("ipc.sock")) {
            Ok(node) => break node,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let target = Target {
        node: connected,
        local: AppName::new("test").unwrap(),
        remote: AppName::new("crowd").unwrap(),
        dif: None,
        spec: FlowSpec::reliable(),
        wait: PATIENCE,
    };
    // The first flow shows that the server is registered.
    drop(target.allocate().unwrap());
    for _ in 0..3 {
        let crowd = Crowd::start(&target, FLOWS, 1400).unwrap();
        let busy = server.files();
        assert!(busy > FLOWS, "{busy}");
        while crowd.sent() < 10_000 {
            assert!(Instant::now() < deadline, "{} SDUs", crowd.sent());
            std::thread::sleep(Duration::from_millis(1));
        }
        crowd.finish().unwrap();
        // The server closes the last descriptors of a flow after the flow has ended.
        while server.files() > busy - FLOWS {
            assert!(Instant::now() < deadline, "{} files", server.files());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
