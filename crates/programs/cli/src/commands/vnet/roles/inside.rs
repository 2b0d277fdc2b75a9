//! `carina vnet exec|console|test|show|trace|capture --vno`: requests of an operator to a VNO about
//! the inside of a network.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use carina_api::output::Sink;
use carina_vnet::exec_lines::StreamError;
use carina_vnet::report::{Exec, TestReport, VnetReport};
use carina_vnet::trace::{Trace, TraceQuery};
use carina_vnet_host::link_name::NamedLink;
use carina_vnet_roles::calling::connection::CallError;
use carina_vnet_roles::inside::{Answer, NodeRequest};
use carina_vnet_roles::operator::{Client, Copied};

use super::operator::only;
use crate::Shared;
use crate::commands::packet_output::OutputArgs;
use crate::commands::terminal::{LEAVE, RawTerminal};
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::{print_bytes, progress};

/// Runs a command in a node and hands over its output as it comes; its exit status, or none if the
/// sink took no more.
///
/// # Errors
/// There is no such node, or it does not answer.
pub(crate) fn exec(
    client: &Client,
    vnet: Option<&str>,
    exec: &Exec,
    sink: &mut dyn Sink,
) -> Result<Result<Option<i32>, StreamError>, Failure> {
    let name = only(client, vnet)?;
    let what = format!("running a command in {} of network {name}", exec.node);
    client.stream(&name, exec, sink).attempt(what)
}

/// Probes all links of a network, and runs the tests of its document.
///
/// # Errors
/// There is no such network, or it has not been made.
pub(crate) fn test(client: &Client, vnet: Option<&str>) -> Result<Vec<TestReport>, Failure> {
    let name = only(client, vnet)?;
    client
        .test(&name)
        .attempt(format!("testing network {name}"))
}

/// Asks the VNO for the nodes and links of an operator's network. If `vnet` is `None`, the network
/// is the operator's only one.
///
/// # Errors
/// There is no such network, or it has not been made; or `vnet` is `None` and there are several.
/// The VNO does not answer.
pub(crate) fn report(client: &Client, vnet: Option<&str>) -> Result<VnetReport, Failure> {
    let name = only(client, vnet)?;
    let report = client.report(&name);
    report.attempt(format!("asking for {name}"))
}

/// The path from one node to another.
///
/// # Errors
/// There is no such network or node, or no route leads there.
pub(crate) fn trace(
    client: &Client,
    vnet: Option<&str>,
    query: &TraceQuery,
) -> Result<Trace, Failure> {
    let name = only(client, vnet)?;
    let what = format!("tracing {} -> {} in network {name}", query.from, query.to);
    client.trace(&name, query, session()?).attempt(what)
}

/// Copies the frames that pass one end of a link, until the limits of the output are reached or
/// Ctrl-C is pressed.
///
/// # Errors
/// There is no such link, or the output cannot be written.
pub(crate) fn capture(
    shared: &Shared,
    client: &Client,
    vnet: Option<&str>,
    link: &str,
    output: &OutputArgs,
) -> Outcome {
    let snap_bytes = output.snap_bytes()?;
    let report = report(client, vnet)?;
    let link = NamedLink::find(&report, link).map_err(failed)?;
    let (near, far) = (link.near(), link.far());
    let what = || format!("capturing at {near}");
    let wanted = Copied::of([near, far], snap_bytes, session()?);
    let copy = |since: u64, wait: Duration| client.copy(&report.name, &wanted, since, wait);
    let first = copy(0, Duration::ZERO).attempt(what())?;
    let mut sink = output.open(shared)?;
    // From here on Ctrl-C ends the capture in order; before this point it ends the command.
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let (mut portion, mut end) = (first, None);
    loop {
        let is_full = sink.take(&portion.bytes)?;
        let is_over = portion.has_ended || end.is_some_and(|end| Instant::now() > end);
        let left = sink.time_left();
        if !is_over
            && end.is_none()
            && (is_full || left.is_zero() || interrupt.is_pending().attempt(TAKING_SIGNALS)?)
        {
            client.stop_capture(&report.name, &wanted).attempt(what())?;
            end = Some(Instant::now() + END);
        }
        if is_over {
            break;
        }
        let wait = if end.is_some() { LAST } else { WAIT.min(left) };
        portion = copy(portion.next, wait).attempt(what())?;
    }
    let packets = sink.packets();
    progress(match sink.missed() {
        Some(missed) => format!("{packets} frames of {near} -- {far}, {missed} missed"),
        None => format!(
            "{packets} frames of {near} -- {far}, the stream ended before the \
            number of missed frames arrived"
        ),
    });
    Ok(())
}

