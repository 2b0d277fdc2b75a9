//! `carina vnet bench`: measures embedding, instantiation and forwarding of virtual networks, and
//! compares with published results.

use std::path::PathBuf;
use std::time::Duration;

use carina_apps::sample_packet::ETHERNET_SIZES;
use carina_bench::embed::{self, EmbedOptions};
use carina_bench::forward;
use carina_bench::instantiate::{self, Case, InstantiateOptions};
use carina_bench::rates;
use carina_bench::scale::{self, ScaleOptions};
use carina_bench::vm_and_host::{require_namespaces, require_network};
use carina_embed::cases::{ETA_MAX, ETA_MIN, Setting, Topology};
use carina_measure::results::{Metric, Results};
use carina_text::duration::parse_ns;
use carina_text::table::{Table, short};
use clap::Subcommand;

use crate::Shared;
use crate::commands::bench::{CaseArgs, chosen};
use crate::commands::measured::{PROGRESS, all_measured, show as show_pairs};
use crate::failure::{Attempt, Failure, Outcome, usage};
use crate::interrupt::{Interrupt, TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Measure embedding, instantiation and forwarding of virtual networks; compare with results from
/// publications
#[derive(Debug, Subcommand)]
pub(crate) enum VnetBenchCommand {
    /// Measure embedding: how many requests for virtual networks Carina and three published
    /// embedders place on a substrate, at what cost, in what time
    #[command(
        after_help = "Examples:\n  carina vnet bench embed --json > embed.json\n  \
        carina vnet bench embed --topology wx100 --eta 0.14,0.3 --seeds 3\n  \
        carina vnet bench embed --topology geant,brain --systems carina,grc\n\nEverything runs on \
        one thread; all cases with ten seeds take minutes."
    )]
    Embed(EmbedArgs),
    /// Measure how long providers take to make a network of VMs: the time of each phase, until
    /// every node and link has answered
    #[command(
        after_help = "Examples:\n  carina vnet bench instantiate --json > instantiate.json\n  \
        carina vnet bench instantiate --discovery pip --boot clone --providers 1\n  carina vnet \
        bench instantiate --cases pip/clone/6/1,vnp/clone/6/3 --runs 30\n\nNeeds root and QEMU. \
        Each role and each agent runs as a separate process; each host is a network namespace."
    )]
    Instantiate(InstantiateArgs),
    /// Wait until standard input ends, then remove what `instantiate` made (`instantiate` starts
    /// this helper, in case `instantiate` is killed)
    #[command(hide = true)]
    Sweep {
        /// Directory with the run directories of the agents
        directory: PathBuf,
    },
    /// Measure one-way flows over virtual links, encapsulated or carried by a DIF; compare with a
    /// bridge and tunnels of the kernel
    #[command(
        after_help = "Examples:\n  carina vnet bench forward --json > forward.json\n  \
        carina vnet bench forward --cases flows-1,flows-6 --sizes 64 --runs 9\n\nWithout --sizes, \
        frames have 64 and 1500 bytes. A warm-up of a third of the measuring time precedes each \
        measurement. Needs root."
    )]
    Forward(ForwardArgs),
    /// Measure the throughput of one TCP stream on a link with a rate, and the round-trip time
    /// while the stream runs; compare with a link that the kernel's token bucket limits
    #[command(
        after_help = "Examples:\n  carina vnet bench rates --time 6s --json > rates.json\n  \
        carina vnet bench rates --cases 1M,50M --runs 3\n\n--sizes gives the payload of an echo \
        request in bytes [default: 56]. Before each measurement, the bench sends echo requests \
        over the idle link and warms up, each for a third of the measuring time. It needs root."
    )]
    Rates(ForwardArgs),
    /// Measure networks of many namespaces: time to make and to remove, memory, CPU time when idle;
    /// compare with a shell loop of ip, and with Mininet where it is installed
    #[command(
        after_help = "Examples:\n  carina vnet bench scale --json > scale.json\n  carina \
        vnet bench scale --nodes 1000 --runs 1 --idle 30s\n\nEach network is a ring. Needs root."
    )]
    Scale(ScaleArgs),
}

