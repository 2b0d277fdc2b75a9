//! Figure 16.14: two systems on one Ethernet; the application directly over the shim DIF, over one
//! normal DIF and over two, beside UDP and TCP over the same wire.
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
use carina_measure::results::{Metric, Results, Row};
use carina_measure::table::{Table, short, size};

use super::order::{Means, System, Way};
use super::place::{Place, dif_name, wire};
use super::verdict::{Verdict, ratios};
use super::{CaseFound, PaperOptions, order, sizes_or};
use crate::bench::placement::{Halves, Host};
use crate::failure::Failure;
use crate::report::progress;

/// Name of the case.
pub const CASE: &str = "fig16.14";
/// SDU sizes in bytes.
const SIZES: [u64; 9] = [1, 64, 200, 400, 600, 800, 1000, 1200, 1400];
/// What fits into a frame under two normal DIFs.
const SDU_MAX: u64 = 1 << 16;
/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 7] = [
    "normal-0",
    "normal-1",
    "normal-2",
    "normal-1-fc",
    "normal-2-fc",
    "udp",
    "tcp",
];
const PEER: &str = "carina.bench.peer";

/// Two systems on a wire with a stack of DIFs.
struct Lab {
    a: Place,
    b: Place,
    /// Where each runs, unless there is no choice.
    halves: Option<Halves>,
}

impl Lab {
    fn start() -> Result<Self, Failure> {
        progress("starting two systems on one Ethernet");
        let halves = Halves::new().filter(|halves| halves.enter(Host::First));
        let enter = |host| halves.as_ref().is_none_or(|halves| halves.enter(host));
        let a = Place::start("a")?;
        enter(Host::Second);
        let mut b = Place::start("b")?;
        for interface in ["veth0", "veth1"] {
            wire(&a, interface, &b, interface)?;
        }
        for (place, host) in [(&a, 1), (&b, 2)] {
            let address = format!("10.78.0.{host}/24");
            place.ip(&["addr", "add", &address, "dev", "veth0"])?;
            place.eth("veth0", "e", None)?;
            place.eth("veth1", "e0", None)?;
        }
        for (dif, over) in [("n1", "e"), ("n2", "n1")] {
            a.member(DifRole::Create, dif, &[over])?;
            b.member(DifRole::Join, dif, &[over])?;
        }
        b.start_peer(PEER)?;
        enter(Host::First);
        for dif in ["n1", "n2"] {
            a.reaches(dif, PEER)?;
        }
        Ok(Self { a, b, halves })
    }
}

fn systems() -> Result<Vec<System>, Failure> {
    let [client, server] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 78, 0, host)));
    let flow = |dif: &str, spec: FlowSpec| {
        Ok(Means::Flow(Way {
            dif: dif_name(dif)?,
            spec,
        }))
    };
    let unreliable = FlowSpec::unreliable();
    let means: [Result<Means, Failure>; 7] = [
        flow("e0", unreliable),
        flow("n1", unreliable),
        flow("n2", unreliable),
        flow("n1", FlowSpec::flow_controlled()),
        flow("n2", FlowSpec::flow_controlled()),
        Ok(Means::Udp { server, client }),
        Ok(Means::Tcp(server)),
    ];
    SYSTEMS
        .into_iter()
        .zip(means)
        .map(|(name, means)| {
            Ok(System {
                name: name.to_owned(),
                means: means?,
                sdu_max: if name == "normal-0" { 1450 } else { SDU_MAX },
            })
        })
        .collect()
}

/// Measures.
///
/// # Errors
/// No namespaces can be made, or a measurement fails.
pub fn run(options: &PaperOptions) -> Result<CaseFound, Failure> {
    let lab = Lab::start()?;
    let mut found = CaseFound::default();
    let control = Way {
        dif: dif_name("n1")?,
        spec: FlowSpec::reliable(),
    };
    let mut order = order(options, PEER, control)?;
    order.systems = systems()?;
    order.sizes = sizes_or(options, &SIZES);
    for run in 1..=options.runs {
        progress(format!("{CASE}: run {run} of {}", options.runs));
        // Nobody is always first, nor always after the same.
        order.systems.rotate_left(1);
        let findings = lab.a.carry_out(&order);
        let findings = findings.map_err(|failure| {
            Failure::Failed(format!("{failure}\n{}\n{}", lab.a.logs(), lab.b.logs()))
        })?;
        found.add(CASE, &findings);
    }
    found.text = costs(&found.samples.rows());
    found.notes.extend(lab.halves.as_ref().map(Halves::note));
    found.notes.extend([
        "two network namespaces joined by a veth pair, a node in each; normal-0 is a flow of the \
         Ethernet shim, normal-1 and -2 flows of one and two normal DIFs on top of it, without any \
         flow control, as UDP; -fc with flow control (QoS cube 2)"
            .to_owned(),
        "goodput is what the receiving application got; what was lost on the way does not count"
            .to_owned(),
    ]);
    Ok(found)
}

/// What a normal DIF adds to the time of an SDU, each of which is a PDU here: the systems compared.
const STEPS: [(&str, &str, &str); 4] = [
    ("1ST DIF", "normal-1", "normal-0"),
    ("2ND DIF", "normal-2", "normal-1"),
    ("FLOW CONTROL", "normal-1-fc", "normal-1"),
    ("2ND DIF, FC", "normal-2-fc", "normal-1-fc"),
];

/// Nanoseconds per PDU and DIF at each SDU size: what one more normal DIF, or flow control, adds to
/// the time of an SDU; the last column is the mean of the two DIFs.
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
    match is_empty {
        true => String::new(),
        false => format!(
            "{CASE}: ns per PDU and per DIF, from the medians; small SDUs share PDUs of a normal \
             DIF, which may save more than it costs\n{table}"
        ),
    }
}

/// Whether each normal DIF costs at most a tenth of goodput.
pub fn verdicts(results: &Results) -> Vec<Verdict> {
    [("normal-1", "normal-0"), ("normal-2", "normal-1")]
        .into_iter()
        .filter_map(|(over, under)| {
            let at = ratios(results, CASE, over, under);
            let (_, ratio) = at.into_iter().find(|(sdu, _)| *sdu == 1400)?;
            let goal = format!("{over} at least 0.9 of {under} at 1400 bytes");
            Some(Verdict::new(
                CASE,
                goal,
                format!("{ratio:.3}"),
                ratio >= 0.9,
            ))
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
