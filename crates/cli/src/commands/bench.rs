//! `carina bench`: measurements beside other systems.

use std::path::PathBuf;

use carina_api::AppName;
use carina_measure::duration::parse_ns;
use carina_measure::results::{Metric, Results};
use carina_measure::traffic::bytes;
use clap::Subcommand;

use crate::Shared;
use crate::bench::flows::{self, FlowsArgs};
use crate::bench::hv::{self, HvOptions};
use crate::bench::lab;
use crate::bench::local::{self, LocalOptions};
use crate::bench::paper::order::Order;
use crate::bench::paper::{self, Case, PaperOptions};
use crate::bench::plan::Pin;
use crate::failure::{Outcome, usage};
use crate::report::{print_json, print_line};

/// Measure Carina beside other systems
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// A VM and its host, beside UDP over virtio-net and e1000
    #[command(after_help = "Examples:\n  carina bench hv --json > hv.json\n  \
        carina bench hv --sizes 64,4000,1M --runs 7 --time 1s\n\nBoots one VM. As root, or where \
        user namespaces are allowed, the other systems are measured in the same boot.")]
    Hv(HvArgs),
    /// Two processes of this host, beside a bare ring, Unix sockets, UDP and TCP
    #[command(after_help = "Examples:\n  carina bench local --json > local.json\n  \
        carina bench local --sizes 64,4000 --runs 9")]
    Local(LocalArgs),
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
    /// The measurements of the papers on RINA: VMs on one host and on two, what a DIF costs,
    /// routing, mobility, a bad network
    #[command(after_help = "Examples:\n  carina bench paper --json > paper.json\n  \
        carina bench paper --cases fig16.14 --runs 7 --out figures\n\nAs root, or where user \
        namespaces are allowed: every system is a network namespace or a VM.")]
    Paper(PaperArgs),
    /// The client of `carina bench paper` in another system: carries out an order in JSON and
    /// prints each result as a line of JSON
    #[command(hide = true)]
    Client {
        /// The order
        order: String,
    },
}

/// Options of `carina bench paper`.
#[derive(Debug, clap::Args)]
pub struct PaperArgs {
    /// The cases [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    cases: Vec<Case>,
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
    pin: Pin,
}

/// Runs the command.
///
/// # Errors
/// Something is missing or a measurement fails.
pub fn run(shared: &Shared, command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Hv(args) => {
            let options = args.options()?;
            let network = lab::enter_network(args.in_network_namespace)?;
            let results = hv::run(&options, network)?;
            show(shared, &results, &hv::TABLES, &lab::SYSTEMS)
        }
        BenchCommand::Flows(args) => flows::run(shared, &args),
        BenchCommand::FlowsHolder { name } => flows::hold(shared, &name),
        BenchCommand::Paper(args) => {
            lab::require_network(args.in_network_namespace)?;
            let options = PaperOptions {
                cases: match args.cases.is_empty() {
                    true => Case::ALL.to_vec(),
                    false => args.cases,
                },
                runs: args.runs.max(1),
                time_ns: args.time,
                sizes: args.sizes,
                guest_program: args.guest_program,
            };
            let found = paper::run(&options);
            paper::show::show(shared, &found, args.out.as_deref())
        }
        BenchCommand::Client { order } => {
            let order: Order = serde_json::from_str(&order)
                .map_err(|error| usage(format!("the order: {error}")))?;
            order.carry_out(&shared.node()?, &mut |finding| print_json(finding))
        }
        BenchCommand::Local(args) => {
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
                pin: args.pin,
            };
            let results = local::run(&options)?;
            show(shared, &results, &local::TABLES, &local::SYSTEMS)
        }
    }
}

impl HvArgs {
    fn options(&self) -> Result<HvOptions, crate::failure::Failure> {
        let mut cases = hv::CASES.to_vec();
        if let Some(unknown) = self
            .cases
            .iter()
            .find(|name| cases.iter().all(|(case, _)| case != name))
        {
            let known: Vec<&str> = cases.iter().map(|(case, _)| *case).collect();
            return Err(usage(format!(
                "no case {unknown}; there are {}",
                known.join(", ")
            )));
        }
        if !self.cases.is_empty() {
            cases.retain(|(case, _)| self.cases.iter().any(|name| name == case));
        }
        Ok(HvOptions {
            runs: self.runs.max(1),
            time_ns: self.time,
            sizes: if self.sizes.is_empty() {
                hv::sizes()
            } else {
                self.sizes.clone()
            },
            cases,
            guest_program: self.guest_program.clone(),
        })
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
            print_line(format!(
                "{case}: {title}; median [lowest..highest]\n{table}\n"
            ))?;
        }
    }
    for note in &results.notes {
        print_line(format!("- {note}"))?;
    }
    Ok(())
}
