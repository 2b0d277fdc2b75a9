//! Virtual networks of machines, made and removed again and again: how long each takes from the
//! request until every console has answered and probes have passed every link, phase by phase, and
//! what it costs.
//!
//! ```text
//!   bench --request--> agent --makes--> QEMU, links, probes     a process of its own
//!         <--ready----
//! ```
//!
//! After P. Papadimitriou et al., *Implementing Network Virtualization for a Future Internet*
//! (2009), section V.C, tables I to III. Networks are rings, so that every node has two links.

mod ground;

use std::fmt;
use std::path::PathBuf;

use carina_measure::results::{Metric, OURS, Results, Row, Samples, machine};
use carina_vnet::document::{Boot, Document, Form};
use carina_vnet_host::progress::Phase;

use self::ground::{Ground, Measured};
use crate::Progress;
use crate::error::{Attempt, Error, Result};
use crate::failures::Failures;

/// Options of the bench.
pub struct InstantiateOptions<'a> {
    /// How machines come to run.
    pub boots: Vec<Boot>,
    /// Numbers of nodes, each of [`NODES`].
    pub nodes: Vec<usize>,
    /// How often each network is made.
    pub runs: usize,
    /// The run directory of the agent. What an earlier bench has left of networks there, because it
    /// was killed, is removed.
    pub run_dir: PathBuf,
    /// Called at each step.
    pub progress: Progress,
    /// Whether the bench is to end; asked several times a second.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

impl InstantiateOptions<'_> {
    /// How many machines have to stand ready.
    fn pool(&self) -> usize {
        let most = self.nodes.iter().max().copied().unwrap_or_default();
        match self.boots.contains(&Boot::Pool) {
            true => most,
            false => 0,
        }
    }
}

/// Numbers of nodes that a network can have here.
pub const NODES: std::ops::RangeInclusive<usize> = 3..=64;

/// The numbers that are measured where none are chosen.
pub const DEFAULT_NODES: [usize; 3] = [3, 6, 12];

/// The ways that are measured where none are chosen.
pub const BOOTS: [Boot; 3] = [Boot::Cold, Boot::Clone, Boot::Pool];

/// A network that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    boot: Boot,
    nodes: usize,
}

impl fmt::Display for Case {
    /// Where places are found, how machines come to run, nodes, providers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pip/{}/{}/1", boot_name(self.boot), self.nodes)
    }
}

/// The word for it in documents.
#[must_use]
pub fn boot_name(boot: Boot) -> &'static str {
    match boot {
        Boot::Cold => "cold",
        Boot::Clone => "clone",
        Boot::Pool => "pool",
    }
}

/// Runs the bench. Every case is made once before any is measured, so that images and templates
/// are there; then all cases in turns.
///
/// # Errors
/// No agent can be started, so many networks cannot be made that nothing works any more, or the
/// bench is interrupted. What was made is removed.
pub fn run(options: &InstantiateOptions<'_>) -> Result<Results> {
    let boots = options.boots.iter();
    let cases = boots.flat_map(|boot| {
        let case = |nodes: &usize| Case {
            boot: *boot,
            nodes: *nodes,
        };
        options.nodes.iter().map(case)
    });
    let cases: Vec<Case> = cases.collect();
    let mut ground = Ground::start(options)?;
    let mut samples = Samples::default();
    let mut failures = Failures::new(options.progress);
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
            let measured = document(*case).and_then(|document| ground.instantiate(&document));
            if let Err(Error::Interrupted) = measured {
                return Err(Error::Interrupted);
            }
            if let Some(measured) = failures.note(&what, measured)?
                && run > 0
            {
                add(&mut samples, *case, &measured);
            }
        }
    }
    let rows = samples.rows();
    let mut notes = notes(&ground);
    notes.extend(judged(&rows));
    Ok(Results {
        bench: "instantiate".to_owned(),
        machine: machine(),
        notes,
        rows,
        factors: Vec::new(),
        failures: failures.into_lines(),
    })
}

