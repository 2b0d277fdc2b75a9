//! `carina sim scale`: measures what one flat DIF and a recursive arrangement of the same systems
//! cost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_measure::results::machine;
use carina_sim::scale::{Progress, Report, Size, measure};
use carina_text::table::{Table, short};
use serde::Serialize;

use super::figure::{self, Row, SYSTEMS};
use crate::Shared;
use crate::failure::{Outcome, failed, usage};
use crate::report::{print_json, print_line, progress};

/// Options of `carina sim scale`: how many systems to simulate, and how they are divided.
#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// Number of systems; the command simulates them in one DIF, then the same number in stacked
    /// DIFs
    #[arg(long, default_value_t = 1_000)]
    systems: usize,
    /// Number of regions of the network, among which the systems are divided; with stacked DIFs,
    /// each region is a DIF of its own
    #[arg(long, default_value_t = 32)]
    regions: usize,
    /// Number of systems in each region that talk to other regions, including the region's border
    /// system
    #[arg(long, default_value_t = 4)]
    above: usize,
    /// Seed of the first run; each further run uses the next seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs, each with another seed
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// SVG file in which to draw the figure
    #[arg(long, value_name = "FILE", default_value = "scale.svg")]
    svg: PathBuf,
}

#[derive(Debug, Serialize)]
struct Document {
    bench: &'static str,
    machine: String,
    notes: Vec<String>,
    rows: Vec<Row>,
}

/// Simulates DIFs of many systems in each layout, measures them, prints the figures as a table or
/// JSON, and draws them as SVG.
///
/// # Errors
/// There are too few systems or regions, a simulation fails, or the figure cannot be written.
pub(super) fn run(shared: &Shared, args: &ScaleArgs) -> Outcome {
    if args.regions < 2 || args.systems < 3 * args.regions || args.runs == 0 {
        return Err(usage(
            "at least two regions of three systems each, and one run",
        ));
    }
    let mut rows = Vec::new();
    for (system, layout) in SYSTEMS {
        let mut reports = Vec::new();
        for run in 0..args.runs {
            let size = Size {
                systems: args.systems,
                regions: args.regions,
                above: args.above,
                seed: args.seed + run as u64,
            };
            let began = Instant::now();
            let report = measure(
                layout,
                size,
                carina_sim::member_factory(),
                now_and_then(system),
            );
            let report =
                report.map_err(|what| failed(format!("{system}, seed {}: {what}", size.seed)))?;
            progress(format!(
                "{system}: {:.0} s of real time",
                began.elapsed().as_secs_f64()
            ));
            reports.push(report);
        }
        rows.extend(rows_of(system, &reports));
    }
    figure::draw(&rows, args.systems, &args.svg)?;
    let document = Document {
        bench: "sim-scale",
        machine: machine(),
        notes: notes(args),
        rows,
    };
    if shared.json {
        return print_json(&document);
    }
    print_line(table(&document.rows))?;
    for note in &document.notes {
        print_line(note)?;
    }
    print_line(format!("figure: {}", args.svg.display()))
}

/// Returns a function that prints progress: milestones at once, intermediate steps only now and
/// then.
fn now_and_then(system: &'static str) -> impl FnMut(Progress) {
    let mut reported = Instant::now();
    move |what| match what {
        Progress::Milestone(words) => progress(words),
        Progress::Step(words) if reported.elapsed() >= EVERY => {
            reported = Instant::now();
            progress(format!("{system}: {words}"));
        }
        Progress::Step(_) => {}
    }
}

const EVERY: Duration = Duration::from_secs(2);

