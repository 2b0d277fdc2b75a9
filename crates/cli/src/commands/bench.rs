//! `carina bench`: measurements beside other systems.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use carina_api::AppName;
use carina_apps::sample_packet::{ETHERNET_SIZES, SIZES};
use carina_bench::comparison::Pin;
use carina_bench::engine;
use carina_bench::flows::{self, FlowsOptions};
use carina_bench::guest;
use carina_bench::hv::{self, HvOptions};
use carina_bench::local::{self, LocalOptions};
use carina_bench::lwaftr;
use carina_bench::paper::{self, Case, PaperOptions, PaperResults, Request, tables};
use carina_bench::restart::{self, RestartOptions};
use carina_bench::vhost;
use carina_bench::{Options, Progress, vm_and_host};
use carina_measure::duration::parse_ns;
use carina_measure::results::{Metric, OURS, Results};
use carina_measure::traffic::bytes;
use clap::Subcommand;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line, progress};

/// Measure Carina beside other systems
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// A VM and its host over either device for the VMPI, beside bare rings in the same memory, and
    /// UDP over virtio-net and e1000
    #[command(after_help = "Examples:\n  carina bench hv --json > hv.json\n  \
        carina bench hv --sizes 64,4000,1M --runs 7 --time 1s\n\nBoots one VM. As root, or where \
        user namespaces are allowed, the other systems are measured in the same boot.")]
    Hv(HvArgs),
    /// Two processes of this host, beside a bare ring, Unix sockets, UDP and TCP
    #[command(after_help = "Examples:\n  carina bench local --json > local.json\n  \
        carina bench local --sizes 64,4000 --runs 9")]
    Local(LocalArgs),
    /// Frames through graphs of apps on one core, beside DPDK's forwarding between null devices
    #[command(
        after_help = "Examples:\n  carina bench engine --json > engine.json\n  \
        carina bench engine --cases source-sink,hop-1 --runs 9\n\nFrames have 64 bytes without \
        --sizes; a third of the time goes before each measurement, to warm up. DPDK is measured \
        where dpdk-testpmd is installed (Debian: dpdk, dpdk-dev)."
    )]
    Engine(CaseArgs),
    /// An AFTR on one core, packets in both directions, beside DPDK's forwarding between null
    /// devices; and how long a million softwires take to load
    #[command(
        after_help = "Examples:\n  carina bench lwaftr --json > lwaftr.json\n  \
        carina bench lwaftr --cases few-encap,few-decap --sizes 64 --runs 9\n\nFrames have 64, \
        550 and 1500 bytes on the side of IPv4 without --sizes; a third of the time goes before \
        each measurement, to warm up. DPDK is measured where dpdk-testpmd is installed (Debian: \
        dpdk, dpdk-dev)."
    )]
    Lwaftr(CaseArgs),
    /// Frames through the rings of a vhost-user port, beside DPDK's net_vhost; the front end is
    /// DPDK's virtio-user for both
    #[command(after_help = "Examples:\n  carina bench vhost --json > vhost.json\n  \
        carina bench vhost --cases packed-guest-to-host --sizes 64,1500 --runs 9\n\nFrames have \
        64, 512, 1500 and 4000 bytes without --sizes; a third of the time goes before each \
        measurement, to warm up. It needs dpdk-testpmd (Debian: dpdk, dpdk-dev) and two \
        processors, and no privilege.")]
    Vhost(CaseArgs),
    /// A stock guest's network card over Carina's back end, beside a tap of QEMU
    #[command(after_help = "Examples:\n  carina bench guest --json > guest.json\n  \
        carina bench guest --cases udp-guest-to-host --sizes 64 --runs 9\n\nCases: \
        udp-guest-to-host, udp-host-to-guest, tcp-guest-to-host, tcp-host-to-guest; payloads have \
        64 and 1400 bytes without --sizes. As root, or where user namespaces are allowed.")]
    Guest(GuestArgs),
    /// A guest's card while the guest is rebooted, its back end killed, or the guest moved to
    /// another QEMU: packets lost, and the time without any
    #[command(
        after_help = "Examples:\n  carina bench restart --json > restart.json\n  \
        carina bench restart --cases migration-split --runs 3\n\nAs root, or where user \
        namespaces are allowed."
    )]
    Restart(RestartArgs),
    /// Many flows open at once through one normal DIF: their pace and their memory
    #[command(after_help = "Examples:\n  carina bench flows --json > flows.json\n  \
        carina bench flows --flows 1000 --askers 1 --runs 5")]
    Flows(FlowsArgs),
    /// The server of `carina bench flows`
    #[command(hide = true)]
    FlowsHolder {
        /// The name to register
        name: AppName,
    },
    /// The measurements of Vrijders and others (2016) and Grasa and others (2017): VMs on one host
    /// and on two, what a DIF costs, routing, mobility, a bad network
    #[command(after_help = "Examples:\n  carina bench paper --json > paper.json\n  \
        carina bench paper --cases fig16.14 --runs 7 --out figures\n\nAs root, or where user \
        namespaces are allowed: every system is a network namespace or a VM.")]
    Paper(PaperArgs),
    /// The client of `carina bench paper` in another system: takes a request in JSON and prints
    /// each measurement as a line of JSON
    #[command(hide = true)]
    Client {
        /// The request
        request: String,
    },
}

