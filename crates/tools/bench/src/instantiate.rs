//! Measures virtual networks of VMs that providers make for an operator and remove again: how long
//! each takes from the request until every console has answered and probes have passed every link,
//! phase by phase, and what it costs.
//!
//! ```text
//!   bench --request--> VNO --> VNP --> PIPs --> agents --make--> QEMU, links, probes
//!         <--ready----     <--     <--      <--
//! ```
//!
//! After P. Papadimitriou et al., *Implementing Network Virtualization for a Future Internet*
//! (2009), section V.A, tables I to III. Networks are rings, so that every node has two links.

mod case;
mod ground;
mod substrate;
mod sweeper;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use carina_measure::results::{Metric, OURS, Results, Row, Samples, machine};
use carina_sys::{SUCCESSION, lock_file};
use carina_vnet::document::Boot;
use carina_vnet::pip::inventory::Discovery;
use carina_vnet::progress::Phase;

use self::case::MEMORY_MIB;
pub use self::case::{
    BOOTS, Case, CaseError, DEFAULT_NODES, DEFAULT_PROVIDERS, DISCOVERIES, NODES, PROVIDERS,
    boot_name, discovery_name,
};
use self::ground::{Ground, Measured};
use self::sweeper::Sweeper;
pub use self::sweeper::sweep;
use crate::Progress;
use crate::error::{Attempt, Error, Result};
use crate::failures::Failures;

/// Which networks to make, how often, and where their files go.
pub struct InstantiateOptions<'a> {
    /// The networks to make: for each, its size, how its VMs start, and how its hosts are chosen.
    pub cases: Vec<Case>,
    /// Number of times that each network is made and measured.
    pub runs: usize,
    /// A directory for the benchmark alone. If an earlier benchmark was killed together with its
    /// sweeper, the networks that it left there are removed.
    pub directory: PathBuf,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
    /// Returns whether the benchmark has to end; called several times a second.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// What the cases on one ground share: number of providers, and discovery.
type Setting = (usize, Discovery);

/// Runs the benchmark, in a network namespace that this process has for itself. Cases with the same
/// number of providers and discovery are measured in turns. Each is first made once, so that images
/// and templates exist.
///
/// # Errors
/// Roles or agents cannot be started, too many networks in succession cannot be made, or the
/// benchmark is interrupted. What was made is removed.
pub fn run(options: &InstantiateOptions<'_>) -> Result<Results> {
    let directory = Directory::take(&options.directory)?;
    let mut settings: Vec<Setting> = Vec::new();
    for case in &options.cases {
        let setting = (case.providers, case.discovery);
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    let mut bench = Bench {
        options,
        samples: Samples::default(),
        failures: Failures::new(options.progress),
        accelerator: String::new(),
    };
    for (number, setting) in settings.into_iter().enumerate() {
        bench.measure(&directory.path.join(number.to_string()), setting)?;
    }
    let rows = bench.samples.rows();
    let mut notes = notes(&bench.accelerator);
    notes.extend(bar_notes(&rows));
    Ok(Results {
        bench: "instantiate".to_owned(),
        machine: machine(),
        notes,
        rows,
        factors: Vec::new(),
        failures: bench.failures.into_lines(),
    })
}

struct Bench<'a> {
    options: &'a InstantiateOptions<'a>,
    samples: Samples,
    failures: Failures,
    accelerator: String,
}

impl Bench<'_> {
    /// Measures all cases of a setting.
    fn measure(&mut self, directory: &Path, setting: Setting) -> Result<()> {
        let options = self.options;
        let is_here = |case: &&Case| (case.providers, case.discovery) == setting;
        let cases: Vec<Case> = options.cases.iter().filter(is_here).copied().collect();
        let pools = cases.iter().filter(|case| case.boot == Boot::Pool);
        let pool = pools.map(|case| case.nodes_of_one()).max();
        fs::create_dir_all(directory).attempt(format!("making {}", directory.display()))?;
        // The sweeper removes networks when the processes of the ground have ended.
        let _sweeper = Sweeper::start(directory)?;
        let mut ground = Ground::start(options, directory, setting, pool.unwrap_or_default())?;
        for run in 0..=options.runs {
            for case in &cases {
                if (options.is_interrupted)() {
                    return Err(Error::Interrupted);
                }
                let what = match run {
                    0 => format!("{case}: to warm up"),
                    _ => format!("{case}: run {run} of {}", options.runs),
                };
                options.progress.step(&what);
                let measured = ground.instantiate(*case);
                if let Err(Error::Interrupted) = measured {
                    return Err(Error::Interrupted);
                }
                if let Some(measured) = self.failures.note(&what, measured)?
                    && run > 0
                {
                    add(&mut self.samples, *case, &measured);
                }
            }
        }
        ground.accelerator().clone_into(&mut self.accelerator);
        Ok(())
    }
}

/// The benchmark's own directory. Dropping the value removes it.
struct Directory {
    path: PathBuf,
    // The lock lasts as long as this file is open.
    _lock: File,
}

impl Directory {
    fn take(path: &Path) -> Result<Directory> {
        let what = || format!("the directory {}", path.display());
        fs::create_dir_all(path).attempt(what())?;
        let lock = File::create(path.join("bench.lock")).attempt(what())?;
        if !lock_file(&lock, SUCCESSION).attempt(what())? {
            return Err(Error::NoAnswer(format!(
                "{}: another bench uses it",
                what()
            )));
        }
        for entry in fs::read_dir(path).attempt(what())?.flatten() {
            if entry.path().is_dir() {
                sweeper::remove(&entry.path());
            }
        }
        Ok(Directory {
            path: path.to_owned(),
            _lock: lock,
        })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is left to the next benchmark.
        let _ = fs::remove_file(self.path.join("bench.lock"));
        let _ = fs::remove_dir(&self.path);
    }
}

