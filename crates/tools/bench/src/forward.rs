//! Measures one-way flows over virtual links. Each packet is looked up and put into the tunnel of
//! its link, by Carina's engine or by the kernel. A bridge of the kernel, which does neither, is
//! the comparison.
//!
//! ```text
//!   carina        source 1..n -> join -> route4, 10^6 routes => token bucket -> ipip -> sink
//!   carina-veth   veth => af_packet -> route4 -> token bucket -> ipip -> af_packet => veth
//!   carina-dif    source 1..n -> join -> route4 => token bucket => flow of a DIF => sink
//!   bridge        veth => bridge => veth
//!   kernel-ipip   veth => route => ipip => veth
//!   kernel-vxlan  veth => route => vxlan => veth
//! ```
//!
//! After P. Papadimitriou et al., *Implementing Network Virtualization for a Future Internet*
//! (2009), figures 7 and 8.

mod between_namespaces;
mod flow;
mod graphs;
mod kernel;
mod over_dif;
mod veths;

use carina_measure::ratio::RUNS_MIN;
use carina_measure::results::{Factor, Metric, OURS, Results, Row, Samples, machine};
use carina_sys::{allow_cpus, allowed_cpus};

use self::between_namespaces::Traffic;
use self::flow::Flows;
use self::over_dif::TwoHosts;
use self::veths::Veths;
use crate::Options;
use crate::error::{Attempt, Error, Result};
use crate::rate::{Rate, compare_with_bars};

/// A case: a number of flows at the same time, or traffic between two namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// Which packets or streams of the case cross virtual links.
    pub load: Load,
}

/// The load of a case: which packets or streams cross the virtual links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A number of one-way flows, each over a link of its own.
    Flows(usize),
    /// Traffic over a link between two namespaces of one host, and its rate in bits a second, if it
    /// has one. The sizes are those of the traffic.
    Namespaces(Traffic, Option<u64>),
}

/// The cases of the benchmark: each number of flows, and each traffic between two namespaces.
pub const CASES: [Case; 12] = [
    case("flows-1", 1),
    case("flows-2", 2),
    case("flows-3", 3),
    case("flows-4", 4),
    case("flows-5", 5),
    case("flows-6", 6),
    between("veth-tcp", Traffic::Stream, None),
    between("veth-tcp-10G", Traffic::Stream, Some(TEN_G)),
    between("veth-64", Traffic::Frames, None),
    between("veth-64-10G", Traffic::Frames, Some(TEN_G)),
    between("veth-echo", Traffic::Echoes, None),
    between("veth-echo-10G", Traffic::Echoes, Some(TEN_G)),
];

const TEN_G: u64 = 10_000_000_000;

const fn case(name: &'static str, flows: usize) -> Case {
    let load = Load::Flows(flows);
    Case { name, load }
}

const fn between(name: &'static str, traffic: Traffic, rate: Option<u64>) -> Case {
    let load = Load::Namespaces(traffic, rate);
    Case { name, load }
}

/// Default sizes of frames in bytes, without FCS.
pub const SIZES: [u64; 2] = [64, 1500];

/// The system that carries the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// A graph of Carina that contains the sources and sinks.
    Graph,
    /// A graph of Carina that forwards between network interfaces of the kernel.
    GraphOnVeths,
    /// A graph whose links are flows of a DIF to another host.
    GraphOverDif,
    Bridge,
    Tunnel(kernel::Tunnel),
}

/// The systems in the order of the tables.
const CARRIERS: [(&str, Carrier); 6] = [
    (OURS, Carrier::Graph),
    (ON_VETHS, Carrier::GraphOnVeths),
    (OVER_DIF, Carrier::GraphOverDif),
    ("bridge", Carrier::Bridge),
    ("kernel-ipip", Carrier::Tunnel(kernel::Tunnel::Ipip)),
    ("kernel-vxlan", Carrier::Tunnel(kernel::Tunnel::Vxlan)),
];

const ON_VETHS: &str = "carina-veth";
const OVER_DIF: &str = "carina-dif";

/// The names of the systems in the order of the tables.
pub const SYSTEMS: [&str; CARRIERS.len()] = {
    let mut names = [""; CARRIERS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = CARRIERS[at].0;
        at += 1;
    }
    names
};

