//! `carina bridge`: forwards flows from one DIF to another.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};

use carina_api::{AppName, DifName};
use carina_client::{Allocation, Error, Flow, FlowRequest, Node, Registration};
use carina_measure::trial::target::may_succeed_later;
use carina_sys::StopSignal;
use carina_sys::{Epoll, EventFd, Interest, monotonic_ns};
use serde_json::{Value, json};

use crate::failure::{Attempt, Failure, Outcome, usage};
use crate::report::{print_json, print_line};
use crate::splice::{self, Counts, Ended, Ending, Supervisor};
use crate::{LOOK_AGAIN, Shared};

/// Forward flows to a name in one DIF to a name in another DIF or dialect
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina bridge --listen echo --listen-dif rlite.DIF --to echo \
    --to-dif irati.DIF\n  carina bridge --listen files --register-as files/backup --to \
    files.store --to-dif net --local gate\n\nFor each incoming flow the bridge allocates a flow \
    to --to with the same specification. If that\nfails, the bridge refuses the incoming flow; \
    with --wait TIME, it first retries an unknown name for that\ntime. SDUs keep their \
    boundaries, and a slow reader slows the writer down.\nTo make a name of each DIF known in \
    the other, run two bridges, one for each direction."
)]
pub(crate) struct BridgeArgs {
    /// Application name to register; flows to it are forwarded
    #[arg(long, value_name = "NAME")]
    listen: AppName,
    /// DIF to register the name in [default: all DIFs of this system]
    #[arg(long, value_name = "DIF")]
    listen_dif: Option<DifName>,
    /// Application name to which each flow is forwarded
    #[arg(long, value_name = "NAME")]
    to: AppName,
    /// DIF in which to reach the name of --to [default: the first DIF that knows it]
    #[arg(long, value_name = "DIF")]
    to_dif: Option<DifName>,
    /// Another application name to register, whose flows are forwarded like those to the first
    /// name; may be repeated
    #[arg(long, value_name = "NAME")]
    register_as: Vec<AppName>,
    /// Application name that --to sees as the caller [default: the name of the original caller]
    #[arg(long, value_name = "NAME")]
    local: Option<AppName>,
    /// Largest number of flows that are forwarded at the same time; further flow requests are
    /// refused
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    flows_max: usize,
    /// Exit when a flow has ended and no other flow is open or requested [default: forward until
    /// stopped]
    #[arg(long)]
    once: bool,
}

/// Registers names and joins each incoming flow with a flow to `--to`, until a signal arrives, or
/// with `--once` until no flow is open.
///
/// # Errors
/// The node refuses a name, or has ended.
pub(crate) fn run(shared: &Shared, args: BridgeArgs) -> Outcome {
    let is_loop = args.listen == args.to || args.register_as.contains(&args.to);
    if is_loop && (args.listen_dif.is_none() || args.listen_dif == args.to_dif) {
        return Err(usage(format!(
            "the bridge would forward flows to {} to itself; --listen-dif and --to-dif must be \
             different DIFs",
            args.to
        )));
    }
    // Signals must be blocked before any thread starts, so that all threads leave them to `stop`.
    let stop = StopSignal::new().attempt("waiting for signals")?;
    let mut bridge = Bridge::new(shared, args, &stop)?;
    bridge.serve()?;
    bridge.finish()
}

/// An incoming flow request for which the bridge has requested a flow to `--to`. The node has not
/// answered yet.
struct Asked {
    incoming: IncomingRequest,
    allocation: Allocation,
}

/// An incoming flow request; `registration` is the index of the registered name that it called.
struct IncomingRequest {
    registration: usize,
    request: FlowRequest,
    /// Deadline on `CLOCK_MONOTONIC`, in nanoseconds. Until then the bridge retries while the name
    /// of `--to` is unknown.
    until: u64,
}

/// Two joined flows: the incoming one, and the one to `--to`. An entry of `directions` is `Some`
/// when that direction has ended: first from the caller to `--to`, then back.
struct Pair {
    caller: AppName,
    since: u64,
    directions: [Option<(Ending, Counts)>; 2],
}

#[derive(Default)]
struct Totals {
    pairs: u64,
    refused: u64,
    failed: u64,
    directions: [Counts; 2],
}

