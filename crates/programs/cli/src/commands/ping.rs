//! `carina ping`: sends SDUs to an echo server over a flow, or is the echo server (rina-echo-time).

use std::time::{Duration, Instant};

use carina_api::{AppName, DifName};
use carina_client::{Error, Flow};
use carina_measure::summary::Summary;
use carina_measure::traffic::{SDU_MAX, bytes};
use carina_measure::transport::flow::FlowTransport;
use carina_measure::transport::{Arrival, Transport};
use carina_measure::trial::payload::Payload;
use carina_measure::trial::target::Target;
use carina_sys::monotonic_ns;
use carina_text::duration::parse_ns;
use carina_text::table::short;
use serde::Serialize;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::flow_spec::{SPEC_HELP, SpecArg};
use crate::interrupt::{Interrupt, TAKING_SIGNALS, end_server_with_signal};
use crate::report::{print_json, print_line, progress};

/// Default name of the echo server, the same as that of rina-echo-time.
pub(crate) const ECHO_SERVER: &str = "rina.apps.echotime";

/// Send SDUs to an echo server over a flow and time its answers, or be the server
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina ping --listen\n  carina ping rina.apps.echotime -c 10 -s \
    1400\n  carina ping --flood -c 100000 -q\n  carina ping --dif 10 --spec unreliable\n\nPing \
    compares every byte of every answer with what it sent. The exit code is 1 when an answer \
    was missing or damaged. SIGINT and SIGTERM end ping, which then prints its results. They \
    end the server (--listen) with exit code 0."
)]
pub(crate) struct PingArgs {
    /// Application name of the echo server; with --listen, the name to register
    #[arg(default_value = ECHO_SERVER)]
    name: AppName,
    /// Be the server: register the name and send every SDU back, until Ctrl-C
    #[arg(long, short)]
    listen: bool,
    /// Bytes of each SDU, such as 100 or 4k; suffix k: times 1024, M: times 1024²
    #[arg(long, short, default_value = "64", value_parser = bytes)]
    size: u64,
    /// Number of SDUs to send; 0: until Ctrl-C
    #[arg(long, short, default_value_t = 5)]
    count: u64,
    /// Time from one SDU to the next, such as 100ms
    #[arg(long, short, default_value = "1s", value_parser = parse_ns)]
    interval: u64,
    /// Send the next SDU as soon as the answer arrives, without --interval
    #[arg(long, short)]
    flood: bool,
    /// Longest time to wait for each answer, such as 500ms
    #[arg(long, short = 'W', default_value = "5s", value_parser = parse_ns)]
    timeout: u64,
    /// Print the summary only, not a line for each answer
    #[arg(long, short)]
    quiet: bool,
    #[arg(long, default_value = "reliable", help = SPEC_HELP)]
    spec: SpecArg,
    /// DIF to use [default: the first one that knows the server's name; with --listen, all DIFs]
    #[arg(long)]
    dif: Option<DifName>,
    /// Application name of this client, which the server sees
    #[arg(long, default_value = "rina.apps.echotime.client")]
    local: AppName,
}

/// What a client of the echo server measured: SDUs sent, answers, round-trip times.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PingResult {
    /// Name of the echo server.
    pub name: AppName,
    /// Bytes of each SDU.
    pub size: u64,
    /// Number of SDUs sent.
    pub sent: u64,
    /// Number of answers that arrived in time.
    pub received: u64,
    /// Number of answers whose bytes differ from those sent.
    pub damaged: u64,
    /// Round-trip times in microseconds; `None` without an answer.
    pub rtt_us: Option<Summary>,
}

/// Sends SDUs to an echo server and prints round-trip times. With `--listen`, is the server: it
/// registers the name and returns each SDU, until a signal arrives.
///
/// # Errors
/// The node refuses the flow or the name, the flow breaks, or answers were missing or damaged.
pub(crate) fn run(shared: &Shared, args: PingArgs) -> Outcome {
    if args.listen {
        serve(shared, &args)
    } else {
        ask(shared, &args)
    }
}

