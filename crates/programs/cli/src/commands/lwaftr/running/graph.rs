//! The graph of an AFTR: one worker between its ports, or several with spreaders and joins.
//!
//! ```text
//!   v4 -> spread-external -> lwaftr-00 .. lwaftr-NN -> join-internal -> v6
//!   v6 -> spread-internal -> lwaftr-00 .. lwaftr-NN -> join-external -> v4
//! ```

use std::sync::Arc;

use carina_apps::join::JoinConfig;
use carina_apps::sink::SinkConfig;
use carina_frame_engine::Graph;
use carina_graph::graph_file::read_app;
use carina_lwaftr::app::LwaftrConfig;
use carina_lwaftr::check::CheckError;
use carina_lwaftr::config::Queue;
use carina_lwaftr::exchange::{Exchange, Share};
use carina_lwaftr::live::Used;
use carina_lwaftr::monitor::Monitor;
use carina_lwaftr::spread::{Side, SpreadConfig};
use carina_nfv::port::PortSpec;
use carina_nfv::traffic::graph::port_kinds;
use carina_nfv::traffic::uplink_of;

use super::RunArgs;
use crate::failure::{Failure, failed, refused, usage};

/// Name of the AFTR's app in the graph if there is one worker. With several workers their apps are
/// `lwaftr-00`, `lwaftr-01` and so on.
pub(super) const APP: &str = "lwaftr";

/// Number of the thread that runs the ports. Worker N runs on thread N + 1.
const PORTS: usize = 0;

impl RunArgs {
    /// Builds the graph of the configuration `used`. The graph shares the binding table of `used`
    /// and does not copy it.
    ///
    /// # Errors
    /// The configuration has no queue, or a port of the command line is missing or invalid.
    pub(super) fn graph(
        &self,
        used: &Used,
        monitor: Monitor,
        exchange: &Arc<Exchange>,
    ) -> Result<Graph, Failure> {
        let queues: Vec<&Queue> = used.config.queues().collect();
        if queues.is_empty() {
            let conf = self.conf.display();
            return Err(refused(format!("{conf}: {}", CheckError::NoQueue)));
        }
        let workers = self.workers.map_or(queues.len(), usize::from);
        let of = |worker: usize| queues[worker % queues.len()];
        let addresses = |worker| (of(worker).external, of(worker).internal);
        let app = |share: Option<Share>| LwaftrConfig {
            config: Arc::clone(&used.config),
            table: Arc::clone(&used.table),
            queue: of(share.as_ref().map_or(0, |share| share.worker)).clone(),
            rules: self.behaviour.rules(),
            is_stick: self.on_a_stick.is_some(),
            monitor,
            share,
        };
        if workers == 1 {
            return self.graph_of_one(app(None));
        }
        let configs = (0..workers).map(|worker| {
            app(Some(Share {
                worker,
                workers,
                asks: (0..worker).all(|other| addresses(other) != addresses(worker)),
                exchange: Arc::clone(exchange),
            }))
        });
        self.graph_of_several(configs.collect())
    }

    fn graph_of_one(&self, config: LwaftrConfig) -> Result<Graph, Failure> {
        let mut graph = Graph::new();
        graph.app(APP, config);
        for (side, port) in self.ports()? {
            add_port(&mut graph, side, port)?;
            link(
                &mut graph,
                &format!("{side}.output"),
                &format!("{APP}.{side}"),
            )?;
            link(
                &mut graph,
                &format!("{APP}.{side}"),
                &format!("{side}.input"),
            )?;
        }
        if let Some(port) = &self.mirror {
            add_mirror(&mut graph, port)?;
            link(&mut graph, &format!("{APP}.mirror"), "mirror.input")?;
        }
        Ok(graph)
    }

    fn graph_of_several(&self, configs: Vec<LwaftrConfig>) -> Result<Graph, Failure> {
        let mut graph = Graph::new();
        let queues: Vec<Queue> = configs.iter().map(|config| config.queue.clone()).collect();
        let workers = configs.len();
        for (worker, config) in configs.into_iter().enumerate() {
            let app = of_worker(worker);
            graph.app(&app, config).place(&app, worker + 1);
        }
        for (side, port) in self.ports()? {
            add_port(&mut graph, side, port)?;
            let (spread, join) = (format!("spread-{side}"), format!("join-{side}"));
            let config = SpreadConfig {
                side: match side {
                    "external" => Side::External,
                    "internal" => Side::Internal,
                    _ => Side::Stick,
                },
                queues: queues.clone(),
            };
            graph.app(&spread, config).place(&spread, PORTS);
            graph.app(&join, JoinConfig {}).place(&join, PORTS);
            link(
                &mut graph,
                &format!("{side}.output"),
                &format!("{spread}.input"),
            )?;
            link(
                &mut graph,
                &format!("{join}.output"),
                &format!("{side}.input"),
            )?;
            for worker in 0..workers {
                // Ports are numbered in the order of their names.
                let (app, port) = (of_worker(worker), format!("{worker:02}"));
                link(
                    &mut graph,
                    &format!("{spread}.{port}"),
                    &format!("{app}.{side}"),
                )?;
                link(
                    &mut graph,
                    &format!("{app}.{side}"),
                    &format!("{join}.{port}"),
                )?;
            }
        }
        if let Some(port) = &self.mirror {
            add_mirror(&mut graph, port)?;
            let join = "join-mirror";
            graph.app(join, JoinConfig {}).place(join, PORTS);
            link(&mut graph, "join-mirror.output", "mirror.input")?;
            for worker in 0..workers {
                let app = of_worker(worker);
                link(
                    &mut graph,
                    &format!("{app}.mirror"),
                    &format!("{join}.{worker:02}"),
                )?;
            }
        }
        Ok(graph)
    }
}

/// Name of the app of worker `worker`, such as `lwaftr-00`, if there are several workers.
fn of_worker(worker: usize) -> String {
    format!("{APP}-{worker:02}")
}

fn add_port(graph: &mut Graph, name: &str, port: &PortSpec) -> Result<(), Failure> {
    let app = read_app(name, uplink_of(port), &port_kinds()).map_err(usage)?;
    graph.app_of(name, app).place(name, PORTS);
    Ok(())
}

fn add_mirror(graph: &mut Graph, port: &PortSpec) -> Result<(), Failure> {
    add_port(graph, "mirror", port)?;
    // Frames that arrive at the mirror port are dropped.
    graph.app("unwanted", SinkConfig {});
    link(graph, "mirror.output", "unwanted.input")
}

fn link(graph: &mut Graph, from: &str, to: &str) -> Result<(), Failure> {
    graph.link(&format!("{from} -> {to}")).map_err(failed)?;
    Ok(())
}
