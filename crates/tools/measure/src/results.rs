//! The result format of every bench: one row per case, SDU size, system and metric.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ratio::Ratio;
use crate::summary::Summary;
use carina_text::table::{Table, short, size};

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
    /// Frames in 10⁶ per second.
    Mpps,
    /// CPU time of both applications per SDU received, or of a data plane per frame, in
    /// nanoseconds.
    CpuNsPerSdu,
    /// CPU time of the host beside the two applications, per SDU received, in nanoseconds.
    HostCpuNsPerSdu,
    /// How much of its processor a guest's takes, of a hundred.
    GuestCpuPercent,
    /// SDUs that were sent and never received, of a hundred.
    LossPercent,
    /// How long nothing arrived, in seconds.
    GapS,
    /// The same in milliseconds.
    GapMs,
    /// Packets that were sent and never answered.
    LostPackets,
    /// Time to read a configuration and be ready, in seconds.
    LoadS,
    /// Flows that came to be, per second.
    AllocationsPerS,
    /// Flows that ended, per second.
    DeallocationsPerS,
    /// Resident memory of a node that a flow takes, in bytes.
    BytesPerFlow,
    /// Open files of a node that a flow takes.
    FilesPerFlow,
    /// Requests for virtual networks that were placed, of a hundred.
    AcceptancePercent,
    /// Long-term revenue of placed virtual networks over their cost.
    RevenueToCost,
    /// Revenue of placed virtual networks for their lifetimes, by unit of time.
    RevenuePerTime,
    /// Processors of a substrate that were taken, of a hundred, on average over time.
    CpuUsedPercent,
    /// Rates of a substrate's links that were taken, of a hundred, on average over time.
    RateUsedPercent,
    /// Mean time to place or refuse a request, in milliseconds.
    SolveMs,
    /// The time that half of the requests do not exceed.
    SolveP50Ms,
    /// The one that 99 of 100 do not exceed.
    SolveP99Ms,
    /// From the request for a virtual network until all of it has answered, in seconds.
    TotalS,
    /// The part of that in which places for nodes are found.
    DiscoveryS,
    /// The part in which nodes come to run and get their addresses.
    VmS,
    /// The part in which links are made.
    TunnelsS,
    /// The part in which consoles answer.
    ConsoleS,
    /// The part in which probes pass the links.
    ProbeS,
    /// CPU time that the virtual network provider takes for it, in seconds.
    VnpCpuS,
    /// The same of a hundred of one processor for as long as it lasts.
    VnpCpuPercent,
    /// CPU time of the agent of a host, with its links, in seconds.
    AgentCpuS,
    /// CPU time of the machines on a host, in seconds.
    MachinesCpuS,
    /// CPU time of agent and machines, of a hundred of one processor for as long as it lasts.
    HostCpuPercent,
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
    /// The sample standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// What 99 of 100 runs do not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// How many runs there were.
    pub runs: usize,
}

/// How many times the value of another system that of [`OURS`] is, in one case at one SDU size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    /// What was done, for example `one-way`.
    pub case: String,
    /// Size of the SDUs in bytes.
    pub sdu: u64,
    /// The other system.
    pub over: String,
    /// What was measured.
    pub metric: Metric,
    /// The ratio of both systems in the same run, over all runs.
    #[serde(flatten)]
    pub ratio: Ratio,
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
    /// The factors over the other systems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factors: Vec<Factor>,
    /// What could not be measured, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
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
                sd: Some(summary.stddev),
                p99: Some(summary.p99),
                runs: summary.count,
            })
        };
        self.cells.iter().filter_map(row).collect()
    }

    /// The factors of [`OURS`] over each other system that was measured in the same runs.
    pub fn factors(&self) -> Vec<Factor> {
        self.factors_of(OURS)
    }

    /// The same of any system.
    pub fn factors_of(&self, system: &str) -> Vec<Factor> {
        let factor = |(key, theirs): (&Key, &Vec<f64>)| {
            let (case, sdu, over, metric) = key.clone();
            let ours = self
                .cells
                .get(&(case.clone(), sdu, system.to_owned(), metric))?;
            // The samples of both are in the order of the runs, one a run.
            let is_paired = over != system && ours.len() == theirs.len();
            let pairs = ours.iter().copied().zip(theirs.iter().copied());
            let ratio = Ratio::of(pairs).filter(|_| is_paired)?;
            Some(Factor {
                case,
                sdu,
                over,
                metric,
                ratio,
            })
        };
        self.cells.iter().filter_map(factor).collect()
    }
}

impl Results {
    /// A table of one case and metric: a line per SDU size, a column per system, then the factor of
    /// `carina` over (or, for times, under) each other system, with its 95 % interval.
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
            let factor = |system: &&str| match self.factor(case, sdu, system, metric) {
                Some(Ratio {
                    ratio,
                    interval: [low, high],
                    ..
                }) => format!("×{} [{}..{}]", short(ratio), short(low), short(high)),
                None => "-".to_owned(),
            };
            let cells = systems
                .iter()
                .map(|s| cell(s))
                .chain(others.clone().map(factor));
            table.row([size(sdu)].into_iter().chain(cells));
        }
        table
    }

    fn factor(&self, case: &str, sdu: u64, over: &str, metric: Metric) -> Option<Ratio> {
        let found = self.factors.iter().find(|factor| {
            factor.case == case
                && factor.sdu == sdu
                && factor.over == over
                && factor.metric == metric
        });
        found.map(|factor| factor.ratio)
    }

    /// The row of a case, size, system and metric.
    pub fn row(&self, case: &str, sdu: u64, system: &str, metric: Metric) -> Option<&Row> {
        let is_it = |row: &&Row| {
            row.case == case && row.sdu == sdu && row.system == system && row.metric == metric
        };
        self.rows.iter().find(is_it)
    }

    fn cell(&self, case: &str, sdu: u64, system: &str, metric: Metric) -> String {
        self.row(case, sdu, system, metric).map_or_else(
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
        for value in [2.5, 2.5, 2.5] {
            samples.add("one-way", 64, "udp", Metric::GoodputMbps, value);
        }
        Results {
            bench: "local".into(),
            machine: "m".into(),
            notes: vec![],
            failures: Vec::new(),
            rows: samples.rows(),
            factors: samples.factors(),
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
        assert!(text.contains("×2.00 [1.60..2.40]"), "{text}");
        assert!(
            text.lines().nth(1).is_some_and(|line| line.ends_with('-')),
            "{text}"
        );
    }
}
