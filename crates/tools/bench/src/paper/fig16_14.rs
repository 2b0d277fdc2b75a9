//! Figure 16.14: two systems on one Ethernet. The application runs directly over the shim DIF, over
//! one normal DIF, and over two; UDP and TCP over the same wire are the comparison.
//!
//! ```text
//!   n2    a ------------------ b
//!   n1    a ------------------ b
//!   e     a ------------------ b     shim DIF for Ethernet
//!   veth0 a ------------------ b     UDP and TCP as well
//!
//!   e0    a ------------------ b     shim DIF for Ethernet, for the application itself: such a
//!   veth1 a ------------------ b     DIF has one flow per pair of stations
//! ```

use std::net::{IpAddr, Ipv4Addr};

use carina_api::control::DifRole;
use carina_client::FlowSpec;
use carina_lab::{CpuHalves, Host, Network, TestNode};
use carina_measure::results::{Metric, Row};
use carina_text::table::{Table, short, size};

use super::client::client_on;
use super::goal::Goal;
use super::request::{FlowTarget, System, TransportSpec};
use super::{CaseResults, PaperOptions, request, sizes_or};
use crate::comparison::goodput_note;
use crate::error::Result;
use crate::peer::{app_name, dif_name, start_peer};

/// Name of this case in the results and in `--cases`.
pub(super) const CASE: &str = "fig16.14";
/// SDU sizes in bytes.
const SIZES: [u64; 9] = [1, 64, 200, 400, 600, 800, 1000, 1200, 1400];
/// Longest SDU, in bytes, of every system but `normal-0`. A normal DIF fragments SDUs that are
/// longer than a frame.
const SDU_MAX: u64 = 1 << 16;
/// The systems in the order of the tables.
pub(super) const SYSTEMS: [&str; 7] = [
    "normal-0",
    "normal-1",
    "normal-2",
    "normal-1-fc",
    "normal-2-fc",
    "udp",
    "tcp",
];
const PEER: &str = "carina.bench.peer";

/// Two systems on a wire, with a stack of DIFs.
struct Setup {
    a: TestNode,
    b: TestNode,
    /// Half of the processors for each system, if there are at least two.
    halves: Option<CpuHalves>,
}

impl Setup {
    fn start(options: &PaperOptions) -> Result<Self> {
        options
            .progress
            .step("starting two systems on one Ethernet");
        let halves = CpuHalves::new().filter(|halves| halves.enter(Host::First));
        let enter = |host| halves.as_ref().is_none_or(|halves| halves.enter(host));
        let a = TestNode::start("a", Network::Own, None)?;
        enter(Host::Second);
        let mut b = TestNode::start("b", Network::Own, None)?;
        for interface in ["veth0", "veth1"] {
            a.connect(interface, &b, interface)?;
        }
        for (node, host) in [(&a, 1), (&b, 2)] {
            let address = format!("10.78.0.{host}/24");
            node.ip(&["addr", "add", &address, "dev", "veth0"])?;
            node.add_eth("veth0", "e")?;
            node.add_eth("veth1", "e0")?;
        }
        for (dif, over) in [("n1", "e"), ("n2", "n1")] {
            a.add_member(DifRole::Create, dif, &[over])?;
            b.add_member(DifRole::Join, dif, &[over])?;
        }
        start_peer(&mut b, &app_name(PEER)?)?;
        enter(Host::First);
        for dif in ["n1", "n2"] {
            a.wait_for_name_in(dif, PEER)?;
        }
        Ok(Self { a, b, halves })
    }
}

fn systems() -> Result<Vec<System>> {
    let [client, server] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 78, 0, host)));
    let flow = |dif: &str, spec: FlowSpec| {
        Ok(TransportSpec::Flow(FlowTarget {
            dif: dif_name(dif)?,
            spec,
        }))
    };
    let unreliable = FlowSpec::unreliable();
    let transports: [Result<TransportSpec>; 7] = [
        flow("e0", unreliable),
        flow("n1", unreliable),
        flow("n2", unreliable),
        flow("n1", FlowSpec::flow_controlled()),
        flow("n2", FlowSpec::flow_controlled()),
        Ok(TransportSpec::Udp { server, client }),
        Ok(TransportSpec::Tcp(server)),
    ];
    SYSTEMS
        .into_iter()
        .zip(transports)
        .map(|(name, transport)| {
            Ok(System {
                name: name.to_owned(),
                transport: transport?,
                sdu_max: if name == "normal-0" { 1450 } else { SDU_MAX },
            })
        })
        .collect()
}

