//! `carina perf`: generates traffic over a flow and measures it (like RINAperf and rina-tgen).

use std::sync::Arc;

use carina_api::{AppName, DifName};
use carina_client::FlowSpec;
use carina_measure::sequence::Tally;
use carina_measure::summary::Summary;
use carina_measure::traffic::{Arrivals, Rate, Sizes, Sweep};
use carina_measure::trial::client::{Trial, TrialClient};
use carina_measure::trial::job::{Direction, Job, SideReport, Via};
use carina_measure::trial::server::{Event, Scope, serve};
use carina_measure::trial::target::Target;
use carina_text::duration::parse_ns;
use carina_text::table::{Table, short, size};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::flow_spec::{SPEC_HELP, SpecArg};
use crate::interrupt::{TAKING_SIGNALS, end_server_with_signal, end_with_signal_saying};
use crate::report::{print_json, print_line, progress};

/// Default name of the server, the same as that of RINAperf.
pub(crate) const PERF_SERVER: &str = "rina.apps.perf";

/// Send traffic over a flow and measure rate, loss and delay, or be the server
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina perf --listen\n  carina perf -s 1400 -t 10s\n  \
    carina perf --echo -s 64 -c 100000\n  carina perf --dif 10 --spec unreliable --control-dif \
    inet -s 1400 --rate 50kpps\n  carina perf --sweep 0..4000:250 -t 1s --json\n  carina perf -s \
    uniform:64..1500 --rate 10kpps --arrivals poisson -t 30s --interval 1s\n\nSDUs of 16 bytes \
    or more carry a sequence number, from which the receiver counts loss, duplicates and \
    reordering; shorter ones are only counted. CPU ns/SDU is the processor time of both processes \
    for each SDU that arrived.\n\nThe time of -t also limits a flow that \
    stalls: after that time, the command reports as soon as no SDU has arrived for 3 s, and \
    after 10 s at the latest. With -c alone, a flow counts as stalled when nothing moves for 30 \
    s. The exit code is 1 when a flow stalled, or when a reliable flow lost or damaged SDUs; in \
    JSON, \"ending\" of each side and \"stall\" tell which."
)]
pub(crate) struct PerfArgs {
    /// Application name of the server; with --listen, the name to register
    #[arg(default_value = PERF_SERVER)]
    name: AppName,
    /// Be the server: register the name and serve clients until stopped
    #[arg(long, short)]
    listen: bool,
    /// With --listen: exit after serving the first client [default: serve until stopped]
    #[arg(long, requires = "listen")]
    once: bool,
    /// Bytes of each SDU: 1400, uniform:64..1500 (all sizes equally likely) or exponential:500
    /// (mean); suffix k: times 1024, M: times 1024²
    #[arg(long, short, default_value = "1400")]
    size: Sizes,
    /// Measure several SDU sizes, one after the other: FROM..TO:STEP in bytes, such as 0..4000:250
    /// [default: --size only]
    #[arg(long, conflicts_with = "size")]
    sweep: Option<Sweep>,
    /// Time for which to send, such as 10s [default: 5s; with --count: no limit]
    ///
    /// If the flow stalls, the command ends at most 10 s after this time.
    #[arg(long, short = 't', value_parser = parse_ns)]
    duration: Option<u64>,
    /// Number of SDUs to send [default: as many as fit into --duration]
    #[arg(long, short)]
    count: Option<u64>,
    /// Rate at which to send: 500pps, 10kpps or 100Mbit [default: as fast as possible]
    #[arg(long, short)]
    rate: Option<Rate>,
    /// With --rate: whether the gaps between SDUs are equal (constant) or random (poisson)
    #[arg(long, default_value = "constant", value_parser = arrivals())]
    arrivals: Arrivals,
    /// Wait for the answer to each SDU before sending the next, and measure round-trip times
    /// [default: send in one direction without waiting]
    #[arg(long, conflicts_with = "reverse")]
    echo: bool,
    /// Let the server send and this client receive [default: this client sends]
    #[arg(long)]
    reverse: bool,
    /// Compare every byte that arrives with the byte that was sent [default: check sequence numbers
    /// only]
    #[arg(long)]
    verify: bool,
    /// At this interval, such as 1s, print what the receiver has counted since the start [default:
    /// print only at the end]
    #[arg(long, short, value_parser = parse_ns)]
    interval: Option<u64>,
    #[arg(long, default_value = "reliable", help = SPEC_HELP)]
    spec: SpecArg,
    /// Seed of random sizes and gaps: the same seed gives the same traffic
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// DIF to use [default: the first one that knows the server's name; with --listen, all DIFs]
    #[arg(long)]
    dif: Option<DifName>,
    /// DIF of a second flow that controls the measurement [default: the DIF that is measured].
    /// Needed for a shim over Ethernet, which carries one flow, and for flows that lose SDUs
    #[arg(long)]
    control_dif: Option<DifName>,
    /// Application name of this client, which the server sees
    #[arg(long, default_value = "rina.apps.perf.client")]
    local: AppName,
}