/// Options of `carina vnet bench scale`: sizes of the networks, the number of times each is made,
/// and how long they are idle.
#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// How many nodes (namespaces) a network has; each of several numbers, separated by commas, is
    /// measured [default: 100,300,1000]
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<usize>,
    /// Number of times that each system makes each network
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// How long to measure the CPU time of an idle network
    #[arg(long, default_value = "10s", value_parser = parse_ns)]
    idle: u64,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Options of `carina vnet bench forward` and `rates`: the cases, the number of measurements, and
/// the duration of each.
#[derive(Debug, clap::Args)]
pub(crate) struct ForwardArgs {
    #[command(flatten)]
    cases: CaseArgs,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Options of `carina vnet bench instantiate`: which networks to make, and the number of times.
#[derive(Debug, clap::Args)]
pub(crate) struct InstantiateArgs {
    /// How much providers disclose to VNPs, separated by commas: pip (names of locations only), vnp
    /// (every host and link), abstract (sums for each location) [default: all]
    #[arg(long, value_delimiter = ',')]
    discovery: Vec<String>,
    /// How VMs are started, separated by commas: cold (boot), clone (from a snapshot), pool (cloned
    /// in advance, and paused until then) [default: all]
    #[arg(long, value_delimiter = ',')]
    boot: Vec<String>,
    /// How many nodes a network has; each of several numbers, separated by commas, is measured
    /// [default: 3,6,12]
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<usize>,
    /// How many providers (PIPs), each with one host, make a network; each of several numbers,
    /// separated by commas, is measured [default: 1,3]
    #[arg(long, value_delimiter = ',')]
    providers: Vec<usize>,
    /// Cases to measure in place of the options above, separated by commas:
    /// DISCOVERY/BOOT/NODES/PROVIDERS with one value of each option, such as pip/clone/6/1
    #[arg(long, value_delimiter = ',', value_name = "CASE",
          conflicts_with_all = ["discovery", "boot", "nodes", "providers"])]
    cases: Vec<String>,
    /// Number of times that each network is made and measured, after one time to warm up
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Options of `carina vnet bench embed`: substrates, requests and embedders to compare.
#[derive(Debug, clap::Args)]
pub(crate) struct EmbedArgs {
    /// Substrates, separated by commas: wx100, geant, brain [default: all, or wx100 with --eta]
    #[arg(long, value_delimiter = ',')]
    topology: Vec<String>,
    /// Arrival rates, in requests per time unit of the simulation, separated by commas [default:
    /// 0.14,0.2,0.3,0.4 for wx100, 0.016 for geant, 0.004 for brain]
    #[arg(long, value_delimiter = ',')]
    eta: Vec<f64>,
    /// Number of random cases for each substrate and arrival rate: case N has seed N, from 1
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Number of networks that are requested in each case
    #[arg(long, default_value_t = embed::REQUESTS)]
    requests: usize,
    /// Embedders to compare, separated by commas [default: carina,grc,nrm,rw]
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
}

/// Runs a command of `carina vnet bench`.
///
/// # Errors
/// An option is not possible, or an embedding violates a constraint.
pub(crate) fn run(shared: &Shared, command: VnetBenchCommand) -> Outcome {
    match command {
        VnetBenchCommand::Embed(args) => bench_embed(shared, &args),
        VnetBenchCommand::Instantiate(args) => bench_instantiate(shared, &args),
        VnetBenchCommand::Sweep { directory } => Ok(instantiate::sweep(&directory)?),
        VnetBenchCommand::Forward(args) => bench_forward(shared, args),
        VnetBenchCommand::Rates(args) => bench_rates(shared, args),
        VnetBenchCommand::Scale(args) => bench_scale(shared, &args),
    }
}

