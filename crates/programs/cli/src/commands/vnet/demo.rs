//! `carina vnet demo`: makes a network of six virtual machines, and prints the time of each phase
//! beside the times of a published system.

use carina_text::table::{Table, short};
use carina_vnet::document::{Boot, Document, Form};
use carina_vnet::progress::Phase;
use carina_vnet::report::VnetReport;
use carina_vnet_host::client::{Client, REMOVAL};
use serde_json::json;

use super::agent::ask_or_start;
use super::network::follow;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::{print_json, print_line, progress};

/// Options of `carina vnet demo`: how to start the VMs, the number of runs, and whether to keep the
/// last network.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// How the VMs are started: cold (each boots) or clone (each resumes from a snapshot)
    #[arg(long, value_name = "HOW", default_value = "clone", value_parser = boot)]
    boot: Boot,
    /// Number of runs; each makes the network, measures the time until all its consoles and links
    /// have answered, and removes the network
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Keep the network of the last run, if that run succeeds, to look at it [default: remove the
    /// network after each run]
    #[arg(long)]
    keep: bool,
}

/// The document of the demonstration: `examples/vnets/six.toml`.
const SIX: &str = include_str!("../../../../../../examples/vnets/six.toml");

/// Times from P. Papadimitriou et al., *Implementing Network Virtualization for a Future Internet*
/// (2009), section V.C, tables I and II: seconds from request to console: minimum, mean, maximum,
/// standard deviation. The authors do not give the number of nodes.
const PAPER: [(&str, [f64; 4]); 2] = [
    ("paper, VMs on demand", [103.38, 109.47, 119.27, 4.43]),
    ("paper, VMs made in advance", [15.72, 16.75, 17.59, 0.41]),
];

fn boot(text: &str) -> Result<Boot, String> {
    match text {
        "cold" => Ok(Boot::Cold),
        "clone" => Ok(Boot::Clone),
        _ => Err("must be `cold` or `clone`".to_owned()),
    }
}

/// Makes the network of the demonstration, prints its phases, and removes it.
///
/// # Errors
/// The network cannot be made, or one of its tests fails.
pub(crate) fn run(shared: &Shared, args: &DemoArgs) -> Outcome {
    let mut document = Document::read(SIX, Form::Toml).attempt("reading the demonstration")?;
    document.defaults.boot = Some(args.boot);
    let name = &document.vnet.name;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let mut reports = Vec::new();
    for number in 1..=args.runs {
        progress(format!(
            "run {number} of {}: {} nodes",
            args.runs,
            document.node.len()
        ));
        let making = format!("making network {name}");
        let (client, _) = ask_or_start(shared, &making, |client| client.create(&document))?;
        let outcome = follow(&client, name, &interrupt).and_then(|report| {
            hold(&client, name)?;
            Ok(report)
        });
        let is_kept = args.keep && number == args.runs && outcome.is_ok();
        if !is_kept {
            client
                .remove(name, REMOVAL)
                .attempt(format!("removing network {name}"))?;
        }
        reports.push(outcome?);
    }
    show(shared, &reports)
}

/// Runs the tests of the network, and fails if one of them fails.
fn hold(client: &Client, name: &str) -> Result<(), Failure> {
    let tests = client
        .test(name)
        .attempt(format!("testing network {name}"))?;
    match tests.into_iter().find(|test| !test.holds) {
        None => Ok(()),
        Some(test) => Err(failed(format!("{}: {}", test.test, test.seen))),
    }
}

fn show(shared: &Shared, reports: &[VnetReport]) -> Outcome {
    let seconds = |of: &dyn Fn(&VnetReport) -> Option<f64>| -> Vec<f64> {
        let all = reports.iter().filter_map(of);
        all.map(|ms| ms / 1000.0).collect()
    };
    let mut rows = vec![(
        "carina, all phases".to_owned(),
        summary(&seconds(&|report| report.ready_after_ms)),
    )];
    for phase in Phase::ALL {
        let phase_ms = |report: &VnetReport| {
            let found = report.phases.iter().find(|timed| timed.phase == phase);
            found.map(|timed| timed.took_ms)
        };
        rows.push((format!("  {}", phase.name()), summary(&seconds(&phase_ms))));
    }
    let paper = PAPER.iter().map(|(what, of)| ((*what).to_owned(), *of));
    if shared.json {
        let all: Vec<_> = rows.into_iter().chain(paper).collect();
        let rows = all.iter().map(|(what, [min, avg, max, sd])| {
            json!({ "system": what.trim(), "min_s": min, "avg_s": avg, "max_s": max, "sd_s": sd })
        });
        return print_json(&json!({ "runs": reports, "rows": rows.collect::<Vec<_>>() }));
    }
    let mut table = Table::new(["FROM REQUEST TO READY, s", "MIN", "AVG", "MAX", "SD"]);
    for (what, values) in rows.into_iter().chain(paper) {
        let cells = values.map(short);
        table.row(std::iter::once(what).chain(cells));
    }
    print_line(table)?;
    print_line(
        "\nCarina: six nodes on this machine, until all consoles and links have answered. The \
         paper: Xen on machines\nof 2008, until the console answers; the paper does not give \
         the number of nodes.",
    )
}

/// Minimum, mean, maximum and standard deviation.
fn summary(values: &[f64]) -> [f64; 4] {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    let freedom = (count - 1.0).max(1.0);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(0.0, f64::max);
    [
        least,
        mean,
        greatest,
        (squares.sum::<f64>() / freedom).sqrt(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_that_of_the_published_tables() {
        let [least, mean, greatest, sd] = summary(&[1.0, 2.0, 3.0]);
        assert_eq!((least, mean, greatest, sd), (1.0, 2.0, 3.0, 1.0));
        assert_eq!(summary(&[4.0]), [4.0, 4.0, 4.0, 0.0]);
    }

    #[test]
    fn demonstration_is_a_document_of_six_machines() {
        let document = Document::read(SIX, Form::Toml).unwrap();
        assert_eq!((document.node.len(), document.link.len()), (6, 6));
        assert!(boot("pool").is_err());
    }
}
