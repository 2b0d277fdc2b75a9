//! Measures many flows that are open at once through one normal DIF on one host: how fast they are
//! allocated and deallocated, and how much memory they take.
//!
//! ```text
//!   bench (client) --socket per flow-- node A ==normal DIF over UDP== node B --sockets-- server
//! ```

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carina_api::{AppName, DifName};
use carina_client::{Error as ClientError, FlowSpec, Node, Registration};
use carina_lab::{Network, TestNode};
use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_sys::{Epoll, Interest, raise_nofile_limit};
use carina_text::table::{Table, short};

use crate::Progress;
use crate::error::{Attempt, Error, Result};
use crate::peer::{app_name, client_of, dif_name};

/// How many flows the benchmark opens at the same time, how fast, and how often.
#[derive(Debug, Clone, Copy)]
pub struct FlowsOptions {
    /// Number of flows that are open at the same time.
    pub flows: usize,
    /// Number of allocations that run at the same time.
    pub concurrent: usize,
    /// Number of repetitions, each with new nodes.
    pub runs: usize,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

/// Measures how fast flows are allocated and deallocated, and how much memory and how many open
/// files they take.
///
/// # Errors
/// The limit of open files is too low, a flow is refused or dead, or a flow remains at the end.
pub fn run(options: &FlowsOptions) -> Result<Results> {
    let limit = raise_nofile_limit().attempt("raising the limit of open files")?;
    let flows = options.flows.max(1);
    if limit < (flows + OTHER_FILES) as u64 {
        return Err(Error::FileLimit {
            limit,
            flows,
            beside: OTHER_FILES,
        });
    }
    let concurrent = options.concurrent.clamp(1, CONCURRENT_MAX);
    let mut samples = Samples::default();
    for run in 1..=options.runs.max(1) {
        options.progress.step(format!("run {run}: {flows} flows"));
        one_run(flows, concurrent, &mut samples, options.progress)?;
    }
    Ok(Results {
        bench: "flows".to_owned(),
        machine: machine(),
        notes: notes(flows, concurrent, limit),
        rows: samples.rows(),
        factors: Vec::new(),
        failures: Vec::new(),
    })
}

fn notes(flows: usize, concurrent: usize, limit: u64) -> Vec<String> {
    vec![
        format!(
            "{flows} reliable flows, all open at once, through one normal DIF of two nodes over \
             UDP on the loopback interface; {concurrent} allocations under way at once"
        ),
        "two nodes, one client and one server, each in its own process".to_owned(),
        format!(
            "flows are sockets, one open file of the node and one of the application each; a \
             process may open {limit}"
        ),
        "echo: every flow once, one after the other, while all are open".to_owned(),
        "memory: resident set of the node with all flows open, less that before the first, by \
         flow; what the kernel keeps of sockets is not in it"
            .to_owned(),
        "close: from the first close until both nodes have no flow left but the N-1 flow"
            .to_owned(),
    ]
}

/// The results as a table, with a line for each metric.
pub fn table(results: &Results) -> Table {
    let mut table = Table::new(["case", "system", "metric", "median", "lowest", "highest"]);
    for row in &results.rows {
        let metric = match row.metric {
            Metric::AllocationsPerS => "flows allocated per second",
            Metric::DeallocationsPerS => "flows ended per second",
            Metric::BytesPerFlow => "bytes of memory per flow",
            Metric::FilesPerFlow => "open files per flow",
            _ => "round-trip time, µs",
        };
        let figures = [row.median, row.low, row.high].map(short);
        let words = [row.case.clone(), row.system.clone(), metric.to_owned()];
        table.row(words.into_iter().chain(figures));
    }
    table
}

/// Two nodes, a DIF and a server.
struct Setup {
    // Dropped in this order: the client's node comes first.
    nodes: [TestNode; 2],
    client: Node,
    names: [AppName; 2],
    dif: DifName,
}

impl Setup {
    fn start(flows: usize) -> Result<Self> {
        let names = [
            app_name("carina.bench.caller")?,
            app_name("carina.bench.holder")?,
        ];
        let [a, b] = free_addresses()?;
        let text = |own: SocketAddr, other: SocketAddr, peer: &str, member: &str| {
            format!(
                "[limits]\nflows_per_uid = {}\nconnections_per_uid = 4096\n\
                 flow_requests_per_app = {}\nanswer_ms = 60000\n\
                 [[ipcp]]\nname = \"below\"\ntype = \"udp\"\ndif = \"inet\"\nlisten = \"{own}\"\n\
                 [[ipcp.peers]]\nname = \"{peer}\"\naddress = \"{other}\"\n\
                 [[dif]]\nname = \"net\"\nover = [\"inet\"]\n{member}\n",
                flows + OTHER_FILES,
                2 * CONCURRENT_MAX,
            )
        };
        let first = "role = \"create\"\nipcp = \"member.b\"";
        let second = "role = \"join\"\nipcp = \"member.a\"\nvia = \"member.b\"";
        let mut called = TestNode::start(
            "flows-b",
            Network::Shared,
            Some(&text(b, a, "member.a", first)),
        )?;
        let calling = TestNode::start(
            "flows-a",
            Network::Shared,
            Some(&text(a, b, "member.b", second)),
        )?;
        let arguments = ["bench", "flows-holder", names[1].as_str()];
        called.start_child(&arguments, "peer.log")?;
        called.wait_for_name(&names[1], PATIENCE)?;
        let setup = Self {
            client: client_of(&calling)?,
            nodes: [calling, called],
            names,
            dif: dif_name("net")?,
        };
        // The name is known once the client's node has joined the DIF.
        let mut refusal = None;
        setup
            .until("a first flow", || match setup.flow() {
                Ok(flow) => exchange(&flow, 0).is_ok(),
                Err(error) => {
                    refusal = Some(error.to_string());
                    false
                }
            })
            .map_err(|error| error.with(refusal.unwrap_or_default()))?;
        setup.until("the first flow to be gone", || {
            setup.flows() == Some([1, 1])
        })?;
        Ok(setup)
    }

