//! Measures a reliable flow through a network that loses, delays, reorders and duplicates frames;
//! TCP through the same network is the comparison. Every byte is checked.
//!
//! ```text
//!   a ---- veth ---- (impair) ---- veth ---- b
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use carina_api::control::DifRole;
use carina_client::FlowSpec;
use carina_lab::{Network, TestNode};
use carina_measure::results::{Metric, OURS, Row};

use super::client::client_on;
use super::plots::{self, Bar, Labels, Spread};
use super::request::{FlowTarget, System, TransportSpec};
use super::{CaseResults, PaperOptions, request, sizes_or};
use crate::error::{Error, Result};
use crate::peer::{app_name, dif_name, start_peer};

/// Name of this case in the results and in `--cases`.
pub(super) const CASE: &str = "impaired";
/// The systems in the order of the tables.
pub(super) const SYSTEMS: [&str; 2] = [OURS, "tcp"];
const PEER: &str = "carina.bench.peer";
/// Factor by which a measurement takes longer than in other cases. Round trips are long, and the
/// goodput depends on losses, of which there must be some dozens.
const TIMES: u64 = 30;
/// Options of `carina impair`: seed and probabilities for every frame, in each direction.
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

/// Time limit for reading the file [`TCP_CONGESTION`].
const READ: Duration = Duration::from_secs(20);
/// File with the congestion control of TCP in a network namespace.
const TCP_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Runs the measurement.
///
/// # Errors
/// Namespaces cannot be made, a measurement fails, or a byte was wrong.
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
pub(super) fn run(options: &PaperOptions) -> Result<CaseResults> {
    options
        .progress
        .step("starting two systems and a bad network");
    let a = TestNode::start("a", Network::Own, None)?;
    let mut b = TestNode::start("b", Network::Own, None)?;
    let mut middle = TestNode::start("middle", Network::Own, None)?;
    a.connect("veth0", &middle, "left")?;
    b.connect("veth0", &middle, "right")?;
    let mut arguments = vec!["impair", "left", "right"];
    arguments.extend(IMPAIRMENT);
    middle.start_child(&arguments, "impair.log")?;
    let mut is_cubic = true;
    for (node, host) in [(&a, 1), (&b, 2)] {
        let address = format!("10.78.1.{host}");
        let with_length = format!("{address}/24");
        node.ip(&["addr", "add", &with_length, "dev", "veth0"])?;
        // It is set for the route, because not all kernels allow a namespace to set it for all
        // connections. If that is not allowed either, the notes name the one in use.
        let mut cubic = vec!["route", "change", "10.78.1.0/24", "dev", "veth0"];
        cubic.extend(["proto", "kernel", "scope", "link", "src", &address]);
        cubic.extend(["congctl", "cubic"]);
        is_cubic &= node.ip(&cubic).is_ok();
        node.add_eth("veth0", "e")?;
    }
    a.add_member(DifRole::Create, "net", &["e"])?;
    b.add_member(DifRole::Join, "net", &["e"])?;
    start_peer(&mut b, &app_name(PEER)?)?;
    a.wait_for_name_in("net", PEER)?;
    let target = FlowTarget {
        dif: dif_name("net")?,
        spec: FlowSpec::reliable(),
    };
    let mut request = request(options, PEER, target.clone())?;
    request.time_ns = options.time_ns.saturating_mul(TIMES);
    request.verify = true;
    request.sizes = sizes_or(options, &[1400]);
    let system = |name: &str, transport| System {
        name: name.to_owned(),
        transport,
        sdu_max: 1 << 20,
    };
    request.systems = vec![
        system(OURS, TransportSpec::Flow(target)),
        system(
            "tcp",
            TransportSpec::Tcp(IpAddr::V4(Ipv4Addr::new(10, 78, 1, 2))),
        ),
    ];
    let mut found = CaseResults::default();
    for run in 1..=options.runs {
        options
            .progress
            .step(format!("{CASE}: run {run} of {}", options.runs));
        let measured = client_on(&a, &request).map_err(|error| error.with(b.logs()));
        for measurement in measured.iter().flatten() {
            let trial = measurement.trial.as_ref();
            let bad = trial.map_or(0, |trial| trial.receiver().damaged + trial.lost());
            if bad > 0 {
                let system = measurement.system.clone();
                let damaged = Error::Damaged { system, sdus: bad };
                found.fail(format!("run {run}: {damaged}"), options.progress);
            }
        }
        if !found.add_run(CASE, run, measured, options.progress) {
            break;
        }
    }
    let tcp = if is_cubic {
        "cubic".to_owned()
    } else {
        a.run("cat", &[TCP_CONGESTION], READ)?
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

/// Draws the goodput of both systems at each SDU size. Returns false if none was measured.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(rows: &[Row], path: &Path) -> Result<bool> {
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
    let labels = Labels {
        title: &title,
        x: "system and SDU size",
        y: "goodput, Mbit/s",
    };
    plots::bars(&bars, &labels, path)?;
    Ok(true)
}
