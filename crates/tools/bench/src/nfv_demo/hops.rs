//! The cost of hops on the host and in a guest, and a figure of both.

use std::path::Path;

use carina_measure::figure::{Axes, Line, Point, draw_lines};
use carina_measure::results::{Metric, Results, Row};

use crate::engine::{self, CASES, Case, Chain};
use crate::error::Result;
use crate::{Options, Progress};

/// How often and how long to measure the cost of hops.
#[derive(Debug, Clone, Copy)]
pub struct HopsOptions {
    /// Number of times that each number of hops is measured.
    pub runs: usize,
    /// Duration of a single measurement in nanoseconds.
    pub time_ns: u64,
}

/// Name of the system, in the rows, for rates that were measured in a guest.
pub const IN_GUEST: &str = "carina-in-guest";

impl HopsOptions {
    /// The command that measures with these options.
    pub(super) fn command(&self) -> String {
        let cases: Vec<&str> = cases().map(|case| case.name).collect();
        let (runs, time_ms) = (self.runs, self.time_ns / 1_000_000);
        let cases = cases.join(",");
        format!("carina --json bench engine --cases {cases} --runs {runs} --time {time_ms}ms")
    }

    /// Measures the cost of hops on this host, and adds the rows `guest`, which were measured in a
    /// guest, as system [`IN_GUEST`].
    ///
    /// # Errors
    /// Those of [`engine::run`].
    pub fn measure(&self, guest: Option<Results>, progress: Progress) -> Result<Results> {
        let mut results = engine::run(&Options {
            cases: cases().collect(),
            runs: self.runs,
            time_ns: self.time_ns,
            sizes: engine::SIZES.to_vec(),
            progress,
        })?;
        results.bench = "nfv-demo".to_owned();
        let rows = guest.into_iter().flat_map(|guest| guest.rows);
        results.rows.extend(rows.map(|row| Row {
            system: match row.system.as_str() {
                engine::PEER => format!("{}-in-guest", engine::PEER),
                _ => IN_GUEST.to_owned(),
            },
            ..row
        }));
        Ok(results)
    }
}

/// The cases with chains of hops.
fn cases() -> impl Iterator<Item = Case> {
    CASES.into_iter().filter(|case| hops(case).is_some())
}

fn hops(case: &Case) -> Option<usize> {
    match case.chain {
        Chain::Hops(hops) => Some(hops),
        _ => None,
    }
}

/// Draws rates over the number of hops, in percent of each system's rate without hops. (Figure 4 of
/// K. Mathiazhagan, *Network Function Virtualization with Snabb*, shows percent of the load.)
///
/// # Errors
/// The file cannot be written, or nothing was measured.
pub fn draw(results: &Results, path: &Path) -> Result<()> {
    let lines: Vec<Line> = [engine::SYSTEMS[0], IN_GUEST]
        .into_iter()
        .filter_map(|system| line(results, system))
        .collect();
    let axes = Axes {
        title: "Forwarding by number of hops, 64-byte frames, one core (95 % confidence)",
        x: "hops",
        y: "frames, % of those without hops",
        x_max: cases().filter_map(|case| hops(&case)).max().unwrap_or(1) as f64,
        has_regression: false,
    };
    Ok(draw_lines(&lines, &axes, path)?)
}

fn line(results: &Results, system: &str) -> Option<Line> {
    let rows = results.rows.iter();
    let rows = rows.filter(|row| row.system == system && row.metric == Metric::Mpps);
    let points: Vec<(f64, &Row)> = rows
        .filter_map(|row| {
            let case = CASES.iter().find(|case| case.name == row.case)?;
            Some((hops(case)? as f64, row))
        })
        .collect();
    let (_, whole) = points.iter().find(|(hops, _)| *hops == 0.0)?;
    let percent = |value: f64| value * 100.0 / whole.mean;
    Some(Line {
        label: format!("{system}: 100 % = {:.1} Mpps", whole.mean),
        points: points
            .iter()
            .map(|(hops, row)| Point {
                x: *hops,
                y: percent(row.mean),
                spread: percent(row.ci95),
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use carina_measure::results::Samples;

    use super::*;

    #[test]
    fn figure_has_a_line_for_the_host_and_one_for_the_guest() {
        let mut samples = Samples::default();
        for (hops, rate) in [("source-sink", 200.0), ("hop-1", 150.0), ("hop-8", 50.0)] {
            samples.add(hops, 64, "carina", Metric::Mpps, rate);
            samples.add(hops, 64, IN_GUEST, Metric::Mpps, rate / 20.0);
        }
        let results = Results {
            bench: "nfv-demo".into(),
            machine: String::new(),
            notes: vec![],
            failures: Vec::new(),
            rows: samples.rows(),
            factors: Vec::new(),
        };
        let guest = line(&results, IN_GUEST).unwrap();
        let points: Vec<(f64, f64)> = guest.points.iter().map(|p| (p.x, p.y)).collect();
        assert!(points.contains(&(1.0, 75.0)) && points.contains(&(8.0, 25.0)));
        let path = std::env::temp_dir().join(format!("carina-hops-{}.svg", std::process::id()));
        draw(&results, &path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(svg.contains("carina: 100 % = 200.0 Mpps"));
        assert!(svg.contains("carina-in-guest: 100 % = 10.0 Mpps"));
    }

    #[test]
    fn guest_measures_the_same_cases() {
        let options = HopsOptions {
            runs: 3,
            time_ns: 200_000_000,
        };
        assert_eq!(
            options.command(),
            "carina --json bench engine --cases source-sink,hop-1,hop-2,hop-4,hop-8 --runs 3 \
             --time 200ms"
        );
    }
}