fn bench_scale(shared: &Shared, args: &ScaleArgs) -> Outcome {
    let possible = scale::NODES_POSSIBLE;
    if let Some(nodes) = args.nodes.iter().find(|nodes| !possible.contains(nodes)) {
        let (min, max) = (possible.start(), possible.end());
        return Err(usage(format!("--nodes {nodes}: must be {min} to {max}")));
    }
    require_namespaces(args.in_network_namespace)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = scale::run(&ScaleOptions {
        nodes: or_default(&args.nodes, &scale::NODES).to_vec(),
        runs: args.runs as usize,
        idle: Duration::from_nanos(args.idle),
        progress: PROGRESS,
    })?;
    if shared.json {
        print_json(&results)?
    } else {
        show(&results, &SCALE)?
    }
    all_measured(&results)
}

fn bench_forward(shared: &Shared, args: ForwardArgs) -> Outcome {
    let cases = chosen("case", &forward::CASES, |case| case.name, &args.cases.cases)?;
    let sizes = &forward::SIZES;
    let options = args
        .cases
        .options("forward", cases, sizes, &ETHERNET_SIZES)?;
    require_namespaces(args.in_network_namespace)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = forward::run(&options)?;
    show_pairs(shared, &results, &forward::TABLES, &forward::SYSTEMS)?;
    all_measured(&results)
}

fn bench_rates(shared: &Shared, args: ForwardArgs) -> Outcome {
    let cases = chosen("case", &rates::CASES, |case| case.name, &args.cases.cases)?;
    let options = args
        .cases
        .options("rates", cases, &rates::SIZES, &rates::SIZES_POSSIBLE)?;
    require_namespaces(args.in_network_namespace)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = rates::run(&options)?;
    show_pairs(shared, &results, &rates::TABLES, &rates::SYSTEMS)?;
    all_measured(&results)
}

fn bench_instantiate(shared: &Shared, args: &InstantiateArgs) -> Outcome {
    let cases = args.cases()?;
    require_network(args.in_network_namespace, PROGRESS)?;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let is_interrupted = || interrupt.is_pending().unwrap_or(true);
    let measured = instantiate::run(&InstantiateOptions {
        cases,
        runs: args.runs as usize,
        directory: shared.run_dir().path().join("vnet-bench"),
        progress: PROGRESS,
        is_interrupted: &is_interrupted,
    });
    let results = match measured {
        Err(carina_bench::Error::Interrupted) => {
            let words = "interrupted; the networks of the benchmark are removed";
            return Err(Failure::Interrupted(words.to_owned()));
        }
        measured => measured?,
    };
    if shared.json {
        print_json(&results)?
    } else {
        show(&results, &INSTANTIATE)?
    }
    all_measured(&results)
}

/// Prints a table of some metrics, with the notes below it.
fn show(results: &Results, metrics: &[(Metric, &str)]) -> Outcome {
    print_line(format!(
        "{}\n\n{}\n",
        results.machine,
        table_of(results, metrics)
    ))?;
    let mut notes = results.notes.iter().chain(&results.failures);
    notes.try_for_each(|note| print_line(format!("- {note}")))
}

/// A table with one row for each case: medians over the runs.
fn table_of(results: &Results, metrics: &[(Metric, &str)]) -> Table {
    let mut table =
        Table::new(std::iter::once("case").chain(metrics.iter().map(|metric| metric.1)));
    let first = metrics.first().map(|(metric, _)| *metric);
    for of in results.rows.iter().filter(|row| Some(row.metric) == first) {
        let cell = |(metric, _): &(Metric, &str)| {
            let found = results.row(&of.case, of.sdu, &of.system, *metric);
            found.map_or_else(String::new, |row| short(row.median))
        };
        let cells = metrics.iter().map(cell);
        table.row(std::iter::once(of.case.clone()).chain(cells));
    }
    table
}

/// The metrics and column titles of the table of large networks.
const SCALE: [(Metric, &str); 5] = [
    (Metric::UpS, "up, s"),
    (Metric::DownS, "down, s"),
    (Metric::MibPerLink, "MiB per link"),
    (Metric::IdlePercent, "idle, % of a core"),
    (Metric::LinkMs, "one more link, ms"),
];

