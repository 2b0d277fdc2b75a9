//! `carina trace`: copies the frames that pass links of a graph to the screen or into a file.

use std::path::Path;
use std::time::{Duration, Instant};

use carina_graph::trace::{TraceError, TraceRequest, TraceStream, is_served};

use crate::Shared;
use crate::commands::packet_output::{OutputArgs, Sink};
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::graph_directory::{GraphEntry, counters_of_file, entries};
use crate::interrupt::Interrupt;
use crate::report::progress;

/// Copy the frames that pass links of a running graph, as text or into a file
///
/// The graph may be one of `graph run`, `nfv run`, `forward` or `blast`. Frames are printed as
/// `carina dissect` does, or written to a pcapng file for Wireshark, with one interface for each
/// link. A frame is copied when it is put on the link, so frames that a full link drops are not
/// shown. The graph does not wait for the trace: frames that are not read in time are missing from
/// it, and are counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  carina trace router.output
  carina trace 'eth1.output -> hop.input' --write eth1.pcapng --for 10s
  carina trace --graph router.toml --count 20
  carina trace --write - | tshark -r -

Name a link by APP.PORT -> APP.PORT, or by the port at one of its ends; `carina top` lists all \
links. Ctrl-C ends the trace. The command needs the rights of the user that runs the graph.")]
pub(crate) struct TraceArgs {
    /// Links to copy, such as router.output or 'eth1.output -> hop.input' [default: all links of
    /// the graph]
    #[arg(value_name = "LINK")]
    links: Vec<String>,
    /// Graph to trace, by the name that `carina top` shows or by its file [default: the only graph
    /// that runs]
    #[arg(long, value_name = "NAME")]
    graph: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Copies the frames that pass links of one running graph to a file or the terminal, until a limit
/// is reached or Ctrl-C is pressed.
///
/// # Errors
/// The graph does not run or has no such link, or the file cannot be written.
pub(crate) fn run(shared: &Shared, args: &TraceArgs) -> Outcome {
    let graph = choose(shared, args.graph.as_deref())?;
    copy_links(shared, &graph, args.links.clone(), &args.output)
}

/// Copies the frames that pass links of a graph until the limits of `output` are reached or Ctrl-C
/// is pressed. Reports the number of frames copied.
///
/// # Errors
/// The graph does not run or has no such link, or the output cannot be written.
pub(crate) fn copy_links(
    shared: &Shared,
    graph: &GraphEntry,
    links: Vec<String>,
    output: &OutputArgs,
) -> Outcome {
    let request = TraceRequest {
        snap_bytes: output.snap_bytes()?,
        links,
    };
    let name = &graph.name;
    let stream = TraceStream::open(&graph.counters, &request).map_err(|error| match error {
        TraceError::Refused(_) => refused(format!("{name}: {error}")),
        error => failed(format!("{name}: {error}")),
    })?;
    let mut sink = output.open(shared)?;
    // From here on Ctrl-C ends the capture in order; before this point it ends the command.
    let interrupt = Interrupt::take().attempt("taking signals")?;
    copy(stream, &interrupt, &mut sink)?;
    let packets = sink.packets();
    progress(match sink.missed() {
        Some(missed) => format!("{packets} frames of {name}, {missed} missed"),
        None => format!(
            "{packets} frames of {name}, the stream ended before the number of \
            missed frames arrived"
        ),
    });
    Ok(())
}

/// The graph with the given name or file; without a name, the only one that runs.
fn choose(shared: &Shared, name: Option<&str>) -> Result<GraphEntry, Failure> {
    let run = shared.run_dir();
    let mut graphs = entries(run.path());
    // Counters of a process that was killed remain; such a graph is not served.
    graphs.retain(|graph| is_served(&graph.counters));
    if graphs.is_empty() {
        let run = run.path().display();
        return Err(failed(format!(
            "no graph that this user may trace runs in {run}; start one with `carina graph run`, \
             or name another run directory with --run"
        )));
    }
    let names: Vec<&str> = graphs.iter().map(|graph| graph.name.as_str()).collect();
    let all = names.join(", ");
    if let Some(name) = name {
        let by_file = counters_of_file(shared, Path::new(name)).ok();
        let is_meant =
            |graph: &GraphEntry| graph.name == name || by_file.as_ref() == Some(&graph.counters);
        graphs.retain(is_meant);
    }
    match (graphs.len(), name) {
        (1, _) => Ok(graphs.remove(0)),
        (0, name) => {
            let name = name.unwrap_or_default();
            Err(failed(format!(
                "no graph {name} runs; running graphs: {all}"
            )))
        }
        (_, None) => Err(usage(format!(
            "several graphs run: {all}; choose with --graph"
        ))),
        (_, Some(name)) => Err(usage(format!(
            "several graphs have the name {name}; set --graph to the path of the file of one of \
             them"
        ))),
    }
}

/// Copies frames until enough were copied, the time is over, Ctrl-C is pressed or the graph has
/// ended.
fn copy(mut stream: TraceStream, interrupt: &Interrupt, sink: &mut Sink) -> Outcome {
    let mut bytes = vec![0; READ_BYTES];
    // Time at which to stop waiting for the end of the trace.
    let mut end: Option<Instant> = None;
    loop {
        let left = sink.time_left().min(TURN);
        let read = stream.read(&mut bytes, left).attempt("reading the trace")?;
        let Some(read) = read else { return Ok(()) };
        let is_full = sink.take(&bytes[..read])?;
        match end {
            Some(end) if Instant::now() > end => return Ok(()),
            Some(_) => {}
            None if is_full || left.is_zero() || interrupt.is_pending().attempt("signals")? => {
                stream.finish().attempt("ending the trace")?;
                end = Some(Instant::now() + LAST);
            }
            None => {}
        }
    }
}

const READ_BYTES: usize = 1 << 18;
/// Time between two checks for signals.
const TURN: Duration = Duration::from_millis(100);
/// How long frames already on their way may still arrive after the trace is stopped.
const LAST: Duration = Duration::from_secs(1);
