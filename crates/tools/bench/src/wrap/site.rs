//! The node, the servers, and what stands between them and a client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use carina_measure::results::{Metric, OURS};
use carina_namespaces::{ChildProcess, run_within};

use super::processes::{LOOPBACK, command, free_port, listening};
use super::programs::{Job, Place, Program};
use super::systems::{Carina, OTHERS, Plain, Route, Started, tcp};
use super::{CONNECT, RELAY, SYSTEMS, TCP, Work};
use crate::Progress;
use crate::error::{Attempt, Error, Result};
use crate::installed::path_of;

/// Everything that a measurement needs. It ends when it is dropped.
pub(super) struct Site {
    routes: Vec<Route>,
    notes: Vec<String>,
    programs: Vec<Program>,
    /// Requests for each program, by system and work, so that a client works for the time.
    counts: BTreeMap<(&'static str, Work), u64>,
    // The processes end before the node, and the node before its directory.
    processes: Vec<ChildProcess>,
    carina: Carina,
}

impl Site {
    /// Starts the node, the servers of these works, and each system that is installed.
    pub(super) fn start(works: &[Work], progress: Progress) -> Result<Site> {
        progress.step("starting a node, servers and relays");
        let own = std::env::current_exe().attempt("finding this program")?;
        let own = own.with_file_name("carina").to_string_lossy().into_owned();
        let mut site = Site {
            routes: Vec::new(),
            notes: vec![NOTE.to_owned()],
            programs: Vec::new(),
            counts: BTreeMap::new(),
            processes: Vec::new(),
            carina: Carina::start(own)?,
        };
        let is_chosen = |program: &Program| works.iter().any(|work| Program::of(*work) == *program);
        let mut servers = Vec::new();
        for program in Program::ALL.into_iter().filter(is_chosen) {
            let missing = program.missing();
            if !missing.is_empty() {
                let missing = missing.join(", ");
                let name = program.name();
                site.notes
                    .push(format!("{name}: left out: not installed: {missing}"));
                continue;
            }
            servers.push(site.serve(program)?);
            site.programs.push(program);
        }
        site.routes.extend(tcp(&servers));
        let directory = site.directory("systems")?;
        let gateways = site.carina.gateways(&servers, &directory)?;
        site.add(gateways);
        for (system, needed, start) in OTHERS {
            let missing: Vec<&str> = needed
                .iter()
                .copied()
                .filter(|name| path_of(name).is_none())
                .collect();
            if !missing.is_empty() {
                let missing = missing.join(", ");
                site.notes
                    .push(format!("{system}: left out: not installed: {missing}"));
                continue;
            }
            match start(&servers, &directory) {
                Ok(started) => site.add(started),
                Err(error) => site.notes.push(format!("{system}: left out: {error}")),
            }
        }
        Ok(site)
    }

    /// Starts the two servers of a program: on the loopback interface, and under `carina wrap`.
    fn serve(&mut self, program: Program) -> Result<Plain> {
        let port = free_port()?;
        let directory = self.directory(program.name())?;
        let place = Place {
            directory: &directory,
            carina: &self.carina.program,
            address: LOOPBACK,
            port,
        };
        let server = command(&program.server(place)?);
        self.processes
            .push(listening(server, &directory, program.name(), port)?);
        let directory = self.directory(&wrapped(program))?;
        let place = Place {
            directory: &directory,
            carina: &self.carina.program,
            address: "0.0.0.0",
            port: program.wrapped_port(),
        };
        let server = program.server(place)?;
        let (route, process) = self.carina.wrapped(program, server, &directory)?;
        self.processes.push(process);
        self.routes.push(route);
        Ok(Plain { program, port })
    }

    fn add(&mut self, started: Started) {
        self.routes.extend(started.routes);
        self.processes.extend(started.processes);
    }

