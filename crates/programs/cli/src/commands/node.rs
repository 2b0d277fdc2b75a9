//! `carina node`: runs the IPC Manager of this system.

use std::path::PathBuf;

use carina_node::Node;
use carina_node::config::Config;
use carina_topology::hv_ipcp;
use rustix::process::setpriority_process;
use serde_json::json;

use crate::Shared;
use crate::commands::guest_ip;
use crate::failure::{Attempt, Outcome};
use crate::log;
use crate::report::{print_json, print_line};

/// Run the node (IPC Manager) of this system in the foreground
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina node\n  carina node --config /etc/carina.toml\n  \
    carina node --config /etc/carina.toml --check\n  carina node --guest\n\nSIGTERM and SIGINT \
    end the node. The next node takes over the VMs that run.\nThe node keeps running when its \
    terminal is closed and when its log cannot be written.\n\nCARINA_LOG sets the log on \
    standard error: a level (off, error, warn, info, debug,\ntrace; default: info), or levels of \
    targets:\n  \
    CARINA_LOG=debug carina node\n  CARINA_LOG=info,carina::flow_allocator=debug carina \
    node\nFields of events: ipcp, dif, flow (a port-id), app, vm, reason."
)]
pub(crate) struct NodeArgs {
    /// TOML file with the node's IPCPs, VM ports and DIFs; an unknown key is an error [default: no
    /// file: the node starts without them]
    #[arg(long, short)]
    config: Option<PathBuf>,
    /// Check the configuration and exit, without opening devices. A configuration that passes can
    /// still fail at the start if a device is missing
    #[arg(long)]
    check: bool,
    /// Inside a VM: create the IPCP hv0 over the first shared-memory device, to reach the host, and
    /// an interface with the IP addresses of `carina vm run --disk --ip` [default: create no IPCP]
    #[arg(long)]
    guest: bool,
    /// Name of the DIF between this VM and its host, for the IPCP that --guest creates
    #[arg(long, default_value = "hv", requires = "guest")]
    guest_dif: carina_api::DifName,
    /// Scheduling priority of the node's threads, -20 (highest) to 19, as for nice(1) [default: the
    /// priority of the shell]. With a negative value the node answers its neighbours in time even
    /// on a saturated system, but it interrupts applications more often, which lowers throughput
    #[arg(long, value_name = "N", allow_hyphen_values = true,
          value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: Option<i32>,
}

/// Runs a node until SIGTERM or SIGINT arrives. With `--check`, only checks its configuration.
///
/// # Errors
/// The configuration is wrong, another node runs in the directory, or the system refuses.
pub(crate) fn run(shared: &Shared, args: NodeArgs) -> Outcome {
    let filter = log::filter()?;
    if let Some(nice) = args.nice {
        // Threads inherit the priority, so it is set before the first one starts.
        setpriority_process(None, nice).attempt(NICE)?;
    }
    let _last_lines = log::start(filter)?;
    let mut config = match &args.config {
        Some(path) => Config::load(path).attempt("starting the node")?,
        None => Config::default(),
    };
    if args.guest {
        let mut text = hv_ipcp(0, args.guest_dif.as_str());
        text.push_str(&guest_ip::passed_table(&args.guest_dif)?);
        let mut guest = Config::parse(&text, None).attempt("the IPCP of --guest")?;
        config.ips.append(&mut guest.ips);
        config.add_ipcps(guest);
    }
    if args.check {
        return check(shared, &config);
    }
    if let Some(run) = &shared.run {
        config.node.run_dir = Some(run.clone());
    }
    Node::run(config).attempt("running the node")
}

fn check(shared: &Shared, config: &Config) -> Outcome {
    Node::check(config).attempt("running the node")?;
    let (ipcps, vms, difs) = (config.ipcps.len(), config.vms.len(), config.difs.len());
    if shared.json {
        return print_json(&json!({ "ipcps": ipcps, "vms": vms, "difs": difs }));
    }
    print_line(format!("IPCPs {ipcps}, VMs {vms}, DIFs {difs}"))
}

/// What the error says was attempted when the kernel refuses the priority.
const NICE: &str = "setting the scheduling priority of --nice (a value below that of the shell \
    needs CAP_SYS_NICE)";
