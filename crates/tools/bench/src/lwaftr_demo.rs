//! The demonstration `carina lwaftr demo`: a customer, an AFTR and a host of the Internet on one
//! machine, with traffic between them.
//!
//! ```text
//!   customer                             aftr                        internet
//!   TCP, UDP - b4 - tunnel of apps == wan --- inside  lwaftr  outside --- far0 - TCP, UDP
//! ```
//!
//! Each is a network namespace with the kernel's network stack. The customer's tunnel is a graph of
//! apps, because not every kernel has such a tunnel.

use std::path::Path;
use std::time::{Duration, Instant};

use carina_measure::figure::{Axes, Line, Point, draw_lines};
use carina_measure::results::{Metric, Results, Row, Samples, machine};
use carina_namespaces::Namespace;
use carina_scratch::Scratch;
use serde::Serialize;

use self::traffic::{fetch, send_datagrams};
use crate::Progress;
use crate::error::{Attempt, Error, Result};
use crate::program::Program;

mod traffic;

/// What the demonstration has shown: a fetched page, the AFTR's counters, and the goodput of UDP.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Length of the page that was fetched through the AFTR and arrived unchanged, in bytes.
    pub page_bytes: usize,
    /// Time to fetch the page, in milliseconds.
    pub page_ms: f64,
    /// Counters of the AFTR that are not 0.
    pub counters: serde_json::Value,
    /// Goodput of UDP for each payload size, in both directions.
    pub rates: Results,
}

/// The namespaces and processes of the demonstration. Dropping the value ends all of them.
#[derive(Debug)]
pub struct LwaftrDemo {
    // Processes are dropped before the namespaces.
    aftr: Program,
    _b4: Program,
    _namespaces: [Namespace; 3],
    progress: Progress,
    _scratch: Scratch,
}

/// Payload sizes of UDP in bytes; with the last one a packet has the MTU of IPv6.
const SIZES: [u64; 6] = [64, 256, 512, 1024, 1400, 1432];

/// Names of the two directions in the results.
pub const SYSTEMS: [&str; 2] = ["to-customer", "to-internet"];

/// Names of the namespaces of customer and Internet host.
const AT_CUSTOMER: &str = "customer";
const AT_INTERNET: &str = "internet";

/// IPv4 addresses of customer and Internet host.
const CUSTOMER: &str = "192.0.2.1";
const INTERNET: &str = "198.51.100.7";

const CONF: &str = include_str!("../../../../examples/lwaftr/lwaftr.conf");
const B4: &str = include_str!("../../../../examples/lwaftr/b4.toml");

/// Time limit for everything that may not end by itself.
const PATIENCE: Duration = Duration::from_secs(60);