/// Sends traffic to a server and prints what both sides measured. With `--listen`, is the server:
/// it registers the name and serves clients until a signal arrives, or with `--once` only the first
/// client.
///
/// # Errors
/// The node refuses the flow or the name, a side breaks off, or a reliable flow lost or damaged
/// SDUs.
pub(crate) fn run(shared: &Shared, args: PerfArgs) -> Outcome {
    if args.listen {
        listen(shared, &args)
    } else {
        measure(shared, &args)
    }
}

fn listen(shared: &Shared, args: &PerfArgs) -> Outcome {
    end_server_with_signal().attempt(TAKING_SIGNALS)?;
    let registered = shared.node()?.register(&args.name, args.dif.as_ref());
    let registration = registered.attempt(format!("registering {}", args.name))?;
    let json = shared.json;
    if json {
        print_json(&json!({ "registered": args.name }))?
    } else {
        print_line(format!("perf server {} waits for clients", args.name))?
    }
    let listener = move |event: Event<'_>| {
        if let Event::Failed(_) = event {
            return progress(format!("carina: {}", event_text(&event)));
        }
        // The server continues to serve clients when standard output is closed.
        let _ = if json {
            print_json(&event_json(&event))
        } else {
            print_line(event_text(&event))
        };
    };
    Ok(serve(
        registration,
        args.once,
        Scope::Flows,
        Arc::new(listener),
    )?)
}

fn event_text(event: &Event<'_>) -> String {
    match event {
        Event::Begin(job) => {
            format!(
                "job: {} of {}",
                direction_word(job.direction),
                sizes_text(&job.sizes)
            )
        }
        Event::Interval(seen) => interval_text(seen),
        Event::End(job, seen) => end_text(job, seen),
        Event::Failed(error) => format!("a client failed: {error}"),
    }
}

fn end_text(job: &Job, seen: &SideReport) -> String {
    let cpu = short(seen.cpu_ns as f64 / 1e6);
    match job.direction {
        Direction::Reverse => {
            format!(
                "end: sent {} SDUs, {} bytes; CPU {cpu} ms",
                seen.sent, seen.sent_bytes
            )
        }
        Direction::Echo => {
            format!(
                "end: echoed {} SDUs, {} bytes; CPU {cpu} ms",
                seen.sent, seen.sent_bytes
            )
        }
        Direction::Forward => {
            let tally = seen.tally.map_or_else(String::new, |tally| {
                format!(
                    " ({} duplicates, {} reordered)",
                    tally.duplicates, tally.reordered
                )
            });
            let damaged = if job.verify {
                format!(", {} damaged", seen.damaged)
            } else {
                String::new()
            };
            let mbps = short(seen.goodput_mbps());
            let (sdus, bytes) = (seen.received, seen.received_bytes);
            format!(
                "end: received {sdus} SDUs, {bytes} bytes{tally}{damaged}; {mbps} Mbit/s; CPU {cpu} ms"
            )
        }
    }
}

fn event_json(event: &Event<'_>) -> Value {
    match event {
        Event::Begin(job) => json!({ "begin": job }),
        Event::Interval(seen) => json!({ "interval": seen }),
        Event::End(_, seen) => json!({ "end": seen, "goodput_mbps": seen.goodput_mbps() }),
        Event::Failed(error) => json!({ "failed": error.to_string() }),
    }
}