/// The metrics and column titles of the table of instantiations.
const INSTANTIATE: [(Metric, &str); 9] = [
    (Metric::TotalS, "total, s"),
    (Metric::DiscoveryS, "discovery"),
    (Metric::TunnelsS, "tunnels"),
    (Metric::VmS, "machines"),
    (Metric::ConsoleS, "consoles"),
    (Metric::ProbeS, "probes"),
    (Metric::VnpCpuS, "CPU of VNP, s"),
    (Metric::AgentCpuS, "of agents"),
    (Metric::MachinesCpuS, "of machines"),
];

impl InstantiateArgs {
    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let read = |name: &String| name.parse().map_err(usage);
        if !self.cases.is_empty() {
            return self.cases.iter().map(read).collect();
        }
        let discoveries = chosen(
            "discovery",
            &instantiate::DISCOVERIES,
            |discovery| instantiate::discovery_name(*discovery),
            &self.discovery,
        )?;
        let boots = &instantiate::BOOTS;
        let boots = chosen(
            "boot",
            boots,
            |boot| instantiate::boot_name(*boot),
            &self.boot,
        )?;
        let mut names = Vec::new();
        for providers in or_default(&self.providers, &instantiate::DEFAULT_PROVIDERS) {
            for discovery in &discoveries {
                for boot in &boots {
                    for nodes in or_default(&self.nodes, &instantiate::DEFAULT_NODES) {
                        let discovery = instantiate::discovery_name(*discovery);
                        let boot = instantiate::boot_name(*boot);
                        names.push(format!("{discovery}/{boot}/{nodes}/{providers}"));
                    }
                }
            }
        }
        names.iter().map(read).collect()
    }
}

fn or_default<'a>(chosen: &'a [usize], default: &'a [usize]) -> &'a [usize] {
    if chosen.is_empty() { default } else { chosen }
}

fn bench_embed(shared: &Shared, args: &EmbedArgs) -> Outcome {
    let options = args.options()?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = embed::run(&options)?;
    if shared.json {
        return print_json(&results);
    }
    print_line(format!("{}\n\n{}\n", results.machine, table(&results)))?;
    let mut notes = results.notes.iter();
    notes.try_for_each(|note| print_line(format!("- {note}")))
}

impl EmbedArgs {
    fn options(&self) -> Result<EmbedOptions, Failure> {
        Ok(EmbedOptions {
            settings: self.settings()?,
            systems: chosen(
                "system",
                &embed::SYSTEMS,
                |system| system.name,
                &self.systems,
            )?,
            seeds: self.seeds,
            progress: PROGRESS,
        })
    }

    fn settings(&self) -> Result<Vec<Setting>, Failure> {
        let possible = ETA_MIN..=ETA_MAX;
        if let Some(eta) = self.eta.iter().find(|eta| !possible.contains(eta)) {
            return Err(usage(format!(
                "--eta {eta}: the arrival rate must be {ETA_MIN} to {ETA_MAX}"
            )));
        }
        if self.requests == 0 {
            return Err(usage("--requests 0: must be at least 1"));
        }
        let mut topologies = chosen(
            "topology",
            &Topology::ALL,
            |topology| topology.name(),
            &self.topology,
        )?;
        if self.topology.is_empty() && !self.eta.is_empty() {
            topologies = vec![Topology::Wx100];
        }
        let requests = self.requests;
        let setting = |topology, eta| Setting {
            topology,
            eta,
            requests,
        };
        if self.eta.is_empty() {
            let defaults = embed::DEFAULTS.iter();
            let wanted = defaults.filter(|(topology, _)| topologies.contains(topology));
            return Ok(wanted
                .map(|(topology, eta)| setting(*topology, *eta))
                .collect());
        }
        let all = topologies.iter();
        let of = |topology: &Topology| {
            let topology = *topology;
            self.eta.iter().map(move |eta| setting(topology, *eta))
        };
        Ok(all.flat_map(of).collect())
    }
}