/// Runs the measurement.
///
/// # Errors
/// Namespaces cannot be made, or a measurement fails.
pub(super) fn run(options: &PaperOptions) -> Result<CaseResults> {
    let setup = Setup::start(options)?;
    let mut found = CaseResults::default();
    let control = FlowTarget {
        dif: dif_name("n1")?,
        spec: FlowSpec::reliable(),
    };
    let mut request = request(options, PEER, control)?;
    request.systems = systems()?;
    request.sizes = sizes_or(options, &SIZES);
    for run in 1..=options.runs {
        options
            .progress
            .step(format!("{CASE}: run {run} of {}", options.runs));
        // The order rotates, so that no system is always first.
        request.systems.rotate_left(1);
        let measurements = client_on(&setup.a, &request);
        let logs = || format!("{}\n{}", setup.a.logs(), setup.b.logs());
        let measured = measurements.map_err(|error| error.with(logs()));
        if !found.add_run(CASE, run, measured, options.progress) {
            break;
        }
    }
    found.text = costs(&found.samples.rows());
    found
        .notes
        .extend(setup.halves.as_ref().map(CpuHalves::note));
    found.notes.extend([
        "two network namespaces joined by a veth pair, a node in each; normal-0 is a flow of the \
         Ethernet shim, normal-1 and -2 flows of one and two normal DIFs on top of it, without any \
         flow control, as UDP; -fc with flow control (QoS cube 2)"
            .to_owned(),
        goodput_note("lost SDUs do not count"),
    ]);
    Ok(found)
}

/// Pairs of systems whose difference is the time per SDU that a normal DIF, or flow control, adds.
/// Each SDU is one PDU here.
const STEPS: [(&str, &str, &str); 4] = [
    ("1ST DIF", "normal-1", "normal-0"),
    ("2ND DIF", "normal-2", "normal-1"),
    ("FLOW CONTROL", "normal-1-fc", "normal-1"),
    ("2ND DIF, FC", "normal-2-fc", "normal-1-fc"),
];

/// Table of the nanoseconds per PDU that one more normal DIF, or flow control, adds, at each SDU
/// size. The last column is the mean of the two DIFs.
fn costs(rows: &[Row]) -> String {
    let of_case = |row: &&Row| row.case == CASE && row.metric == Metric::MsgsPerS;
    let rows: Vec<&Row> = rows.iter().filter(of_case).collect();
    let ns = |sdu: u64, system: &str| {
        let found = rows.iter().find(|r| r.sdu == sdu && r.system == system);
        found.filter(|r| r.median > 0.0).map(|r| 1e9 / r.median)
    };
    let more = |sdu: u64, over: &str, under: &str| Some(ns(sdu, over)? - ns(sdu, under)?);
    let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    let heads = STEPS.iter().map(|(head, ..)| *head);
    let mut table = Table::new(["SDU"].into_iter().chain(heads).chain(["ns/PDU/DIF"]));
    let mut sizes: Vec<u64> = rows.iter().map(|row| row.sdu).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut is_empty = true;
    for sdu in sizes {
        let steps = STEPS.map(|(_, over, under)| more(sdu, over, under));
        let mean = more(sdu, "normal-2", "normal-0").map(|two| two / 2.0);
        is_empty &= steps.iter().all(Option::is_none);
        let cells = steps.into_iter().chain([mean]).map(cell);
        table.row([size(sdu)].into_iter().chain(cells));
    }
    if is_empty {
        String::new()
    } else {
        format!(
            "{CASE}: ns per PDU and per DIF, from the medians; small SDUs share PDUs of a normal \
             DIF, which may save more than it costs\n{table}"
        )
    }
}

/// The goal that each normal DIF costs at most a tenth of goodput.
pub(super) fn goals(found: &CaseResults) -> Vec<Goal> {
    [("normal-1", "normal-0"), ("normal-2", "normal-1")]
        .into_iter()
        .filter_map(|(over, under)| {
            let ratios = found.ratios(over, under);
            let (_, ratio) = ratios.into_iter().find(|(sdu, _)| *sdu == 1400)?;
            let goal = format!("{over} at least 0.9 of {under} at 1400 bytes");
            Some(Goal::new(CASE, goal, 0.9, ratio))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use carina_measure::results::Samples;

    #[test]
    fn a_dif_costs_what_one_more_adds() {
        let mut samples = Samples::default();
        for (system, ns) in [
            ("normal-0", 200.0),
            ("normal-1", 500.0),
            ("normal-2", 700.0),
        ] {
            samples.add(CASE, 1400, system, Metric::MsgsPerS, 1e9 / ns);
        }
        samples.add(CASE, 64, "udp", Metric::MsgsPerS, 1e6);
        let text = costs(&samples.rows());
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("1400"));
        let cells: Vec<&str> = line.unwrap().split_whitespace().collect();
        assert_eq!(cells, ["1400", "300", "200", "-", "-", "250"], "{text}");
        assert_eq!(costs(&[]), "");
    }
}
