//! A graph on several threads.

use std::collections::BTreeMap;

use carina_frame::PoolConfig;

use crate::assignment::{assigned, crossing, parts};
use crate::configure_error::{ConfigureError, WorkerError};
use crate::counter_file::CounterFile;
use crate::difference::Difference;
use crate::graph::{Graph, LinkName};
use crate::link::LinkCounts;
use crate::neighbour::between;
use crate::notices::Notices;
use crate::part::{Part, Refusal};
use crate::tap::Tap;
use crate::worker::{Start, Work, Worker};

/// Runs a graph on the workers that it asks for. A worker is a thread with an engine, a network and
/// a pool of frames. Dropping this value ends the workers.
///
/// The graph says which app runs on which worker, and on which processors the workers run. An app
/// that it does not place
///
/// 1. stays where it is, if it already runs;
/// 2. otherwise runs on the worker of the app that supplies its frames; if there are several, of
///    the first by name;
/// 3. runs on the worker with the fewest apps, if it gets no frames.
///
/// A link between two workers is a ring of frames. A worker without work sleeps. Its neighbours
/// ring its doorbell only then, so busy workers make no system call for one another. When an app is
/// moved to another worker, that worker builds a new instance from the app's configuration.
pub struct Workers {
    /// The running graph, in which every app has a worker.
    graph: Graph,
    workers: Vec<Worker>,
    pool: PoolConfig,
    counters: CounterFile,
    notices: Notices,
}

/// Report about one worker: its processor, its apps, and the CPU time that it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// The processor that the worker is pinned to; `None` if it is not pinned.
    pub cpu: Option<usize>,
    /// Names of the apps that run on the worker, sorted.
    pub apps: Vec<String>,
    /// CPU time that the worker's thread has used so far, in ns.
    pub cpu_ns: u64,
}

impl Workers {
    /// Creates the value without workers. [`Workers::configure`] starts them, each with a pool of
    /// this configuration. Counters are in `counters`.
    #[must_use]
    pub fn new(pool: PoolConfig, counters: CounterFile) -> Workers {
        Workers {
            graph: Graph::new(),
            workers: Vec::new(),
            pool,
            counters,
            notices: Notices::default(),
        }
    }

    /// Returns the running graph, in which every app is placed on its worker.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Changes the running graph to `graph`. Only the difference changes: apps and links that are
    /// equal in both graphs continue with their state and frames, on whichever worker. If the
    /// change fails on one worker, nothing changes on any worker.
    ///
    /// # Errors
    /// The graph is wrong, an app cannot be built, or a worker cannot be started.
    pub fn configure(&mut self, graph: &Graph) -> Result<Difference, ConfigureError> {
        graph.check()?;
        let placed = assigned(graph, &self.graph);
        let difference = Difference::between(&self.graph, &placed);
        let (before, after) = (self.workers.len(), placed.worker_count());
        let all = before.max(after);
        let made = self
            .start(&placed, after)
            .and_then(|()| self.move_to(&self.graph, &placed))
            .and_then(|()| self.prepare(&placed, all));
        if let Err(error) = made {
            self.workers.truncate(before);
            let _ = self.move_to(&placed, &self.graph);
            return Err(error);
        }
        // What was removed is dropped here, when no worker uses it any more.
        let _before = std::mem::replace(&mut self.graph, placed);
        let answers: Vec<_> = self.workers.iter().map(Worker::commit).collect();
        for (worker, answer) in self.workers.iter().zip(&answers) {
            drop(worker.answer(answer)?);
        }
        self.workers.truncate(after);
        Ok(difference)
    }

