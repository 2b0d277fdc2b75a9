//! The command line of the programs [`carina`] (for users), [`guest`] (inside guests) and [`tools`]
//! (measures, simulates and converts). Each function parses the command line of its process, runs
//! the command and returns the exit code: 0 success, 1 failure, 2 wrong command line, 3 refused so
//! that a retry does not help, 130 ended by SIGINT or SIGTERM, 141 standard output was closed.
//!
//! `carina` parses the command lines of the tools as well, and then replaces itself with
//! `carina-tools`, with the same arguments. So help and error messages of a tool are the same from
//! both programs.
#![forbid(unsafe_code)]
// A build without all features leaves some of the shared code unused.
#![cfg_attr(not(feature = "tools"), allow(dead_code))]

mod argument;
mod commands;
#[cfg(feature = "packet")]
mod data_plane;
mod failure;
#[cfg(feature = "packet")]
mod file_watch;
mod flow_spec;
mod graph_directory;
mod interrupt;
mod log;
mod log_writer;
mod report;
mod splice;
mod tool;

use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use carina_api::control::Client;
use carina_api::paths::RunDir;
use carina_client::Node;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::{Attempt, EXIT_UNREAD, EXIT_USAGE, Failure, Outcome};
use crate::tool::Tools;

/// Connect virtual machines without network cards, run a packet data plane, build virtual networks
///
/// Exit codes: 0 success, 1 failure, 2 wrong command line, 3 refused for a reason that a retry does
/// not change, such as a bad value, 130 ended by SIGINT (Ctrl-C) or SIGTERM before its result, 141
/// the reader of standard output closed it.
#[derive(Debug, Parser)]
#[command(
    name = "carina",
    // carina-tools shows `carina` in its usage lines too.
    bin_name = "carina",
    version,
    max_term_width = 100,
    after_help = ENVIRONMENT
)]
struct Cli {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Command,
}

/// Run a node inside a VM, and the programs that use its flows: ping, perf, cat, connect
///
/// This small program is installed as `carina` in a guest. Graphs, virtual machines, virtual
/// networks, labs and tools are commands of the full `carina` on the host.
#[derive(Debug, Parser)]
#[command(
    name = "carina",
    bin_name = "carina",
    version,
    max_term_width = 100,
    after_help = ENVIRONMENT
)]
struct GuestCli {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: NodeCommand,
}

/// Options that every command accepts.
#[derive(Debug, Clone, clap::Args)]
pub struct Shared {
    /// Print the result, or the error, as JSON, for scripts; output of a fixed form, such as a
    /// console or a schema, does not change [default: text for people]
    #[arg(long, global = true)]
    pub json: bool,
    /// Run directory, such as /run/carina: daemons (`carina node`, `carina vnet agent`) create
    /// their sockets and counters there, and commands that need a daemon find it there [default:
    /// $CARINA_RUN, else /run/carina for root, else $XDG_RUNTIME_DIR/carina, else /tmp/carina-UID]
    #[arg(long, global = true, value_name = "DIR")]
    pub run: Option<PathBuf>,
    /// Longest time to wait, such as 30s. Only for commands that wait for `carina node` to start,
    /// for a DIF to be joined, for a name to be registered, or for a daemon or guest to answer; a
    /// command that waits for none of these ignores it [default of most commands: 20 s for an
    /// answer, no waiting for the other events]. A running `carina node` always has at least 5 s
    /// to answer
    #[arg(long, global = true, value_name = "TIME", value_parser = carina_text::duration::parse_ns)]
    pub wait: Option<u64>,
}

impl Shared {
    /// The run directory of the node: that of `--run`, else that of the environment.
    pub fn run_dir(&self) -> RunDir {
        self.run.as_ref().map_or_else(RunDir::from_env, RunDir::new)
    }

    /// How long to wait for a node, a DIF or a name to appear: the value of `--wait`, or zero.
    pub fn wait_limit(&self) -> Duration {
        Duration::from_nanos(self.wait.unwrap_or(0))
    }

    /// How long to wait for an answer of a running node: 20 s without `--wait`, else its value but
    /// at least 5 s.
    pub fn answer_limit(&self) -> Duration {
        match self.wait {
            None => ANSWER_LIMIT,
            Some(_) => self.wait_limit().max(ANSWER_LIMIT_MIN),
        }
    }

    /// Returns a client of the node's control socket, after waiting up to the limit of `--wait` for
    /// the node to listen. Does not fail when no node listens.
    pub fn control(&self) -> Client {
        let socket = self.run_dir().control_sock();
        let deadline = Instant::now() + self.wait_limit();
        // When no node listens yet, the client's first request fails with the reason.
        while carina_sys::connect_stream(&socket, self.answer_limit()).is_err()
            && Instant::now() < deadline
        {
            std::thread::sleep(LOOK_AGAIN);
        }
        Client::new(socket).with_answer_limit(self.answer_limit())
    }