/// Runs the benchmark, in a network namespace that this process has for itself. A third of the time
/// precedes each measurement, to warm up. A system that the kernel does not support is not
/// measured; the notes say so.
///
/// # Errors
/// The system refuses something that all measurements need, or too many measurements in succession
/// fail.
pub fn run(options: &Options<Case>) -> Result<Results> {
    let cpus = allowed_cpus().attempt("the processors of this process")?;
    let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else {
        return Err(Error::Proc(
            "no processor is allowed to this process".to_owned(),
        ));
    };
    let mut bench = Bench {
        cpu: *last,
        source_cpu: *first,
        cpus: cpus.clone(),
        time_ns: options.time_ns,
        hosts: None,
        samples: Samples::default(),
        notes: Vec::new(),
        missing: Vec::new(),
    };
    let measured = options.measure_each(
        |case| case.name,
        |_, case, size| match case.load {
            Load::Flows(flows) => bench.measure(case.name, flows, size as usize),
            // The size is that of the traffic, so that each run measures once.
            Load::Namespaces(..) if Some(&size) != options.sizes.first() => Ok(()),
            Load::Namespaces(traffic, rate) => {
                allow_cpus(None, &cpus).attempt("giving the processors back")?;
                let what = (case.name, traffic, rate);
                let (time, cpu) = (bench.time_ns, bench.source_cpu);
                between_namespaces::measure(what, &mut bench.samples, time, cpu)
            }
        },
    );
    allow_cpus(None, &cpus).attempt("giving the processors back")?;
    let failures = measured?;
    let (factors, rows) = (bench.samples.factors(), bench.samples.rows());
    let mut notes = notes(bench.cpu, bench.source_cpu);
    notes.append(&mut bench.notes);
    let carinas = [OURS, ON_VETHS, OVER_DIF];
    for peer in SYSTEMS
        .iter()
        .filter(|candidate| !carinas.contains(*candidate))
    {
        notes.extend(compare_with_bars(&factors, peer, Metric::Mpps, |_| {
            Some(1.0)
        }));
        for other in [ON_VETHS, OVER_DIF] {
            let of_other = bench.samples.factors_of(other);
            let lines = compare_with_bars(&of_other, peer, Metric::Mpps, |_| None);
            notes.extend(lines.into_iter().map(|line| format!("{other}: {line}")));
        }
    }
    notes.extend(bar_notes(&rows));
    notes.extend(namespace_notes(&factors));
    Ok(Results {
        bench: "forward".to_owned(),
        machine: machine(),
        notes,
        rows,
        factors,
        failures,
    })
}

struct Bench {
    /// Processor that forwards frames.
    cpu: usize,
    /// Processor that generates frames for the kernel.
    source_cpu: usize,
    /// All processors of this process.
    cpus: Vec<usize>,
    time_ns: u64,
    /// The two hosts with a DIF; made at the first measurement that needs them.
    hosts: Option<TwoHosts>,
    samples: Samples,
    notes: Vec<String>,
    /// Systems that the kernel does not support.
    missing: Vec<&'static str>,
}

impl Bench {
    /// Measures every system, one after the other.
    fn measure(&mut self, case: &str, flows: usize, size: usize) -> Result<()> {
        for (system, carrier) in CARRIERS {
            if self.missing.contains(&system) {
                continue;
            }
            let measured = match carrier {
                Carrier::Graph => {
                    graphs::measure(&Flows::by_table(flows, size), self.cpu, self.time_ns).map(Some)
                }
                Carrier::GraphOverDif => self.over_dif(flows, size).map(Some),
                _ => self.on_veths(carrier, flows, size),
            };
            let measured = measured.map_err(|error| error.in_case(system))?;
            let Some(rate) = measured else {
                self.missing.push(system);
                self.notes.push(format!(
                    "{system} was not measured: this kernel has no such device"
                ));
                continue;
            };
            rate.add_to(&mut self.samples, case, size as u64, system);
        }
        Ok(())
    }

    fn over_dif(&mut self, flows: usize, size: usize) -> Result<Rate> {
        let hosts = match &mut self.hosts {
            Some(hosts) => hosts,
            none => {
                let others = self.cpus.iter().filter(|cpu| **cpu != self.source_cpu);
                let others: Vec<usize> = others.copied().collect();
                let cpus = if others.is_empty() {
                    &self.cpus
                } else {
                    &others
                };
                none.insert(TwoHosts::new(cpus, &self.cpus)?)
            }
        };
        let flows = Flows::by_number(flows, size);
        hosts.rate(&flows, self.source_cpu, self.time_ns)
    }

    /// Measures a system between veth pairs; `None` if the kernel does not support it.
    fn on_veths(&self, carrier: Carrier, flows: usize, size: usize) -> Result<Option<Rate>> {
        let veths = Veths::new(flows, self.cpu)?;
        let carried = match carrier {
            Carrier::Graph | Carrier::GraphOverDif => unreachable!("it needs none"),
            Carrier::GraphOnVeths => Some(graphs::on_veths(&veths, self.cpu)?),
            Carrier::Bridge => kernel::bridge(&veths)?.then_some(None),
            Carrier::Tunnel(tunnel) => kernel::tunnel(&veths, tunnel)?.then_some(None),
        };
        // The graph runs as long as this value exists, until the rate is known.
        carried
            .map(|_graph| {
                veths.rate(
                    &Flows::by_number(flows, size),
                    self.source_cpu,
                    self.time_ns,
                )
            })
            .transpose()
    }
}

