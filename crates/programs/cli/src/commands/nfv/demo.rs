//! `carina nfv demo`: shows ports, limits and filters at work with two VMs, and draws a figure like
//! figure 4 of K. Mathiazhagan, *Network Function Virtualization with Snabb*.

use std::path::PathBuf;

use carina_bench::nfv_demo::hops::{HopsOptions, draw};
use carina_bench::nfv_demo::{NfvDemo, Report};
use carina_measure::results::{Metric, Results};
use carina_text::duration::parse_ns;
use carina_text::table::{Table, short};
use serde_json::json;

use crate::Shared;
use crate::commands::measured::PROGRESS;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line, progress};

/// Options of `carina nfv demo`: the directory for the figure and its data, the number of
/// measurements, and the duration of each.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Directory in which to write fig4.svg and fig4.json
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Number of measurements for each number of hops (apps between source and sink)
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Duration of each measurement, such as 200ms
    #[arg(long, default_value = "200ms", value_parser = parse_ns)]
    time: u64,
    /// The carina program to run in the guests [default: this program]
    #[arg(long)]
    guest_program: Option<PathBuf>,
}

/// Boots two VMs behind four ports, pings and downloads through them, measures rates by number of
/// hops, prints both, and writes `fig4.json` and `fig4.svg`.
///
/// # Errors
/// A requirement is missing, a step fails, or an observation differs from what is expected.
pub(crate) fn run(shared: &Shared, args: &DemoArgs) -> Outcome {
    let started = std::time::Instant::now();
    std::fs::create_dir_all(&args.out).attempt(format!("making {}", args.out.display()))?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let hops = HopsOptions {
        runs: args.runs.max(1),
        time_ns: args.time,
    };
    let mut demo = NfvDemo::start(args.guest_program.as_deref(), PROGRESS)?;
    let mut report = demo.show()?;
    let in_guest = demo.hops_in_guest(hops)?;
    demo.end(&mut report)?;
    progress("measuring hops on the host");
    let rates = hops.measure(Some(in_guest), PROGRESS)?;
    let file = args.out.join("fig4.json");
    let text = serde_json::to_vec_pretty(&rates).attempt("writing JSON")?;
    std::fs::write(&file, text).attempt(format!("writing {}", file.display()))?;
    let figure = args.out.join("fig4.svg");
    draw(&rates, &figure)?;
    if shared.json {
        print_json(&json!({ "report": report, "hops": rates }))?
    } else {
        print_line(format!("{}\n\n{}", seen(&report), by_hops(&rates)))?
    }
    progress(format!(
        "wrote {} and {} after {:.0} s",
        figure.display(),
        file.display(),
        started.elapsed().as_secs_f64()
    ));
    if report.failures.is_empty() {
        Ok(())
    } else {
        Err(failed(report.failures.join("; ")))
    }
}

fn seen(report: &Report) -> Table {
    let mut table = Table::new(["what", "seen"]);
    let (ping, rate, block) = (report.ping, report.rate, report.block);
    let pings =
        |of: &carina_bench::nfv_demo::Pings| format!("{} of {} answered", of.received, of.sent);
    let served = |is: bool| if is { "served" } else { "no answer" };
    table.row([
        format!("pings between two VMs ({})", report.accelerator),
        format!("{}, {:.2} ms", pings(&ping), ping.rtt_ms),
    ]);
    table.row([
        format!("download through a limit of {} Mb/s", rate.limit_mbps),
        format!("{:.1} Mb/s", rate.limited_mbps),
    ]);
    table.row([
        "download without the limit".to_owned(),
        format!("{:.0} Mb/s", rate.unlimited_mbps),
    ]);
    for (when, is_served) in [
        ("port 80 of the server", block.served_before),
        (
            "port 80 of the server, blocked by a filter",
            block.served_meanwhile,
        ),
        ("port 80 of the server, filter removed", block.served_after),
    ] {
        table.row([when, served(is_served)]);
    }
    table.row([
        "pings through the same port during the block".to_owned(),
        pings(&block.same_port),
    ]);
    table.row([
        "pings through the other ports during the block".to_owned(),
        pings(&block.other_ports),
    ]);
    for port in report.ports["ports"].as_array().into_iter().flatten() {
        for (reason, count) in port["drops"].as_object().into_iter().flatten() {
            let name = port["port"].as_str().unwrap_or_default();
            table.row([format!("dropped at {name} for {reason}"), count.to_string()]);
        }
    }
    table
}

fn by_hops(rates: &Results) -> Table {
    let mut systems: Vec<&str> = rates.rows.iter().map(|row| row.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    let head = systems.iter().map(|system| format!("{system}, Mpps"));
    let mut table = Table::new(std::iter::once("64-byte frames".to_owned()).chain(head));
    let mut cases: Vec<&str> = rates.rows.iter().map(|row| row.case.as_str()).collect();
    cases.sort_unstable();
    cases.dedup();
    // The case `source-sink` has no hop but sorts last; move it to the front.
    cases.rotate_right(1);
    for case in cases {
        let cell = |system: &&str| {
            let found = rates.rows.iter().find(|row| {
                row.case == case && row.system == **system && row.metric == Metric::Mpps
            });
            found.map_or_else(|| "-".to_owned(), |row| short(row.median))
        };
        table.row(std::iter::once(case.to_owned()).chain(systems.iter().map(cell)));
    }
    table
}
