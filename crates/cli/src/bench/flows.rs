//! Many flows open at once through one normal DIF of one host: how quickly they come and go, and
//! what they cost in memory.
//!
//! ```text
//!   bench (client) --socket per flow-- node A ==normal DIF over UDP== node B --sockets-- server
//! ```

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carina_api::{AppName, DifName};
use carina_client::{Error, FlowSpec, Node, Registration};
use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_measure::table::{Table, short};
use carina_sys::{Epoll, Interest, raise_nofile_limit};

use super::household::Household;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::report::{print_json, print_line, progress};

/// Options of `carina bench flows`.
#[derive(Debug, Clone, clap::Args)]
pub struct FlowsArgs {
    /// How many flows are open at once
    #[arg(long, default_value_t = 10_000)]
    flows: usize,
    /// How many allocations are under way at once
    #[arg(long, default_value_t = 16)]
    askers: usize,
    /// How often everything is repeated, each time with new nodes
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// Runs the bench and shows what it found.
///
/// # Errors
/// Too few open files are allowed, a flow is refused or dead, or something stays.
pub fn run(shared: &Shared, args: &FlowsArgs) -> Outcome {
    let limit = raise_nofile_limit().attempt("raising the limit of open files")?;
    let flows = args.flows.max(1);
    if limit < (flows + FILES_BESIDE) as u64 {
        return Err(usage(format!(
            "a process may open {limit} files here; {flows} flows need one each and \
             {FILES_BESIDE} beside (the hard limit, ulimit -Hn)"
        )));
    }
    let mut samples = Samples::default();
    for run in 1..=args.runs.max(1) {
        progress(format!("run {run}: {flows} flows"));
        one_run(flows, args.askers.clamp(1, ASKERS_MAX), &mut samples)?;
    }
    let results = Results {
        bench: "flows".to_owned(),
        machine: machine(),
        notes: notes(flows, args.askers.clamp(1, ASKERS_MAX), limit),
        rows: samples.rows(),
    };
    if shared.json {
        return print_json(&results);
    }
    print_line(format!("{}\n\n{}\n", results.machine, table(&results)))?;
    results
        .notes
        .iter()
        .try_for_each(|n| print_line(format!("- {n}")))
}

fn notes(flows: usize, askers: usize, limit: u64) -> Vec<String> {
    vec![
        format!(
            "{flows} reliable flows, all open at once, through one normal DIF of two nodes over \
             UDP on the loopback interface; {askers} allocations under way at once"
        ),
        "two nodes, one client, one server: each a process of its own".to_owned(),
        format!(
            "flows are sockets, one open file of the node and one of the application each; a \
             process may open {limit}"
        ),
        "echo: every flow once, one after the other, while all are open".to_owned(),
        "memory: resident set of the node with all flows open, less that before the first, by \
         flow; what the kernel keeps of sockets is not in it"
            .to_owned(),
        "close: from the first close until neither node has a flow left beside its N-1 flow"
            .to_owned(),
    ]
}

fn table(results: &Results) -> Table {
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
struct Stage {
    // The client's side goes first.
    nodes: [Household; 2],
    client: Node,
    names: [AppName; 2],
    dif: DifName,
}

impl Stage {
    fn set(flows: usize) -> Result<Self, Failure> {
        let name = |text: &str| AppName::new(text).attempt("naming a side of the bench");
        let names = [name("carina.bench.caller")?, name("carina.bench.holder")?];
        let [a, b] = free_addresses()?;
        let text = |own: SocketAddr, other: SocketAddr, peer: &str, member: &str| {
            format!(
                "[limits]\nflows_per_uid = {}\nconnections_per_uid = 4096\n\
                 flow_requests_per_app = {}\nanswer_ms = 60000\n\
                 [[ipcp]]\nname = \"below\"\ntype = \"udp\"\ndif = \"inet\"\nlisten = \"{own}\"\n\
                 [[ipcp.peers]]\nname = \"{peer}\"\naddress = \"{other}\"\n\
                 [[dif]]\nname = \"net\"\nover = [\"inet\"]\n{member}\n",
                flows + FILES_BESIDE,
                2 * ASKERS_MAX,
            )
        };
        let first = "role = \"create\"\nipcp = \"member.b\"";
        let second = "role = \"join\"\nipcp = \"member.a\"\nvia = \"member.b\"";
        let mut called = Household::start_with("flows-b", &text(b, a, "member.a", first))?;
        let calling = Household::start_with("flows-a", &text(a, b, "member.b", second))?;
        let arguments = ["bench", "flows-holder", names[1].as_str()];
        called.start_servant(&arguments, "peer.log")?;
        called.wait_for_name(&names[1], PATIENCE)?;
        let stage = Self {
            client: calling.node()?,
            nodes: [calling, called],
            names,
            dif: DifName::new("net").attempt("naming the DIF")?,
        };
        // The name is known as soon as the client's side has joined.
        let mut refusal = None;
        stage
            .until("a first flow", || match stage.flow() {
                Ok(flow) => exchange(&flow, 0).is_ok(),
                Err(error) => {
                    refusal = Some(error.to_string());
                    false
                }
            })
            .map_err(|failure| failed(format!("{failure}\n{}", refusal.unwrap_or_default())))?;
        stage.until("the first flow to be gone", || {
            stage.flows() == Some([1, 1])
        })?;
        Ok(stage)
    }

    fn flow(&self) -> Result<UnixDatagram, Error> {
        let [local, remote] = &self.names;
        let dif = Some(&self.dif);
        let flow = self
            .client
            .allocate_socket(local, remote, dif, &FlowSpec::reliable())?;
        Ok(UnixDatagram::from(flow.socket))
    }

    /// How many flows each node has, its N-1 flow among them.
    fn flows(&self) -> Option<[usize; 2]> {
        let count = |node: &Household| Some(node.control().node().ok()?.flows as usize);
        Some([count(&self.nodes[0])?, count(&self.nodes[1])?])
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > deadline {
                let logs = self.nodes.each_ref().map(Household::logs).join("\n");
                let flows = self.flows();
                return Err(failed(format!(
                    "waited {PATIENCE:?} for {what}; flows: {flows:?}\n{logs}"
                )));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn cost(&self) -> Result<[Cost; 2], Failure> {
        Ok([
            Cost::of(self.nodes[0].pid())?,
            Cost::of(self.nodes[1].pid())?,
        ])
    }
}

/// Two free addresses of the loopback interface.
fn free_addresses() -> Result<[SocketAddr; 2], Failure> {
    let bind = || UdpSocket::bind("127.0.0.1:0").attempt("finding a free port");
    let (a, b) = (bind()?, bind()?);
    let address = |socket: &UdpSocket| socket.local_addr().attempt("reading a port");
    Ok([address(&a)?, address(&b)?])
}

/// What a process takes.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Resident bytes.
    bytes: f64,
    files: f64,
}

impl Cost {
    fn of(pid: u32) -> Result<Self, Failure> {
        let path = format!("/proc/{pid}/status");
        let text = std::fs::read_to_string(&path).attempt(&path)?;
        let resident = text.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        });
        let kib: f64 = resident.ok_or_else(|| failed(format!("{path} has no VmRSS")))?;
        let path = format!("/proc/{pid}/fd");
        let files = std::fs::read_dir(&path).attempt(&path)?.count();
        Ok(Self {
            bytes: kib * 1024.0,
            files: files as f64,
        })
    }
}

fn one_run(flows: usize, askers: usize, samples: &mut Samples) -> Outcome {
    let stage = Stage::set(flows)?;
    let before = stage.cost()?;
    let start = Instant::now();
    let open = open_all(&stage, flows, askers)?;
    let per_s = |start: Instant| flows as f64 / start.elapsed().as_secs_f64();
    samples.add("open", 0, OURS, Metric::AllocationsPerS, per_s(start));
    let after = stage.cost()?;
    // A node that lost a flow would look cheap.
    if stage.flows() != Some([flows + 1; 2]) {
        return Err(failed(format!(
            "{flows} flows are open, the nodes have {:?}",
            stage.flows()
        )));
    }
    for (side, name) in ["node a", "node b"].into_iter().enumerate() {
        let each = |after: f64, before: f64| (after - before) / flows as f64;
        let bytes = each(after[side].bytes, before[side].bytes);
        samples.add("open", 0, name, Metric::BytesPerFlow, bytes);
        let files = each(after[side].files, before[side].files);
        samples.add("open", 0, name, Metric::FilesPerFlow, files);
    }
    progress("all are open; a message through each");
    let start = Instant::now();
    for (number, flow) in open.iter().enumerate() {
        exchange(flow, number).map_err(|why| failed(format!("flow {number}: {why}")))?;
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / flows as f64;
    samples.add("echo", MESSAGE_BYTES as u64, OURS, Metric::RttUs, us);
    let start = Instant::now();
    drop(open);
    stage.until("all flows to be gone", || stage.flows() == Some([1, 1]))?;
    samples.add("close", 0, OURS, Metric::DeallocationsPerS, per_s(start));
    Ok(())
}

/// Opens all flows and keeps them.
fn open_all(stage: &Stage, flows: usize, askers: usize) -> Result<Vec<UnixDatagram>, Failure> {
    let next = AtomicUsize::new(0);
    let ask = || {
        let mut mine = Vec::with_capacity(flows.div_ceil(askers));
        while next.fetch_add(1, Ordering::Relaxed) < flows {
            match stage.flow() {
                Ok(flow) => mine.push(flow),
                Err(error) => return Err(error),
            }
        }
        Ok(mine)
    };
    let found: Vec<Result<Vec<UnixDatagram>, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..askers).map(|_| scope.spawn(ask)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.filter_map(Result::ok).collect()
    });
    let mut open = Vec::with_capacity(flows);
    for part in found {
        open.append(&mut part.attempt("allocating a flow")?);
    }
    Ok(open)
}

