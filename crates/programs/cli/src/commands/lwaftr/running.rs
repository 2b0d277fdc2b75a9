//! `carina lwaftr run` and `carina lwaftr query`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use carina_frame_engine::counter_file;
use carina_lwaftr::channel::Server;
use carina_nfv::port::PortSpec;
use carina_sys::ReloadSignal;
use carina_text::duration::parse_ns;
use carina_text::table::Table as Shown;
use carina_time::Duration;
use serde_json::{Map, Value, json};

use self::counts::of_all_workers;
use self::graph::APP;
use self::process::Process;
use super::config::socket_of;
use super::{Behaviour, load};
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::file_watch::FileWatch;
use crate::graph_directory::{OwnCounters, entries};
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line};

mod claims;
mod counts;
mod graph;
mod process;

/// Options of `carina lwaftr run`: the configuration, the ports, and the threads that forward
/// packets.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// File of the configuration: text of snabb-softwire or ietf-softwire-br, or the output of
    /// lwaftr compile
    #[arg(short, long, value_name = "FILE")]
    conf: PathBuf,
    /// Port towards the IPv4 Internet, such as eth1
    #[arg(long, value_name = "PORT", requires = "v6")]
    v4: Option<PortSpec>,
    /// Port towards the IPv6 access network, such as eth2
    #[arg(long, value_name = "PORT", requires = "v4")]
    v6: Option<PortSpec>,
    /// Port for both sides, on one segment, in place of --v4 and --v6
    #[arg(long, value_name = "PORT", conflicts_with_all = ["v4", "v6"])]
    on_a_stick: Option<PortSpec>,
    /// Port that gets copies of the packets chosen by `carina lwaftr monitor`, such as tap:mirror
    /// [default: no copies]
    #[arg(long, value_name = "PORT")]
    mirror: Option<PortSpec>,
    /// Rules for the cases in which the RFCs and Snabb's lwAFTR differ
    #[arg(long = "as", value_enum, default_value_t = Behaviour::Rfc)]
    behaviour: Behaviour,
    /// Run for this time, such as 10s [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_ns)]
    time: Option<u64>,
    /// Number of workers (threads) that forward packets [default: one per queue of the
    /// configuration]
    ///
    /// The addresses of a packet decide which worker forwards it. Worker N uses queue N of the
    /// configuration; if there are more workers than queues, the queues are used again in turn.
    /// With two or more workers, one additional thread runs the ports.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    workers: Option<u16>,
    /// Processors to run on, by number from 0 [default: any]
    ///
    /// With one worker: the processor of the worker. With several workers: the first number is the
    /// processor of the thread that runs the ports, and each further number is the processor of one
    /// worker.
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    cpu: Vec<usize>,
    /// Number of frames that the buffer pool of each thread holds
    #[arg(long, default_value_t = 16_384)]
    frames: usize,
    /// Longest packet that is reassembled from fragments, in bytes
    #[arg(long, default_value_t = 10_240)]
    longest: usize,
}

impl RunArgs {
    /// The ports, each with the name of its side.
    fn ports(&self) -> Result<Vec<(&'static str, &PortSpec)>, Failure> {
        match (&self.v4, &self.v6, &self.on_a_stick) {
            (Some(v4), Some(v6), _) => Ok(vec![("external", v4), ("internal", v6)]),
            (_, _, Some(stick)) => Ok(vec![("stick", stick)]),
            _ => Err(usage("needs --v4 PORT and --v6 PORT, or --on-a-stick PORT")),
        }
    }
}

/// Largest number of workers: one less than the threads of a graph, because one thread runs the
/// ports.
const WORKERS_MAX: i64 = carina_frame_engine::WORKERS_MAX as i64 - 1;

/// Runs an AFTR until a signal, a client or the time limit ends it, and prints its counters.
pub(super) fn run(shared: &Shared, args: &RunArgs) -> Outcome {
    let interrupt = Interrupt::take().attempt("taking signals")?;
    let reload = ReloadSignal::new().attempt("taking SIGHUP")?;
    let mut watch = FileWatch::new(&args.conf);
    let counters = OwnCounters::of_process(shared, APP)?;
    // A client that finds the counter file can connect to the socket, so the socket comes first.
    let socket = socket_of(&counters);
    let server = Server::bind(&socket).attempt(format!("listening at {}", socket.display()))?;
    let mut process = Process::start(args, &counters)?;
    let begin = Instant::now();
    let limit = args.time.unwrap_or(u64::MAX);
    while !process.has_ended() {
        let passed = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if passed >= limit || interrupt.is_pending().attempt("signals")? {
            break;
        }
        let slice = Duration::from_nanos(limit - passed).min(SLICE);
        process.run_until(server.request_event(), slice)?;
        while let Some(asked) = server.poll() {
            process.answer(asked);
        }
        if watch.is_due(reload.has_come().attempt("SIGHUP")?) {
            process.follow();
        }
        process.watch_alarms();
    }
    let counts = read_counts(&counters, "")?;
    show(shared, &counts)
}

/// Reads the counters in `file` that are not 0 and whose names contain `part`.
fn read_counts(file: &Path, part: &str) -> Result<Vec<(String, u64)>, Failure> {
    let readings = counter_file::read(file).attempt("reading counters")?;
    let all = of_all_workers(&readings).into_iter();
    let wanted = all.filter(|(name, value)| *value > 0 && name.contains(part));
    Ok(wanted.collect())
}

fn show(shared: &Shared, counts: &[(String, u64)]) -> Outcome {
    if shared.json {
        return print_json(&as_json(counts));
    }
    let mut table = Shown::new(["counter", "value"]);
    for (name, value) in counts {
        table.row([name.clone(), value.to_string()]);
    }
    print_line(table)
}

fn as_json(counts: &[(String, u64)]) -> Value {
    let all: Map<String, Value> = counts
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    Value::Object(all)
}

/// Prints, for each running AFTR, the counters that are not 0 and whose names contain `part`.
///
/// # Errors
///
/// No AFTR runs, or its counters cannot be read or printed.
pub(super) fn query(shared: &Shared, part: &str) -> Outcome {
    let mut found = Vec::new();
    for entry in entries(shared.run_dir().path()) {
        if entry.name.starts_with("lwaftr-") {
            found.push((entry.name, read_counts(&entry.counters, part)?));
        }
    }
    if found.is_empty() {
        return Err(failed(format!(
            "no running AFTR keeps its counters in {}",
            shared.run_dir().path().display()
        )));
    }
    if shared.json {
        let all: Map<String, Value> = found
            .iter()
            .map(|(name, counts)| (name.clone(), as_json(counts)))
            .collect();
        return print_json(&all);
    }
    for (name, counts) in &found {
        print_line(name)?;
        show(shared, counts)?;
    }
    Ok(())
}

const SLICE: Duration = Duration::from_millis(100);