fn notes(cpu: usize, source_cpu: usize) -> Vec<String> {
    vec![
        "mpps: packets of all flows that came to the end of their links, in 10^6 a second"
            .to_owned(),
        format!(
            "{OURS}: one worker on processor {cpu} makes, looks up among 10^6 routes, bounds, \
             encapsulates (IPv4 in IPv4) and discards"
        ),
        format!(
            "the others: Carina's engine on processor {source_cpu} makes the packets and sends them \
             over a veth for each flow; the kernel handles what it gets on processor {cpu}, and \
             counts at the other end of a second veth; one route for each flow"
        ),
        "veth-tcp, veth-64, veth-echo: a link of a virtual network between two namespaces, and a \
         bridge between two veths; with -10G, a rate of 10 Gbit/s, that of the bridge by tc-tbf"
            .to_owned(),
        "carina-veth is the same graph between packet sockets of the kernel: what the kernel's \
         interfaces cost it"
            .to_owned(),
        format!(
            "{OVER_DIF}: links are flows of a DIF of two hosts (namespaces with a node each and a \
             veth between them); the graph, with the sinks at the other host, runs on processor \
             {source_cpu}, the nodes on the others; a message of a socket for each frame"
        ),
    ]
}

/// Says whether links between namespaces are as fast as the kernel's bridge.
fn namespace_notes(factors: &[Factor]) -> Vec<String> {
    let is_goodput = |_: &str| Some(1.0);
    let mut lines = compare_with_bars(factors, "bridge", Metric::GoodputMbps, is_goodput);
    let echoes = factors
        .iter()
        .filter(|factor| factor.over == "bridge" && factor.metric == Metric::RttUs);
    lines.extend(echoes.map(|factor| {
        let ([low, high], ratio) = (factor.ratio.interval, factor.ratio.ratio);
        let verdict = if factor.ratio.runs < RUNS_MIN {
            "too few runs"
        } else if ratio.min(low) <= ROUND_TRIP_MAX {
            "held"
        } else {
            "NOT HELD"
        };
        format!(
            "{}: {ratio:.2} x the round trip of bridge [{low:.2} to {high:.2}]; bar at most \
             {ROUND_TRIP_MAX}: {verdict}",
            factor.case
        )
    }));
    lines
}

/// Longest round trip between two namespaces, in round trips over a bridge of the kernel.
const ROUND_TRIP_MAX: f64 = 1.3;
/// Rate in 10^6 per second that the published system almost reached, with six flows of 64-byte
/// frames on eight processors.
const PUBLISHED: f64 = 5.0;

fn bar_notes(rows: &[Row]) -> Option<String> {
    let is_it = |row: &&Row| {
        (row.case.as_str(), row.sdu, row.system.as_str(), row.metric)
            == ("flows-6", 64, OURS, Metric::Mpps)
    };
    let row = rows.iter().find(is_it)?;
    let verdict = if row.median > PUBLISHED {
        "held"
    } else {
        "NOT HELD"
    };
    let rate = row.median;
    Some(format!(
        "flows-6 at 64 bytes: {rate:.1} x 10^6 a second on one processor; bar {PUBLISHED} in all: \
         {verdict}"
    ))
}

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); CASES.len()] = {
    let mut tables = [("", Metric::Mpps, "packets, 10^6 a second"); CASES.len()];
    let mut at = 0;
    while at < tables.len() {
        (tables[at].1, tables[at].2) = match CASES[at].load {
            Load::Namespaces(Traffic::Stream, _) => {
                (Metric::GoodputMbps, "goodput of one TCP stream, Mbit/s")
            }
            Load::Namespaces(Traffic::Echoes, _) => (Metric::RttUs, "mean round trip, µs"),
            _ => (Metric::Mpps, "packets, 10^6 a second"),
        };
        tables[at].0 = CASES[at].name;
        at += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_six_flows_is_judged() {
        let mut samples = Samples::default();
        samples.add("flows-6", 64, OURS, Metric::Mpps, 4.9);
        samples.add("flows-6", 64, "bridge", Metric::Mpps, 9.0);
        let line = bar_notes(&samples.rows()).unwrap();
        assert!(line.ends_with("NOT HELD"), "{line}");
        assert!(bar_notes(&[]).is_none());
    }
}
