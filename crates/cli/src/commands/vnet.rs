//! `carina vnet`: virtual networks on demand.

use std::path::PathBuf;

use carina_vnet::document::Form;
use clap::Subcommand;

use crate::Shared;
use crate::failure::Outcome;

mod agent;
mod bench;
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
    Bench(bench::VnetBenchCommand),
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
        VnetCommand::Bench(command) => bench::run(shared, command),
    }
}