/// Options of `carina bench paper`.
#[derive(Debug, clap::Args)]
pub struct PaperArgs {
    /// The cases [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    cases: Vec<PaperCase>,
    /// How often everything is repeated
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// How long each measurement sends
    #[arg(long, default_value = "300ms", value_parser = parse_ns)]
    time: u64,
    /// SDU sizes in bytes [default: those of each figure]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// Write tables, figures (SVG) and results.json into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The carina program for guests [default: this one]
    #[arg(long)]
    guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Options of `carina bench hv`.
#[derive(Debug, clap::Args)]
pub struct HvArgs {
    /// How often everything is repeated
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// How long each measurement sends
    #[arg(long, default_value = "300ms", value_parser = parse_ns)]
    time: u64,
    /// SDU sizes in bytes [default: 0 to 4000 by 250, 64, 16k, 64k, 1M]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// Cases [default: guest-to-host,host-to-guest,echo]
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Systems [default: carina,virtqueue,limit,virtio-net,e1000]
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// The carina program for the guest [default: this one]
    #[arg(long)]
    guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Options of `carina bench local`.
#[derive(Debug, clap::Args)]
pub struct LocalArgs {
    /// How often everything is repeated
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// How long each measurement sends
    #[arg(long, default_value = "250ms", value_parser = parse_ns)]
    time: u64,
    /// SDU sizes in bytes [default: 64,512,1500,4000,65536]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// Which systems have their two processes pinned to CPUs 0 and 1
    #[arg(long, value_enum, default_value = "shared")]
    pin: PinArg,
}

/// Options of the benches that have cases and sizes.
#[derive(Debug, clap::Args)]
pub struct CaseArgs {
    /// How often everything is repeated
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// How long each measurement lasts
    #[arg(long, default_value = "1s", value_parser = parse_ns)]
    time: u64,
    /// Sizes in bytes: of frames without FCS, or of payloads [default: see below]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// Cases [default: all]
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<String>,
}

/// Options of `carina bench guest`.
#[derive(Debug, clap::Args)]
pub struct GuestArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// The carina program for the guest [default: this one]
    #[arg(long)]
    guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Options of `carina bench restart`.
#[derive(Debug, clap::Args)]
pub struct RestartArgs {
    /// How often everything is repeated
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Cases [default: all]
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Options of `carina bench flows`.
#[derive(Debug, Clone, clap::Args)]
pub struct FlowsArgs {
    /// How many flows are open at once
    #[arg(long, default_value_t = 10_000)]
    flows: usize,
    /// How many allocations are under way at once
    #[arg(long, default_value_t = 16)]
    askers: usize,
    /// How often everything is repeated, each time with new nodes
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// Which systems of `carina bench local` are pinned.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PinArg {
    /// The limit only
    Limit,
    /// The limit and Carina, which both share memory between the two CPUs
    Shared,
    /// All of them. The kernel's transports are slower when pinned
    All,
}

/// A case of `carina bench paper`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PaperCase {
    /// VM to VM on one host
    #[value(name = "fig4b")]
    Fig4b,
    /// VM to VM on two hosts
    #[value(name = "fig4c")]
    Fig4c,
    /// Round-trip times by hops
    #[value(name = "fig16.12")]
    Fig1612,
    /// Host to host over Ethernet: what each normal DIF costs
    #[value(name = "fig16.14")]
    Fig1614,
    /// A server that moves
    #[value(name = "fig16.15")]
    Fig1615,
    /// A network that loses, delays, reorders and duplicates
    #[value(name = "impaired")]
    Impaired,
}

impl From<PinArg> for Pin {
    fn from(pin: PinArg) -> Self {
        match pin {
            PinArg::Limit => Self::Limit,
            PinArg::Shared => Self::Shared,
            PinArg::All => Self::All,
        }
    }
}

impl From<PaperCase> for Case {
    fn from(case: PaperCase) -> Self {
        match case {
            PaperCase::Fig4b => Self::Fig4b,
            PaperCase::Fig4c => Self::Fig4c,
            PaperCase::Fig1612 => Self::Fig1612,
            PaperCase::Fig1614 => Self::Fig1614,
            PaperCase::Fig1615 => Self::Fig1615,
            PaperCase::Impaired => Self::Impaired,
        }
    }
}

impl From<carina_bench::Error> for Failure {
    fn from(error: carina_bench::Error) -> Self {
        match error {
            carina_bench::Error::FileLimit { .. } => usage(error),
            error => Failure::of(error.to_string(), &error),
        }
    }
}

/// Prints the steps of a bench on standard error.
pub const PROGRESS: Progress = Progress(|text| progress(text));

/// Runs the command.
///
/// # Errors
/// Something is missing or a measurement fails.
pub fn run(shared: &Shared, command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Hv(args) => {
            let options = args.options()?;
            let network = vm_and_host::enter_network(args.in_network_namespace, PROGRESS)?;
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let results = hv::run(&options, network)?;
            show(shared, &results, &hv::TABLES, &vm_and_host::SYSTEMS)?;
            all_measured(&results)
        }
        BenchCommand::Flows(args) => {
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let results = flows::run(&FlowsOptions {
                flows: args.flows,
                concurrent: args.askers,
                runs: args.runs,
                progress: PROGRESS,
            })?;
            show_flows(shared, &results)
        }
        BenchCommand::Engine(args) => {
            let cases = chosen("case", &engine::CASES, |case| case.name, &args.cases)?;
            let options = args.options("engine", cases, &engine::SIZES, &ETHERNET_SIZES)?;
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let results = engine::run(&options)?;
            show(shared, &results, &engine::TABLES, &engine::SYSTEMS)?;
            all_measured(&results)
        }
        BenchCommand::Lwaftr(args) => lwaftr_of(shared, args),
        BenchCommand::Vhost(args) => {
            let cases = chosen("case", &vhost::CASES, |case| case.name, &args.cases)?;
            let options = args.options("vhost", cases, &vhost::SIZES, &SIZES)?;
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let results = vhost::run(&options)?;
            show(shared, &results, &vhost::TABLES, &vhost::SYSTEMS)?;
            all_measured(&results)
        }
        BenchCommand::Guest(args) => guest_of(shared, args),
        BenchCommand::Restart(args) => restart_of(shared, &args),
        BenchCommand::FlowsHolder { name } => Ok(flows::serve(&shared.node()?, &name)?),
        BenchCommand::Paper(args) => {
            vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let options = PaperOptions {
                cases: match args.cases.is_empty() {
                    true => Case::ALL.to_vec(),
                    false => args.cases.into_iter().map(Case::from).collect(),
                },
                runs: args.runs.max(1),
                time_ns: args.time,
                sizes: args.sizes,
                guest_program: args.guest_program,
                progress: PROGRESS,
            };
            let results = paper::run(&options);
            if let Some(out) = &args.out {
                tables::write(&results, out)?;
            }
            show_paper(shared, &results)
        }
        BenchCommand::Client { request } => {
            let request: Request = serde_json::from_str(&request)
                .map_err(|error| usage(format!("the request: {error}")))?;
            request.execute(&shared.node()?, &mut |measurement| print_json(measurement))
        }
        BenchCommand::Local(args) => local(shared, args),
    }
}

fn lwaftr_of(shared: &Shared, args: CaseArgs) -> Outcome {
    let cases = chosen("case", &lwaftr::CASES, |case| case.name, &args.cases)?;
    let options = args.options("lwaftr", cases, &lwaftr::SIZES, &ETHERNET_SIZES)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = lwaftr::run(&options)?;
    show(shared, &results, &lwaftr::TABLES, &lwaftr::SYSTEMS)?;
    all_measured(&results)
}

fn guest_of(shared: &Shared, args: GuestArgs) -> Outcome {
    let cases = chosen("case", &guest::CASES, |case| case.name, &args.cases.cases)?;
    let options = args
        .cases
        .options("guest", cases, &guest::SIZES, &guest::SIZES_POSSIBLE)?;
    vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = guest::run(&options, args.guest_program.as_deref())?;
    show(shared, &results, &guest::TABLES, &guest::SYSTEMS)?;
    all_measured(&results)
}

fn restart_of(shared: &Shared, args: &RestartArgs) -> Outcome {
    let cases = chosen("case", &restart::CASES, |case| case.name, &args.cases)?;
    vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = restart::run(&RestartOptions {
        cases,
        runs: args.runs.max(1),
        progress: PROGRESS,
    })?;
    show(shared, &results, &restart::TABLES, &[OURS])
}

fn show_flows(shared: &Shared, results: &Results) -> Outcome {
    if shared.json {
        return print_json(results);
    }
    let table = flows::table(results);
    print_line(format!("{}\n\n{table}\n", results.machine))?;
    let mut notes = results.notes.iter();
    notes.try_for_each(|note| print_line(format!("- {note}")))
}

fn local(shared: &Shared, args: LocalArgs) -> Outcome {
    let sizes = if args.sizes.is_empty() {
        local::SIZES.to_vec()
    } else {
        args.sizes
    };
    if sizes.iter().any(|size| *size == 0 || *size > 262_144) {
        return Err(usage("sizes of `bench local` are 1 to 262144 bytes"));
    }
    let options = LocalOptions {
        runs: args.runs.max(1),
        time_ns: args.time,
        sizes,
        pin: args.pin.into(),
        progress: PROGRESS,
    };
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = local::run(&options)?;
    show(shared, &results, &local::TABLES, &local::SYSTEMS)?;
    all_measured(&results)
}

fn show_paper(shared: &Shared, results: &PaperResults) -> Outcome {
    match shared.json {
        true => print_line(tables::to_json(results)?)?,
        false => print_line(tables::to_text(results))?,
    }
    all_measured(&results.results)
}

/// Fails when something could not be measured.
///
/// # Errors
/// What was not measured, and why.
pub fn all_measured(results: &Results) -> Outcome {
    match results.failures.is_empty() {
        true => Ok(()),
        false => Err(failed(format!(
            "not measured: {}",
            results.failures.join("; ")
        ))),
    }
}

impl HvArgs {
    fn options(&self) -> Result<HvOptions, Failure> {
        let cases = chosen("case", &hv::CASES, |case| case.0, &self.cases)?;
        Ok(HvOptions {
            runs: self.runs.max(1),
            time_ns: self.time,
            sizes: if self.sizes.is_empty() {
                hv::sizes()
            } else {
                self.sizes.clone()
            },
            cases,
            systems: chosen("system", &vm_and_host::SYSTEMS, |name| *name, &self.systems)?,
            guest_program: self.guest_program.clone(),
            progress: PROGRESS,
        })
    }
}

impl CaseArgs {
    /// The options of a bench with these cases, and with sizes of its own where none are given.
    ///
    /// # Errors
    /// A size that is not possible.
    pub fn options<C>(
        self,
        bench: &str,
        cases: Vec<C>,
        sizes: &[u64],
        possible: &RangeInclusive<usize>,
    ) -> Result<Options<C>, Failure> {
        check_sizes(bench, &self.sizes, possible)?;
        Ok(Options {
            cases,
            runs: self.runs.max(1),
            time_ns: self.time,
            sizes: match self.sizes.is_empty() {
                true => sizes.to_vec(),
                false => self.sizes,
            },
            progress: PROGRESS,
        })
    }
}

/// The cases, or what `kind` says, of these names, in their own order; all where no name is given.
///
/// # Errors
/// A name that is not among them.
pub fn chosen<T: Copy>(
    kind: &str,
    all: &[T],
    name_of: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>, Failure> {
    let is_known = |name: &&String| all.iter().any(|case| name_of(case) == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = all.iter().map(name_of).collect();
        return Err(usage(format!(
            "no {kind} {unknown}; there are {}",
            known.join(", ")
        )));
    }
    let is_chosen = |case: &&T| names.is_empty() || names.iter().any(|name| name == name_of(case));
    Ok(all.iter().filter(is_chosen).copied().collect())
}

fn check_sizes(
    bench: &str,
    sizes: &[u64],
    possible: &RangeInclusive<usize>,
) -> Result<(), Failure> {
    let is_possible = |size: &&u64| usize::try_from(**size).is_ok_and(|it| possible.contains(&it));
    match sizes.iter().find(|size| !is_possible(size)) {
        None => Ok(()),
        Some(size) => Err(usage(format!(
            "{size} bytes: sizes of `bench {bench}` are {} to {} bytes",
            possible.start(),
            possible.end()
        ))),
    }
}

/// Prints results as JSON or as tables with their notes.
///
/// # Errors
/// A closed standard output.
pub fn show(
    shared: &Shared,
    results: &Results,
    tables: &[(&str, Metric, &str)],
    systems: &[&str],
) -> Outcome {
    if shared.json {
        return print_json(results);
    }
    print_line(format!("{}\n", results.machine))?;
    let there: Vec<&str> = systems
        .iter()
        .copied()
        .filter(|system| results.rows.iter().any(|row| row.system == *system))
        .collect();
    for (case, metric, title) in tables {
        let table = results.table(case, *metric, &there);
        if !table.is_empty() {
            let factors = match results.factors.is_empty() {
                true => "",
                false => "; ×: factor [95 % interval]",
            };
            print_line(format!(
                "{case}: {title}; median [lowest..highest]{factors}\n{table}\n"
            ))?;
        }
    }
    for note in &results.notes {
        print_line(format!("- {note}"))?;
    }
    Ok(())
}
