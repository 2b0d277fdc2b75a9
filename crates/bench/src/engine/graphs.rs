//! Carina's side: graphs of apps on an engine of one thread.

use std::cell::RefCell;
use std::rc::Rc;

use carina_apps::hop::HopConfig;
use carina_apps::route4::Route4Config;
use carina_apps::route6::Route6Config;
use carina_apps::sink::SinkConfig;
use carina_apps::source::SourceConfig;
use carina_apps::tee::TeeConfig;
use carina_engine::Engine;
use carina_engine::counter_file::CounterFile;
use carina_engine::counters::{Kind, Table};
use carina_engine::frames::{Graph, GraphError, Network, NetworkApp};
use carina_frame::{Pool, PoolConfig};
use carina_sys::{CpuClock, cpu_time_ns, monotonic_ns, pin_to_cpu};

use super::routes::{Everywhere, OUTPUTS, full_table};
use super::routes6::{Everywhere6, full_table6};
use super::{Chain, Spread, services};
use crate::error::{Attempt, Error, Result};
use crate::rate::Rate;

/// Runs a graph on `cpu` for a third of `time_ns`, and then for `time_ns`, in which it is measured.
pub(super) fn measure(chain: Chain, size: usize, cpu: usize, time_ns: u64) -> Result<Rate> {
    pin_to_cpu(cpu).attempt("pinning the data plane")?;
    let (mut engine, network) = set_up(chain, size)?;
    run_until(&mut engine, monotonic_ns() + time_ns / 3)?;
    let (start, cpu_start) = (monotonic_ns(), cpu_time_ns(CpuClock::Thread));
    let before = arrived(&network.borrow());
    run_until(&mut engine, start + time_ns)?;
    let (end, cpu_end) = (monotonic_ns(), cpu_time_ns(CpuClock::Thread));
    let frames = (arrived(&network.borrow()) - before) as f64;
    let (wall, cpu) = ((end - start) as f64, (cpu_end - cpu_start) as f64);
    Ok(Rate::of(frames, wall, cpu))
}

/// An engine whose only app is the network of a chain.
fn set_up(chain: Chain, size: usize) -> Result<(Engine, Rc<RefCell<Network>>)> {
    let pool = Pool::new(PoolConfig::default())?;
    let counters = CounterFile::private().attempt("counters")?;
    let mut network = Network::new(pool, counters).attempt("a network")?;
    let graph = graph(chain, size).map_err(|error| Error::Graph(error.to_string()))?;
    let configured = network.configure(&graph);
    configured.map_err(|error| Error::Graph(error.to_string()))?;
    let network = Rc::new(RefCell::new(network));
    let table = Table::private().attempt("counters")?;
    let row = table.row(Kind::Engine, 0, "bench");
    let mut engine = Engine::new(row, carina_engine::Pool::new(0)).attempt("an engine")?;
    let id = engine.reserve();
    let app = NetworkApp::new(Rc::clone(&network)).attempt("the network's app")?;
    engine.add(id, Box::new(app)).attempt("the network's app")?;
    Ok((engine, network))
}

fn run_until(engine: &mut Engine, end: u64) -> Result<()> {
    loop {
        let now = monotonic_ns();
        if now >= end {
            return Ok(());
        }
        let moved = engine.breathe(now);
        engine.rest(moved).attempt("the engine's rest")?;
    }
}

/// Frames that came to the sink.
fn arrived(network: &Network) -> u64 {
    let links = network.link_counts();
    let to_sink = links.filter(|(name, _)| name.to.app == "sink");
    to_sink.map(|(_, counts)| counts.packets).sum()
}

/// The graph of a case.
pub(super) fn graph(chain: Chain, size: usize) -> std::result::Result<Graph, GraphError> {
    let mut graph = Graph::new();
    match chain {
        Chain::Lpm => {
            graph.app("source", Everywhere { size });
            let routes = full_table(OUTPUTS);
            graph.app("router", Route4Config { routes, file: None });
            graph.app("sink", SinkConfig {});
            graph.link("source.output -> router.input")?;
            for output in 0..OUTPUTS {
                graph.link(&format!("router.o{output} -> sink.o{output}"))?;
            }
        }
        Chain::Lpm6 => {
            let routes = full_table6();
            graph.app("source", Everywhere6 { size });
            graph.app("router", Route6Config { routes, file: None });
            graph.app("sink", SinkConfig {});
            graph.link("source.output -> router.input")?;
            for output in 0..OUTPUTS {
                graph.link(&format!("router.o{output} -> sink.o{output}"))?;
            }
        }
        Chain::Service(service) => services::build(&mut graph, service, size)?,
        Chain::Tee => {
            graph.app("source", source(size)).app("sink", SinkConfig {});
            graph.app("tee", TeeConfig {});
            graph.link("source.output -> tee.input")?;
            graph.link("tee.a -> sink.a")?.link("tee.b -> sink.b")?;
        }
        Chain::Hops(hops) => hops_of(&mut graph, "", hops, size, &|_| 0)?,
        // The first half of the hops is beside the source, the rest beside the sink.
        Chain::Workers(Spread::Chain, hops) => {
            hops_of(&mut graph, "", hops, size, &|at| usize::from(at > hops / 2))?;
        }
        Chain::Workers(Spread::Each, hops) => {
            hops_of(&mut graph, "-a", hops, size, &|_| 0)?;
            hops_of(&mut graph, "-b", hops, size, &|_| 1)?;
        }
    }
    Ok(graph)
}

fn source(size: usize) -> SourceConfig {
    SourceConfig {
        size,
        ..SourceConfig::default()
    }
}

/// Adds a source, hops numbered from 1, and a sink behind them; `place` says on which worker each
/// is, by its number.
fn hops_of(
    graph: &mut Graph,
    suffix: &str,
    hops: usize,
    size: usize,
    place: &dyn Fn(usize) -> usize,
) -> std::result::Result<(), GraphError> {
    let (mut last, sink) = (format!("source{suffix}"), format!("sink{suffix}"));
    graph.app(&last, source(size)).place(&last, place(0));
    for number in 1..=hops {
        let hop = format!("hop{number}{suffix}");
        graph.app(&hop, HopConfig {}).place(&hop, place(number));
        graph.link(&format!("{last}.output -> {hop}.input"))?;
        last = hop;
    }
    graph
        .app(&sink, SinkConfig {})
        .place(&sink, place(hops + 1));
    graph.link(&format!("{last}.output -> {sink}.input"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_brings_frames_to_the_sink() {
        for case in crate::engine::CASES {
            let chain = case.chain;
            if matches!(chain, Chain::Workers(..)) {
                continue;
            }
            let (mut engine, network) = set_up(chain, 64).unwrap();
            for _ in 0..100 {
                let moved = engine.breathe(monotonic_ns());
                engine.rest(moved).unwrap();
            }
            assert!(arrived(&network.borrow()) > 0, "{chain:?}");
        }
    }
}
