//! Measures frames through the rings of a vhost-user port; DPDK's back end is the comparison.
//!
//! ```text
//!   packed-guest-to-host   testpmd txonly, virtio-user => rings => back end -> sink
//!   packed-host-to-guest   testpmd rxonly, virtio-user <= rings <= back end <- generator
//!   split-...              the same with split rings
//! ```
//!
//! The front end is always DPDK's virtio-user. The systems differ in the back end:
//!
//! | system | the back end |
//! |---|---|
//! | `carina` | the app `vhost_user` on a worker, with a sink or a generator like txonly |
//! | `dpdk` | DPDK's `net_vhost` in a testpmd |
//! | `memif` | none: DPDK's `net_memif` at both ends, in the cases of split rings |
//!
//! Each end polls on a processor of its own. Frames are counted at the receiving end. Every
//! measurement starts new ends, because rates depend on their place in memory.

mod ends;
mod generator;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_scratch::Scratch;
use carina_sys::allowed_cpus;

use self::ends::{Connection, Port};
use crate::Options;
use crate::error::{Attempt, Error, Result};
use crate::rate::{Rate, compare_with_bars};
use crate::testpmd::{NOT_INSTALLED, Testpmd};

/// A case: its name in the results, the layout of the rings, and the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// Whether rings have the packed layout.
    pub is_packed: bool,
    /// Direction of the frames of the case.
    pub direction: Direction,
}

/// Whether frames go to the host or to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Frames go from the front end (the guest's driver) to the back end (the host).
    ToHost,
    /// Frames go from the back end (the host) to the front end (the guest's driver).
    ToGuest,
}

/// The cases of the benchmark: each layout of rings, in each direction.
pub const CASES: [Case; 4] = [
    case("split-guest-to-host", false, Direction::ToHost),
    case("split-host-to-guest", false, Direction::ToGuest),
    case("packed-guest-to-host", true, Direction::ToHost),
    case("packed-host-to-guest", true, Direction::ToGuest),
];

const fn case(name: &'static str, is_packed: bool, direction: Direction) -> Case {
    Case {
        name,
        is_packed,
        direction,
    }
}

/// Default sizes of frames in bytes, without FCS.
pub const SIZES: [u64; 4] = [64, 512, 1500, 4000];

/// Name of the system with DPDK's own back end.
pub const PEER: &str = "dpdk";
/// Name of the system with DPDK's own shared memory.
pub const MEMIF: &str = "memif";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 3] = [OURS, PEER, MEMIF];

/// Required ratio to [`PEER`], in every case and at every size.
pub const BAR: f64 = 1.0;

/// Runs the benchmark with frames of each size. A third of the time precedes each measurement, to
/// warm up. Failed measurements are reported in addition to the samples of the other systems.
/// Without testpmd all measurements fail, and the reason names the missing package.
///
/// # Errors
/// The system refuses something that all measurements need, or too many measurements in succession
/// fail.
pub fn run(options: &Options<Case>) -> Result<Results> {
    let mut bench = Bench::new(options)?;
    if !Testpmd::is_installed() {
        let cases = options.cases.iter();
        let failures = cases.map(|case| format!("{}: {NOT_INSTALLED}", case.name));
        return Ok(bench.results(failures.collect()));
    }
    let measure = |_, case, size| bench.measure(case, size);
    let failures = options.measure_each(|case| case.name, measure)?;
    Ok(bench.results(failures))
}

struct Bench {
    time_ns: u64,
    /// Processors of the back end and of the front end.
    cpus: [usize; 2],
    /// Directory for sockets and files of testpmd.
    directory: Scratch,
    samples: Samples,
    disturbances: Vec<String>,
}

