//! Hosts on one segment: network namespaces with one interface each, connected by a bridge of the
//! engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use carina_api::paths::RunDir;
use carina_apps::bridge::BridgeConfig;
use carina_frame::PoolConfig;
use carina_frame_engine::Graph;
use carina_graph::runner::GraphRunner;
use carina_namespaces::{NamespaceAccess, namespace_file};
use carina_ports::af_packet::AfPacketConfig;
use carina_vnet_host::{Agent, HostSettings, Underlay};

use crate::waiting::TestDirectory;

/// Hosts with an interface `wire0` each. Dropping it removes them.
pub(crate) struct Segment {
    tag: String,
    hosts: usize,
    ends: Arc<AtomicBool>,
    bridge: Option<JoinHandle<()>>,
}

impl Segment {
    /// Creates the hosts. `tag` distinguishes the namespaces of one test from those of others.
    pub(crate) fn new(tag: &str, hosts: usize) -> Segment {
        let mut segment = Segment {
            tag: format!("cvt{}{tag}", std::process::id()),
            hosts,
            ends: Arc::default(),
            bridge: None,
        };
        let middle = segment.name(0);
        ip(&["netns", "add", &middle]);
        let mut graph = Graph::new();
        graph.app("bridge", BridgeConfig::default());
        for host in 1..=hosts {
            let (own, port) = (segment.name(host), format!("to{host}"));
            ip(&["netns", "add", &own]);
            let make = "link add wire0 type veth peer name";
            let words: Vec<&str> = make.split(' ').collect();
            let rest = [port.as_str(), "netns", middle.as_str()];
            ip(&[&["-n", own.as_str()], &words[..], &rest[..]].concat());
            ip(&["-n", &own, "link", "set", "lo", "up"]);
            ip(&["-n", &own, "link", "set", "wire0", "up"]);
            ip(&["-n", &middle, "link", "set", &port, "up"]);
            let config = AfPacketConfig {
                netns: Some(namespace_file(&middle)),
                ..AfPacketConfig::of(&port)
            };
            graph.app(&port, config);
            graph
                .link(&format!("{port}.output -> bridge.p{host}"))
                .unwrap();
            graph
                .link(&format!("bridge.p{host} -> {port}.input"))
                .unwrap();
        }
        let ends = Arc::clone(&segment.ends);
        segment.bridge = Some(std::thread::spawn(move || {
            let mut runner = GraphRunner::new(PoolConfig::default(), None).unwrap();
            runner.configure(&graph).unwrap();
            while !ends.load(Ordering::Acquire) {
                runner
                    .run_for(carina_time::Duration::from_millis(20))
                    .unwrap();
            }
        }));
        segment
    }

    /// The namespace of a host, by its number from 1.
    pub(crate) fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.tag)
    }

    /// The agent of a host, with a directory of its own.
    pub(crate) fn agent(&self, host: usize) -> Host {
        let directory = TestDirectory::new();
        let run_dir = RunDir::new(directory.path());
        let agent = Agent::of_host(&run_dir, self.settings(host)).unwrap();
        Host { agent, directory }
    }

    pub(crate) fn settings(&self, host: usize) -> HostSettings {
        let underlay = Underlay {
            netns: self.file(host),
            ..Underlay::of("wire0")
        };
        HostSettings {
            name: format!("h{host}"),
            underlay: Some(underlay),
        }
    }

    /// Path of a host's namespace.
    pub(crate) fn file(&self, host: usize) -> PathBuf {
        namespace_file(&self.name(host))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(bridge) = self.bridge.take() {
            let _ = bridge.join();
        }
        for host in 0..=self.hosts {
            let _ = NamespaceAccess::of_root().ip(&["netns", "del", &self.name(host)]);
        }
    }
}

/// An agent with its directory.
pub(crate) struct Host {
    pub agent: Agent,
    pub directory: TestDirectory,
}

pub(crate) fn ip(words: &[&str]) -> String {
    NamespaceAccess::of_root().ip(words).unwrap()
}
