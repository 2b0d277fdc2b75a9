//! The result format of every bench: one row per case, SDU size, system and metric.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::table::{Table, short, size};
use crate::summary::Summary;

/// What is measured. The name is the name in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Bits of SDU content that the receiving application got, in 10⁶ per second.
    GoodputMbps,
    /// Mean round-trip time of an SDU and its answer, in microseconds.
    RttUs,
    /// The round-trip time that half of the round trips do not exceed, in microseconds.
    RttP50Us,
    /// The one that 99 of 100 do not exceed.
    RttP99Us,
    /// SDUs that the receiving application got, per second.
    MsgsPerS,
    /// CPU time of both applications per SDU received, in nanoseconds.
    CpuNsPerSdu,
    /// SDUs that were sent and never received, of a hundred.
    LossPercent,
    /// How long nothing arrived, in seconds.
    GapS,
    /// Flows that came to be, per second.
    AllocationsPerS,
    /// Flows that ended, per second.
    DeallocationsPerS,
    /// Resident memory of a node that a flow takes, in bytes.
    BytesPerFlow,
    /// Open files of a node that a flow takes.
    FilesPerFlow,
}

/// One measured system in one case at one SDU size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was done, for example `one-way`.
    pub case: String,
    /// Size of the SDUs in bytes.
    pub sdu: u64,
    /// What carried them, for example `carina` or `udp`.
    pub system: String,
    /// What was measured.
    pub metric: Metric,
    /// The median of the runs.
    pub median: f64,
    /// The lowest run.
    pub low: f64,
    /// The highest run.
    pub high: f64,
    /// The mean of the runs.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean.
    pub ci95: f64,
    /// How many runs there were.
    pub runs: usize,
}

/// The result of a bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name of the bench.
    pub bench: String,
    /// The machine, in words.
    pub machine: String,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Key of a cell: case, SDU size, system, metric.
type Key = (String, u64, String, Metric);

/// Collects the samples of interleaved runs until they become rows.
#[derive(Debug, Default)]
pub struct Samples {
    cells: BTreeMap<Key, Vec<f64>>,
}

impl Samples {
    /// Adds the sample of one run.
    pub fn add(&mut self, case: &str, sdu: u64, system: &str, metric: Metric, value: f64) {
        let key = (case.to_owned(), sdu, system.to_owned(), metric);
        self.cells.entry(key).or_default().push(value);
    }

    /// The rows, sorted by case, size, system and metric.
    pub fn rows(&self) -> Vec<Row> {
        let row = |(key, samples): (&Key, &Vec<f64>)| {
            let summary = Summary::of(samples)?;
            let (case, sdu, system, metric) = key.clone();
            Some(Row {
                case,
                sdu,
                system,
                metric,
                median: summary.p50,
                low: summary.min,
                high: summary.max,
                mean: summary.avg,
                ci95: summary.confidence_95(),
                runs: summary.count,
            })
        };
        self.cells.iter().filter_map(row).collect()
    }
}

impl Results {
    /// The median of one cell.
    pub fn median(&self, case: &str, sdu: u64, system: &str, metric: Metric) -> Option<f64> {
        self.rows
            .iter()
            .find(|r| r.case == case && r.sdu == sdu && r.system == system && r.metric == metric)
            .map(|r| r.median)
    }

    /// A table of one case and metric: a line per SDU size, a column per system, then the factor of
    /// `carina` over (or, for times, under) each other system.
    pub fn table(&self, case: &str, metric: Metric, systems: &[&str]) -> Table {
        let others = systems.iter().filter(|system| **system != OURS);
        let factors = others.clone().map(|system| format!("×{system}"));
        let spread = systems.iter().map(|s| (*s).to_owned());
        let mut table = Table::new(["SDU".to_owned()].into_iter().chain(spread).chain(factors));
        let mut sizes: Vec<u64> = self
            .rows
            .iter()
            .filter(|r| r.case == case && r.metric == metric)
            .map(|r| r.sdu)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        for sdu in sizes {
            let cell = |system: &str| self.cell(case, sdu, system, metric);
            let ours = self.median(case, sdu, OURS, metric);
            let factor = |system: &&str| match (ours, self.median(case, sdu, system, metric)) {
                (Some(a), Some(b)) if a > 0.0 && b > 0.0 => format!("×{}", short(a / b)),
                _ => "-".to_owned(),
            };
            let cells = systems
                .iter()
                .map(|s| cell(s))
                .chain(others.clone().map(factor));
            table.row([size(sdu)].into_iter().chain(cells));
        }
        table
    }

    fn cell(&self, case: &str, sdu: u64, system: &str, metric: Metric) -> String {
        let found = self
            .rows
            .iter()
            .find(|r| r.case == case && r.sdu == sdu && r.system == system && r.metric == metric);
        found.map_or_else(
            || "-".to_owned(),
            |r| format!("{} [{}..{}]", short(r.median), short(r.low), short(r.high)),
        )
    }
}

/// The system that the others are compared with.
pub const OURS: &str = "carina";

/// Describes this machine in one line: CPU model, number of CPUs, kernel.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, m)| m.trim())
        })
        .unwrap_or("unknown CPU");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{model}, {cpus} CPUs, Linux {}",
        read("/proc/sys/kernel/osrelease").trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let mut samples = Samples::default();
        for value in [4.0, 6.0, 5.0] {
            samples.add("one-way", 64, "carina", Metric::GoodputMbps, value);
        }
        samples.add("one-way", 64, "udp", Metric::GoodputMbps, 2.5);
        Results {
            bench: "local".into(),
            machine: "m".into(),
            notes: vec![],
            rows: samples.rows(),
        }
    }

    #[test]
    fn rows_carry_median_and_spread_of_their_runs() {
        let row = &results().rows[0];
        assert_eq!(
            (row.median, row.low, row.high, row.runs),
            (5.0, 4.0, 6.0, 3)
        );
        let json = serde_json::to_value(row).unwrap();
        assert_eq!(json["metric"], "goodput_mbps");
    }

    #[test]
    fn tables_show_the_factor_over_the_other_systems() {
        let table = results().table("one-way", Metric::GoodputMbps, &["carina", "udp", "tcp"]);
        let text = table.to_string();
        assert!(text.contains("×2.00"), "{text}");
        assert!(
            text.lines().nth(1).is_some_and(|line| line.ends_with('-')),
            "{text}"
        );
    }
}
