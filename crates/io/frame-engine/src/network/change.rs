//! Changes of a running graph: apps and links that remain continue undisturbed.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use carina_time::Instant;

use super::{INTERNAL_LINKS, NO_INPUT, NO_OUTPUT, Network, RunningApp};
use crate::app::{AnyConfig, AppContext, FrameApp, Opened, PortList, PortNames};
use crate::assignment::LinkDirection;
use crate::configure_error::ConfigureError;
use crate::difference::Difference;
use crate::graph::{Graph, LinkName};
use crate::link::FrameLink;
use crate::neighbour::{Incoming, Outgoing};
use crate::opening::Opening;
use crate::part::{Discarded, Part, Prepared, Refusal};

impl Network {
    /// Builds the apps that are new to the network, while the network runs unchanged. `opened` has
    /// what the apps of [`Network::opening`] have opened.
    pub(crate) fn prepare(
        &self,
        part: Part,
        mut opened: BTreeMap<String, Opened>,
    ) -> Result<Prepared, Box<Refusal>> {
        let difference = Difference::between(&self.graph, &part.graph);
        let mut prepared = Prepared {
            part,
            difference,
            built: BTreeMap::new(),
        };
        let Difference {
            added, replaced, ..
        } = &prepared.difference;
        for name in added.iter().chain(replaced) {
            let config = &*prepared.part.graph.apps[name].config;
            match self.build(name, config, opened.remove(name)) {
                Ok(app) => drop(prepared.built.insert(name.clone(), app)),
                Err(error) => {
                    let mut discarded = prepared.dismantle();
                    let unused = opened.into_values().filter_map(Result::ok);
                    discarded.apps.extend(unused);
                    return Err(Box::new(Refusal { error, discarded }));
                }
            }
        }
        Ok(prepared)
    }

    /// The new apps of the network that have something to open before they are built.
    pub(crate) fn opening(&self, part: &Part) -> Opening {
        let difference = Difference::between(&self.graph, &part.graph);
        let wanted = difference.added.into_iter().chain(difference.replaced);
        let wanted = wanted.map(|name| {
            let config = Arc::clone(&part.graph.apps[&name].config);
            (name, config)
        });
        Opening {
            apps: wanted.filter(|(_, config)| config.opens()).collect(),
            pool: self.pool.clone(),
            counters: self.counters.clone(),
            notices: self.notices.clone(),
        }
    }

    /// Makes the prepared part the running one. This cannot fail.
    pub(crate) fn commit(&mut self, prepared: Prepared) -> (Difference, Discarded) {
        let Prepared {
            part,
            difference,
            built,
        } = prepared;
        let apps = self.replace_apps(&part.graph, built);
        for name in &difference.changed {
            if let Some(running) = self.apps.iter_mut().find(|app| app.name == *name) {
                part.graph.apps[name].config.apply_any(&mut *running.app);
            }
        }
        let graph = self.replace_links(part);
        let graph = std::mem::replace(&mut self.graph, graph);
        self.rewire();
        self.order = order(&self.apps, self.links.len());
        self.next_tick = Instant::ZERO;
        (
            difference,
            Discarded {
                apps,
                _graph: graph,
            },
        )
    }

    fn build(
        &self,
        name: &str,
        config: &dyn AnyConfig,
        opened: Option<Opened>,
    ) -> Result<Box<dyn FrameApp>, ConfigureError> {
        let running = self.apps.iter().find(|app| app.name == name);
        let mut context = AppContext {
            name,
            pool: &self.pool,
            counters: &self.counters,
            notices: &self.notices,
            running: running.map(|running| &*running.app),
            opened,
        };
        let app = config.build_any(&mut context);
        app.map_err(|source| ConfigureError::App {
            name: name.to_owned(),
            kind: config.kind(),
            source,
        })
    }

    /// Keeps the apps that remain, and inserts the apps that were built. Returns the parts of
    /// removed apps that must be dropped.
    fn replace_apps(
        &mut self,
        graph: &Graph,
        mut built: BTreeMap<String, Box<dyn FrameApp>>,
    ) -> Vec<Box<dyn Any + Send>> {
        let mut old: BTreeMap<String, RunningApp> = std::mem::take(&mut self.apps)
            .into_iter()
            .map(|app| (app.name.clone(), app))
            .collect();
        for (name, wanted) in &graph.apps {
            let app = match built.remove(name) {
                Some(app) => RunningApp::new(name, app, &*wanted.config),
                None => match old.remove(name) {
                    Some(app) => app,
                    None => unreachable!("an app of a graph runs already or was built"),
                },
            };
            self.apps.push(app);
        }
        // Closing a descriptor removes it from the epoll set, unless another process has it open
        // too.
        for app in old.values() {
            if let Some((fd, _)) = app.app.wait_fd() {
                let _ = self.epoll.del(fd);
            }
        }
        let gone = old.into_values();
        gone.filter_map(|running| running.app.dismantle()).collect()
    }

