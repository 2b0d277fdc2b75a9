//! The result format of every benchmark: one row for each case, SDU size, system and metric.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ratio::Ratio;
use crate::summary::Summary;
use carina_text::table::{Table, short, size};

/// What is measured. In JSON a metric has the name of its variant, in snake case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Bits of SDU content that the receiving application got, in 10⁶ bits per second.
    GoodputMbps,
    /// Mean round-trip time of an SDU and its answer, in microseconds.
    RttUs,
    /// Median of the round-trip times, in microseconds.
    RttP50Us,
    /// 99th percentile of the round-trip times, in microseconds.
    RttP99Us,
    /// SDUs that the receiving application got, per second.
    MsgsPerS,
    /// Frames forwarded, in 10⁶ per second.
    Mpps,
    /// CPU time in nanoseconds: of both applications together per SDU received, or of a data plane
    /// per frame.
    CpuNsPerSdu,
    /// CPU time of the host without the two applications, per SDU received, in nanoseconds.
    HostCpuNsPerSdu,
    /// Share of its processor that a guest uses, in percent.
    GuestCpuPercent,
    /// SDUs that were sent and never received, in percent of those sent.
    LossPercent,
    /// Time during which nothing arrived, in seconds.
    GapS,
    /// Time during which nothing arrived, in milliseconds.
    GapMs,
    /// Number of packets that were sent and never answered.
    LostPackets,
    /// Time to read a configuration and be ready, in seconds.
    LoadS,
    /// Flows that were allocated, per second.
    AllocationsPerS,
    /// Flows that were deallocated, per second.
    DeallocationsPerS,
    /// Resident memory of a node for each flow, in bytes.
    BytesPerFlow,
    /// Open files of a node for each flow.
    FilesPerFlow,
    /// Requests for virtual networks that were placed, in percent.
    AcceptancePercent,
    /// Revenue of the placed virtual networks over their cost, in the long term.
    RevenueToCost,
    /// Revenue of the placed virtual networks over their lifetimes, for each unit of time.
    RevenuePerTime,
    /// Processors of a substrate that were in use, in percent, on average over time.
    CpuUsedPercent,
    /// Rates of a substrate's links that were in use, in percent, on average over time.
    RateUsedPercent,
    /// Mean time to place or refuse a request, in milliseconds.
    SolveMs,
    /// Median of the time to place or refuse a request, in milliseconds.
    SolveP50Ms,
    /// 99th percentile of the time to place or refuse a request, in milliseconds.
    SolveP99Ms,
    /// Time from the request for a virtual network until all its parts have answered, in seconds.
    TotalS,
    /// Part of that time in which hosts for the nodes are found, in seconds.
    DiscoveryS,
    /// Part of that time in which nodes start and get their addresses, in seconds.
    VmS,
    /// Part of that time in which links are made, in seconds.
    TunnelsS,
    /// Part of that time in which consoles answer, in seconds.
    ConsoleS,
    /// Part of that time in which probes pass the links, in seconds.
    ProbeS,
    /// CPU time that the virtual network provider uses for the request, in seconds.
    VnpCpuS,
    /// CPU time of the virtual network provider, in percent of one processor over the duration of
    /// the request.
    VnpCpuPercent,
    /// CPU time of the agent of a host, including its links, in seconds.
    AgentCpuS,
    /// CPU time of the virtual machines on a host, in seconds.
    MachinesCpuS,
    /// CPU time of agent and virtual machines, in percent of one processor over the duration of the
    /// request.
    HostCpuPercent,
    /// Time until a virtual network is made, in seconds.
    UpS,
    /// Time until nothing of a virtual network is left, in seconds.
    DownS,
    /// Memory that a network occupies for each link, in MiB.
    MibPerLink,
    /// CPU time of a network in which nothing passes, in percent of one processor.
    IdlePercent,
    /// Time until a link that is added to a network carries packets, in milliseconds.
    LinkMs,
    /// Memory of a virtual machine that no other process shares, in MiB.
    PrivateMib,
    /// Memory of a virtual machine, in MiB, with its share of what several processes use.
    PssMib,
}

