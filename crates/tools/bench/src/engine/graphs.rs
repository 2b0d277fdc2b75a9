//! Carina's side of the benchmark: graphs of apps on an engine with one thread.

use carina_apps::hop::HopConfig;
use carina_apps::route4::Route4Config;
use carina_apps::route6::Route6Config;
use carina_apps::sink::SinkConfig;
use carina_apps::source::SourceConfig;
use carina_apps::tee::TeeConfig;
use carina_frame::PoolConfig;
use carina_frame_engine::{Graph, GraphError};

use super::count::CountConfig;
use super::routes::{Everywhere, OUTPUTS, full_table};
use super::routes6::{Everywhere6, full_table6};
use super::{Chain, Spread, services};
use crate::error::{Error, Result};
use crate::one_core::OneCore;
use crate::rate::Rate;

/// Runs a graph on `cpu`: for a third of `time_ns` to warm up, and then for `time_ns`, in which it
/// is measured.
pub(super) fn measure(chain: Chain, size: usize, cpu: usize, time_ns: u64) -> Result<Rate> {
    let graph = graph(chain, size).map_err(|error| Error::Graph(error.to_string()))?;
    let mut rig = OneCore::new(&graph, PoolConfig::default())?;
    let passed = rig.measure(cpu, time_ns)?;
    let frames = passed.frames(|name| name.to.app == "sink");
    Ok(Rate::of(frames as f64, passed.wall_ns, passed.cpu_ns))
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
        Chain::Count => {
            graph.app("count", CountConfig {});
            around(&mut graph, "count", size)?;
        }
        Chain::Lua(script) => {
            graph.app("lua", script.config());
            around(&mut graph, "lua", size)?;
        }
        Chain::Service(service) => services::build(&mut graph, service, size)?,
        Chain::Tee => {
            graph.app("source", source(size)).app("sink", SinkConfig {});
            graph.app("tee", TeeConfig {});
            graph.link("source.output -> tee.input")?;
            graph.link("tee.a -> sink.a")?.link("tee.b -> sink.b")?;
        }
        Chain::Hops(hops) => hops_of(&mut graph, "", hops, size, &|_| 0)?,
        // The first half of the hops runs with the source, the rest with the sink.
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

/// Adds a source and a sink, with one app between them.
fn around(graph: &mut Graph, app: &str, size: usize) -> std::result::Result<(), GraphError> {
    graph.app("source", source(size)).app("sink", SinkConfig {});
    graph.link(&format!("source.output -> {app}.input"))?;
    graph.link(&format!("{app}.output -> sink.input"))?;
    Ok(())
}

fn source(size: usize) -> SourceConfig {
    SourceConfig {
        size,
        ..SourceConfig::default()
    }
}

/// Adds a source, hops numbered from 1, and a sink. `place` returns the worker of the hop or end
/// with this number.
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
            let graph = graph(chain, 64).unwrap();
            let mut rig = OneCore::new(&graph, PoolConfig::default()).unwrap();
            // Within one millisecond another process may take most of the time, so that no frame
            // gets this far.
            let arrived = (0..10_000).any(|_| {
                let passed = rig.run(1_000_000).unwrap();
                passed.frames(|name| name.to.app == "sink") > 0
            });
            assert!(arrived, "{chain:?}");
        }
    }
}