fn interval_text(seen: &SideReport) -> String {
    let seconds = seen.elapsed_ns as f64 / 1e9;
    let mbps = seen.received_bytes as f64 * 8e-6 / seconds.max(1e-9);
    let rate = seen.received as f64 / seconds.max(1e-9);
    let (mbps, rate) = (short(mbps), short(rate));
    format!(
        "{seconds:7.2} s: {} SDUs, {mbps} Mbit/s, {rate} SDU/s on average",
        seen.received
    )
}

fn direction_word(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "client to server",
        Direction::Reverse => "server to client",
        Direction::Echo => "echo",
    }
}

fn sizes_text(sizes: &Sizes) -> String {
    match sizes {
        Sizes::Fixed(bytes) if *bytes < 8192 => format!("{bytes} bytes"),
        Sizes::Fixed(bytes) => size(*bytes),
        Sizes::Uniform { low, high } => format!("{low} to {high} bytes, uniform"),
        Sizes::Exponential { mean } => format!("{mean} bytes on average, exponential"),
    }
}

fn measure(shared: &Shared, args: &PerfArgs) -> Outcome {
    // A job takes a duration of 0 as no limit.
    if args.duration == Some(0) {
        return Err(usage("--duration is 0; nothing would be sent"));
    }
    if args.count == Some(0) && args.duration.is_none() {
        return Err(usage("--count 0 without --duration would never end"));
    }
    let words = "interrupted; nothing was measured";
    end_with_signal_saying(shared.json, words).attempt(TAKING_SIGNALS)?;
    let target = Target {
        node: shared.node()?,
        local: args.local.clone(),
        remote: args.name.clone(),
        dif: args.dif.clone(),
        spec: args.spec.0,
        wait: shared.wait_limit(),
    };
    let mut client = match &args.control_dif {
        None => TrialClient::open(target)?,
        Some(dif) => {
            let control = Target {
                dif: Some(dif.clone()),
                spec: FlowSpec::reliable(),
                ..target.clone()
            };
            TrialClient::open_apart(&control, target)?
        }
    };
    let sizes = match &args.sweep {
        Some(sweep) => sweep.0.iter().map(|bytes| Sizes::Fixed(*bytes)).collect(),
        None => vec![args.size],
    };
    let mut results = Vec::new();
    for sizes in sizes {
        let job = job(
            args,
            sizes,
            Via::Flow {
                ticket: client.ticket(),
            },
        );
        let trial = client.measure(&job, &mut |seen| progress(interval_text(seen)))?;
        let is_reported = trial.unreported.is_none();
        results.push((sizes, trial));
        if !is_reported {
            break;
        }
    }
    if shared.json {
        print_json(&results_json(args, &results))?
    } else {
        print_line(results_text(args, &results))?
    }
    check_results(args, &results)
}

fn job(args: &PerfArgs, sizes: Sizes, via: Via) -> Job {
    let direction = match (args.echo, args.reverse) {
        (true, _) => Direction::Echo,
        (_, true) => Direction::Reverse,
        _ => Direction::Forward,
    };
    let default_ns = if args.count.is_some() {
        0
    } else {
        5_000_000_000
    };
    Job {
        direction,
        via,
        sizes,
        rate: args.rate,
        arrivals: args.arrivals,
        duration_ns: args.duration.unwrap_or(default_ns),
        count: args.count.unwrap_or(0),
        seed: args.seed,
        verify: args.verify,
        interval_ns: args.interval.unwrap_or(0),
        pin: None,
    }
}

/// Parses the value of --arrivals.
fn arrivals() -> impl TypedValueParser<Value = Arrivals> {
    PossibleValuesParser::new(Arrivals::WORDS).try_map(|word| word.parse::<Arrivals>())
}

/// Fails when a flow stalled, or when a reliable flow lost or damaged SDUs.
fn check_results(args: &PerfArgs, results: &[(Sizes, Trial)]) -> Result<(), Failure> {
    let trials = || results.iter().map(|(_, trial)| trial);
    let damaged: u64 = trials().map(|trial| trial.receiver().damaged).sum();
    let lost: u64 = trials().filter_map(lost).sum();
    let mut reasons = Vec::new();
    if damaged > 0 || (args.spec.is_reliable() && lost > 0) {
        reasons.push(format!("{lost} SDUs lost, {damaged} damaged"));
    }
    reasons.extend(trials().find_map(Trial::stall));
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(failed(reasons.join("; ")))
    }
}