fn ask(shared: &Shared, args: &PingArgs) -> Outcome {
    let target = Target {
        node: shared.node()?,
        local: args.local.clone(),
        remote: args.name.clone(),
        dif: args.dif.clone(),
        spec: args.spec.0,
        wait: shared.wait_limit(),
    };
    let flow = target.allocate()?;
    let dif = flow.info().dif.clone();
    if !shared.json && !args.quiet {
        print_line(format!(
            "PING {} in {dif}: SDUs of {} bytes",
            args.name, args.size
        ))?;
    }
    let talk = !shared.json && !args.quiet && !args.flood;
    let result = exchange(flow, args, &mut |seq, rtt_us| {
        if !talk {
            return Ok(());
        }
        let (size, name) = (args.size, &args.name);
        print_line(format!(
            "{size} bytes from {name}: seq={seq} time={} us",
            short(rtt_us)
        ))
    })?;
    if shared.json {
        print_json(&result)?
    } else {
        print_line(summary_text(&result))?
    }
    if result.damaged > 0 || result.received < result.sent {
        let lost = result.sent - result.received;
        return Err(failed(format!(
            "{lost} answers missing, {} damaged",
            result.damaged
        )));
    }
    Ok(())
}

/// The summary lines at the end of a ping.
fn summary_text(result: &PingResult) -> String {
    let lost = result.sent - result.received;
    let share = 100.0 * lost as f64 / result.sent.max(1) as f64;
    let mut text = format!(
        "{} SDUs sent, {} answered, {share:.1} % lost, {} damaged",
        result.sent, result.received, result.damaged
    );
    if let Some(rtt) = &result.rtt_us {
        text += &format!(
            "\nrtt min/avg/max/stddev = {}/{}/{}/{} us, p50/p90/p99 = {}/{}/{} us",
            short(rtt.min),
            short(rtt.avg),
            short(rtt.max),
            short(rtt.stddev),
            short(rtt.p50),
            short(rtt.p90),
            short(rtt.p99)
        );
    }
    text
}

fn exchange(
    flow: Flow,
    args: &PingArgs,
    tell: &mut dyn FnMut(u64, f64) -> Outcome,
) -> Result<PingResult, Failure> {
    let size = args.size as usize;
    let mut transport = FlowTransport::new(flow);
    let mut payload = Payload::new(size, true);
    let mut buffer = vec![0; size.max(64)];
    let mut times = Vec::new();
    let name = args.name.clone();
    let mut result = PingResult {
        name,
        size: args.size,
        sent: 0,
        received: 0,
        damaged: 0,
        rtt_us: None,
    };
    let stop = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let mut look = 0;
    while args.count == 0 || result.sent < args.count {
        let seq = result.sent;
        let before = monotonic_ns();
        if !send(&mut transport, payload.sdu(seq, size), args, &stop)? {
            break;
        }
        result.sent += 1;
        match answer(&mut transport, &mut buffer, args, &mut payload, seq, &stop)? {
            Arrival::Sdu(len) => {
                let rtt_us = (monotonic_ns() - before) as f64 / 1e3;
                let whole = len == size && payload.matches(&buffer[..len], seq);
                result.damaged += u64::from(!whole);
                result.received += 1;
                // A ping of any length keeps at most `TIMES_MAX` times for its percentiles; later
                // ones replace the oldest.
                if times.len() < TIMES_MAX {
                    times.push(rtt_us);
                } else {
                    times[seq as usize % TIMES_MAX] = rtt_us;
                }
                tell(seq, rtt_us)?;
            }
            // On a reliable flow, answers arrive in order: when one is missing, later ones do not
            // arrive either.
            Arrival::Idle if args.spec.is_reliable() => break,
            Arrival::Idle => {}
            Arrival::End => return Err(failed("the server closed the flow before it answered")),
        }
        let is_last = args.count != 0 && result.sent >= args.count;
        let is_due = !args.flood || before >= look;
        if is_last || !is_due {
            continue;
        }
        look = before.saturating_add(LOOK.as_nanos() as u64);
        let next = if args.flood {
            0
        } else {
            before.saturating_add(args.interval)
        };
        let pause = Duration::from_nanos(next.saturating_sub(monotonic_ns()));
        if stop.comes_within(pause).attempt(TAKING_SIGNALS)? {
            break;
        }
    }
    result.rtt_us = Summary::of(&times);
    Ok(result)
}

