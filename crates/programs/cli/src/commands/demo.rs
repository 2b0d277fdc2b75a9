//! `carina demo`: boots a VM, pings it, and draws figure 4a of S. Vrijders and others, *Reducing
//! Complexity of Virtual Machine Networking* (2016), with progress messages.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use carina_bench::hv::{self, HvOptions};
use carina_bench::vm_and_host::{VmAndHost, enter_network};
use carina_measure::figure::draw;
use carina_measure::results::OURS;
use carina_text::duration::parse_ns;

use crate::Shared;
use crate::commands::measured::{PROGRESS, all_measured, show};
use crate::commands::ping::ECHO_SERVER;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::progress;

/// Boot a VM, ping a program in it over shared memory, measure the goodput between VM and host, and
/// draw it like figure 4a of Vrijders (2016)
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  carina demo --out .\n\nWrites fig4a.svg and fig4a.json. Takes \
    about two minutes on two cores."
)]
pub(crate) struct DemoArgs {
    /// Directory in which to write fig4a.svg and fig4a.json
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Number of runs of each measurement, from which the confidence intervals are computed
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Duration of each single measurement, such as 300ms
    // In shorter ones, QEMU spends much of the time on translating the guest's code.
    #[arg(long, default_value = "300ms", value_parser = parse_ns)]
    time: u64,
    /// The carina program to run in the guest [default: carina-guest in the directory of this
    /// program if it exists, otherwise this program]
    #[arg(long)]
    guest_program: Option<PathBuf>,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// The systems compared in the original figure.
const SYSTEMS: [&str; 3] = [OURS, "virtio-net", "e1000"];

/// Boots a VM, pings an application in it, measures goodput between VM and host, prints the tables,
/// and writes `fig4a.json` and `fig4a.svg`.
///
/// # Errors
/// Something is missing or does not work; the error contains the logs.
pub(crate) fn run(shared: &Shared, args: DemoArgs) -> Outcome {
    let started = std::time::Instant::now();
    std::fs::create_dir_all(&args.out).attempt(format!("making {}", args.out.display()))?;
    let network = enter_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let mut setup = VmAndHost::start(network, &SYSTEMS, args.guest_program.clone(), PROGRESS)?;
    ping(&mut setup)?;
    let options = HvOptions {
        runs: args.runs.max(1),
        time_ns: args.time,
        sizes: hv::figure_sizes(),
        cases: hv::CASES[..2].to_vec(),
        systems: SYSTEMS.to_vec(),
        guest_program: None,
        progress: PROGRESS,
    };
    progress("measuring goodput in both directions (figure 4a)");
    let results = hv::measure(&mut setup, &options)?;
    drop(setup);
    let json = serde_json::to_vec_pretty(&results).attempt("writing JSON")?;
    let file = args.out.join("fig4a.json");
    std::fs::write(&file, json).attempt(format!("writing {}", file.display()))?;
    let figure = args.out.join("fig4a.svg");
    let title = "Goodput between a VM and its host (means, 95 % confidence)";
    draw(&results, hv::FIGURE_SDU_MAX, title, &figure)?;
    show(shared, &results, &hv::TABLES[..2], &SYSTEMS)?;
    progress(format!(
        "wrote {} and {} after {:.0} s",
        figure.display(),
        file.display(),
        started.elapsed().as_secs_f64()
    ));
    all_measured(&results)
}

/// Time limit for one series of pings.
const PING: Duration = Duration::from_secs(120);

/// Starts an echo server in the VM, and pings it with this program.
fn ping(setup: &mut VmAndHost) -> Outcome {
    progress("starting an echo server in the VM");
    setup.run_in_guest("(carina ping --listen --quiet </dev/null >/tmp/echo.log 2>&1) &")?;
    let name = carina_api::AppName::new(ECHO_SERVER).attempt("naming the echo server")?;
    setup.wait_for_name(&name)?;
    // Between spaced pings the guest polls more slowly; in a flood it stays awake.
    ping_with(setup, &["--count", "5", "--interval", "100ms"])?;
    ping_with(setup, &["--count", "500", "--flood", "--quiet"])
}

fn ping_with(setup: &VmAndHost, options: &[&str]) -> Outcome {
    let program = std::env::current_exe().attempt("finding this program")?;
    let mut command = Command::new(program);
    command.args(["ping", ECHO_SERVER]).args(options);
    command.arg("--run").arg(setup.path());
    let output = carina_namespaces::run_within(&mut command, "carina ping", PING)
        .map_err(|error| failed(error.to_string()))?;
    // The table goes to standard error, so that standard output stays JSON with `--json`.
    progress(String::from_utf8_lossy(&output.stdout).trim_end());
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let error = carina_bench::Error::Ping(words.trim().to_owned());
    Err(setup.explain(error).into())
}
