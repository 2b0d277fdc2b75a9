//! Measures large networks of namespaces on one host: how long they take until every link has
//! answered a probe, and until nothing of them is left; the memory of the agent, and its CPU time
//! while nothing passes. The comparisons make the same namespaces, links, addresses and routes.
//!
//! ```text
//!   carina    agent in this process: create --> ready --> idle --> one more link --> remove
//!   ip        a shell that runs ip(8) for each namespace and link, without probes
//!   mininet   Mininet, where it is installed: hosts and links, without routes
//! ```

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_scratch::Scratch;
use carina_sys::{CpuClock, cpu_time_ns};
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::VnetId;
use carina_vnet::layout::Layout;
use carina_vnet::report::VnetState;
use carina_vnet_host::Agent;
use carina_vnet_host::names::node_namespace;

use crate::Progress;
use crate::error::{Attempt, Error, Result};
use crate::failures::Failures;
use crate::in_namespace::within;

/// Which networks to make, how often, and how long they are idle.
#[derive(Debug, Clone)]
pub struct ScaleOptions {
    /// Number of namespaces of each network to measure. A network is a ring, with as many links as
    /// namespaces.
    pub nodes: Vec<usize>,
    /// Number of times that each network is made by each system.
    pub runs: usize,
    /// How long the CPU time of an idle network is measured.
    pub idle: Duration,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

/// Default numbers of namespaces.
pub const NODES: [usize; 3] = [100, 300, 1000];
/// Possible numbers of namespaces: a ring has three at least, and a document limits them.
pub const NODES_POSSIBLE: std::ops::RangeInclusive<usize> = 3..=2000;

const IP: &str = "ip";
const MININET: &str = "mininet";

/// The values that one system has in one run.
type Measured = Vec<(Metric, f64)>;

/// Runs the benchmark, in network and mount namespaces that this process has for itself. The
/// systems are measured in turns.
///
/// # Errors
/// Too many measurements in succession fail.
pub fn run(options: &ScaleOptions) -> Result<Results> {
    let (mut samples, mut failures) = (Samples::default(), Failures::new(options.progress));
    let mut notes = notes();
    let mut systems = vec![OURS, IP];
    let python = python_with_mininet();
    match python {
        Some(_) => systems.push(MININET),
        None => notes.push(format!(
            "mininet was not measured: {} lack the module `mininet`",
            PYTHONS.join(" and ")
        )),
    }
    for run in 1..=options.runs {
        for nodes in &options.nodes {
            for system in &systems {
                let what = format!("run {run} of {}: {system}, {nodes} nodes", options.runs);
                options.progress.step(&what);
                let measured = match *system {
                    OURS => of_agent(*nodes, options.idle),
                    IP => of_ip(*nodes),
                    _ => of_mininet(python.unwrap_or_default(), *nodes),
                };
                let Some(measured) = failures.note(&what, measured)? else {
                    continue;
                };
                for (metric, value) in measured {
                    samples.add(&format!("{nodes}/{system}"), 0, system, metric, value);
                }
            }
        }
    }
    Ok(Results {
        bench: "scale".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors: Vec::new(),
        failures: failures.into_lines(),
    })
}

fn notes() -> Vec<String> {
    vec![
        format!("{OURS}: up ends when each console and each link has answered"),
        format!(
            "{IP}: a shell loop of ip makes the same namespaces, veths, addresses and routes, and \
             probes nothing"
        ),
    ]
}

/// A ring of namespaces, with further links.
fn ring(nodes: usize, chords: &[[usize; 2]]) -> Result<Document> {
    let mut text = format!("[vnet]\nname = \"{NAME}\"\n[defaults]\nkind = \"namespace\"\n");
    for node in 0..nodes {
        let _ = writeln!(text, "[node.n{node}]");
    }
    let around = (0..nodes).map(|node| [node, (node + 1) % nodes]);
    for [one, other] in around.chain(chords.iter().copied()) {
        let _ = write!(
            text,
            "[[link]]\nends = [\"n{one}\", \"n{other}\"]\nrate = \"10Gbps\"\n"
        );
    }
    Document::read(&text, Form::Toml).map_err(|source| Error::Document {
        what: "making a document".to_owned(),
        source,
    })
}

fn of_agent(nodes: usize, idle: Duration) -> Result<Measured> {
    let directory = Scratch::new("vnet-scale")?;
    let document = ring(nodes, &[])?;
    let agent = Agent::new(&RunDir::new(directory.path())).map_err(refused)?;
    let before = resident_bytes()?;
    let began = Instant::now();
    agent.create(&document).map_err(refused)?;
    let made = wait_until_ready(&agent);
    let up = began.elapsed();
    let (bytes, cpu_ns) = (resident_bytes()?, cpu_time_ns(CpuClock::Process));
    if made.is_ok() {
        std::thread::sleep(idle);
    }
    let idle_ns = cpu_time_ns(CpuClock::Process) - cpu_ns;
    let link = made.as_ref().ok().map(|()| link_ms(&agent, nodes));
    let began = Instant::now();
    agent.remove(NAME).map_err(refused)?;
    let down = began.elapsed();
    made?;
    let link_ms = link.transpose()?;
    let grown = bytes.saturating_sub(before) as f64;
    Ok(vec![
        (Metric::UpS, up.as_secs_f64()),
        (Metric::DownS, down.as_secs_f64()),
        (
            Metric::MibPerLink,
            grown / nodes as f64 / f64::from(1 << 20),
        ),
        (
            Metric::IdlePercent,
            100.0 * idle_ns as f64 / idle.as_nanos() as f64,
        ),
        (Metric::LinkMs, link_ms.unwrap_or_default()),
    ])
}

/// Adds a link across the ring, and measures the time in ms until one end answers the other over
/// it.
fn link_ms(agent: &Agent, nodes: usize) -> Result<f64> {
    let half = nodes / 2;
    let (before, after) = (ring(nodes, &[])?, ring(nodes, &[[0, half]])?);
    let layout = Layout::of(&after, &Layout::of(&before, &Layout::default()));
    let vnet = agent.report(NAME).map_err(refused)?.vnet;
    let interfaces = layout.interfaces(vnet, &format!("n{half}"));
    let at_chord = interfaces
        .iter()
        .find(|interface| interface.link as usize == nodes);
    let Some(far) =
        at_chord.map(|at_chord| SocketAddr::from((at_chord.address.address(), DISCARD)))
    else {
        return Err(Error::NoAnswer("the layout lacks the new link".to_owned()));
    };
    let near = node_namespace(vnet, "n0");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let live = scope.spawn(|| {
            within(&near, || {
                while began.elapsed() < LIMIT {
                    // A refusal is an answer of the other end.
                    match TcpStream::connect_timeout(&far, ONCE) {
                        Err(error) if error.kind() != ErrorKind::ConnectionRefused => {}
                        _ => return Ok(began.elapsed()),
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(Error::NoAnswer(format!(
                    "no answer over a new link after {LIMIT:?}"
                )))
            })
        });
        agent.apply(&after).map_err(refused)?;
        let live = live.join().expect("the thread that waits does not panic")?;
        wait_until_ready(agent)?;
        Ok(live.as_secs_f64() * 1000.0)
    })
}

/// Waits for the network's events until it is ready.
fn wait_until_ready(agent: &Agent) -> Result<()> {
    let (deadline, mut seen) = (Instant::now() + LIMIT, 0);
    while Instant::now() < deadline {
        let events = agent.events(NAME, seen, Duration::from_secs(1));
        let last = events
            .map_err(refused)?
            .last()
            .map(|map_err| map_err.number);
        let is_over = last.is_none();
        seen = last.unwrap_or(seen);
        let asked = Instant::now();
        let report = agent.report(NAME).map_err(refused)?;
        let took = asked.elapsed();
        match report.state {
            VnetState::Ready => return Ok(()),
            VnetState::Failed => return Err(Error::NoAnswer(report.obstacles.join("; "))),
            VnetState::Degraded if is_over => {
                return Err(Error::NoAnswer(report.obstacles.join("; ")));
            }
            VnetState::Changing | VnetState::Degraded => {}
        }
        // As `carina vnet up` does.
        std::thread::sleep((4 * took).min(Duration::from_millis(500)));
    }
    Err(Error::NoAnswer(format!("not ready after {LIMIT:?}")))
}

fn refused(error: carina_vnet_host::Error) -> Error {
    Error::NoAnswer(error.to_string())
}

/// Memory of this process that is in use, in bytes. (proc(5))
fn resident_bytes() -> Result<usize> {
    let path = "/proc/self/status";
    let text = std::fs::read_to_string(path).attempt(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    let kib = kib.ok_or_else(|| Error::Proc(format!("{path}: no line VmRSS")))?;
    Ok(kib << 10)
}

fn of_ip(nodes: usize) -> Result<Measured> {
    let document = ring(nodes, &[])?;
    let layout = Layout::of(&document, &Layout::default());
    let [up, down] = scripts(&document, &layout);
    let made = timed("sh", &up);
    let removed = timed("sh", &down);
    Ok(vec![
        (Metric::UpS, made?.as_secs_f64()),
        (Metric::DownS, removed?.as_secs_f64()),
    ])
}

/// The shell scripts that make the network, and remove it.
fn scripts(document: &Document, layout: &Layout) -> [String; 2] {
    let (mut up, mut down) = ("set -e\n".to_owned(), String::new());
    for node in document.node.keys() {
        let _ = writeln!(up, "ip netns add {node}\nip -n {node} link set lo up");
        let _ = writeln!(down, "ip netns del {node}");
    }
    for (_, link) in layout.links() {
        let [a, b] = &link.ends;
        let _ = writeln!(
            up,
            "ip link add {} netns {} type veth peer {} netns {}",
            a.interface, a.node, b.interface, b.node
        );
    }
    let mut routes = layout.routes();
    for node in document.node.keys() {
        for interface in layout.interfaces(VnetId::new(0), node) {
            let (name, address) = (interface.name, interface.address);
            let _ = writeln!(
                up,
                "ip -n {node} address add {address} dev {name}\nip -n {node} link set {name} up"
            );
        }
        let _ = writeln!(up, "ip -n {node} -batch - <<END");
        for route in routes.remove(node).unwrap_or_default() {
            let _ = writeln!(up, "route add {} via {}", route.to, route.via);
        }
        up.push_str("END\n");
    }
    [up, down]
}

/// The first of [`PYTHONS`] that has the module of Mininet.
fn python_with_mininet() -> Option<&'static str> {
    PYTHONS.into_iter().find(|python| {
        let mut python = Command::new(python);
        let python = python.args(["-c", "import mininet.net"]);
        let status = python.stdin(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

/// Makes and removes a ring with Mininet, without switches and controllers.
fn of_mininet(python: &str, nodes: usize) -> Result<Measured> {
    let script = format!(
        "import time\nfrom mininet.net import Mininet\nnet = Mininet(controller=None)\n\
         began = time.monotonic()\nhosts = [net.addHost('n%d' % n) for n in range({nodes})]\n\
         for n in range({nodes}):\n    net.addLink(hosts[n], hosts[(n + 1) % {nodes}])\n\
         net.start()\nup = time.monotonic()\nnet.stop()\n\
         print(up - began, time.monotonic() - up)\n"
    );
    let mut python = Command::new(python);
    let output = python
        .args(["-c", &script])
        .output()
        .attempt("running Mininet")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match times[..] {
        [up, down] => Ok(vec![(Metric::UpS, up), (Metric::DownS, down)]),
        _ => Err(Error::Client(format!(
            "mininet: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// Runs a script that this function passes on standard input, and measures its time.
fn timed(shell: &str, script: &str) -> Result<Duration> {
    use std::io::Write as _;
    let what = || format!("running {shell}");
    let began = Instant::now();
    let mut command = Command::new(shell);
    let command = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().attempt(what())?;
    let input = child.stdin.take().expect("the standard input is a pipe");
    // If the shell ends early, its exit status says so.
    let _ = { input }.write_all(script.as_bytes());
    let output = child.wait_with_output().attempt(what())?;
    if output.status.success() {
        return Ok(began.elapsed());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(Error::Client(words.trim().to_owned()))
}

const NAME: &str = "scale";
/// Interpreters that may have the module of Mininet: the one in `PATH` may be another than the one
/// for which Debian installs its packages.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];
/// The port at which nothing listens, of the service that discards. (RFC 863)
const DISCARD: u16 = 9;
/// How long one attempt to reach the end of a new link takes, and the time between two.
const ONCE: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_micros(500);
/// Longest time until a network is ready.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_makes_what_the_layout_has() {
        let document = ring(4, &[]).unwrap();
        let layout = Layout::of(&document, &Layout::default());
        let [up, down] = scripts(&document, &layout);
        for line in [
            "ip netns add n3",
            "ip link add eth0 netns n0 type veth peer eth0 netns n1",
            "ip -n n0 address add 10.0.0.1/30 dev eth0",
            "route add 10.0.0.4/30 via 10.0.0.2",
        ] {
            assert!(
                up.lines().any(|candidate| candidate == line),
                "{line} in {up}"
            );
        }
        assert_eq!(down.lines().count(), 4);
    }

    #[test]
    fn agent_makes_a_ring_and_removes_it() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let measured = of_agent(3, Duration::from_millis(10)).unwrap();
        let metrics: Vec<Metric> = measured.iter().map(|row| row.0).collect();
        let wanted = [
            Metric::UpS,
            Metric::DownS,
            Metric::MibPerLink,
            Metric::IdlePercent,
            Metric::LinkMs,
        ];
        assert_eq!(metrics, wanted);
        assert!(measured[4].1 > 0.0, "{measured:?}");
        assert!(
            measured[..2].iter().all(|candidate| candidate.1 > 0.0),
            "{measured:?}"
        );
    }
}