    /// Connects to the node as an application does, and retries up to the limit of `--wait`.
    ///
    /// # Errors
    /// No node runs.
    pub fn node(&self) -> Result<Node, Failure> {
        let socket = self.run_dir().ipc_sock();
        let deadline = Instant::now() + self.wait_limit();
        loop {
            match Node::connect_within(&socket, self.answer_limit()) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                reached => return reached.attempt("reaching the node"),
            }
        }
    }
}

/// How long a node has to answer without `--wait`. Some requests make it ask other members, for up
/// to 12 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Least time that a node has to answer, even with a shorter `--wait`: a busy node is not an error.
const ANSWER_LIMIT_MIN: Duration = Duration::from_secs(5);

/// Time between two attempts to connect to a node that is still starting.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

const ENVIRONMENT: &str = "Environment:\n  \
    CARINA_RUN  run directory of `carina node`, as --run\n  \
    CARINA_LOG  what is logged on standard error: a level, or levels by target,\n              \
    as CARINA_LOG=info,carina::efcp=debug [default: info]";

/// Commands of a node, and programs that use its flows. `--help` lists them in this order.
#[derive(Debug, Subcommand)]
enum NodeCommand {
    Node(commands::node::NodeArgs),
    #[command(
        subcommand,
        after_help = "Examples:\n  carina ipcp create e10 --type eth --interface eth0 --dif 10\n  carina ipcp list"
    )]
    Ipcp(commands::ipcp::IpcpCommand),
    #[command(subcommand, after_help = "Example:\n  carina app list")]
    App(commands::app::AppCommand),
    Register(commands::register::RegisterArgs),
    #[command(subcommand, after_help = "Example:\n  carina flow list --json")]
    Flow(commands::flow::FlowCommand),
    #[command(
        subcommand,
        after_help = "Examples:\n  carina dif create net --over local\n  carina dif show net"
    )]
    Dif(commands::dif::DifCommand),
    #[command(
        subcommand,
        after_help = "Example:\n  carina rib list /routing --dif net"
    )]
    Rib(commands::rib::RibCommand),
    #[command(subcommand, after_help = "Example:\n  carina policy list --dif net")]
    Policy(commands::policy::PolicyCommand),
    #[command(
        subcommand,
        after_help = "Example:\n  carina key generate /etc/carina/net.key --name net.host"
    )]
    Key(commands::key::KeyCommand),
    Apply(commands::apply::ApplyArgs),
    Ping(commands::ping::PingArgs),
    Perf(commands::perf::PerfArgs),
    Cat(commands::cat::CatArgs),
    Bridge(commands::bridge::BridgeArgs),
    Wrap(commands::wrap::WrapArgs),
    Expose(commands::expose::ExposeArgs),
    Connect(commands::connect::ConnectArgs),
    Proxy(commands::proxy::ProxyArgs),
    Names(commands::names::NamesArgs),
    #[command(
        subcommand,
        after_help = "Examples:\n  carina ip up n.DIF --address 10.9.1.1/24\n  carina ip peers"
    )]
    Ip(commands::ip::IpCommand),
    #[command(hide = true)]
    BenchPeer(commands::bench_peer::BenchPeerArgs),
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Node(NodeCommand),
    #[cfg(feature = "tools")]
    #[command(
        subcommand,
        after_help = "Example:\n  carina import rlite-ctl /etc/rina/initscript --out node.toml"
    )]
    Import(commands::import::ImportCommand),
    Top(commands::top::TopArgs),
    Capture(commands::capture::CaptureArgs),
    Trace(commands::trace::TraceArgs),
    Dissect(commands::dissect::DissectArgs),
    #[command(
        subcommand,
        after_help = "Examples:\n  carina vm run a\n  carina vm list"
    )]
    Vm(commands::vm::VmCommand),
    Ssh(commands::ssh::SshArgs),
    #[command(
        subcommand,
        after_help = "Examples:\n  carina lab up examples/labs/two-systems.lab\n  carina lab status"
    )]
    Lab(commands::lab::LabCommand),
    #[cfg(feature = "tools")]
    #[command(
        subcommand,
        after_help = "Example:\n  carina bench hv --json > hv.json"
    )]
    Bench(commands::bench::BenchCommand),
    #[cfg(feature = "packet")]
    #[command(
        subcommand,
        after_help = "Examples:\n  carina graph run router.toml\n  carina graph draw router.toml --out router.svg"
    )]
    Graph(commands::graph::GraphCommand),
    #[cfg(feature = "packet")]
    Forward(commands::forward::ForwardArgs),
    #[cfg(feature = "packet")]
    Blast(commands::blast::BlastArgs),
    #[cfg(feature = "packet")]
    #[command(
        subcommand,
        after_help = "Examples:\n  carina nfv check ports.toml\n  carina nfv run ports.toml\n  carina nfv args web"
    )]
    Nfv(commands::nfv::NfvCommand),
    #[command(
        subcommand,
        after_help = "Examples:\n  carina nic list\n  carina nic restore 0000:00:04.0"
    )]
    Nic(commands::nic::NicCommand),
    #[cfg(feature = "packet")]
    #[command(
        subcommand,
        after_help = "Example:\n  carina lwaftr run --conf lwaftr.conf --v4 eth1 --v6 eth2"
    )]
    Lwaftr(commands::lwaftr::LwaftrCommand),
    #[cfg(feature = "vnet")]
    #[command(
        subcommand,
        after_help = "Example:\n  carina vnet bench embed --topology geant --seeds 3"
    )]
    Vnet(commands::vnet::VnetCommand),
    #[cfg(feature = "tools")]
    #[command(subcommand, after_help = "Example:\n  carina sim run --seed 7")]
    Sim(commands::sim::SimCommand),
    Demo(commands::demo::DemoArgs),
    Impair(commands::impair::ImpairArgs),
    VlanTranslate(commands::vlan_translate::VlanTranslateArgs),
}

