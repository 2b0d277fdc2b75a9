//! Graphs: apps with their configuration, and links between their ports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::app::{AnyConfig, AppConfig, PortList};

/// A graph of apps. It is a plain value: changing it does not change anything that runs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(super) apps: BTreeMap<String, GraphApp>,
    pub(super) links: BTreeSet<LinkName>,
    pub(super) workers: Option<usize>,
    pub(super) cpus: Vec<usize>,
}

/// An app of a graph.
#[derive(Clone, Debug)]
pub(super) struct GraphApp {
    pub(super) config: Arc<dyn AnyConfig>,
    /// The worker on which the app must run; `None` leaves the choice to the rule of assignment.
    pub(super) worker: Option<usize>,
}

/// One end of a link: a port of an app.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName {
    /// Name of the app in the graph.
    pub app: String,
    /// Name of one of the app's ports.
    pub port: String,
}

/// A link between two apps, named by its ends: `APP.PORT -> APP.PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName {
    /// The output port at which the link begins.
    pub from: PortName,
    /// The input port at which the link ends.
    pub to: PortName,
}

/// Why a graph is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// This name of an app or a port is not well formed.
    #[error("{0:?}: a name has 1 to {NAME_CHARS_MAX} letters, digits, '_' and '-'")]
    Name(String),
    /// This text is not a link of the form `APP.PORT -> APP.PORT`.
    #[error("{0:?}: a link is written APP.PORT -> APP.PORT")]
    Link(String),
    /// A link names an app that the graph does not have.
    #[error("link {link}: there is no app {app}")]
    UnknownApp {
        /// The link with the wrong end.
        link: Box<LinkName>,
        /// Name of the app that the graph does not have.
        app: String,
    },
    /// A link names a port that the app does not have.
    #[error("app {} ({kind}) has no {direction} {}; it has {known}", port.app, port.port)]
    UnknownPort {
        /// The app and the port that the link names.
        port: PortName,
        /// The kind of app.
        kind: &'static str,
        /// `input` or `output`: which kind of port the link needs there.
        direction: &'static str,
        /// The names of the app's ports.
        known: String,
    },
    /// A port has two links.
    #[error("{direction} {port} has two links")]
    TwoLinks {
        /// The app, and the port that two links name.
        port: PortName,
        /// `input` or `output`: which kind of port it is.
        direction: &'static str,
    },
    /// A port that must have a link has none.
    #[error("{direction} {port} has no link")]
    NoLink {
        /// The app, and the port that needs a link.
        port: PortName,
        /// `input` or `output`: which kind of port it is.
        direction: &'static str,
    },
    /// The number of workers is out of range.
    #[error("{0} workers: must be 1 to {WORKERS_MAX}")]
    Workers(usize),
    /// An app is placed on a worker that the graph does not have.
    #[error(
        "app {app}: there is no worker {worker}; workers are numbered from 0 to {}",
        workers - 1
    )]
    UnknownWorker {
        /// Name of the app that is assigned to a missing worker.
        app: String,
        /// Number of the worker to which the app is assigned.
        worker: usize,
        /// Number of workers that the graph has; they are numbered from 0.
        workers: usize,
    },
    /// Two workers have the same processor, or the number of processors differs from the number of
    /// workers.
    #[error(
        "processors {cpus:?} for {workers} workers: each worker must have a processor of \
        its own"
    )]
    Cpus {
        /// The processors as given, one for each worker.
        cpus: Vec<usize>,
        /// Number of workers that the graph has.
        workers: usize,
    },
    /// Two apps have the same value where only one app may have it.
    #[error("apps {app} and {other} have {what}")]
    NotSole {
        /// Name of one of the two apps, the first in alphabetical order.
        app: String,
        /// Name of the other app.
        other: String,
        /// The value that both have, and why they cannot share it.
        what: String,
    },
    /// A link leads from an app to itself.
    #[error("link {0}: an app cannot be linked with itself")]
    SelfLink(LinkName),
}

impl Graph {
    /// Makes an empty graph.
    #[must_use]
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Adds an app with this name and configuration, or replaces the app of this name.
    pub fn app(&mut self, name: &str, config: impl AppConfig) -> &mut Graph {
        self.app_of(name, Arc::new(config))
    }

