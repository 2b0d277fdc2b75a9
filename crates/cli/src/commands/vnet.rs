//! `carina vnet`: virtual networks on demand.

use std::path::PathBuf;

use carina_bench::embed::{self, EmbedOptions};
use carina_embed::cases::{ETA_MAX, ETA_MIN, Setting, Topology};
use carina_measure::results::{Metric, Results};
use carina_measure::table::{Table, short};
use carina_vnet::document::Form;
use clap::Subcommand;

use crate::Shared;
use crate::commands::bench::{PROGRESS, chosen};
use crate::failure::{Attempt, Failure, Outcome, usage};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

mod agent;
mod demo;
mod document;
mod inside;
mod network;
mod picture;

/// Virtual networks on demand, from documents that say what is wanted
#[derive(Debug, Subcommand)]
pub enum VnetCommand {
    /// Make the network that a document describes, and wait until it is ready
    ///
    /// It is ready when the console of every node has answered and probes have passed every link
    /// both ways. An agent is started where none runs; it ends with its last network.
    #[command(after_help = "Examples:\n  carina vnet up demo.toml\n  \
        carina --json vnet up demo.toml --keep\n\nExit code 3: the document is wrong, or the \
        network does not fit.")]
    Up(network::UpArgs),
    /// Change a network to what a document says; only what differs is touched
    #[command(after_help = "Example:\n  carina vnet apply demo.toml")]
    Apply(network::ApplyArgs),
    /// Remove networks and all that they are made of, also after their agent was killed
    #[command(
        after_help = "Examples:\n  carina vnet down\n  carina vnet down demo\n  \
        carina vnet down --all"
    )]
    Down {
        /// The network [default: the only one]
        name: Option<String>,
        /// All networks
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List networks
    #[command(after_help = "Example:\n  carina vnet list --json")]
    List,
    /// Show nodes and links of a network, and how long its phases took
    #[command(after_help = "Examples:\n  carina vnet status\n  carina --json vnet status demo")]
    Status {
        /// The network [default: the only one]
        name: Option<String>,
    },
    /// Draw a network in SVG, with the states of its nodes and links
    #[command(after_help = "Example:\n  carina vnet show demo --svg demo.svg")]
    Show {
        /// The network [default: the only one]
        name: Option<String>,
        /// Write to this file [default: standard output]
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Show what has happened to a network
    #[command(after_help = "Examples:\n  carina vnet events\n  carina vnet events demo --follow")]
    Events {
        /// The network [default: the only one]
        name: Option<String>,
        /// Go on with what happens, until Ctrl-C
        #[arg(long, short)]
        follow: bool,
    },
    /// Run a command in a node, and exit with its exit code
    #[command(after_help = "Examples:\n  carina vnet exec r1 ip address\n  \
        carina vnet exec --vnet demo r1 ping -c 3 10.0.0.2\n\nThe command has no standard \
        input, and its output comes when it has ended.")]
    Exec(inside::ExecArgs),
    /// Connect this terminal to the console of a node
    #[command(
        after_help = "Example:\n  carina vnet console r1\n\nCtrl-] leaves the console. \
        Several can watch; who came first writes."
    )]
    Console {
        /// The node
        node: String,
        /// The network [default: the only one]
        #[arg(long)]
        vnet: Option<String>,
    },
    /// Probe all links of a network, and try the tests of its document
    #[command(after_help = "Example:\n  carina vnet test demo\n\nExit code 1: one does not hold.")]
    Test {
        /// The network [default: the only one]
        name: Option<String>,
    },
    /// Make six virtual machines in a ring, and show the phases beside published figures
    #[command(
        after_help = "Examples:\n  carina vnet demo\n  carina vnet demo --boot cold --keep\n  \
        carina --json vnet demo --runs 10"
    )]
    Demo(demo::DemoArgs),
    /// Hold the networks of this host, until Ctrl-C; they go on without it
    ///
    /// Parts of networks that a provider hands over have links to other hosts, over the underlay.
    /// Their outer addresses are the agent's: it answers ARP for them.
    #[command(
        after_help = "Examples:\n  carina vnet agent\n  carina vnet agent --host h1 \
        --underlay eth1\n\n`carina vnet up` starts one where none runs."
    )]
    Agent(agent::AgentArgs),
    /// Read a document and say what is wrong with it, or what it asks for
    ///
    /// A document says what is wanted of a virtual network; docs/vnet-documents.md has all of it.
    #[command(
        after_help = "Examples:\n  carina vnet check demo.toml\n  carina --json vnet check \
        demo.xml\n\nExit code 3: the document is wrong."
    )]
    Check(document::Source),
    /// Write a document in another form
    #[command(after_help = "Example:\n  carina vnet convert demo.toml --to xml > demo.xml")]
    Convert {
        #[command(flatten)]
        source: document::Source,
        /// The form to write: toml, xml, json
        #[arg(long, value_name = "FORM")]
        to: Form,
    },
    /// Print the schema of documents in XML
    #[command(after_help = "Example:\n  carina vnet schema > vnet.xsd && \
        xmllint --noout --schema vnet.xsd demo.xml")]
    Schema,
    /// Measure parts of it beside published ones
    #[command(
        subcommand,
        after_help = "Example:\n  carina vnet bench embed --topology geant --seeds 3"
    )]
    Bench(VnetBenchCommand),
}

