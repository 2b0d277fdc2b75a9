//! Assigns ports to workers.

use std::collections::BTreeMap;

use carina_frame_engine::Graph;

use super::Traffic;

/// Assigns the ports of a process to its workers. The first worker has the uplink and the switch;
/// the others share the ports, with their filters, tunnels and encryption. A port keeps its worker
/// as long as it exists, whichever other ports are added or removed.
#[derive(Clone, Debug)]
pub struct Placement {
    workers: usize,
    ports: BTreeMap<String, usize>,
}

impl Placement {
    /// Makes a placement on this number of workers, without ports yet.
    #[must_use]
    pub fn new(workers: usize) -> Placement {
        Placement {
            workers: workers.max(1),
            ports: BTreeMap::new(),
        }
    }

    /// Number of the worker of the port named `port`; `None` if it is not placed.
    #[must_use]
    pub fn worker_of(&self, port: &str) -> Option<usize> {
        self.ports.get(port).copied()
    }

    /// Assigns each app of a configuration's graph to a worker.
    pub fn place(&mut self, graph: &mut Graph, traffic: &Traffic) {
        self.ports
            .retain(|name, _| traffic.ports.iter().any(|port| port.name == *name));
        for port in &traffic.ports {
            if !self.ports.contains_key(&port.name) {
                let worker = self.least_loaded();
                self.ports.insert(port.name.clone(), worker);
            }
        }
        let stems: BTreeMap<String, usize> = traffic
            .ports
            .iter()
            .map(|port| (port.stem(), self.ports[&port.name]))
            .collect();
        let names: Vec<String> = graph.apps().map(|(name, _)| name.to_owned()).collect();
        graph.workers(self.workers);
        for name in names {
            let stem = name.rsplit_once('_').map(|(stem, _)| stem);
            let worker = stem.and_then(|stem| stems.get(stem)).copied();
            graph.place(&name, worker.unwrap_or(SWITCH));
        }
    }

    fn least_loaded(&self) -> usize {
        let first = usize::from(self.workers > 1);
        let load = |worker: &usize| self.ports.values().filter(|of| *of == worker).count();
        (first..self.workers).min_by_key(load).unwrap_or(SWITCH)
    }
}

/// The worker that has the switch and the uplink.
const SWITCH: usize = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::graph::{graph, port_kinds};
    use crate::traffic::{Defaults, read};

    fn traffic(names: &str) -> Traffic {
        let port = |name: &str| format!("[[ports]]\nname = \"{name}\"\negress_mbps = 5\n");
        let ports: String = names.split(' ').map(port).collect();
        let uplink = "[uplink]\nkind = \"tap\"\nname = \"u\"\n";
        let defaults = Defaults {
            uplink: None,
            sockets: "/run/%s".to_owned(),
        };
        read(&(uplink.to_owned() + &ports), &defaults, &port_kinds()).unwrap()
    }

    fn places(placement: &mut Placement, names: &str) -> Vec<(String, Option<usize>)> {
        let traffic = traffic(names);
        let mut graph = graph(&traffic, &port_kinds()).unwrap();
        placement.place(&mut graph, &traffic);
        assert_eq!(graph.check(), Ok(()));
        let apps: Vec<String> = graph.apps().map(|(name, _)| name.to_owned()).collect();
        let place = |name: String| {
            let worker = graph.worker_of(&name);
            (name, worker)
        };
        apps.into_iter().map(place).collect()
    }

    #[test]
    fn ports_are_shared_out_and_stay_where_they_are() {
        let mut placement = Placement::new(3);
        let found = places(&mut placement, "a b_c d");
        let wanted = [
            ("a_port", 1),
            ("a_txrate", 1),
            ("b_c_port", 2),
            ("b_c_txrate", 2),
            ("d_port", 1),
            ("d_txrate", 1),
            ("mux", 0),
            ("uplink", 0),
        ];
        let wanted = wanted.map(|(name, worker)| (name.to_owned(), Some(worker)));
        assert_eq!(found, wanted);
        // One port is removed, two are added: the others keep their workers.
        places(&mut placement, "e d f b_c");
        let workers = ["a", "b_c", "d", "e", "f"].map(|name| placement.worker_of(name));
        assert_eq!(workers, [None, Some(2), Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn one_worker_has_everything() {
        let mut placement = Placement::new(1);
        let found = places(&mut placement, "a b");
        assert!(found.iter().all(|(_, worker)| *worker == Some(0)));
    }
}