/// Runs a command of [`NodeCommand`].
fn run_of_node(shared: &Shared, command: NodeCommand) -> Outcome {
    match command {
        NodeCommand::Node(args) => commands::node::run(shared, args),
        NodeCommand::Ipcp(command) => commands::ipcp::run(shared, command),
        NodeCommand::App(command) => commands::app::run(shared, &command),
        NodeCommand::Register(args) => commands::register::run(shared, args),
        NodeCommand::Flow(command) => commands::flow::run(shared, command),
        NodeCommand::Dif(command) => commands::dif::run(shared, &command),
        NodeCommand::Rib(command) => commands::rib::run(shared, &command),
        NodeCommand::Policy(command) => commands::policy::run(shared, &command),
        NodeCommand::Key(command) => commands::key::run(shared, &command),
        NodeCommand::Apply(args) => commands::apply::run(shared, &args),
        NodeCommand::Ping(args) => commands::ping::run(shared, args),
        NodeCommand::Perf(args) => commands::perf::run(shared, args),
        NodeCommand::Cat(args) => commands::cat::run(shared, args),
        NodeCommand::Bridge(args) => commands::bridge::run(shared, args),
        NodeCommand::Wrap(args) => commands::wrap::run(shared, args),
        NodeCommand::Expose(args) => commands::expose::run(shared, args),
        NodeCommand::Connect(args) => commands::connect::run(shared, args),
        NodeCommand::Proxy(args) => commands::proxy::run(shared, args),
        NodeCommand::Names(args) => commands::names::run(shared, args),
        NodeCommand::Ip(command) => commands::ip::run(shared, command),
        NodeCommand::BenchPeer(args) => commands::bench_peer::run(shared, args),
    }
}

/// Runs any command. `tools` runs the commands that measure, simulate and convert.
fn run(cli: Cli, tools: &Tools) -> Outcome {
    let shared = &cli.shared;
    match cli.command {
        Command::Node(command) => run_of_node(shared, command),
        #[cfg(feature = "tools")]
        Command::Import(command) => (tools.import)(shared, command),
        Command::Top(args) => commands::top::run(shared, &args),
        Command::Capture(args) => commands::capture::run(shared, &args),
        Command::Trace(args) => commands::trace::run(shared, &args),
        Command::Dissect(args) => (tools.dissect)(shared, args),
        Command::Vm(command) => commands::vm::run(shared, command),
        Command::Ssh(args) => commands::ssh::run(shared, args),
        Command::Lab(command) => commands::lab::run(shared, command),
        #[cfg(feature = "tools")]
        Command::Bench(command) => (tools.bench)(shared, command),
        #[cfg(feature = "packet")]
        Command::Graph(command) => commands::graph::run(shared, command),
        #[cfg(feature = "packet")]
        Command::Forward(args) => commands::forward::run(shared, &args),
        #[cfg(feature = "packet")]
        Command::Blast(args) => commands::blast::run(shared, &args),
        #[cfg(feature = "packet")]
        Command::Nfv(command) => commands::nfv::run(
            shared,
            command,
            #[cfg(feature = "tools")]
            &tools.nfv,
        ),
        Command::Nic(command) => commands::nic::run(shared, &command),
        #[cfg(feature = "packet")]
        Command::Lwaftr(command) => commands::lwaftr::run(
            shared,
            command,
            #[cfg(feature = "tools")]
            &tools.lwaftr,
        ),
        #[cfg(feature = "vnet")]
        Command::Vnet(command) => commands::vnet::run(
            shared,
            command,
            #[cfg(feature = "tools")]
            &tools.vnet,
        ),
        #[cfg(feature = "tools")]
        Command::Sim(command) => (tools.sim)(shared, command),
        Command::Demo(args) => (tools.demo)(shared, args),
        Command::Impair(args) => commands::impair::run(shared, &args),
        Command::VlanTranslate(args) => commands::vlan_translate::run(shared, &args),
    }
}

