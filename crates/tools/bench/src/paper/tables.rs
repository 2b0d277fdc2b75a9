//! The results as JSON, as tables, and as files with figures.

use std::fmt::Write as _;
use std::path::Path;

use carina_measure::figure;
use carina_measure::results::{Metric, Results, Row};
use carina_text::table::{Table, short, size};

use serde_json::Value;

use super::{Case, PaperResults};
use crate::error::{Attempt, Result};

/// All results as JSON.
///
/// # Errors
/// JSON cannot express a value.
pub fn to_json(found: &PaperResults) -> Result<Value> {
    let mut value = serde_json::to_value(&found.results).attempt("writing JSON")?;
    value["goals"] = serde_json::to_value(&found.goals).attempt("writing JSON")?;
    Ok(value)
}

/// Writes results, tables and figures to a directory.
///
/// # Errors
/// A file cannot be written.
pub fn write(found: &PaperResults, out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).attempt(format!("making {}", out.display()))?;
    let write = |name: &str, content: &str| {
        let path = out.join(name);
        std::fs::write(&path, content).attempt(format!("writing {}", path.display()))
    };
    write("results.json", &format!("{}\n", to_json(found)?))?;
    write("tables.txt", &to_text(found))?;
    draw(&found.results, out)
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

/// All results as tables, with the goals and the notes.
pub fn to_text(found: &PaperResults) -> String {
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
    if !found.goals.is_empty() {
        let mut table = Table::new(["CASE", "GOAL", "RATIO", "95 % INTERVAL", "RUNS", ""]);
        for goal in &found.goals {
            let word = match goal.held {
                Some(true) => "held",
                Some(false) => "NOT HELD",
                None => "too few runs",
            };
            let [low, high] = goal.measured.interval;
            table.row([
                goal.case.clone(),
                goal.goal.clone(),
                format!("{:.3}", goal.measured.ratio),
                format!("{low:.3}..{high:.3}"),
                goal.measured.runs.to_string(),
                word.to_owned(),
            ]);
        }
        let _ = writeln!(text, "\n{table}");
    }
    for note in &results.notes {
        let _ = write!(text, "\n- {note}");
    }
    text
}

/// A table with a line for each SDU size, and a column for each system.
fn table(results: &Results, case: &str, metric: Metric, systems: &[&str]) -> Table {
    let rows: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| row.case == case && row.metric == metric)
        .collect();
    let measured: Vec<&str> = systems
        .iter()
        .copied()
        .filter(|system| rows.iter().any(|row| row.system == *system))
        .collect();
    let mut table = Table::new(["SDU"].into_iter().chain(measured.iter().copied()));
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
        table.row([size(sdu)].into_iter().chain(measured.iter().map(cell)));
    }
    table
}

fn cell(row: &Row) -> String {
    match row.metric {
        // Shown as a time per SDU, which can be divided into its parts.
        Metric::MsgsPerS if row.median > 0.0 => {
            let relative = row.ci95 / row.mean.max(1e-9);
            let ns = 1e9 / row.median;
            format!("{} ±{}", short(ns), short(ns * relative))
        }
        _ => format!("{} ±{}", short(row.median), short(row.ci95)),
    }
}

fn draw(results: &Results, out: &Path) -> Result<()> {
    for case in Case::ALL {
        case.draw(results, &out.join(format!("{}.svg", case.name())))?;
    }
    Ok(())
}

/// Draws goodput over SDU size. Returns false if none was measured.
pub fn draw_goodput(results: &Results, case: &str, path: &Path) -> Result<bool> {
    let of_case = |row: &&Row| row.case == case && row.metric == Metric::GoodputMbps;
    let rows: Vec<Row> = results.rows.iter().filter(of_case).cloned().collect();
    let Some(longest) = rows.iter().map(|row| row.sdu).max() else {
        return Ok(false);
    };
    let one = Results {
        rows,
        ..results.clone()
    };
    figure::draw(&one, longest.min(4000), &format!("{case}: goodput"), path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a benchmark with two repetitions.
    fn recorded() -> Results {
        serde_json::from_str(include_str!("recorded.json")).unwrap()
    }

    fn figures_of(results: &Results, name: &str) -> Vec<(String, String)> {
        let out = std::env::temp_dir().join(format!("carina-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        draw(results, &out).unwrap();
        let mut files: Vec<(String, String)> = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, std::fs::read_to_string(&path).unwrap())
            })
            .collect();
        std::fs::remove_dir_all(&out).unwrap();
        files.sort();
        files
    }

    #[test]
    fn every_case_that_was_measured_has_its_figure() {
        let files = figures_of(&recorded(), "figures");
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "fig16.12.svg",
            "fig16.14.svg",
            "fig16.15.svg",
            "impaired.svg",
        ];
        assert_eq!(names, expected);
        for (name, svg) in &files {
            assert!(
                svg.contains("<svg") && svg.trim_end().ends_with("</svg>"),
                "{name}"
            );
        }
        let texts = |at: usize| -> Vec<&str> { files[at].1.lines().map(str::trim).collect() };
        for system in super::super::fig16_12::SYSTEMS {
            assert!(texts(0).contains(&system), "{system} is in fig16.12");
        }
        assert!(texts(1).iter().any(|line| line.contains("normal-2-fc")));
        for text in ["from 3 to 2", "from 2 to 3", "10"] {
            assert!(texts(2).contains(&text), "{text} is in fig16.15");
        }
        for text in ["carina, 1400 bytes", "tcp, 64 bytes"] {
            assert!(texts(3).contains(&text), "{text} is in impaired");
        }
    }

    #[test]
    fn tables_have_no_column_for_single_moves() {
        let found = PaperResults {
            results: recorded(),
            goals: Vec::new(),
            texts: Vec::new(),
        };
        let text = to_text(&found);
        assert!(
            text.contains("3 to 2") && !text.contains("move 1"),
            "{text}"
        );
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        let none = Results {
            rows: Vec::new(),
            ..recorded()
        };
        assert_eq!(figures_of(&none, "no-figures"), []);
    }
}