struct Bridge<'a> {
    shared: &'a Shared,
    args: BridgeArgs,
    node: Node,
    registrations: Vec<Registration>,
    epoll: Epoll,
    asked: BTreeMap<u64, Asked>,
    /// Incoming requests that wait because no DIF knows the name of `--to` yet.
    waiting: Vec<IncomingRequest>,
    /// Time on `CLOCK_MONOTONIC`, in nanoseconds, at which the bridge tries the `waiting` requests
    /// again.
    ask_again_at: u64,
    pairs: HashMap<u64, Pair>,
    supervisor: Supervisor,
    ends: Receiver<Ended>,
    next: u64,
    totals: Totals,
}

impl<'a> Bridge<'a> {
    fn new(shared: &'a Shared, args: BridgeArgs, stop: &StopSignal) -> Result<Self, Failure> {
        let node = shared.node()?;
        let epoll = Epoll::new().attempt("waiting for flows")?;
        let doorbell = Arc::new(EventFd::new().attempt("waiting for flows")?);
        let watch = |fd: &dyn AsFd, token| {
            let added = epoll.add(fd.as_fd(), token, Interest::Read);
            added.attempt("waiting for flows")
        };
        watch(stop, STOP)?;
        watch(&*doorbell, ENDED)?;
        let mut registrations = Vec::new();
        for name in std::iter::once(&args.listen).chain(&args.register_as) {
            let registered = node.register(name, args.listen_dif.as_ref());
            let registration = registered.attempt(format!("registering {name}"))?;
            watch(
                &registration,
                FIRST_REGISTRATION + registrations.len() as u64,
            )?;
            registrations.push(registration);
        }
        let (ended, ends) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let bridge = Bridge {
            shared,
            args,
            node,
            registrations,
            epoll,
            asked: BTreeMap::new(),
            waiting: Vec::new(),
            ask_again_at: 0,
            pairs: HashMap::new(),
            supervisor: Supervisor {
                ended,
                doorbell,
                stop,
            },
            ends,
            next: FIRST_PAIR,
            totals: Totals::default(),
        };
        for registration in &bridge.registrations {
            let difs: Vec<String> = registration
                .difs()
                .iter()
                .map(ToString::to_string)
                .collect();
            let words = format!(
                "{} is registered in {}",
                registration.name(),
                difs.join(", ")
            );
            let event = json!({ "event": "registered", "name": registration.name(), "difs": difs });
            bridge.tell(words, event)?;
        }
        Ok(bridge)
    }

    /// Forwards flows until SIGINT or SIGTERM, or with `--once` until the first flow has ended and
    /// no other is carried or waits.
    fn serve(&mut self) -> Outcome {
        let mut ready = Vec::new();
        loop {
            let look_again = LOOK_AGAIN.as_nanos() as u64;
            let limit = (!self.waiting.is_empty()).then_some(look_again);
            self.epoll
                .wait(&mut ready, limit)
                .attempt("waiting for flows")?;
            if monotonic_ns() >= self.ask_again_at {
                self.ask_again_at = monotonic_ns() + look_again;
                for incoming in std::mem::take(&mut self.waiting) {
                    self.ask(incoming)?;
                }
            }
            for event in ready.clone() {
                match event.token {
                    STOP => return Ok(()),
                    ENDED => {
                        self.supervisor.doorbell.drain();
                        self.hear_ends()?;
                    }
                    token if token >= FIRST_PAIR => self.hear_answer(token)?,
                    token => self.accept_requests((token - FIRST_REGISTRATION) as usize)?,
                }
            }
            let is_idle = self.pairs.is_empty() && self.asked.is_empty() && self.waiting.is_empty();
            if self.args.once && self.totals.pairs > 0 && is_idle {
                return Ok(());
            }
        }
    }

    /// Takes all flow requests that have arrived for one registered name.
    fn accept_requests(&mut self, registration: usize) -> Outcome {
        while let Some(request) = self.registrations[registration]
            .try_next_request()
            .attempt("waiting for flows")?
        {
            let flows = self.asked.len() + self.waiting.len() + self.pairs.len();
            if flows >= self.args.flows_max {
                let limit = self.args.flows_max;
                self.refuse(
                    registration,
                    &request,
                    &format!(
                        "the bridge carries {limit} flows already; --flows-max allows no more"
                    ),
                )?;
                continue;
            }
            let limit = self.shared.wait_limit().as_nanos() as u64;
            let until = monotonic_ns().saturating_add(limit);
            self.ask(IncomingRequest {
                registration,
                request,
                until,
            })?;
        }
        Ok(())
    }