    /// Keeps the links that remain, with their ends of rings, and creates the others.
    fn replace_links(&mut self, mut part: Part) -> Graph {
        let mut links = std::mem::take(&mut self.links);
        let named = links.split_off(INTERNAL_LINKS);
        let names = std::mem::take(&mut self.link_names);
        let name_of = |at: usize| names[at - INTERNAL_LINKS].clone();
        let incoming = std::mem::take(&mut self.incoming).into_iter();
        let mut incoming: BTreeMap<_, _> = incoming.map(|(at, end)| (name_of(at), end)).collect();
        let outgoing = std::mem::take(&mut self.outgoing).into_iter();
        let mut outgoing: BTreeMap<_, _> = outgoing.map(|(at, end)| (name_of(at), end)).collect();
        let mut old: BTreeMap<LinkName, FrameLink> = names.into_iter().zip(named).collect();
        for name in &part.graph.links {
            let direction = LinkDirection::of(name, &part.graph);
            // A link from another network is counted there.
            let is_shown = direction != LinkDirection::In;
            let kept = old.remove(name).filter(|link| link.is_shown() == is_shown);
            let text = is_shown.then(|| name.to_string());
            let new = || FrameLink::new(text.as_deref(), &self.counters);
            let at = links.len();
            match direction {
                LinkDirection::Inside => {}
                LinkDirection::In => {
                    let end = part.incoming.remove(name).or_else(|| incoming.remove(name));
                    self.incoming.extend(end.map(|end| (at, end)));
                }
                LinkDirection::Out => {
                    let end = part.outgoing.remove(name).or_else(|| outgoing.remove(name));
                    self.outgoing.extend(end.map(|end| (at, end)));
                }
            }
            let mut link = kept.unwrap_or_else(new);
            link.has_back_pressure = part.back_pressure.contains(name);
            links.push(link);
            self.link_names.push(name.clone());
        }
        let mut lost: usize = old.values().map(|link| link.queue.len()).sum();
        lost += incoming.into_values().map(Incoming::close).sum::<usize>();
        lost += outgoing.into_values().map(Outgoing::close).sum::<usize>();
        self.discarded.add(lost as u64);
        self.links = links;
        part.graph
    }

    /// Assigns every port its link.
    fn rewire(&mut self) {
        for running in &mut self.apps {
            let config = Arc::clone(&self.graph.apps[&running.name].config);
            let is_here = |app: &str| app == running.name;
            let links = || self.link_names.iter().enumerate();
            let inputs = links()
                .filter(|(_, link)| is_here(&link.to.app))
                .map(|(at, link)| (link.to.port.clone(), INTERNAL_LINKS + at))
                .collect();
            let outputs = links()
                .filter(|(_, link)| is_here(&link.from.app))
                .map(|(at, link)| (link.from.port.clone(), INTERNAL_LINKS + at))
                .collect();
            let (inputs, input_names) = numbered(config.inputs(), inputs, NO_INPUT);
            let (outputs, output_names) = numbered(config.outputs(), outputs, NO_OUTPUT);
            (running.inputs, running.outputs) = (inputs, outputs);
            let names = [input_names, output_names];
            if running.names != names {
                running.names = names;
                running.app.rewired(&PortNames {
                    inputs: &running.names[0],
                    outputs: &running.names[1],
                });
            }
        }
        for (index, running) in self.apps.iter().enumerate() {
            if let Some((fd, interest)) = running.app.wait_fd() {
                // A descriptor that is in the set already stays; its token is not used.
                let _ = self.epoll.add(fd, index as u64, interest);
            }
        }
    }
}

/// The links of an app's ports, by port number, and the ports' names.
fn numbered(
    list: PortList,
    mut links: Vec<(String, usize)>,
    unlinked: usize,
) -> (Box<[usize]>, Vec<String>) {
    links.sort();
    match list {
        PortList::Any => {
            let (names, links): (Vec<_>, Vec<_>) = links.into_iter().unzip();
            (links.into_boxed_slice(), names)
        }
        PortList::Named(ports) => {
            let link_of = |name: &str| links.iter().find(|(port, _)| port == name);
            let links = ports.iter().map(|port| link_of(port.name));
            let links = links.map(|found| found.map_or(unlinked, |(_, link)| *link));
            let names = ports.iter().map(|port| port.name.to_owned());
            (links.collect(), names.collect())
        }
    }
}

/// The apps that have inputs, in an order in which each app follows those whose outputs lead to it.
/// In a circle of links, the app that is found first comes first; frames that come round wait for
/// the next breath.
fn order(apps: &[RunningApp], links: usize) -> Vec<usize> {
    let mut sinks = vec![None; links];
    for (at, app) in apps.iter().enumerate() {
        for input in app.inputs.iter().filter(|link| **link >= INTERNAL_LINKS) {
            sinks[*input] = Some(at);
        }
    }
    let mut order = Vec::new();
    let mut is_met = vec![false; apps.len()];
    // Apps without inputs come first, so that a chain is walked from its start.
    let (starts, others): (Vec<usize>, Vec<usize>) =
        (0..apps.len()).partition(|at| apps[*at].inputs.is_empty());
    for start in starts.into_iter().chain(others) {
        // Depth-first search without recursion. Each entry is an app and the number of its next
        // output.
        let mut path = Vec::new();
        if !std::mem::replace(&mut is_met[start], true) {
            path.push((start, 0));
        }
        while let Some((at, output)) = path.last_mut() {
            let Some(link) = apps[*at].outputs.get(*output) else {
                order.push(*at);
                path.pop();
                continue;
            };
            *output += 1;
            if let Some(next) = sinks[*link]
                && !std::mem::replace(&mut is_met[next], true)
            {
                path.push((next, 0));
            }
        }
    }
    order.reverse();
    order.retain(|at| !apps[*at].inputs.is_empty());
    order
}
