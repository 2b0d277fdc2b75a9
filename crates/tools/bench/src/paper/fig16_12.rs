//! Figure 16.12: thirteen systems in one normal DIF, with an Ethernet for each link. Measures
//! round-trip times to the server on M by the number of hops.
//!
//! ```text
//!   hops to M:  0: M   1: L K   2: J I H   3: G F E   4: D C B   5: A
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::control::DifRole;
use carina_client::{Flow, FlowSpec};
use carina_lab::{Network, TestNode};
use carina_measure::results::{Metric, Row};
use carina_measure::summary::{Summary, regression};
use carina_text::table::{Table, short};

use super::plots::{self, Labels, Point, Spread};
use super::{CaseResults, PaperOptions};
use crate::error::{Attempt, Error, Result};
use crate::peer::{app_name, client_of, dif_name};

/// Name of this case in the results and in `--cases`.
pub(super) const CASE: &str = "fig16.12";
/// Names of the systems.
pub(super) const SYSTEMS: [&str; 13] = [
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M",
];
const LINKS: [&str; 16] = [
    "AB", "AC", "BD", "BE", "CE", "CF", "DG", "EH", "FI", "GJ", "HI", "HK", "IK", "JL", "KM", "LM",
];
const SERVER: &str = "rina.apps.echotime";
/// Number of turns of each system in each run.
const ROUNDS: u64 = 20;
/// Number of pings in a turn.
const TURN: u64 = 5;
/// Time between an answer and the next ping.
const PACE: Duration = Duration::from_millis(2);
/// Time limit of an allocation and of an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Length of a ping in bytes.
const PING_BYTES: u64 = 64;

/// Runs the measurement.
///
/// # Errors
/// Namespaces cannot be made, or a system does not join or does not answer.
pub(super) fn run(options: &PaperOptions) -> Result<CaseResults> {
    let mut nodes = start(options)?;
    let server = nodes.last_mut().expect("there are thirteen systems");
    server.start_child(&["ping", "--listen", SERVER, "--quiet"], "echo.log")?;
    for node in &nodes {
        node.wait_for_name_in("net", SERVER)?;
    }
    let flows: Result<Vec<Flow>> = nodes.iter().map(flow_to_server).collect();
    let mut clients: Vec<Client> = flows?.into_iter().map(Client::new).collect();
    let mut found = CaseResults::default();
    for run in 1..=options.runs {
        options
            .progress
            .step(format!("{CASE}: run {run} of {}", options.runs));
        for _ in 0..ROUNDS {
            for (client, node) in clients.iter_mut().zip(&nodes) {
                client.take_turn(node.name())?;
            }
        }
        for (client, node) in clients.iter_mut().zip(&nodes) {
            let rtt = client.end_run();
            let samples = &mut found.samples;
            samples.add(CASE, PING_BYTES, node.name(), Metric::RttUs, rtt);
        }
    }
    found.notes = vec![format!(
        "thirteen nodes in as many network namespaces, {} links of veth pairs, one normal DIF with \
         link-state routing; {} pings of {PING_BYTES} bytes in a run over a reliable flow from \
         each system, one each {} ms; the systems take turns of {TURN} pings, so that what else \
         the machine does falls on all of them; a run's value is their median",
        LINKS.len(),
        ROUNDS * TURN,
        PACE.as_millis(),
    )];
    found.text = fit(&found.samples.rows());
    Ok(found)
}

fn start(options: &PaperOptions) -> Result<Vec<TestNode>> {
    options.progress.step("starting thirteen systems");
    let start = |name: &&str| TestNode::start(name, Network::Own, None);
    let nodes = SYSTEMS.iter().map(start);
    let nodes = nodes.collect::<carina_lab::Result<Vec<TestNode>>>()?;
    let node = |letter: &str| {
        let found = nodes.iter().find(|node| node.name() == letter);
        found.expect("every link names two of the systems")
    };
    for link in LINKS {
        let (one, other) = link.split_at(1);
        node(one).connect(link, node(other), link)?;
        node(one).add_eth(link, link)?;
        node(other).add_eth(link, link)?;
    }
    // Members join from the server outwards, so that each enrolls with an earlier one.
    for (index, node) in nodes.iter().rev().enumerate() {
        let over: Vec<&str> = LINKS
            .into_iter()
            .filter(|link| link.contains(node.name()))
            .collect();
        let role = match index {
            0 => DifRole::Create,
            _ => DifRole::Join,
        };
        node.add_member(role, "net", &over)?;
    }
    Ok(nodes)
}

fn flow_to_server(node: &TestNode) -> Result<Flow> {
    let client = client_of(node)?;
    let (local, remote) = (app_name("carina.bench")?, app_name(SERVER)?);
    let dif = dif_name("net")?;
    // The directory contains a name slightly before the DIF can allocate a flow to it.
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.allocate(&local, &remote, Some(&dif), &FlowSpec::reliable()) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            flow => break flow.attempt(format!("allocating a flow from {}", node.name())),
        }
    }
}

/// A flow to the server, over which a system pings it.
struct Client {
    flow: Flow,
    sent: u64,
    times_us: Vec<f64>,
}

impl Client {
    fn new(flow: Flow) -> Self {
        Self {
            flow,
            sent: 0,
            times_us: Vec::new(),
        }
    }