/// Sends a message of its own through a flow and hears it back.
fn exchange(flow: &UnixDatagram, number: usize) -> Result<(), String> {
    let why = |error: &dyn Display| error.to_string();
    let mut message = [0; MESSAGE_BYTES];
    message[..8].copy_from_slice(&(number as u64).to_be_bytes());
    flow.set_read_timeout(Some(PATIENCE)).map_err(|e| why(&e))?;
    flow.send(&message).map_err(|e| why(&e))?;
    let mut answer = [0; MESSAGE_BYTES + 1];
    let bytes = flow.recv(&mut answer).map_err(|e| why(&e))?;
    if answer[..bytes] != message {
        return Err("the answer is not what was sent".to_owned());
    }
    Ok(())
}

/// The server: accepts every flow and sends back what comes.
///
/// # Errors
/// The node refuses or ends.
pub fn hold(shared: &Shared, name: &AppName) -> Outcome {
    raise_nofile_limit().attempt("raising the limit of open files")?;
    let dif = DifName::new("net").attempt("naming the DIF")?;
    let registered = shared.node()?.register(name, Some(&dif));
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
                // Over: the file that closes leaves the epoll.
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

/// Accepts one flow that somebody asks for, if there is one.
fn accept(registration: &mut Registration) -> Result<Option<UnixDatagram>, Failure> {
    loop {
        let Some(request) = registration
            .try_next_request()
            .attempt("reading a request")?
        else {
            return Ok(None);
        };
        match registration.accept_request_socket(&request) {
            Ok(flow) => return Ok(Some(UnixDatagram::from(flow.socket))),
            // Who asked gave up meanwhile.
            Err(Error::Refused(_)) => {}
            Err(error) => return Err(failed(format!("accepting a flow: {error}"))),
        }
    }
}

/// Token of the registration; flows are counted from the next.
const REGISTRATION: u64 = 0;
const MESSAGE_BYTES: usize = 64;
/// Open files of a node and an application beside those of flows, generously.
const FILES_BESIDE: usize = 200;
/// The server may leave twice as many requests unanswered.
const ASKERS_MAX: usize = 256;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