    fn flow(&self) -> std::result::Result<UnixDatagram, ClientError> {
        let [local, remote] = &self.names;
        let dif = Some(&self.dif);
        let flow = self
            .client
            .allocate_socket(local, remote, dif, &FlowSpec::reliable())?;
        Ok(UnixDatagram::from(flow.socket))
    }

    /// Number of flows at each node, including its N-1 flow; `None` if a node does not answer.
    fn flows(&self) -> Option<[usize; 2]> {
        let count = |node: &TestNode| Some(node.control().node().ok()?.flows as usize);
        Some([count(&self.nodes[0])?, count(&self.nodes[1])?])
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > deadline {
                let logs = self.nodes.each_ref().map(TestNode::logs).join("\n");
                let flows = self.flows();
                let what = format!("waited {PATIENCE:?} for {what}; flows: {flows:?}");
                return Err(Error::NoAnswer(what).with(logs));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn cost(&self) -> Result<[Cost; 2]> {
        Ok([
            Cost::of(self.nodes[0].pid())?,
            Cost::of(self.nodes[1].pid())?,
        ])
    }
}

/// Two free addresses of the loopback interface.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let bind = || UdpSocket::bind("127.0.0.1:0").attempt("finding a free port");
    let (a, b) = (bind()?, bind()?);
    let address = |socket: &UdpSocket| socket.local_addr().attempt("reading a port");
    Ok([address(&a)?, address(&b)?])
}

/// Resident memory and open files of a process.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Total resident memory of the process (VmRSS), in bytes.
    bytes: f64,
    /// Number of files that the process has open.
    files: f64,
}

impl Cost {
    fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let text = std::fs::read_to_string(&path).attempt(path.as_str())?;
        let resident = text.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        });
        let kib: f64 = resident.ok_or_else(|| Error::Proc(format!("{path} has no VmRSS")))?;
        let path = format!("/proc/{pid}/fd");
        let files = std::fs::read_dir(&path).attempt(path.as_str())?.count();
        Ok(Self {
            bytes: kib * 1024.0,
            files: files as f64,
        })
    }
}