    /// Requests a flow to `--to` for an incoming flow request. Refuses the incoming request if the
    /// node rejects that at once.
    fn ask(&mut self, incoming: IncomingRequest) -> Outcome {
        let request = &incoming.request;
        let local = self.args.local.as_ref().unwrap_or(&request.remote);
        let (to, dif) = (&self.args.to, self.args.to_dif.as_ref());
        let allocation = match self.node.start_allocate(local, to, dif, &request.spec) {
            Ok(allocation) => allocation,
            Err(error) => return self.refuse(incoming.registration, request, &error.to_string()),
        };
        let token = self.next;
        self.next += 1;
        self.epoll
            .add(&allocation, token, Interest::Read)
            .attempt("waiting for flows")?;
        self.asked.insert(
            token,
            Asked {
                incoming,
                allocation,
            },
        );
        Ok(())
    }

    /// Handles the node's answer to the request for a flow to `--to`, whose token is `token`: joins
    /// the two flows, refuses the incoming one, or lets it wait for a later attempt.
    fn hear_answer(&mut self, token: u64) -> Outcome {
        let Some(asked) = self.asked.get_mut(&token) else {
            return Ok(());
        };
        let answer = match asked.allocation.try_finish() {
            Ok(None) => return Ok(()),
            Ok(Some(flow)) => Ok(flow),
            Err(error) => Err(error),
        };
        let Some(asked) = self.asked.remove(&token) else {
            return Ok(());
        };
        let _ = self.epoll.del(&asked.allocation);
        let incoming = asked.incoming;
        let registration = incoming.registration;
        match answer {
            Ok(flow) => self.splice(token, &incoming, flow)?,
            Err(Error::NodeGone) => return Err(Error::NodeGone).attempt("allocating a flow"),
            Err(Error::Refused(body))
                if may_succeed_later(&body) && monotonic_ns() < incoming.until =>
            {
                self.waiting.push(incoming);
                return Ok(());
            }
            Err(Error::Refused(body)) => {
                self.refuse(registration, &incoming.request, &body.message)?
            }
            Err(error) => self.refuse(registration, &incoming.request, &error.to_string())?,
        }
        // Accepting may have read further requests off the socket.
        self.accept_requests(registration)
    }

    fn splice(&mut self, pair: u64, incoming: &IncomingRequest, called: Flow) -> Outcome {
        let request = &incoming.request;
        let caller = match self.registrations[incoming.registration].accept_request(request) {
            Ok(flow) => flow,
            // The caller gave up meanwhile; dropping `called` ends the onward flow.
            Err(Error::Refused(_)) => return Ok(()),
            Err(error) => return Err(error).attempt("accepting a flow"),
        };
        let to = called.info().clone();
        self.totals.pairs += 1;
        let waits = Pair {
            caller: request.remote.clone(),
            since: monotonic_ns(),
            directions: [None, None],
        };
        self.pairs.insert(pair, waits);
        let words = format!(
            "flow of {} in {} is forwarded to {} in {}",
            request.remote, request.dif, to.remote, to.dif
        );
        let event = json!({
            "event": "joined", "pair": number(pair), "caller": request.remote,
            "name": request.local, "dif": request.dif, "to": to.remote, "to_dif": to.dif,
            "ports": [caller.info().port, to.port], "spec": request.spec,
        });
        self.tell(words, event)?;
        splice::join(pair, caller, called, &self.supervisor).attempt("joining two flows")
    }

    fn refuse(&mut self, registration: usize, request: &FlowRequest, reason: &str) -> Outcome {
        self.totals.refused += 1;
        self.registrations[registration]
            .refuse(request, reason)
            .attempt("refusing a flow")?;
        let words = format!(
            "refused a flow of {} in {}: {reason}",
            request.remote, request.dif
        );
        let event = json!({
            "event": "refused", "caller": request.remote, "dif": request.dif, "reason": reason,
        });
        self.tell(words, event)
    }

