//! A reliable flow through a network that loses, delays, reorders and duplicates, beside TCP
//! through the same; every byte is checked.
//!
//! ```text
//!   a ---- veth ---- (impair) ---- veth ---- b
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use carina_api::control::DifRole;
use carina_client::FlowSpec;
use carina_measure::results::{Metric, OURS, Row};

use super::figures::{self, Bar, Spread, Words};
use super::order::{Means, System, Way};
use super::place::{Place, dif_name, wire};
use super::{CaseFound, PaperOptions, order, sizes_or};
use crate::failure::{Failure, failed};
use crate::report::progress;

/// Name of the case.
pub const CASE: &str = "impaired";
/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 2] = [OURS, "tcp"];
const PEER: &str = "carina.bench.peer";
/// A measurement takes so many times longer than elsewhere: round trips are long, and it is losses
/// that the goodput depends on, of which there must be some dozens.
const TIMES: u64 = 30;
/// Seeds and chances of everything that happens to a frame, in each direction.
const IMPAIRMENT: [&str; 8] = [
    "--loss",
    "1%",
    "--delay",
    "10ms",
    "--reorder",
    "0.5%",
    "--duplicate",
    "0.5%",
];

/// The congestion control of TCP in a network namespace.
const TCP_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Measures.
///
/// # Errors
/// No namespaces can be made, a measurement fails, or a byte was wrong.
pub fn run(options: &PaperOptions) -> Result<CaseFound, Failure> {
    progress("starting two systems and a bad network");
    let a = Place::start("a")?;
    let mut b = Place::start("b")?;
    let mut middle = Place::start("middle")?;
    wire(&a, "veth0", &middle, "left")?;
    wire(&b, "veth0", &middle, "right")?;
    let mut arguments = vec!["impair", "left", "right"];
    arguments.extend(IMPAIRMENT);
    middle.start_servant(&arguments, "impair.log")?;
    let mut is_cubic = true;
    for (place, host) in [(&a, 1), (&b, 2)] {
        let address = format!("10.78.1.{host}");
        let with_length = format!("{address}/24");
        place.ip(&["addr", "add", &with_length, "dev", "veth0"])?;
        // Of the route: kernels do not let every namespace have it for all connections. Where not
        // even that is allowed, the notes tell which it was.
        let mut cubic = vec!["route", "change", "10.78.1.0/24", "dev", "veth0"];
        cubic.extend(["proto", "kernel", "scope", "link", "src", &address]);
        cubic.extend(["congctl", "cubic"]);
        is_cubic &= place.ip(&cubic).is_ok();
        place.eth("veth0", "e", None)?;
    }
    a.member(DifRole::Create, "net", &["e"])?;
    b.member(DifRole::Join, "net", &["e"])?;
    b.start_peer(PEER)?;
    a.reaches("net", PEER)?;
    let way = Way {
        dif: dif_name("net")?,
        spec: FlowSpec::reliable(),
    };
    let mut order = order(options, PEER, way.clone())?;
    order.time_ns = options.time_ns.saturating_mul(TIMES);
    order.verify = true;
    order.sizes = sizes_or(options, &[1400]);
    let system = |name: &str, means| System {
        name: name.to_owned(),
        means,
        sdu_max: 1 << 20,
    };
    order.systems = vec![
        system(OURS, Means::Flow(way)),
        system("tcp", Means::Tcp(IpAddr::V4(Ipv4Addr::new(10, 78, 1, 2)))),
    ];
    let mut found = CaseFound::default();
    for run in 1..=options.runs {
        progress(format!("{CASE}: run {run} of {}", options.runs));
        let findings = a
            .carry_out(&order)
            .map_err(|failure| failed(format!("{failure}\n{}", b.logs())))?;
        found.add(CASE, &findings);
        for finding in &findings {
            let trial = finding.trial.as_ref();
            let bad = trial.map_or(0, |trial| trial.receiver().damaged + trial.lost());
            if bad > 0 {
                let system = &finding.system;
                return Err(failed(format!("{system}: {bad} SDUs were lost or damaged")));
            }
        }
    }
    let tcp = match is_cubic {
        true => "cubic".to_owned(),
        false => a.inside("cat", &[TCP_CONGESTION])?,
    };
    found.notes.extend([
        format!(
            "two network namespaces, a third between them that runs `carina impair {}`; a reliable \
             flow (QoS cube 3) of a normal DIF over the Ethernet shim, and TCP ({})",
            IMPAIRMENT.join(" "),
            tcp.trim()
        ),
        "every byte of every SDU was compared with what was sent; what a kernel sends in one piece \
         is cut into frames before any is lost, so that chances are those of a wire for both"
            .to_owned(),
    ]);
    Ok(found)
}

/// Draws the goodput of both at each SDU size; false when none was measured.
///
/// # Errors
/// The file cannot be written.
pub fn draw(rows: &[Row], path: &Path) -> Result<bool, Failure> {
    let of_case = |row: &&Row| row.case == CASE && row.metric == Metric::GoodputMbps;
    let bars: Vec<Bar> = rows
        .iter()
        .filter(of_case)
        .map(|row| Bar {
            label: format!("{}, {} bytes", row.system, row.sdu),
            group: row.system.clone(),
            spread: Spread::of(row),
        })
        .collect();
    if bars.is_empty() {
        return Ok(false);
    }
    let title = format!("impaired: goodput with {}", IMPAIRMENT.join(" "));
    let words = Words {
        title: &title,
        x: "system and SDU size",
        y: "goodput, Mbit/s",
    };
    figures::bars(&bars, &words, path)?;
    Ok(true)
}