/// Sends an SDU. Returns false when a signal arrived before the flow had room for it.
fn send(
    transport: &mut FlowTransport,
    sdu: &[u8],
    args: &PingArgs,
    stop: &Interrupt,
) -> Result<bool, Failure> {
    let limit = Duration::from_nanos(args.timeout);
    let start = Instant::now();
    while !transport.send_until(sdu, Instant::now() + limit.min(LOOK))? {
        if stop.is_pending().attempt(TAKING_SIGNALS)? {
            return Ok(false);
        }
        if start.elapsed() >= limit {
            return Err(failed(format!(
                "the flow stalled: there was no room for an SDU within {} s (--timeout)",
                limit.as_secs_f32()
            )));
        }
    }
    Ok(true)
}

/// Waits for the answer to the SDU `seq`. On an unreliable flow it skips late answers to earlier
/// SDUs, and ignores padding behind the answer: a short SDU may come back longer than it was sent.
fn answer(
    transport: &mut FlowTransport,
    buffer: &mut [u8],
    args: &PingArgs,
    payload: &mut Payload,
    seq: u64,
    stop: &Interrupt,
) -> Result<Arrival, Failure> {
    let size = args.size as usize;
    let deadline = monotonic_ns().saturating_add(args.timeout);
    loop {
        let left = Duration::from_nanos(deadline.saturating_sub(monotonic_ns()));
        match transport.recv(buffer, left.min(LOOK))? {
            Arrival::Sdu(len) if !args.spec.is_reliable() => {
                if len >= size && payload.matches(&buffer[..size], seq) {
                    return Ok(Arrival::Sdu(size));
                }
            }
            Arrival::Idle if left > LOOK && !stop.is_pending().attempt(TAKING_SIGNALS)? => {}
            other => return Ok(other),
        }
    }
}

/// Time between two checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Number of round-trip times kept.
const TIMES_MAX: usize = 1 << 20;

fn serve(shared: &Shared, args: &PingArgs) -> Outcome {
    end_server_with_signal().attempt(TAKING_SIGNALS)?;
    let registered = shared.node()?.register(&args.name, args.dif.as_ref());
    let mut registration = registered.attempt(format!("registering {}", args.name))?;
    if shared.json {
        print_json(&serde_json::json!({ "registered": args.name }))?
    } else {
        print_line(format!("echo server {} waits for flows", args.name))?
    }
    let quiet = args.quiet || shared.json;
    loop {
        let request = registration.next_request().attempt("waiting for flows")?;
        let flow = match registration.accept_request(&request) {
            Ok(flow) => flow,
            // The client gave up before the server accepted the flow.
            Err(Error::Refused(_)) => continue,
            Err(error) => return Err(error).attempt("accepting a flow"),
        };
        std::thread::spawn(move || {
            let outcome = echo(flow);
            match outcome {
                Ok(count) if !quiet => progress(format!("{}: {count} SDUs echoed", request.remote)),
                Ok(_) => {}
                Err(failure) => progress(format!("{}: {failure}", request.remote)),
            }
        });
    }
}

/// Sends every SDU of a flow back until the client closes the flow; returns their number.
fn echo(mut flow: Flow) -> Result<u64, Failure> {
    let mut count = 0;
    loop {
        match flow.recv_vec(SDU_MAX as usize) {
            Ok(sdu) => flow.send(&sdu).attempt("sending an answer")?,
            Err(Error::Closed) => return Ok(count),
            Err(error) => return Err(error).attempt("receiving"),
        }
        count += 1;
    }
}