/// A table with one row for each case and system: means over the seeds, with their 95 % intervals.
fn table(results: &Results) -> Table {
    let metrics = [
        (Metric::AcceptancePercent, "acceptance, %"),
        (Metric::RevenueToCost, "revenue/cost"),
        (Metric::SolveMs, "solve, ms"),
        (Metric::SolveP99Ms, "p99, ms"),
    ];
    let head = ["case", "system"].into_iter();
    let mut table = Table::new(head.chain(metrics.iter().map(|(_, title)| *title)));
    let acceptances = results.rows.iter();
    for of in acceptances.filter(|row| row.metric == Metric::AcceptancePercent) {
        let cell = |(metric, _): &(Metric, &str)| {
            let found = results.row(&of.case, of.sdu, &of.system, *metric);
            found.map_or_else(String::new, |row| {
                format!("{} ± {}", short(row.mean), short(row.ci95))
            })
        };
        let words = [of.case.clone(), of.system.clone()];
        table.row(words.into_iter().chain(metrics.iter().map(cell)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(topology: &[&str], eta: &[f64]) -> EmbedArgs {
        EmbedArgs {
            topology: topology.iter().map(|name| (*name).to_owned()).collect(),
            eta: eta.to_vec(),
            seeds: 1,
            requests: 10,
            systems: Vec::new(),
        }
    }

    fn names(args: &EmbedArgs) -> Vec<String> {
        let settings = args.settings().unwrap();
        let name = |setting: &Setting| format!("{}/{}", setting.topology.name(), setting.eta);
        settings.iter().map(name).collect()
    }

    #[test]
    fn cases_are_those_of_the_options_or_the_published_ones() {
        assert_eq!(names(&args(&[], &[])).len(), 6);
        assert_eq!(names(&args(&["brain"], &[])), ["brain/0.004"]);
        assert_eq!(names(&args(&[], &[0.3, 0.5])), ["wx100/0.3", "wx100/0.5"]);
        let both = args(&["geant", "brain"], &[0.01]);
        assert_eq!(names(&both), ["geant/0.01", "brain/0.01"]);
    }

    fn instantiations(providers: &[usize], cases: &[&str]) -> InstantiateArgs {
        InstantiateArgs {
            discovery: Vec::new(),
            boot: vec!["clone".to_owned()],
            nodes: Vec::new(),
            providers: providers.to_vec(),
            cases: cases.iter().map(|case| (*case).to_owned()).collect(),
            runs: 1,
            in_network_namespace: false,
        }
    }

    #[test]
    fn networks_are_those_of_the_options_or_of_the_names() {
        let names = |args: InstantiateArgs| -> Vec<String> {
            args.cases().unwrap().iter().map(Case::to_string).collect()
        };
        let all = names(instantiations(&[], &[]));
        assert_eq!(all.len(), 18, "{all:?}");
        assert_eq!(all[0], "pip/clone/3/1");
        let three = names(instantiations(&[3], &[]));
        assert_eq!(three.len(), 9, "{three:?}");
        let named = ["vnp/pool/12/3", "pip/cold/3/1"];
        assert_eq!(names(instantiations(&[], &named)), named);
        let error = instantiations(&[4], &[]).cases().err().unwrap();
        assert!(error.to_string().contains("each provider needs a node"));
    }

    #[test]
    fn impossible_options_are_named() {
        let words = |args: EmbedArgs| args.options().err().map(|error| error.to_string());
        let error = words(args(&["mars"], &[])).unwrap();
        assert!(error.contains("wx100, geant, brain"), "{error}");
        let error = words(args(&[], &[0.0])).unwrap();
        assert!(error.contains("0.0001 to 1000"), "{error}");
        let mut none = args(&[], &[]);
        none.requests = 0;
        assert!(words(none).unwrap().contains("at least 1"));
    }
}