/// Connects this terminal to the console of a node, until Ctrl-] or the end of standard input.
///
/// # Errors
/// There is no such node, its provider refuses access, or the VNO no longer answers.
pub(crate) fn console(client: &Client, vnet: Option<&str>, node: &str) -> Outcome {
    let name = only(client, vnet)?;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let session = session()?;
    let watch = |since: u64, wait: Duration| {
        let ask = NodeRequest::Watch {
            node: node.to_owned(),
            session,
            since,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        };
        client.ask(&name, &ask)
    };
    let what = || format!("watching the console of {node}");
    let first = watch(0, Duration::ZERO).attempt(what())?;
    progress("connected; Ctrl-] leaves the console");
    let raw = RawTerminal::enter();
    let outcome = relay(client, (&name, node, session), first, &interrupt, &watch);
    drop(raw);
    let leave = NodeRequest::Leave {
        node: node.to_owned(),
        session,
    };
    // If this request fails, the session ends by itself once no request follows.
    let _ = client.ask(&name, &leave);
    outcome
}

fn relay(
    client: &Client,
    (name, node, session): (&str, &str, u64),
    first: Answer,
    interrupt: &Interrupt,
    watch: &(dyn Fn(u64, Duration) -> Result<Answer, CallError> + Sync),
) -> Outcome {
    let typed = typed();
    let (mut answer, mut is_over) = (first, false);
    // A second thread sends what is typed, while this thread waits for the console's output.
    let left = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let says = scope.spawn(move || -> Outcome {
            loop {
                match next(&typed) {
                    Typed::Nothing if left.load(Ordering::Relaxed) => return Ok(()),
                    Typed::Nothing => std::thread::sleep(TYPED),
                    Typed::Bytes(bytes) => {
                        let node = node.to_owned();
                        let ask = NodeRequest::Type {
                            node,
                            session,
                            bytes,
                        };
                        client.ask(name, &ask).attempt("typing at the console")?;
                    }
                    Typed::End => {
                        left.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                }
            }
        });
        let outcome = loop {
            let Answer::ConsoleOutput {
                next,
                bytes,
                has_ended,
            } = answer
            else {
                break Err(failed(
                    "the VNO answered with something other than console output",
                ));
            };
            if let Err(error) = print_bytes(&bytes) {
                break Err(error);
            }
            // The output that follows the last key arrives a moment later.
            let stops = interrupt.is_pending().attempt(TAKING_SIGNALS);
            if has_ended || is_over || !matches!(stops, Ok(false)) {
                break stops.map(drop);
            }
            is_over = left.load(Ordering::Relaxed);
            let wait = if is_over { LAST } else { WAIT };
            answer = match watch(next, wait) {
                Ok(answer) => answer,
                Err(error) => break Err(error).attempt("watching the console"),
            };
        };
        left.store(true, Ordering::Relaxed);
        let sent = says
            .join()
            .unwrap_or_else(|_| Err(failed("the thread that sends keystrokes has failed")));
        outcome.and(sent)
    })
}

/// What the user typed since the last call of [`next`]; `End` after Ctrl-] or the end of input.
enum Typed {
    Nothing,
    Bytes(Vec<u8>),
    End,
}

fn next(typed: &Receiver<Vec<u8>>) -> Typed {
    let mut bytes = match typed.try_recv() {
        Ok(bytes) => bytes,
        Err(TryRecvError::Empty) => return Typed::Nothing,
        Err(TryRecvError::Disconnected) => return Typed::End,
    };
    bytes.extend(typed.try_iter().flatten());
    Typed::Bytes(bytes)
}

/// Starts a thread that reads what is typed at this terminal, until Ctrl-] or the end of input.
fn typed() -> Receiver<Vec<u8>> {
    let (to, typed) = channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin();
        let mut buffer = [0; 256];
        while let Ok(length @ 1..) = stdin.read(&mut buffer) {
            let read = &buffer[..length];
            let end = read.iter().position(|byte| *byte == LEAVE);
            let bytes = read[..end.unwrap_or(length)].to_vec();
            if to.send(bytes).is_err() || end.is_some() {
                return;
            }
        }
    });
    typed
}

/// Draws a random number that identifies this session among all that watch the console.
fn session() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    let random = Path::new("/dev/urandom");
    let file = std::fs::File::open(random);
    let drawn = file.and_then(|mut file| file.read_exact(&mut bytes));
    drawn.attempt(format!("reading {}", random.display()))?;
    Ok(u64::from_le_bytes(bytes))
}

/// How long one request for console output waits; Ctrl-C is checked in between.
const WAIT: Duration = Duration::from_millis(1000);
/// How long to wait until a stopped capture has ended.
const END: Duration = Duration::from_secs(10);
/// How long to wait for the last output of a node.
const LAST: Duration = Duration::from_millis(500);
/// Time between two checks for typed input.
const TYPED: Duration = Duration::from_millis(10);