impl LwaftrDemo {
    /// Makes the namespaces, and starts the processes in them.
    ///
    /// # Errors
    /// Something is missing or does not start.
    pub fn start(progress: Progress) -> Result<LwaftrDemo> {
        progress.step("making a customer, an AFTR and a host of the Internet: three namespaces");
        let scratch = Scratch::new(&format!("lwaftr-demo-{}", std::process::id()))?;
        let (customer, between, internet) = (
            Namespace::new(AT_CUSTOMER)?,
            Namespace::new("aftr")?,
            Namespace::new(AT_INTERNET)?,
        );
        customer.connect("wan", &between, "inside")?;
        internet.connect("far0", &between, "outside")?;
        // Carina's apps have MAC addresses of their own, so the interfaces must accept those too.
        words(&customer, "link set wan promisc on mtu 1600")?;
        words(&between, "link set inside promisc on mtu 1600")?;
        words(&between, "link set outside promisc on")?;
        words(&internet, &format!("address add {INTERNET}/32 dev far0"))?;
        words(&internet, "route add 198.51.100.1 dev far0")?;
        let route = format!("route add {CUSTOMER} via 198.51.100.1 dev far0");
        words(&internet, &route)?;
        let file = |name: &str, text: &str| -> Result<String> {
            let path = scratch.path().join(name);
            std::fs::write(&path, text).attempt(format!("writing {name}"))?;
            Ok(path.to_string_lossy().into_owned())
        };
        let (conf, graph) = (file("lwaftr.conf", CONF)?, file("b4.toml", B4)?);
        progress.step("starting the customer's tunnel: carina graph run b4.toml");
        let run = scratch.path();
        let b4 = Program::start_in(Some(&customer), run, &["graph", "run", &graph])?;
        progress.step("starting the AFTR: carina lwaftr run --conf lwaftr.conf");
        let line = [
            "--json", "lwaftr", "run", "--conf", &conf, "--v4", "outside", "--v6", "inside",
        ];
        let mut aftr = Program::start_in(Some(&between), run, &line)?;
        aftr.wait_for("1 softwires", PATIENCE)?;
        let end = Instant::now() + PATIENCE;
        while let Err(error) = words(&customer, "link set b4 up") {
            if Instant::now() > end {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        words(&customer, &format!("address add {CUSTOMER}/32 dev b4"))?;
        words(&customer, "route add default dev b4")?;
        Ok(LwaftrDemo {
            aftr,
            _b4: b4,
            _namespaces: [customer, between, internet],
            progress,
            _scratch: scratch,
        })
    }

    /// Fetches a page, measures UDP, and ends everything. Each size is sent for `time`, in each of
    /// `runs` runs.
    ///
    /// # Errors
    /// Traffic does not pass.
    pub fn show(self, runs: usize, time: Duration) -> Result<Report> {
        self.progress
            .step("the customer fetches a page from the Internet");
        let start = Instant::now();
        let page_bytes = fetch(AT_CUSTOMER, AT_INTERNET, INTERNET, PATIENCE)?;
        let page_ms = start.elapsed().as_secs_f64() * 1e3;
        let mut samples = Samples::default();
        for run in 1..=runs {
            self.progress
                .step(format!("run {run} of {runs}: UDP by size, both ways"));
            for size in SIZES {
                let ways = [
                    (AT_INTERNET, AT_CUSTOMER, CUSTOMER),
                    (AT_CUSTOMER, AT_INTERNET, INTERNET),
                ];
                for (system, (from, to, address)) in SYSTEMS.into_iter().zip(ways) {
                    let mbps = send_datagrams(from, to, address, size as usize, time)?;
                    samples.add(CASE, size, system, Metric::GoodputMbps, mbps);
                }
            }
        }
        self.progress
            .step("stopping the AFTR, which prints its counters");
        let LwaftrDemo { aftr, .. } = self;
        let json = aftr.end()?;
        let counters = serde_json::from_str(&json).attempt("reading the AFTR's counters")?;
        Ok(Report {
            page_bytes,
            page_ms,
            counters,
            rates: Results {
                bench: "lwaftr-demo".to_owned(),
                machine: machine(),
                notes: vec![
                    "goodput of one sender of UDP, as its receiver has it; all is on one machine"
                        .to_owned(),
                ],
                rows: samples.rows(),
                factors: Vec::new(),
                failures: Vec::new(),
            },
        })
    }
}

/// Name of the case in the rows of the results.
pub const CASE: &str = "udp";

fn words(namespace: &Namespace, line: &str) -> Result<()> {
    Ok(namespace.ip(&line.split(' ').collect::<Vec<_>>())?)
}

/// Draws goodput over the size of payloads.
///
/// # Errors
/// The file cannot be written, or nothing was measured.
pub fn draw(rates: &Results, path: &Path) -> Result<()> {
    let line = |system: &str| {
        let rows = rates.rows.iter().filter(|row| row.system == system);
        let point = |row: &Row| Point {
            x: row.sdu as f64,
            y: row.mean,
            spread: row.ci95,
        };
        Line {
            label: system.to_owned(),
            points: rows.map(point).collect(),
        }
    };
    let axes = Axes {
        title: "UDP through an AFTR by payload (95 % confidence)",
        x: "payload, bytes",
        y: "goodput, Mb/s",
        x_max: SIZES[SIZES.len() - 1] as f64,
        has_regression: false,
    };
    Ok(draw_lines(&SYSTEMS.map(line), &axes, path)?)
}

/// The error that nothing arrived.
fn nothing(what: &str) -> Error {
    Error::NoAnswer(format!("{what}: nothing came through the AFTR"))
}
