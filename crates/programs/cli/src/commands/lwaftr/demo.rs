//! `carina lwaftr demo`: shows an AFTR at work in three network namespaces.

use std::path::PathBuf;
use std::time::Duration;

use carina_bench::lwaftr_demo::{CASE, LwaftrDemo, Report, SYSTEMS, draw};
use carina_bench::vm_and_host::require_namespaces;
use carina_measure::results::Metric;
use carina_text::duration::parse_ns;
use carina_text::table::Table;

use crate::Shared;
use crate::commands::measured::PROGRESS;
use crate::failure::{Attempt, Outcome};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line, progress};

/// Options of `carina lwaftr demo`: the directory for the figure and its data, the number of
/// measurements, and the duration of each.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Directory in which to write lwaftr.svg and lwaftr.json
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Number of measurements of each packet size
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Duration of each measurement, such as 200ms
    #[arg(long, default_value = "200ms", value_parser = parse_ns)]
    time: u64,
    #[arg(long, hide = true)]
    in_network_namespace: bool,
}

/// Fetches a page through an AFTR, measures rates, prints both, and writes `lwaftr.json` and
/// `lwaftr.svg`.
///
/// # Errors
/// A requirement is missing, or the page does not arrive.
pub(crate) fn run(shared: &Shared, args: &DemoArgs) -> Outcome {
    std::fs::create_dir_all(&args.out).attempt(format!("making {}", args.out.display()))?;
    require_namespaces(args.in_network_namespace)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let demo = LwaftrDemo::start(PROGRESS)?;
    let report = demo.show(args.runs.max(1), Duration::from_nanos(args.time))?;
    let file = args.out.join("lwaftr.json");
    let text = serde_json::to_vec_pretty(&report).attempt("writing JSON")?;
    std::fs::write(&file, text).attempt(format!("writing {}", file.display()))?;
    let figure = args.out.join("lwaftr.svg");
    draw(&report.rates, &figure)?;
    if shared.json {
        print_json(&report)?
    } else {
        show(&report)?
    }
    progress(format!("wrote {} and {}", figure.display(), file.display()));
    Ok(())
}

fn show(report: &Report) -> Outcome {
    print_line(format!(
        "a page of {} bytes came through the AFTR in {:.0} ms\n",
        report.page_bytes, report.page_ms
    ))?;
    print_line(report.rates.table(CASE, Metric::GoodputMbps, &SYSTEMS))?;
    let mut table = Table::new(["counter", "value"]);
    for (name, value) in report.counters.as_object().into_iter().flatten() {
        table.row([name.clone(), value.to_string()]);
    }
    print_line(format!("\n{table}"))
}