/// Number of SDUs that did not arrive; `None` unless both sides have reported.
fn lost(trial: &Trial) -> Option<u64> {
    trial.unreported.is_none().then(|| trial.lost())
}

fn results_json(args: &PerfArgs, results: &[(Sizes, Trial)]) -> Value {
    let one = |(sizes, trial): &(Sizes, Trial)| {
        let receiver = trial.receiver_reported().then(|| trial.receiver());
        let all = trial.unreported.is_none();
        json!({
            "sizes": sizes,
            "goodput_mbps": receiver.map(SideReport::goodput_mbps),
            "msgs_per_s": receiver.map(SideReport::sdus_per_s),
            "lost": lost(trial),
            "tally": receiver.and_then(|seen| seen.tally),
            "rtt_us": trial.receiver().rtt_us,
            "cpu_ns_per_sdu": all.then(|| trial.cpu_ns_per_sdu()),
            "stall": trial.stall(),
            "client": trial.client,
            "server": all.then_some(&trial.server),
        })
    };
    json!({ "name": args.name, "results": results.iter().map(one).collect::<Vec<_>>() })
}

fn results_text(args: &PerfArgs, results: &[(Sizes, Trial)]) -> String {
    let mut table = if args.echo {
        Table::new([
            "SDU",
            "ROUNDS",
            "RTT min/avg/max us",
            "p50",
            "p90",
            "p99",
            "CPU ns/SDU",
        ])
    } else {
        Table::new([
            "SDU",
            "SENT",
            "RECEIVED",
            "LOST",
            "DUP",
            "REORDERED",
            "Mbit/s",
            "SDU/s",
            "CPU ns/SDU",
        ])
    };
    for (sizes, trial) in results {
        if args.echo {
            table.row(echo_row(*sizes, trial))
        } else {
            table.row(one_way_row(*sizes, trial))
        };
    }
    table.to_string()
}

/// Text of a cell whose value is unknown.
fn unknown() -> String {
    "-".to_owned()
}

fn cpu_text(trial: &Trial) -> String {
    match trial.unreported {
        None => short(trial.cpu_ns_per_sdu()),
        Some(_) => unknown(),
    }
}

fn echo_row(sizes: Sizes, trial: &Trial) -> [String; 7] {
    let seen = trial.receiver();
    let rtt = seen.rtt_us.as_ref();
    let text = |pick: fn(&Summary) -> f64| rtt.map_or_else(unknown, |rtt| short(pick(rtt)));
    let ends = [
        text(|rtt| rtt.min),
        text(|rtt| rtt.avg),
        text(|rtt| rtt.max),
    ];
    [
        sizes_text(&sizes),
        seen.received.to_string(),
        ends.join("/"),
        text(|rtt| rtt.p50),
        text(|rtt| rtt.p90),
        text(|rtt| rtt.p99),
        cpu_text(trial),
    ]
}

fn one_way_row(sizes: Sizes, trial: &Trial) -> [String; 9] {
    let receiver = trial.receiver_reported().then(|| trial.receiver());
    let seen = |pick: &dyn Fn(&SideReport) -> String| receiver.map_or_else(unknown, pick);
    let tally = |pick: fn(&Tally) -> u64| {
        let tally = receiver.and_then(|seen| seen.tally.as_ref());
        tally.map_or_else(unknown, |tally| pick(tally).to_string())
    };
    let sent = if trial.sender_reported() {
        trial.sender().sent.to_string()
    } else {
        unknown()
    };
    [
        sizes_text(&sizes),
        sent,
        seen(&|seen| seen.received.to_string()),
        lost(trial).map_or_else(unknown, |lost| lost.to_string()),
        tally(|tally| tally.duplicates),
        tally(|tally| tally.reordered),
        seen(&|seen| short(seen.goodput_mbps())),
        seen(&|seen| short(seen.sdus_per_s())),
        cpu_text(trial),
    ]
}