impl Bench {
    fn new(options: &Options<Case>) -> Result<Bench> {
        let cpus = allowed_cpus().attempt("the processors of this process")?;
        let [.., front, back] = cpus[..] else {
            let text = "two processors are needed, one for each end of a ring; this process has 1";
            return Err(Error::Proc(text.to_owned()));
        };
        Ok(Bench {
            time_ns: options.time_ns,
            cpus: [back, front],
            directory: Scratch::new(&format!(
                "vhost-{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            ))?,
            samples: Samples::default(),
            disturbances: Vec::new(),
        })
    }

    /// Measures all systems, one right after the other. The values count only if all were measured,
    /// so that samples come in pairs.
    fn measure(&mut self, case: Case, size: u64) -> Result<()> {
        let mut rates = Vec::new();
        for system in SYSTEMS {
            // The rings of memif have only one layout.
            if system == MEMIF && case.is_packed {
                continue;
            }
            let rate = self.measure_system(case, size, system);
            rates.push((system, rate.map_err(|error| error.in_case(system))?));
        }
        for (system, rate) in rates {
            rate.add_to(&mut self.samples, case.name, size, system);
            let disturbance = rate.disturbance(case.name, system, self.cpus[0]);
            self.disturbances.extend(disturbance);
        }
        Ok(())
    }

    fn measure_system(&self, case: Case, size: u64, system: &str) -> Result<Rate> {
        let directory: &Path = self.directory.path();
        let socket = directory.join("port");
        // A killed testpmd leaves its socket, and then the next one could not start.
        let _ = std::fs::remove_file(&socket);
        let port = Port {
            socket,
            directory,
            cpus: self.cpus,
            size,
            is_packed: case.is_packed,
            direction: case.direction,
        };
        let mut connection = match system {
            OURS => Connection::to_carina(&port),
            PEER => Connection::to_net_vhost(&port),
            _ => Connection::of_memif(&port),
        }?;
        connection.measure(case.direction, self.time_ns)
    }

    fn results(self, failures: Vec<String>) -> Results {
        let factors = self.samples.factors();
        let [back, front] = self.cpus;
        let mut notes = vec![
            format!("the back end has processor {back}, the front end processor {front}"),
            "mpps: frames that arrived, in 10^6 a second".to_owned(),
            "cpu_ns_per_sdu: CPU time of the back end's thread, which polls, per frame".to_owned(),
            "memif: DPDK's net_memif at both ends, which copies; it has one layout of rings"
                .to_owned(),
        ];
        notes.extend(self.disturbances);
        notes.extend(compare_with_bars(&factors, PEER, Metric::Mpps, |_| {
            Some(BAR)
        }));
        Results {
            bench: "vhost".to_owned(),
            machine: machine(),
            notes,
            rows: self.samples.rows(),
            factors,
            failures,
        }
    }
}

/// Numbers the directories of this process.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); CASES.len()] = {
    let mut tables = [("", Metric::Mpps, "frames, 10^6 a second"); CASES.len()];
    let mut at = 0;
    while at < tables.len() {
        tables[at].0 = CASES[at].name;
        at += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use carina_measure::results::Row;

    use super::*;
    use crate::Progress;

    /// Runs a case with DPDK, if it is installed.
    fn passes(name: &str, size: u64) {
        let cases = CASES.iter().filter(|case| case.name == name);
        let options = Options {
            cases: cases.copied().collect(),
            runs: 1,
            time_ns: 30_000_000,
            sizes: vec![size],
            progress: Progress(|_| {}),
        };
        let results = match run(&options) {
            Ok(results) => results,
            Err(Error::Proc(reason)) => return eprintln!("SKIP: {reason}"),
            Err(error) => panic!("{error}"),
        };
        if !Testpmd::is_installed() {
            assert_eq!(results.failures, [format!("{name}: {NOT_INSTALLED}")]);
            return eprintln!("SKIP: {NOT_INSTALLED}");
        }
        assert!(results.failures.is_empty(), "{:?}", results.failures);
        for system in [OURS, PEER] {
            let of_system = |row: &&Row| row.system == system && row.metric == Metric::Mpps;
            let row = results.rows.iter().find(of_system).unwrap();
            assert!(row.median > 0.0, "{row:?}");
        }
        let compared = results
            .notes
            .iter()
            .filter(|note| note.contains(" x dpdk "));
        assert_eq!(compared.count(), 1);
    }

    #[test]
    fn frames_of_virtio_user_come_to_both_back_ends() {
        passes("packed-guest-to-host", 64);
    }

    #[test]
    fn frames_of_both_back_ends_come_to_virtio_user() {
        passes("split-host-to-guest", 4000);
    }
}