    /// Handles directions of flows that have ended: adds up their counters, and prints the end of a
    /// pair when both directions have ended.
    fn hear_ends(&mut self) -> Outcome {
        while let Ok(ended) = self.ends.try_recv() {
            let Some(pair) = self.pairs.get_mut(&ended.pair) else {
                continue;
            };
            if let Ending::Failed { other, .. } = &ended.ending {
                // The bridge closing its end would look like an orderly end, so it deallocates the
                // other flow.
                let _ = self.shared.control().deallocate_flow(*other);
            }
            let total = &mut self.totals.directions[usize::from(!ended.is_forward)];
            total.sdus += ended.counts.sdus;
            total.bytes += ended.counts.bytes;
            total.too_large += ended.counts.too_large;
            pair.directions[usize::from(!ended.is_forward)] = Some((ended.ending, ended.counts));
            if pair.directions.iter().all(Option::is_some)
                && let Some(pair) = self.pairs.remove(&ended.pair)
            {
                self.tell_end(ended.pair, &pair)?;
            }
        }
        Ok(())
    }

    fn tell_end(&mut self, number_of: u64, pair: &Pair) -> Outcome {
        let mut endings = pair.directions.iter().flatten().map(|(ending, _)| ending);
        let failure = endings.find_map(|ending| match ending {
            Ending::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        self.totals.failed += u64::from(failure.is_some());
        let counts = |at: usize| {
            pair.directions[at]
                .as_ref()
                .map_or_else(Counts::default, |ended| ended.1)
        };
        let (forward, back) = (counts(0), counts(1));
        let how = match &failure {
            Some(reason) => format!("failed: {reason}"),
            None => "ended".to_owned(),
        };
        let words = format!(
            "flow of {} has {how}; {} SDUs forward, {} back",
            pair.caller, forward.sdus, back.sdus
        );
        let event = json!({
            "event": "ended", "pair": number(number_of), "caller": pair.caller,
            "failure": failure, "there": counts_json(&forward), "back": counts_json(&back),
            "seconds": monotonic_ns().saturating_sub(pair.since) as f64 / 1e9,
        });
        self.tell(words, event)
    }

    /// Ends all remaining flows and prints the counters.
    fn finish(mut self) -> Outcome {
        self.supervisor.stop();
        let until = monotonic_ns() + GRACE_NS;
        while !self.pairs.is_empty() && monotonic_ns() < until {
            let left = until.saturating_sub(monotonic_ns());
            let mut ready = Vec::new();
            self.epoll
                .wait(&mut ready, Some(left.min(100_000_000)))
                .attempt("waiting for the ends of flows")?;
            self.supervisor.doorbell.drain();
            self.hear_ends()?;
        }
        let Totals {
            pairs,
            refused,
            failed,
            directions: [forward, back],
        } = &self.totals;
        let words = format!(
            "{pairs} flows carried, {refused} refused, {failed} failed\nforward: {} SDUs, {} \
             bytes, {} too large\nback: {} SDUs, {} bytes, {} too large",
            forward.sdus, forward.bytes, forward.too_large, back.sdus, back.bytes, back.too_large
        );
        let event = json!({
            "event": "totals", "flows": pairs, "refused": refused, "failed": failed,
            "there": counts_json(forward), "back": counts_json(back),
        });
        self.tell(words, event)
    }

    fn tell(&self, words: String, event: Value) -> Outcome {
        if self.shared.json {
            print_json(&event)
        } else {
            print_line(words)
        }
    }
}

/// Number of a pair for output, counted from 1.
fn number(token: u64) -> u64 {
    token - FIRST_PAIR + 1
}

fn counts_json(counts: &Counts) -> Value {
    json!({ "sdus": counts.sdus, "bytes": counts.bytes, "too_large": counts.too_large })
}

const STOP: u64 = 0;
const ENDED: u64 = 1;
const FIRST_REGISTRATION: u64 = 2;
/// Tokens below this value belong to registered names; no process can have as many descriptors.
const FIRST_PAIR: u64 = 1 << 32;

/// Time in nanoseconds that flows have to end when the bridge is stopped.
const GRACE_NS: u64 = 1_500_000_000;