/// A ring of nodes.
fn document(case: Case) -> Result<Document> {
    let mut text = format!(
        "[vnet]\nname = \"bench\"\n[defaults]\nkind = \"vm\"\nmemory = {MEMORY_MIB}\n\
         boot = \"{}\"\n",
        boot_name(case.boot)
    );
    for node in 0..case.nodes {
        text.push_str(&format!("[node.n{node}]\n"));
    }
    for node in 0..case.nodes {
        let next = (node + 1) % case.nodes;
        text.push_str(&format!(
            "[[link]]\nends = [\"n{node}\", \"n{next}\"]\nrate = \"100Mbps\"\n"
        ));
    }
    Document::read(&text, Form::Toml).attempt(format!("the document of {case}"))
}

fn add(samples: &mut Samples, case: Case, measured: &Measured) {
    let phase = |phase: Phase| measured.phase_s(phase);
    let percent = 100.0 / measured.total_s;
    let values = [
        (Metric::TotalS, measured.total_s),
        (Metric::DiscoveryS, phase(Phase::Discovery)),
        (Metric::TunnelsS, phase(Phase::Tunnels)),
        (Metric::VmS, phase(Phase::Nodes)),
        (Metric::ConsoleS, phase(Phase::Consoles)),
        (Metric::ProbeS, phase(Phase::Probes)),
        (Metric::AgentCpuS, measured.agent_cpu_s),
        (Metric::MachinesCpuS, measured.machines_cpu_s),
        (
            Metric::HostCpuPercent,
            (measured.agent_cpu_s + measured.machines_cpu_s) * percent,
        ),
    ];
    for (metric, value) in values {
        samples.add(&case.to_string(), 0, OURS, metric, value);
    }
}

fn notes(ground: &Ground<'_>) -> Vec<String> {
    vec![
        format!(
            "guests run under {}, each with 1 processor and {MEMORY_MIB} MiB; networks are rings, \
             and all nodes are on this machine",
            ground.accelerator()
        ),
        "a case is named discovery/boot/nodes/providers; places for nodes are found by the agent \
         of the one host, and no other role takes part"
            .to_owned(),
        "total_s: from sending the request until the agent says that the network is ready, seen by \
         another process: every console has answered, and an echo has passed every link one way, \
         and its answer the other"
            .to_owned(),
        "vm_s: from the start of the first QEMU until the last guest has its addresses and routes; \
         phases do not overlap"
            .to_owned(),
        "agent_cpu_s: the agent with the engine of the links; machines_cpu_s: QEMU, without what \
         the agent starts beside it, such as ip; host_cpu_percent: both, of one processor"
            .to_owned(),
        "published, s, least/mean/most/sd: VMs on demand 103.38/109.47/119.27/4.43, made in \
         advance 15.72/16.75/17.59/0.41: Xen on eight-core machines of 2008, one PIP, VNP and VNO \
         on machines of their own; the number of nodes is not told"
            .to_owned(),
    ]
}

/// Compares medians with their bars.
fn judged(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for (case, bar) in BARS {
        let is_it = |row: &&Row| row.case == case && row.metric == Metric::TotalS;
        if let Some(row) = rows.iter().find(is_it) {
            let judged = match row.median <= bar {
                true => "holds",
                false => "DOES NOT HOLD",
            };
            let (median, runs) = (row.median, row.runs);
            lines.push(format!(
                "{case}: median of {runs} runs {median:.2} s, bar {bar} s: {judged}"
            ));
        }
    }
    lines
}

const MEMORY_MIB: u32 = 128;
/// The longest that the median of six nodes may take on two processors under emulation, s.
const BARS: [(&str, f64); 3] = [
    ("pip/clone/6/1", 1.5),
    ("pip/pool/6/1", 0.5),
    ("pip/cold/6/1", 8.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_rings_of_machines() {
        for nodes in DEFAULT_NODES {
            let boot = Boot::Cold;
            let document = document(Case { boot, nodes }).unwrap();
            assert_eq!((document.node.len(), document.link.len()), (nodes, nodes));
            assert!(document.node.keys().all(|name| {
                let node = document.resolved(name).unwrap();
                node.boot == boot && node.memory == u64::from(MEMORY_MIB)
            }));
        }
    }

    #[test]
    fn medians_are_judged_by_their_bars() {
        let mut samples = Samples::default();
        for (case, total) in [("pip/clone/6/1", 1.4), ("pip/cold/6/1", 9.0)] {
            samples.add(case, 0, OURS, Metric::TotalS, total);
        }
        let lines = judged(&samples.rows());
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("pip/clone/6/1") && lines[0].ends_with(": holds"));
        assert!(lines[1].ends_with("DOES NOT HOLD"));
    }
}