    /// Like [`Graph::app`], for a configuration whose type is not known at compile time.
    pub fn app_of(&mut self, name: &str, config: Arc<dyn AnyConfig>) -> &mut Graph {
        let worker = None;
        self.apps
            .insert(name.to_owned(), GraphApp { config, worker });
        self
    }

    /// Places an app on a worker, by the worker's number from 0. An app that is not placed runs on
    /// the worker of the app that supplies its frames ([`Workers`](crate::Workers)).
    pub fn place(&mut self, name: &str, worker: usize) -> &mut Graph {
        if let Some(app) = self.apps.get_mut(name) {
            app.worker = Some(worker);
        }
        self
    }

    /// Sets the number of workers. The default is given by the apps that are placed, or by the list
    /// of processors.
    pub fn workers(&mut self, count: usize) -> &mut Graph {
        self.workers = Some(count);
        self
    }

    /// Pins each worker to a processor of its own: worker 0 to the first number in `cpus`, and so
    /// on.
    pub fn cpus(&mut self, cpus: &[usize]) -> &mut Graph {
        self.cpus = cpus.to_vec();
        self
    }

    /// Returns the number of workers of the graph.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        let placed = self.apps.values().filter_map(|app| app.worker).max();
        let placed = placed.map_or(1, |highest| highest.saturating_add(1));
        self.workers.unwrap_or(placed.max(self.cpus.len()))
    }

    /// Returns the number of the worker on which the app is placed; `None` if it is not placed.
    #[must_use]
    pub fn worker_of(&self, app: &str) -> Option<usize> {
        self.apps.get(app)?.worker
    }

    /// Adds a link: `APP.PORT -> APP.PORT`.
    ///
    /// # Errors
    /// The text is not well formed.
    pub fn link(&mut self, text: &str) -> Result<&mut Graph, GraphError> {
        self.links.insert(text.parse()?);
        Ok(self)
    }

    /// Inserts an app with the ports `input` and `output` into the link at an output of another
    /// app.
    ///
    /// # Errors
    /// The output has no link.
    pub fn splice(
        &mut self,
        after: &PortName,
        name: &str,
        config: impl AppConfig,
    ) -> Result<&mut Graph, GraphError> {
        let link = self.links.iter().find(|link| link.from == *after).cloned();
        let link = link.ok_or_else(|| GraphError::NoLink {
            port: after.clone(),
            direction: OUTPUT,
        })?;
        self.links.remove(&link);
        let port = |port: &str| PortName {
            app: name.to_owned(),
            port: port.to_owned(),
        };
        self.links.insert(LinkName {
            from: link.from,
            to: port(INPUT),
        });
        self.links.insert(LinkName {
            from: port(OUTPUT),
            to: link.to,
        });
        Ok(self.app(name, config))
    }

    /// Returns the names and kinds of the apps, sorted by name.
    pub fn apps(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.apps
            .iter()
            .map(|(name, app)| (name.as_str(), app.config.kind()))
    }

    /// Returns the links, sorted by name.
    pub fn links(&self) -> impl Iterator<Item = &LinkName> {
        self.links.iter()
    }

    /// Checks that every link connects existing ports, and that every port has the links that it
    /// needs.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check(&self) -> Result<(), GraphError> {
        if let Some(name) = self.apps.keys().find(|name| !is_name(name)) {
            return Err(GraphError::Name(name.clone()));
        }
        let (mut inputs, mut outputs) = (BTreeSet::new(), BTreeSet::new());
        for link in &self.links {
            if link.from.app == link.to.app {
                return Err(GraphError::SelfLink(link.clone()));
            }
            for (port, direction, used) in [
                (&link.from, OUTPUT, &mut outputs),
                (&link.to, INPUT, &mut inputs),
            ] {
                self.check_end(link, port, direction)?;
                if !used.insert(port.clone()) {
                    let port = port.clone();
                    return Err(GraphError::TwoLinks { port, direction });
                }
            }
        }
        for (name, app) in &self.apps {
            let config = &app.config;
            for (list, direction, used) in [
                (config.inputs(), INPUT, &inputs),
                (config.outputs(), OUTPUT, &outputs),
            ] {
                check_needs(name, list, direction, used)?;
            }
        }
        self.check_sole()?;
        self.check_workers()
    }

    fn check_sole(&self) -> Result<(), GraphError> {
        let mut owners = BTreeMap::new();
        for (name, app) in &self.apps {
            for sole in app.config.sole_any() {
                let what = sole.to_string();
                if let Some(app) = owners.insert(sole, name) {
                    let (app, other) = (app.clone(), name.clone());
                    return Err(GraphError::NotSole { app, other, what });
                }
            }
        }
        Ok(())
    }

    fn check_workers(&self) -> Result<(), GraphError> {
        let workers = self.worker_count();
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(GraphError::Workers(workers));
        }
        for (name, app) in &self.apps {
            if let Some(worker) = app.worker
                && worker >= workers
            {
                let app = name.clone();
                return Err(GraphError::UnknownWorker {
                    app,
                    worker,
                    workers,
                });
            }
        }
        let different: BTreeSet<&usize> = self.cpus.iter().collect();
        let is_one_each = self.cpus.len() == workers && different.len() == workers;
        if !self.cpus.is_empty() && !is_one_each {
            let cpus = self.cpus.clone();
            return Err(GraphError::Cpus { cpus, workers });
        }
        Ok(())
    }

    fn check_end(
        &self,
        link: &LinkName,
        port: &PortName,
        direction: &'static str,
    ) -> Result<(), GraphError> {
        let Some(GraphApp { config, .. }) = self.apps.get(&port.app) else {
            return Err(GraphError::UnknownApp {
                link: Box::new(link.clone()),
                app: port.app.clone(),
            });
        };
        let list = match direction {
            INPUT => config.inputs(),
            _ => config.outputs(),
        };
        let PortList::Named(names) = list else {
            return Ok(());
        };
        if names.iter().any(|known| known.name == port.port) {
            return Ok(());
        }
        let known: Vec<&str> = names.iter().map(|known| known.name).collect();
        Err(GraphError::UnknownPort {
            port: port.clone(),
            kind: config.kind(),
            direction,
            known: if known.is_empty() {
                "no such port".to_owned()
            } else {
                known.join(", ")
            },
        })
    }
}