    /// Starts the workers that are missing.
    fn start(&mut self, graph: &Graph, count: usize) -> Result<(), ConfigureError> {
        for number in self.workers.len()..count {
            let start = Start {
                number,
                cpu: graph.cpus.get(number).copied(),
                pool: self.pool,
                counters: self.counters.clone(),
                notices: self.notices.clone(),
            };
            let started = Worker::start(start);
            let worker = started.map_err(|source| ConfigureError::Start {
                worker: number,
                source,
            })?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Pins workers to other processors, if two graphs differ in them.
    fn move_to(&self, old: &Graph, new: &Graph) -> Result<(), ConfigureError> {
        if old.cpus == new.cpus {
            return Ok(());
        }
        for (number, worker) in self.workers.iter().enumerate() {
            let moved = worker.answer(&worker.pin(new.cpus.get(number).copied()))?;
            moved.map_err(|error| ConfigureError::Start {
                worker: number,
                source: WorkerError::System(error),
            })?;
        }
        Ok(())
    }

    /// Makes every worker build its new apps. If one worker fails, all workers discard what they
    /// built.
    fn prepare(&self, placed: &Graph, workers: usize) -> Result<(), ConfigureError> {
        let mut parts = parts(placed, workers);
        self.join(placed, &mut parts);
        let asked = self.workers.iter().zip(parts);
        // All workers prepare at the same time: each may read a large table.
        let answers: Vec<_> = asked.map(|(worker, part)| worker.prepare(part)).collect();
        let (mut outcome, mut made) = (Ok(()), Vec::new());
        for (worker, answer) in self.workers.iter().zip(&answers) {
            let prepared = worker.answer(answer);
            let prepared = prepared.and_then(|made| {
                // What was built in vain is dropped here.
                made.map_err(|refusal| {
                    let Refusal { error, discarded } = *refusal;
                    drop(discarded);
                    error
                })
            });
            if prepared.is_ok() {
                made.push(worker);
            }
            outcome = outcome.and(prepared);
        }
        if outcome.is_err() {
            let answers: Vec<_> = self.workers.iter().map(Worker::abandon).collect();
            for (worker, answer) in self.workers.iter().zip(&answers) {
                // A worker that did not answer is not waited for again.
                if made.iter().any(|made| std::ptr::eq(*made, worker)) {
                    drop(worker.answer(answer));
                }
            }
        }
        outcome
    }

    /// Creates the rings of the new links between workers, and adds their ends to the parts.
    fn join(&self, placed: &Graph, parts: &mut [Part]) {
        let old = crossing(&self.graph);
        for (link, ends) in crossing(placed) {
            if old.get(&link) == Some(&ends) {
                continue;
            }
            let (from, to) = ends;
            let (outgoing, incoming) = between(self.workers[to].network_doorbell());
            parts[from].outgoing.insert(link.clone(), outgoing);
            parts[to].incoming.insert(link, incoming);
        }
    }

    /// Returns every link with its counts, sorted by name.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn link_counts(&self) -> Result<Vec<(LinkName, LinkCounts)>, ConfigureError> {
        let links = self.work()?.into_iter().flat_map(|work| work.links);
        let links: BTreeMap<LinkName, LinkCounts> = links.collect();
        Ok(links.into_iter().collect())
    }

    /// Starts a capture: copies frames that are put on a link from now on to `tap`, as long as the
    /// link exists. Returns false if there is no such link.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn trace(&self, link: &LinkName, tap: Tap) -> Result<bool, ConfigureError> {
        let worker = self.graph.worker_of(&link.from.app);
        match worker.and_then(|number| self.workers.get(number)) {
            Some(worker) => worker.answer(&worker.trace(link.clone(), tap)),
            None => Ok(false),
        }
    }

    /// Returns a report about each worker, in the order of the workers' numbers.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn reports(&self) -> Result<Vec<WorkerReport>, ConfigureError> {
        let work = self.work()?.into_iter().enumerate();
        let apps = |number: usize| {
            let apps = self.graph.apps.iter();
            apps.filter(move |(_, app)| app.worker == Some(number))
                .map(|(name, _)| name.clone())
        };
        Ok(work
            .map(|(number, work)| WorkerReport {
                cpu: self.graph.cpus.get(number).copied(),
                apps: apps(number).collect(),
                cpu_ns: work.cpu_ns,
            })
            .collect())
    }

    fn work(&self) -> Result<Vec<Work>, ConfigureError> {
        let answers: Vec<_> = self.workers.iter().map(Worker::report).collect();
        let pairs = self.workers.iter().zip(&answers);
        pairs
            .map(|(worker, answer)| worker.answer(answer))
            .collect()
    }

    /// Returns the list of notices that the apps of all workers give to the operator.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Returns the number of a worker that has ended because one of its apps panicked, the lowest
    /// if there are several; `None` if all workers run.
    #[must_use]
    pub fn ended(&self) -> Option<usize> {
        self.workers.iter().position(|worker| !worker.is_running())
    }
}

#[cfg(test)]
mod tests;
