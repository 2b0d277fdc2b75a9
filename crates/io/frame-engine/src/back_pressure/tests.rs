//! Graphs with a slow reader behind apps that wait, and behind apps that do not wait.

use carina_frame::{Pool, PoolConfig};
use carina_time::Instant;

use super::*;
use crate::app::{AppConfig, AppContext, AppError, FrameApp};
use crate::counter_file::CounterFile;
use crate::link::LinkCounts;
use crate::network::Network;
use crate::ports::Ports;

/// Pulls as many frames as there is room for, without end.
#[derive(Clone, Debug, PartialEq)]
struct Endless;

struct EndlessApp {
    pool: Pool,
}

impl AppConfig for Endless {
    const KIND: &'static str = "endless";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::Any;
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    type App = EndlessApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<EndlessApp, AppError> {
        let pool = context.pool().clone();
        Ok(EndlessApp { pool })
    }
}

impl FrameApp for EndlessApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        for output in 0..ports.outputs() {
            let room = ports.room(output);
            ports.fill(output, room, || self.pool.frame_of(&[1]));
        }
    }

    fn arm(&mut self) -> bool {
        false
    }
}

/// Forwards everything by the method that waits, and declares that it waits.
#[derive(Clone, Debug, PartialEq)]
struct Pass;

/// Like [`Pass`], but does not declare that it waits.
#[derive(Clone, Debug, PartialEq)]
struct Hasty;

struct PassApp;

impl AppConfig for Pass {
    const KIND: &'static str = "pass";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::Waits;
    type App = PassApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<PassApp, AppError> {
        Ok(PassApp)
    }
}

impl AppConfig for Hasty {
    const KIND: &'static str = "hasty";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    type App = PassApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<PassApp, AppError> {
        Ok(PassApp)
    }
}

impl FrameApp for PassApp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.forward(0, 0, |_| true);
    }
}

/// Takes a few frames per breath, or none.
#[derive(Clone, Debug, PartialEq)]
struct Slow {
    per_breath: usize,
}

impl AppConfig for Slow {
    const KIND: &'static str = "slow";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    type App = Slow;

    fn build(&self, _: &mut AppContext<'_>) -> Result<Slow, AppError> {
        Ok(self.clone())
    }
}

impl FrameApp for Slow {
    fn push(&mut self, ports: &mut Ports<'_>) {
        for _ in 0..self.per_breath {
            drop(ports.receive(0));
        }
    }

    fn is_blocked(&self) -> bool {
        self.per_breath == 0
    }
}

fn network(graph: &Graph) -> Network {
    let pool = Pool::new(PoolConfig {
        frames: 8192,
        frame_bytes: 64,
    });
    let mut network = Network::new(pool.unwrap(), CounterFile::private().unwrap()).unwrap();
    network.configure(graph).unwrap();
    network
}

/// A chain from `from`, through apps, to an app that takes `per_breath` frames in each breath.
fn chain(graph: &mut Graph, from: &str, through: &[&str], per_breath: usize) {
    let mut last = from.to_owned();
    for name in through {
        graph.link(&format!("{last} -> {name}.input")).unwrap();
        last = format!("{name}.output");
    }
    let slow = format!("slow{}", graph.apps.len());
    graph.app(&slow, Slow { per_breath });
    graph.link(&format!("{last} -> {slow}.input")).unwrap();
}

fn counts(network: &mut Network, breaths: usize) -> Vec<LinkCounts> {
    for _ in 0..breaths {
        network.breathe(Instant::ZERO);
    }
    network.link_counts().map(|(_, counts)| counts).collect()
}

#[test]
fn port_behind_a_slow_reader_takes_no_more_than_it() {
    let mut graph = Graph::new();
    graph.app("port", Endless);
    graph.app("a", Pass);
    graph.app("b", Pass);
    chain(&mut graph, "port.output", &["a", "b"], 10);
    let mut network = network(&graph);
    let counts = counts(&mut network, 300);
    assert_eq!(counts.iter().map(|counts| counts.drops).sum::<u64>(), 0);
    // The difference to the number taken is at most what three links hold.
    let last = counts.iter().map(|counts| counts.packets).min();
    let first = counts.iter().map(|counts| counts.packets).max();
    assert!(
        last.unwrap() >= 3000 && first.unwrap() <= 3000 + 3 * 256,
        "{counts:?}"
    );
}

#[test]
fn app_that_does_not_wait_drops_and_its_port_goes_on() {
    let mut graph = Graph::new();
    graph.app("port", Endless);
    graph.app("a", Hasty);
    chain(&mut graph, "port.output", &["a"], 10);
    let mut network = network(&graph);
    let counts = counts(&mut network, 300);
    let drops: Vec<bool> = counts.iter().map(|counts| counts.drops > 0).collect();
    assert_eq!(drops, [true, false], "{counts:?}");
}

#[test]
fn slow_reader_holds_no_other_up_that_has_the_same_port() {
    let mut graph = Graph::new();
    graph.app("port", Endless);
    chain(&mut graph, "port.a", &[], 0);
    chain(&mut graph, "port.b", &[], 200);
    assert!(links_with_back_pressure(&graph).is_empty());
    let counts = counts(&mut network(&graph), 100);
    assert_eq!(counts[0].packets, 1024);
    assert!(counts[1].packets >= 100 * 200, "{counts:?}");
}

#[test]
fn only_ways_from_a_port_through_apps_that_wait_have_it() {
    let mut graph = Graph::new();
    for name in ["a", "b"] {
        graph.app(name, Pass);
    }
    graph.app("port", Endless);
    graph.app("h", Hasty);
    chain(&mut graph, "port.output", &["a", "h", "b"], 1);
    let found: Vec<String> = links_with_back_pressure(&graph)
        .iter()
        .map(LinkName::to_string)
        .collect();
    assert_eq!(found, ["a.output -> h.input", "port.output -> a.input"]);
}

#[test]
fn network_sleeps_while_all_that_waits_is_blocked() {
    for (per_breath, may_sleep) in [(0, true), (1, false)] {
        let mut graph = Graph::new();
        graph.app("port", Endless);
        graph.app("a", Pass);
        chain(&mut graph, "port.output", &["a"], per_breath);
        let mut network = network(&graph);
        assert!(!network.has_work());
        counts(&mut network, 20);
        assert!(network.has_frames());
        assert_eq!(network.arm(), may_sleep);
        network.disarm();
    }
}