fn one_run(
    flows: usize,
    concurrent: usize,
    samples: &mut Samples,
    progress: Progress,
) -> Result<()> {
    let setup = Setup::start(flows)?;
    let before = setup.cost()?;
    let start = Instant::now();
    let open = open_all(&setup, flows, concurrent)?;
    let per_s = |start: Instant| flows as f64 / start.elapsed().as_secs_f64();
    samples.add("open", 0, OURS, Metric::AllocationsPerS, per_s(start));
    let after = setup.cost()?;
    // Without this check, a node that lost a flow would seem cheap.
    if setup.flows() != Some([flows + 1; 2]) {
        return Err(Error::FlowsMissing {
            wanted: flows,
            found: setup.flows(),
        });
    }
    for (side, name) in ["node a", "node b"].into_iter().enumerate() {
        let each = |after: f64, before: f64| (after - before) / flows as f64;
        let bytes = each(after[side].bytes, before[side].bytes);
        samples.add("open", 0, name, Metric::BytesPerFlow, bytes);
        let files = each(after[side].files, before[side].files);
        samples.add("open", 0, name, Metric::FilesPerFlow, files);
    }
    progress.step("all are open; a message through each");
    let start = Instant::now();
    for (number, flow) in open.iter().enumerate() {
        exchange(flow, number).map_err(|error| error.in_case(format!("flow {number}")))?;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / flows as f64;
    samples.add("echo", MESSAGE_BYTES as u64, OURS, Metric::RttUs, us);
    let start = Instant::now();
    drop(open);
    setup.until("all flows to be gone", || setup.flows() == Some([1, 1]))?;
    samples.add("close", 0, OURS, Metric::DeallocationsPerS, per_s(start));
    Ok(())
}

/// Allocates all flows, and returns them.
fn open_all(setup: &Setup, flows: usize, concurrent: usize) -> Result<Vec<UnixDatagram>> {
    let next = AtomicUsize::new(0);
    let ask = || {
        let mut mine = Vec::with_capacity(flows.div_ceil(concurrent));
        while next.fetch_add(1, Ordering::Relaxed) < flows {
            match setup.flow() {
                Ok(flow) => mine.push(flow),
                Err(error) => return Err(error),
            }
        }
        Ok(mine)
    };
    let found: Vec<std::result::Result<Vec<UnixDatagram>, ClientError>> =
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..concurrent).map(|_| scope.spawn(ask)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.filter_map(std::result::Result::ok).collect()
        });
    let mut open = Vec::with_capacity(flows);
    for part in found {
        open.append(&mut part.attempt("allocating a flow")?);
    }
    Ok(open)
}

/// Sends a message with a number through a flow, and receives it back.
fn exchange(flow: &UnixDatagram, number: usize) -> Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    message[..8].copy_from_slice(&(number as u64).to_be_bytes());
    flow.set_read_timeout(Some(PATIENCE))
        .attempt("setting a time limit")?;
    flow.set_write_timeout(Some(PATIENCE))
        .attempt("setting a time limit")?;
    flow.send(&message).attempt("sending")?;
    let mut answer = [0; MESSAGE_BYTES + 1];
    let bytes = flow.recv(&mut answer).attempt("receiving")?;
    if answer[..bytes] == message {
        Ok(())
    } else {
        Err(Error::WrongAnswer("the bench".to_owned()))
    }
}

/// The server: accepts every flow, and sends back what it receives.
///
/// # Errors
/// The node refuses or ends.
pub fn serve(node: &Node, name: &AppName) -> Result<()> {
    raise_nofile_limit().attempt("raising the limit of open files")?;
    let dif = dif_name("net")?;
    let registered = node.register(name, Some(&dif));
    let mut registration = registered.attempt(format!("registering {name}"))?;
    let epoll = Epoll::new().attempt("making an epoll")?;
    let watched = epoll.add(registration.as_fd(), REGISTRATION, Interest::Read);
    watched.attempt("watching the registration")?;
    let mut held: BTreeMap<u64, UnixDatagram> = BTreeMap::new();
    let mut next = REGISTRATION + 1;
    let (mut ready, mut message) = (Vec::new(), vec![0; 65_536]);
    loop {
        epoll.wait(&mut ready, None).attempt("waiting")?;
        for ready in ready.iter().filter(|ready| ready.token != REGISTRATION) {
            let answered = held.get(&ready.token).is_some_and(|flow| {
                let bytes = flow.recv(&mut message).unwrap_or(0);
                bytes > 0 && flow.send(&message[..bytes]).is_ok()
            });
            if !answered {
                // The flow has ended. Closing its file removes it from the epoll.
                held.remove(&ready.token);
            }
        }
        while let Some(flow) = accept(&mut registration)? {
            let watched = epoll.add(flow.as_fd(), next, Interest::Read);
            watched.attempt("watching a flow")?;
            held.insert(next, flow);
            next += 1;
        }
    }
}

/// Accepts one requested flow; `None` if there is no request.
fn accept(registration: &mut Registration) -> Result<Option<UnixDatagram>> {
    loop {
        let Some(request) = registration
            .try_next_request()
            .attempt("reading a request")?
        else {
            return Ok(None);
        };
        match registration.accept_request_socket(&request) {
            Ok(flow) => return Ok(Some(UnixDatagram::from(flow.socket))),
            // The client gave up meanwhile.
            Err(ClientError::Refused(_)) => {}
            Err(error) => return Err(error).attempt("accepting a flow"),
        }
    }
}

/// Token of the registration. The tokens of flows follow it.
const REGISTRATION: u64 = 0;
const MESSAGE_BYTES: usize = 64;
/// Number of files that a node and an application may have open in addition to the files of flows,
/// with a margin.
const OTHER_FILES: usize = 200;
/// Largest number of flows that are requested at the same time. The nodes allow twice as many
/// unanswered requests for each application.
const CONCURRENT_MAX: usize = 256;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