/// Runs the program `carina`: parses the command line of this process and runs the command. Starts
/// `carina-tools` for the commands of that program.
#[must_use]
pub fn carina() -> ExitCode {
    main(|cli: Cli| (cli.shared.json, run(cli, &tool::ELSEWHERE)))
}

/// Runs the program `carina-tools`: like [`carina`], but all tools run in this process.
#[must_use]
pub fn tools() -> ExitCode {
    main(|cli: Cli| (cli.shared.json, run(cli, &tool::HERE)))
}

/// Runs the program `carina-guest`, which has the commands of a node only.
#[must_use]
pub fn guest() -> ExitCode {
    main(|cli: GuestCli| (cli.shared.json, run_of_node(&cli.shared, cli.command)))
}

/// The command lines of the programs `carina`, `carina-guest` and `carina-tools`, in this order,
/// for generating manual pages and shell completions.
#[must_use]
pub fn definitions() -> [clap::Command; 3] {
    let of_tools = Cli::command().name("carina-tools").bin_name("carina-tools");
    [
        Cli::command(),
        GuestCli::command()
            .name("carina-guest")
            .bin_name("carina-guest"),
        of_tools.about(ABOUT_TOOLS).long_about(ABOUT_TOOLS),
    ]
}

const ABOUT_TOOLS: &str = "Measure, simulate and convert. carina starts this program for bench, \
    demo, dissect, import and sim";

/// Parses the command line of this process and runs the command. `run` returns whether `--json` is
/// given, and the outcome of the command.
fn main<C: Parser>(run: impl FnOnce(C) -> (bool, Outcome)) -> ExitCode {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let error = with_plain_reason(error);
            // clap returns requests for help or the version as errors too.
            let printed = report::printed(error.print());
            return ExitCode::from(match printed {
                _ if error.use_stderr() => EXIT_USAGE,
                printed => printed.map_or_else(|failure| failure.code(), |()| 0),
            });
        }
    };
    if let Ok(program) = std::env::current_exe() {
        carina_nic::binding::guard_with(program);
    }
    let (json, outcome) = run(cli);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Unread) => ExitCode::from(EXIT_UNREAD),
        Err(failure) => {
            report::report(&failure, json);
            ExitCode::from(failure.code())
        }
    }
}

/// Replaces the words of the standard library in an error about an argument that must be a whole
/// number, such as "invalid digit found in string", by words that name the value.
fn with_plain_reason(error: clap::Error) -> clap::Error {
    let source = std::error::Error::source(&error);
    let Some(why) = source.and_then(|source| source.downcast_ref::<ParseIntError>()) else {
        return error;
    };
    let why = match why.kind() {
        IntErrorKind::PosOverflow => "is too large",
        IntErrorKind::NegOverflow => "is too small",
        _ => "is not a whole number",
    };
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (value, argument) = (
        text(ContextKind::InvalidValue),
        text(ContextKind::InvalidArg),
    );
    let words = format!(
        "invalid value '{value}' for '{argument}': `{value}` {why}\n\nFor more information, try \
         '--help'.\n"
    );
    clap::Error::raw(error.kind(), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_that_is_no_whole_number_is_named() {
        for (value, why) in [
            ("x", "`x` is not a whole number"),
            ("1.5", "`1.5` is not a whole number"),
            ("99999999999999999999999", "is too large"),
        ] {
            let words = ["carina", "ping", "--count", value];
            let error = Cli::try_parse_from(words).unwrap_err();
            let printed = with_plain_reason(error).to_string();
            let begin = format!("error: invalid value '{value}' for '--count <COUNT>': ");
            assert!(printed.starts_with(&begin), "{printed}");
            assert!(printed.contains(why), "{printed}");
        }
    }

    #[test]
    fn command_lines_are_consistent() {
        Cli::command().debug_assert();
        GuestCli::command().debug_assert();
    }

    #[test]
    fn every_visible_command_shows_an_example() {
        fn check(command: &mut clap::Command, path: &str) {
            for inner in command.get_subcommands_mut().filter(|c| !c.is_hide_set()) {
                if inner.get_name() == "help" {
                    continue;
                }
                let path = format!("{path} {}", inner.get_name());
                let help = inner.render_long_help().to_string();
                assert!(help.contains("Example"), "{path} shows no example");
                check(inner, &path);
            }
        }
        check(&mut Cli::command(), "carina");
    }
}