/// The value of one metric for one system, in one case at one SDU size, over all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the case, for example `one-way`.
    pub case: String,
    /// Size of the SDUs (or frames, or payloads) in bytes; 0 if the case has no size.
    pub sdu: u64,
    /// Name of the measured system, for example `carina` or `udp`.
    pub system: String,
    /// The quantity that was measured, with its unit.
    pub metric: Metric,
    /// The median of the runs, in the unit of `metric`.
    pub median: f64,
    /// The lowest value of the runs, in the unit of `metric`.
    pub low: f64,
    /// The highest value of the runs, in the unit of `metric`.
    pub high: f64,
    /// The mean of the runs, in the unit of `metric`.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean, in the unit of `metric`.
    pub ci95: f64,
    /// The sample standard deviation, in the unit of `metric`; `None` in results that were written
    /// before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// 99th percentile of the runs, in the unit of `metric`; `None` in results that were written
    /// before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Number of runs.
    pub runs: usize,
}

/// By which factor a metric of [`OURS`] exceeds the metric of another system, in one case at one
/// SDU size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    /// Name of the case, for example `one-way`.
    pub case: String,
    /// Size of the SDUs (or frames, or payloads) in bytes; 0 if the case has no size.
    pub sdu: u64,
    /// Name of the system whose metric is the divisor.
    pub over: String,
    /// The metric whose values are compared, with its unit.
    pub metric: Metric,
    /// The ratio of [`OURS`] to the other system within each run, over all runs.
    #[serde(flatten)]
    pub ratio: Ratio,
}

/// What a benchmark has measured: rows of values, ratios between systems, failures, and a
/// description of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name of the benchmark.
    pub bench: String,
    /// Description of the machine: CPU model, number of CPUs, kernel.
    pub machine: String,
    /// Notes that a reader needs to judge the figures.
    pub notes: Vec<String>,
    /// The measured values.
    pub rows: Vec<Row>,
    /// The ratios between [`OURS`] and the other systems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factors: Vec<Factor>,
    /// Measurements that failed, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Key of a cell of [`Samples`]: case, SDU size, system, metric.
type Key = (String, u64, String, Metric);

/// Collects the samples of interleaved runs, and turns them into rows.
#[derive(Debug, Default)]
pub struct Samples {
    cells: BTreeMap<Key, Vec<f64>>,
}

impl Samples {
    /// Adds the value of one run to the samples of its case, SDU size, system and metric.
    pub fn add(&mut self, case: &str, sdu: u64, system: &str, metric: Metric, value: f64) {
        let key = (case.to_owned(), sdu, system.to_owned(), metric);
        self.cells.entry(key).or_default().push(value);
    }

    /// One row for each combination of case, size, system and metric that has samples, sorted in
    /// this order.
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

    /// The ratios of [`OURS`] to each other system that was measured in the same runs.
    pub fn factors(&self) -> Vec<Factor> {
        self.factors_of(OURS)
    }

    /// The ratios of `system` to each other system that was measured in the same runs.
    pub fn factors_of(&self, system: &str) -> Vec<Factor> {
        let factor = |(key, theirs): (&Key, &Vec<f64>)| {
            let (case, sdu, over, metric) = key.clone();
            let ours = self
                .cells
                .get(&(case.clone(), sdu, system.to_owned(), metric))?;
            // Both lists have one sample for each run, in the order of the runs.
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
    /// A table of one case and metric: a line for each SDU size, a column for each system, and a
    /// column with the ratio of `carina` to each other system, with its 95 % interval.
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

    /// The row of a case, size, system and metric, or `None` if it was not measured.
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

/// Name of the system that the others are compared with.
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