/// Measure parts of it beside published ones
#[derive(Debug, Subcommand)]
pub enum VnetBenchCommand {
    /// Requests for virtual networks that come and go on a substrate, in published cases: how many
    /// Carina and three published embedders place, at what cost, in what time
    #[command(
        after_help = "Examples:\n  carina vnet bench embed --json > embed.json\n  \
        carina vnet bench embed --topology wx100 --eta 0.14,0.3 --seeds 3\n  \
        carina vnet bench embed --topology geant,brain --systems carina,grc\n\nEverything runs on \
        one thread; all cases with ten seeds take minutes."
    )]
    Embed(EmbedArgs),
}

/// Options of `carina vnet bench embed`.
#[derive(Debug, clap::Args)]
pub struct EmbedArgs {
    /// Substrates: wx100, geant, brain [default: all, or wx100 with --eta]
    #[arg(long, value_delimiter = ',')]
    topology: Vec<String>,
    /// Rates of arrivals: requests in a unit of time [default: 0.14, 0.2, 0.3 and 0.4 of wx100,
    /// 0.016 of geant, 0.004 of brain]
    #[arg(long, value_delimiter = ',')]
    eta: Vec<f64>,
    /// How many cases are drawn of each, from seed 1
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// How many requests come in each
    #[arg(long, default_value_t = embed::REQUESTS)]
    requests: usize,
    /// Systems [default: carina,grc,nrm,rw]
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// A document that is wrong, an option that is not possible, or an embedding that does not keep a
/// constraint.
pub fn run(shared: &Shared, command: VnetCommand) -> Outcome {
    match command {
        VnetCommand::Up(args) => network::up(shared, &args),
        VnetCommand::Apply(args) => network::apply(shared, &args),
        VnetCommand::Down { name, all } => network::down(shared, name.as_deref(), all),
        VnetCommand::List => network::list(shared),
        VnetCommand::Status { name } => network::status(shared, name.as_deref()),
        VnetCommand::Show { name, svg } => picture::show(shared, name.as_deref(), svg.as_deref()),
        VnetCommand::Events { name, follow } => network::events(shared, name.as_deref(), follow),
        VnetCommand::Exec(args) => inside::exec(shared, &args),
        VnetCommand::Console { node, vnet } => inside::console(shared, vnet.as_deref(), &node),
        VnetCommand::Test { name } => network::test(shared, name.as_deref()),
        VnetCommand::Demo(args) => demo::run(shared, &args),
        VnetCommand::Agent(args) => agent::serve(shared, &args),
        VnetCommand::Check(source) => document::check(shared, &source),
        VnetCommand::Convert { source, to } => document::convert(&source, to),
        VnetCommand::Schema => document::schema(),
        VnetCommand::Bench(VnetBenchCommand::Embed(args)) => bench_embed(shared, &args),
    }
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
            systems: chosen("system", &embed::SYSTEMS, |it| it.name, &self.systems)?,
            seeds: self.seeds,
            progress: PROGRESS,
        })
    }

    fn settings(&self) -> Result<Vec<Setting>, Failure> {
        let possible = ETA_MIN..=ETA_MAX;
        if let Some(eta) = self.eta.iter().find(|eta| !possible.contains(eta)) {
            return Err(usage(format!(
                "--eta {eta}: rates of arrivals are {ETA_MIN} to {ETA_MAX}"
            )));
        }
        if self.requests == 0 {
            return Err(usage("--requests 0: at least 1 comes"));
        }
        let mut topologies = chosen("topology", &Topology::ALL, |it| it.name(), &self.topology)?;
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

/// A line for each case and system: means over the seeds, with their 95 % intervals.
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
            topology: topology.iter().map(|it| (*it).to_owned()).collect(),
            eta: eta.to_vec(),
            seeds: 1,
            requests: 10,
            systems: Vec::new(),
        }
    }

    fn names(args: &EmbedArgs) -> Vec<String> {
        let settings = args.settings().unwrap();
        let name = |it: &Setting| format!("{}/{}", it.topology.name(), it.eta);
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