    /// Sends the pings of one turn, one after the other.
    fn take_turn(&mut self, system: &str) -> Result<()> {
        let mut answer = [0; PING_BYTES as usize];
        for _ in 0..TURN {
            std::thread::sleep(PACE);
            let mut ping = [0x5a; PING_BYTES as usize];
            ping[..8].copy_from_slice(&self.sent.to_be_bytes());
            self.sent += 1;
            let before = Instant::now();
            let sent = self.flow.send_until(&ping, before + PATIENCE);
            if !sent.attempt("sending a ping")? {
                let what = format!("{system} found no room for a ping in {PATIENCE:?}");
                return Err(Error::NoAnswer(what));
            }
            let come = self.flow.recv_timeout(&mut answer, PATIENCE);
            let time = before.elapsed();
            let Some(len) = come.attempt("waiting for an answer")? else {
                let what = format!("{system} got no answer in {PATIENCE:?}");
                return Err(Error::NoAnswer(what));
            };
            if answer[..len] != ping {
                return Err(Error::WrongAnswer(system.to_owned()));
            }
            self.times_us.push(time.as_nanos() as f64 / 1e3);
        }
        Ok(())
    }

    /// The median of the round-trip times of the run, in microseconds.
    fn end_run(&mut self) -> f64 {
        let times = std::mem::take(&mut self.times_us);
        Summary::of(&times).expect("a run has pings").p50
    }
}

/// Number of hops from each system to the server.
fn hops() -> BTreeMap<&'static str, usize> {
    let mut hops = BTreeMap::from([("M", 0)]);
    let mut queue = VecDeque::from(["M"]);
    while let Some(at) = queue.pop_front() {
        let so_far = hops[at];
        for link in LINKS.into_iter().filter(|link| link.contains(at)) {
            let (one, other) = link.split_at(1);
            let next = if one == at { other } else { one };
            if !hops.contains_key(next) {
                hops.insert(next, so_far + 1);
                queue.push_back(next);
            }
        }
    }
    hops
}

/// Draws the round-trip time of every system over its number of hops, and the least-squares line.
/// Returns false if none was measured.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(rows: &[Row], path: &Path) -> Result<bool> {
    let hops = hops();
    let point = |row: &Row| {
        (row.case == CASE && row.metric == Metric::RttUs).then_some(())?;
        Some(Point {
            name: row.system.clone(),
            x: *hops.get(row.system.as_str())? as f64,
            spread: Spread::of(row),
        })
    };
    let points: Vec<Point> = rows.iter().filter_map(point).collect();
    if points.is_empty() {
        return Ok(false);
    }
    let labels = Labels {
        title: "fig16.12: round-trip time to M; median, range of the runs, line through all",
        x: "hops",
        y: "round-trip time, µs",
    };
    plots::points(&points, &labels, path)?;
    Ok(true)
}

/// The least-squares line of round-trip time by hops, and the deviation of each system from it, as
/// text.
fn fit(rows: &[Row]) -> String {
    let hops = hops();
    let points: Vec<(&str, f64, f64)> = rows
        .iter()
        .filter_map(|row| {
            let hops = *hops.get(row.system.as_str())?;
            Some((row.system.as_str(), hops as f64, row.median))
        })
        .collect();
    let plane: Vec<(f64, f64)> = points.iter().map(|(_, x, y)| (*x, *y)).collect();
    let Some((slope, intercept)) = regression(&plane) else {
        return String::new();
    };
    let mut table = Table::new(["SYSTEM", "HOPS", "RTT µs", "LINE µs", "RESIDUAL µs"]);
    let mut sorted = points.clone();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(b.0)));
    for (system, x, y) in sorted {
        let line = intercept + slope * x;
        let cells = [short(x), short(y), short(line), short(y - line)];
        table.row([system.to_owned()].into_iter().chain(cells));
    }
    let mean = plane.iter().map(|p| p.1).sum::<f64>() / plane.len() as f64;
    let off: f64 = plane
        .iter()
        .map(|(x, y)| (y - intercept - slope * x).powi(2))
        .sum();
    let spread: f64 = plane.iter().map(|(_, y)| (y - mean).powi(2)).sum();
    let mut text = String::new();
    let _ = write!(
        text,
        "{CASE}: round-trip time = {} µs + {} µs per hop; r² {:.3}\n{table}",
        short(intercept),
        short(slope),
        1.0 - off / spread.max(f64::MIN_POSITIVE)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use carina_measure::results::Samples;

    #[test]
    fn systems_are_as_far_as_the_picture_says() {
        let hops = hops();
        assert_eq!(hops.len(), SYSTEMS.len());
        for (system, want) in [("L", 1), ("I", 2), ("E", 3), ("B", 4), ("A", 5)] {
            assert_eq!(hops[system], want, "{system}");
        }
    }

    #[test]
    fn line_goes_through_times_that_grow_with_hops() {
        let mut samples = Samples::default();
        for (system, hops) in hops() {
            let rtt = 10.0 + 20.0 * hops as f64;
            samples.add(CASE, 64, system, Metric::RttUs, rtt);
        }
        let text = fit(&samples.rows());
        assert!(
            text.contains("10.0 µs + 20.0 µs per hop; r² 1.000"),
            "{text}"
        );
    }
}
