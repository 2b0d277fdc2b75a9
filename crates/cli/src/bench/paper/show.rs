//! What the bench shows: a table for each case and metric, the goals, figures as files.

use std::fmt::Write as _;
use std::path::Path;

use super::{Case, Found};
use crate::Shared;
use crate::failure::{Attempt, Outcome, failed};
use crate::report::rows::{Metric, Results, Row};
use crate::report::table::{Table, short, size};
use crate::report::{figure, print_line};

/// Prints everything, as JSON or as text, and writes files when there is a directory for them.
///
/// # Errors
/// Files cannot be written, or standard output is closed.
pub fn show(shared: &Shared, found: &Found, out: Option<&Path>) -> Outcome {
    let mut value = serde_json::to_value(&found.results).attempt("writing JSON")?;
    value["verdicts"] = serde_json::to_value(&found.verdicts).attempt("writing JSON")?;
    let text = text(found);
    if let Some(out) = out {
        std::fs::create_dir_all(out).attempt(format!("making {}", out.display()))?;
        let write = |name: &str, content: &str| {
            let path = out.join(name);
            std::fs::write(&path, content).attempt(format!("writing {}", path.display()))
        };
        write("results.json", &format!("{value}\n"))?;
        write("tables.txt", &text)?;
        draw(&found.results, out)?;
    }
    print_line(match shared.json {
        true => value.to_string(),
        false => text,
    })?;
    match found.failures.is_empty() {
        true => Ok(()),
        false => Err(failed(format!(
            "not measured: {}",
            found.failures.join(", ")
        ))),
    }
}

/// The metrics of a case, with their titles.
fn tables(case: Case) -> &'static [(Metric, &'static str)] {
    const GOODPUT: (Metric, &str) = (Metric::GoodputMbps, "goodput, Mbit/s");
    const TIME: (Metric, &str) = (Metric::MsgsPerS, "ns per SDU");
    const LOSS: (Metric, &str) = (Metric::LossPercent, "SDUs lost, %");
    match case {
        Case::Fig4b | Case::Fig4c | Case::Fig1614 => &[GOODPUT, TIME, LOSS],
        Case::Fig1612 => &[(Metric::RttUs, "round-trip time, µs")],
        Case::Fig1615 => &[(Metric::GapS, "time without the server, s")],
        Case::Impaired => &[GOODPUT],
    }
}

fn text(found: &Found) -> String {
    let results = &found.results;
    let mut text = format!("{}\n", results.machine);
    for case in Case::ALL {
        for (metric, title) in tables(case) {
            let table = table(results, case.name(), *metric, case.systems());
            if !table.is_empty() {
                let name = case.name();
                let _ = writeln!(text, "\n{name}: {title}; median ±95 % of the mean\n{table}");
            }
        }
    }
    for part in &found.texts {
        let _ = writeln!(text, "\n{part}");
    }
    if !found.verdicts.is_empty() {
        let mut table = Table::new(["CASE", "GOAL", "MEASURED", ""]);
        for verdict in &found.verdicts {
            let word = if verdict.met { "met" } else { "NOT MET" };
            let cells = [&verdict.case, &verdict.goal, &verdict.measured, word];
            table.row(cells.map(str::to_owned));
        }
        let _ = writeln!(text, "\n{table}");
    }
    for note in &results.notes {
        let _ = write!(text, "\n- {note}");
    }
    text
}

/// A line per SDU size, a column per system.
fn table(results: &Results, case: &str, metric: Metric, systems: &[&str]) -> Table {
    let rows: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| row.case == case && row.metric == metric)
        .collect();
    let there: Vec<&str> = systems
        .iter()
        .copied()
        .filter(|system| rows.iter().any(|row| row.system == *system))
        .collect();
    let mut table = Table::new(["SDU"].into_iter().chain(there.iter().copied()));
    let mut sizes: Vec<u64> = rows.iter().map(|row| row.sdu).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for sdu in sizes {
        let cell = |system: &&str| {
            let row = rows
                .iter()
                .find(|row| row.sdu == sdu && row.system == **system);
            row.map_or_else(|| "-".to_owned(), |row| cell(row))
        };
        table.row([size(sdu)].into_iter().chain(there.iter().map(cell)));
    }
    table
}

fn cell(row: &Row) -> String {
    match row.metric {
        // A rate says little; a time per SDU can be taken apart.
        Metric::MsgsPerS if row.median > 0.0 => {
            let relative = row.ci95 / row.mean.max(1e-9);
            let ns = 1e9 / row.median;
            format!("{} ±{}", short(ns), short(ns * relative))
        }
        _ => format!("{} ±{}", short(row.median), short(row.ci95)),
    }
}

fn draw(results: &Results, out: &Path) -> Outcome {
    for case in Case::ALL {
        let name = case.name();
        let rows: Vec<Row> = results
            .rows
            .iter()
            .filter(|row| row.case == name && row.metric == Metric::GoodputMbps)
            .cloned()
            .collect();
        let Some(longest) = rows.iter().map(|row| row.sdu).max() else {
            continue;
        };
        let one = Results {
            rows,
            ..results.clone()
        };
        let path = out.join(format!("{name}.svg"));
        figure::draw(&one, longest.min(4000), &format!("{name}: goodput"), &path)?;
    }
    Ok(())
}