fn add(samples: &mut Samples, case: Case, measured: &Measured) {
    let phase = |phase: Phase| measured.phase_s(phase);
    let percent = 100.0 / measured.total_s;
    let hosts_cpu_s = measured.agent_cpu_s + measured.machines_cpu_s;
    let values = [
        (Metric::TotalS, measured.total_s),
        (Metric::DiscoveryS, measured.discovery_s),
        (Metric::TunnelsS, phase(Phase::Tunnels)),
        (Metric::VmS, phase(Phase::Nodes)),
        (Metric::ConsoleS, phase(Phase::Consoles)),
        (Metric::ProbeS, phase(Phase::Probes)),
        (Metric::VnpCpuS, measured.vnp_cpu_s),
        (Metric::VnpCpuPercent, measured.vnp_cpu_s * percent),
        (Metric::AgentCpuS, measured.agent_cpu_s),
        (Metric::MachinesCpuS, measured.machines_cpu_s),
        (
            Metric::HostCpuPercent,
            hosts_cpu_s * percent / measured.hosts() as f64,
        ),
        (
            Metric::PrivateMib,
            measured.memory_mib(|memory| memory.private),
        ),
        (
            Metric::PssMib,
            measured.memory_mib(|memory| memory.proportional),
        ),
    ];
    for (metric, value) in values {
        samples.add(&case.to_string(), 0, OURS, metric, value);
    }
}

fn notes(accelerator: &str) -> Vec<String> {
    vec![
        format!(
            "guests run under {accelerator}, each with 1 processor and {MEMORY_MIB} MiB; networks \
             are rings; VNO, VNP, PIPs and the agent of the one host of each PIP are processes of \
             their own, hosts are network namespaces of this machine"
        ),
        "a case is named discovery/boot/nodes/providers; each provider has a row of the ring"
            .to_owned(),
        "total_s: from sending the request to the VNO until that says that the network is ready: \
         every console has answered, and an echo has passed every link one way, and its answer the \
         other"
            .to_owned(),
        "discovery_s: until the VNO says that all that it needs is held; tunnels_s, vm_s, \
         console_s, probe_s: of the host that took longest for it; the rest of total_s is orders \
         and reports on their way"
            .to_owned(),
        "vm_s: from the start of the first QEMU until the last guest has its addresses and routes; \
         phases of a host do not overlap"
            .to_owned(),
        "vnp_cpu_s: the VNP; agent_cpu_s: all agents with the engines of the links; \
         machines_cpu_s: QEMU on all hosts, without what agents start beside it, such as ip; \
         host_cpu_percent: both, of one processor for each host"
            .to_owned(),
        "private_mib: memory of a machine's QEMU that no other process shares, mean of the \
         machines of a network that is ready; pss_mib: with its share of what others use, too"
            .to_owned(),
        "published, s, least/mean/most/sd: VMs on demand 103.38/109.47/119.27/4.43 with discovery \
         at the PIP, 104.08/110.37/120.79/4.27 at the VNP, made in advance 15.72/16.75/17.59/0.41; \
         % CPU of the VNP 20.38/23.45/25.49/1.52, of a host 16.33/19.15/22.61/2.05: Xen on \
         eight-core machines of 2008, one PIP, VNP and VNO on machines of their own; the number of \
         nodes is not told"
            .to_owned(),
    ]
}

/// Compares medians with the required values.
fn bar_notes(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for (case, metric, bar) in BARS {
        let is_it = |row: &&Row| row.case == case && row.metric == metric;
        if let Some(row) = rows.iter().find(is_it) {
            let verdict = if row.median <= bar {
                "holds"
            } else {
                "DOES NOT HOLD"
            };
            let (median, runs) = (row.median, row.runs);
            let (what, unit) = match metric {
                Metric::PrivateMib => ("private memory of a machine, ", "MiB"),
                _ => ("", "s"),
            };
            lines.push(format!(
                "{case}: {what}median of {runs} runs {median:.2} {unit}, bar {bar} {unit}: {verdict}"
            ));
        }
    }
    lines
}

/// Required medians, on two processors under emulation: times in seconds, memory in MiB.
const BARS: [(&str, Metric, f64); 5] = [
    ("pip/clone/6/1", Metric::TotalS, 0.7),
    ("pip/pool/6/1", Metric::TotalS, 0.5),
    ("pip/cold/6/1", Metric::TotalS, 8.0),
    ("pip/clone/100/1", Metric::TotalS, 25.0),
    ("pip/clone/100/1", Metric::PrivateMib, 40.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_judged_by_their_bars() {
        let mut samples = Samples::default();
        for (case, total) in [("pip/clone/6/1", 0.6), ("pip/cold/6/1", 9.0)] {
            samples.add(case, 0, OURS, Metric::TotalS, total);
        }
        samples.add("pip/clone/100/1", 0, OURS, Metric::PrivateMib, 41.0);
        let lines = bar_notes(&samples.rows());
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("pip/clone/6/1") && lines[0].ends_with(": holds"));
        assert!(lines[1].ends_with("DOES NOT HOLD"));
        assert!(lines[2].contains("41.00 MiB") && lines[2].ends_with("DOES NOT HOLD"));
    }
}