    /// A directory in the node's run directory.
    fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.carina.node.path().join(format!("bench-{name}"));
        std::fs::create_dir_all(&directory).attempt("making a directory")?;
        Ok(directory)
    }

    /// Whether the programs that this work needs are installed on this system.
    pub(super) fn can(&self, work: Work) -> bool {
        self.programs.contains(&Program::of(work))
    }

    /// The systems in which a work can be measured, in the order of the tables.
    pub(super) fn systems(&self, work: Work) -> Vec<&'static str> {
        let program = Program::of(work);
        let has = |name: &&str| {
            let mut routes = self.routes.iter();
            routes.any(|route| route.system == *name && route.program == program)
        };
        let is_wanted = |name: &&str| match work {
            Work::Many { .. } => [TCP, CONNECT, RELAY].contains(name),
            _ => true,
        };
        let systems = SYSTEMS.into_iter();
        systems.filter(has).filter(is_wanted).collect()
    }

    pub(super) fn into_notes(self) -> Vec<String> {
        self.notes
    }

    /// Runs a client, for which `time_ns` is the time that it works.
    pub(super) fn measure(
        &mut self,
        system: &'static str,
        work: Work,
        size: u64,
        time_ns: u64,
    ) -> Result<Vec<(Metric, f64)>> {
        let program = Program::of(work);
        let mut routes = self.routes.iter();
        let route = routes
            .find(|route| route.system == system && route.program == program)
            .ok_or_else(|| Error::NoAnswer("the system is not started".to_owned()))?;
        let directories = [program.name().to_owned(), wrapped(program)];
        for name in directories {
            program.prepare(&self.directory(&name)?, size)?;
        }
        let carina = &self.carina.program;
        if !program.counts() {
            return client(route, carina, work, [size, time_ns, 0]);
        }
        // The first measurement of a system shows how many requests the time has room for.
        let key = (system, work);
        let count = match self.counts.get(&key) {
            Some(count) => *count,
            None => {
                let first = client(route, carina, work, [size, time_ns, FIRST_COUNT])?;
                let per_second = first.first().map_or(0.0, |(_, value)| *value);
                let count = per_second * time_ns as f64 / 1e9;
                (count as u64).clamp(FIRST_COUNT, COUNT_MAX)
            }
        };
        self.counts.insert(key, count);
        client(route, carina, work, [size, time_ns, count])
    }
}

/// Runs a client on a route, and returns what it has measured.
fn client(
    route: &Route,
    carina: &str,
    work: Work,
    [size, time_ns, count]: [u64; 3],
) -> Result<Vec<(Metric, f64)>> {
    let job = Job {
        work,
        carina,
        host: &route.host,
        port: route.port,
        proxy: route.proxy,
        size,
        time_ns,
        count,
    };
    let mut words = route.launcher.clone();
    words.extend(route.program.client(job));
    let limit = Duration::from_nanos(time_ns) + CLIENT_LIMIT;
    let output = run_within(&mut command(&words), route.program.name(), limit)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let values = route.program.values(work, &printed);
    values.filter(|_| output.status.success()).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        let text = format!("{printed}\n{error}");
        let shown: String = text.trim().chars().take(SHOWN_CHARS).collect();
        Error::NoAnswer(format!("the client has printed: {shown}"))
    })
}

/// Name of the directory of a wrapped server.
fn wrapped(program: Program) -> String {
    format!("{OURS}-{}", program.name())
}

/// How long a client may take beyond the time that it works.
const CLIENT_LIMIT: Duration = Duration::from_secs(75);

/// Number of requests of the first measurement.
const FIRST_COUNT: u64 = 2000;

/// Largest number of requests of a measurement.
const COUNT_MAX: u64 = 100_000_000;

/// How much of a client's output an error shows.
const SHOWN_CHARS: usize = 400;

const NOTE: &str = "clients and servers on one host; in Python with TCP_NODELAY, and the time that \
    Python takes is in all its figures alike";