fn check_needs(
    app: &str,
    list: PortList,
    direction: &'static str,
    used: &BTreeSet<PortName>,
) -> Result<(), GraphError> {
    let PortList::Named(ports) = list else {
        return Ok(());
    };
    for needed in ports.iter().filter(|port| !port.is_optional) {
        let port = PortName {
            app: app.to_owned(),
            port: needed.name.to_owned(),
        };
        if !used.contains(&port) {
            return Err(GraphError::NoLink { port, direction });
        }
    }
    Ok(())
}

const INPUT: &str = "input";
const OUTPUT: &str = "output";

/// Largest number of workers that a graph may have.
pub const WORKERS_MAX: usize = 64;

/// Longest name of an app or a port, in characters.
const NAME_CHARS_MAX: usize = 32;

fn is_name(name: &str) -> bool {
    let is_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_char)
}

impl FromStr for PortName {
    type Err = GraphError;

    fn from_str(text: &str) -> Result<PortName, GraphError> {
        let (app, port) = text
            .split_once('.')
            .ok_or_else(|| GraphError::Link(text.to_owned()))?;
        for name in [app, port] {
            if !is_name(name) {
                return Err(GraphError::Name(name.to_owned()));
            }
        }
        Ok(PortName {
            app: app.to_owned(),
            port: port.to_owned(),
        })
    }
}

impl FromStr for LinkName {
    type Err = GraphError;

    fn from_str(text: &str) -> Result<LinkName, GraphError> {
        let (from, to) = text
            .split_once("->")
            .ok_or_else(|| GraphError::Link(text.to_owned()))?;
        Ok(LinkName {
            from: from.trim().parse()?,
            to: to.trim().parse()?,
        })
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.app, self.port)
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}