fn rows_of(system: &'static str, reports: &[Report]) -> Vec<Row> {
    let row = |case, metric, mut values: Vec<f64>, runs| {
        values.sort_by(f64::total_cmp);
        Row {
            case,
            sdu: 0,
            system,
            metric,
            median: values[values.len() / 2],
            low: values[0],
            high: values[values.len() - 1],
            runs,
        }
    };
    let per_run = |case, metric, pick: fn(&Report) -> f64| {
        row(
            case,
            metric,
            reports.iter().map(pick).collect(),
            reports.len(),
        )
    };
    // Values of all systems of all runs together: the spread is the one between systems.
    let per_system = |case, metric, pick: fn(&Report) -> &[u64]| {
        let values = reports.iter().flat_map(pick).map(|value| *value as f64);
        row(case, metric, values.collect(), reports.len())
    };
    vec![
        per_run("arrangement", "ipcps", |report| report.ipcps as f64),
        per_run("arrangement", "difs", |report| report.difs as f64),
        per_run("join", "convergence_s", |report| {
            report.converged_ns as f64 / 1e9
        }),
        per_run("join", "messages", |report| report.messages as f64),
        per_run("join", "bytes", |report| report.bytes as f64),
        per_system("hold", "rib_objects_per_system", |report| &report.objects),
        per_system("hold", "forwarding_entries_per_system", |report| {
            &report.routes
        }),
        per_run("rest", "messages_per_minute", |report| {
            report.idle_messages as f64
        }),
        per_run("one cable cut", "messages", |report| {
            report.cut_messages as f64
        }),
    ]
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["case", "metric", "flat", "recursive", "flat/recursive"]);
    for row in rows.iter().filter(|row| row.system == SYSTEMS[0].0) {
        let same = |other: &&Row| {
            other.system == SYSTEMS[1].0 && (other.case, other.metric) == (row.case, row.metric)
        };
        let other = rows.iter().find(same);
        let show = |row: &Row| {
            if row.low == row.high {
                short(row.median)
            } else {
                format!(
                    "{} [{}..{}]",
                    short(row.median),
                    short(row.low),
                    short(row.high)
                )
            }
        };
        let factor = other.filter(|other| other.median > 0.0).map_or_else(
            || "-".to_owned(),
            |other| format!("×{}", short(row.median / other.median)),
        );
        let cells = [
            row.case.to_owned(),
            row.metric.to_owned(),
            show(row),
            other.map_or_else(String::new, show),
            factor,
        ];
        table.row(cells);
    }
    table
}

/// Notes that tell how the two arrangements are compared, and the limits of the comparison.
fn notes(args: &ScaleArgs) -> Vec<String> {
    let ScaleArgs {
        systems,
        regions,
        above,
        ..
    } = args;
    vec![
        format!(
            "flat: one DIF of {systems} members over all cables; any system reaches any other through it."
        ),
        format!(
            "recursive: the same systems and cables; a DIF in each of {regions} regions, a backbone DIF of the {regions} border systems, and one DIF above these for {above} systems of each region, the border included."
        ),
        "Within a region, any system reaches any other. Only systems in the DIF above reach \
         another region. The more systems are in that DIF, the smaller the difference; with all \
         systems, it has as many members as the flat DIF."
            .to_owned(),
        "Messages and bytes are PDUs on cables, of all layers together, acknowledgements and keep-alives included; times are virtual."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_sets_both_arrangements_side_by_side() {
        let report = |messages, objects: &[u64]| Report {
            ipcps: 10,
            difs: 1,
            converged_ns: 2_000_000_000,
            messages,
            bytes: 100 * messages,
            objects: objects.to_vec(),
            routes: objects.to_vec(),
            idle_messages: 5,
            cut_messages: 7,
        };
        let mut rows = rows_of("flat", &[report(300, &[5, 6, 7]), report(100, &[6, 6, 9])]);
        rows.extend(rows_of("recursive", &[report(50, &[3])]));
        let text = table(&rows).to_string();
        assert!(
            text.contains("300 [100..300]") && text.contains("×6.00"),
            "{text}"
        );
        assert!(text.contains("6.00 [5.00..9.00]"), "{text}");
    }
}
