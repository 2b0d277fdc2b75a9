//! The server of a measurement: accepts control flows and data flows, and does its half of jobs.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carina_client::{Flow, Registration};
use carina_sys::{accept_seqpacket, listen_seqpacket};

use super::client::on_own_thread;
use super::control::Control;
use super::job::{Direction, Job, Message, Seen, VERSION, Via};
use super::run;
use crate::carriage::Carriage;
use crate::carriage::bare::BareCarriage;
use crate::carriage::flow::FlowCarriage;
use crate::carriage::tcp::TcpCarriage;
use crate::carriage::udp::UdpCarriage;
use crate::carriage::unix::UnixCarriage;
use crate::failure::{Attempt, Failure, failed};
use crate::report::progress;

/// How long a client may take between two steps of a job.
const STEP: Duration = Duration::from_secs(20);
/// How long a control channel may be silent between jobs.
const BETWEEN_JOBS: Duration = Duration::from_secs(24 * 3600);
/// Data flows that may wait for their job; more are refused.
const WAITING_FLOWS_MAX: usize = 64;

/// What the server tells of a job while it runs.
pub enum Note<'a> {
    /// A job begins.
    Begin(&'a Job),
    /// An interval of it has passed.
    Interval(&'a Seen),
    /// It has ended.
    End(&'a Job, &'a Seen),
}

/// What hears of the notes of all jobs.
pub type Listener = dyn Fn(Note<'_>) + Send + Sync;

/// What clients may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Jobs over flows.
    Flows,
    /// Everything that a bench needs: sockets, files and addresses of this system. Only for a
    /// server that its own bench has started.
    Bench,
}

/// Data flows that have arrived and wait for the job with their ticket.
#[derive(Default)]
struct Desk {
    flows: Mutex<BTreeMap<u64, Flow>>,
    arrived: Condvar,
}

/// Serves until the registration ends; `once` ends after the first control channel has closed.
/// What is asked beyond `scope` is refused.
///
/// # Errors
/// The node has gone.
pub fn serve(
    mut registration: Registration,
    once: bool,
    scope: Scope,
    listener: Arc<Listener>,
) -> Result<(), Failure> {
    let desk = Arc::new(Desk::default());
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    loop {
        if once && done.load(std::sync::atomic::Ordering::Acquire) {
            return Ok(());
        }
        let limit = Duration::from_millis(if once { 100 } else { 60_000 });
        let request = registration
            .next_request_timeout(limit)
            .attempt("waiting for flows")?;
        let Some(request) = request else { continue };
        let flow = match registration.accept_request(&request) {
            Ok(flow) => flow,
            // The client gave up between asking and being accepted: its loss.
            Err(carina_client::Error::Refused(_)) => continue,
            Err(error) => return Err(error).attempt("accepting a flow"),
        };
        let (desk, listener, done) = (desk.clone(), listener.clone(), done.clone());
        std::thread::spawn(move || {
            let was_control = match attend(flow, &desk, scope, &*listener) {
                Ok(was_control) => was_control,
                Err(failure) => {
                    progress(format!("carina: a client failed: {failure}"));
                    true
                }
            };
            done.fetch_or(was_control, std::sync::atomic::Ordering::AcqRel);
        });
    }
}

/// Finds out what a flow is for and serves it; says whether it was a control channel.
fn attend(flow: Flow, desk: &Desk, scope: Scope, listener: &Listener) -> Result<bool, Failure> {
    let mut control = Control::new(flow);
    match control.hear(STEP)? {
        Some(Message::Control { version: VERSION }) => {
            converse(&mut control, desk, scope, listener)?;
            Ok(true)
        }
        Some(Message::Control { version }) => {
            let reason = format!("version {version} of perf was asked; this is version {VERSION}");
            control.say(&Message::Refused(reason))?;
            Ok(true)
        }
        Some(Message::Data { ticket }) => desk.put(ticket, control.into_flow()).map(|()| false),
        Some(other) => Err(failed(format!("a flow began with {other:?}"))),
        None => Ok(false),
    }
}

fn converse(
    control: &mut Control,
    desk: &Desk,
    scope: Scope,
    listener: &Listener,
) -> Result<(), Failure> {
    while let Some(message) = control.hear(BETWEEN_JOBS)? {
        let outcome = match message {
            Message::Job(job) if scope == Scope::Flows && !matches!(job.via, Via::Flow { .. }) => {
                Err(failed("this server measures flows only"))
            }
            Message::Network { .. } if scope == Scope::Flows => {
                Err(failed("this server sets no addresses"))
            }
            Message::Job(job) => perform(control, &job, desk, listener).map(Message::Report),
            Message::Network { driver, address } => {
                crate::bench::guest_network::set_address(&driver, &address).map(|()| Message::Done)
            }
            other => Err(failed(format!("out of turn: {other:?}"))),
        };
        let answer = outcome.unwrap_or_else(|failure| Message::Refused(failure.to_string()));
        control.say(&answer)?;
    }
    Ok(())
}

/// The server's end of a carriage before the client has connected.
enum Opening {
    Flow(u64),
    Udp(UdpSocket),
    Tcp(TcpListener),
    Unix(OwnedFd),
    Bare(BareCarriage),
}

fn open(via: &Via) -> Result<(Opening, Option<SocketAddr>), Failure> {
    Ok(match via {
        Via::Flow { ticket } => (Opening::Flow(*ticket), None),
        Via::Udp { server, .. } => {
            let (socket, local) = UdpCarriage::bind(*server)?;
            (Opening::Udp(socket), Some(local))
        }
        Via::Tcp { server } => {
            let listener = TcpListener::bind((*server, 0)).attempt("listening on TCP")?;
            let local = listener
                .local_addr()
                .attempt("reading the address of a listener")?;
            (Opening::Tcp(listener), Some(local))
        }
        Via::Unix { path } => {
            // Left by an earlier job; the listener must make the file itself.
            let _ = std::fs::remove_file(path);
            let listener = listen_seqpacket(path).attempt("listening on a Unix socket")?;
            (Opening::Unix(listener), None)
        }
        Via::Bare { path } => (Opening::Bare(BareCarriage::open(path, false)?), None),
    })
}

fn perform(
    control: &mut Control,
    job: &Job,
    desk: &Desk,
    listener: &Listener,
) -> Result<Seen, Failure> {
    job.sizes.check().map_err(failed)?;
    let (opening, at) = open(&job.via)?;
    control.say(&Message::Opened(at))?;
    let client = match control.hear(STEP)? {
        Some(Message::Connected(client)) => client,
        Some(other) => return Err(failed(format!("out of turn: {other:?}"))),
        None => return Err(failed("the client left before it connected")),
    };
    match opening {
        Opening::Flow(ticket) => {
            let flow = desk.take(ticket, STEP)?;
            carry(control, FlowCarriage::new(flow), job, listener)
        }
        Opening::Udp(socket) => {
            let mut client = client.ok_or_else(|| failed("the client did not say its address"))?;
            let through = match job.via {
                Via::Udp { through, .. } => through,
                _ => None,
            };
            client.set_ip(through.unwrap_or(client.ip()));
            let mut carriage = UdpCarriage::connect(socket, client)?;
            if through.is_some() {
                carriage = carriage.call()?;
            }
            carry(control, carriage, job, listener)
        }
        Opening::Tcp(tcp) => {
            let (stream, _) = tcp.accept().attempt("accepting TCP")?;
            carry(control, TcpCarriage::new(stream)?, job, listener)
        }
        Opening::Unix(unix) => {
            let socket = accept_seqpacket(&unix).attempt("accepting a Unix socket")?;
            carry(control, UnixCarriage::new(socket)?, job, listener)
        }
        Opening::Bare(bare) => carry(control, bare, job, listener),
    }
}

fn carry<C: Carriage + Send>(
    control: &mut Control,
    mut carriage: C,
    job: &Job,
    listener: &Listener,
) -> Result<Seen, Failure> {
    control.say(&Message::Go)?;
    listener(Note::Begin(job));
    let mut tell = |seen: &Seen| listener(Note::Interval(seen));
    let seen = on_own_thread(job.pin.map(|pin| pin[1]), || match job.direction {
        Direction::Forward => run::receive(&mut carriage, job, &mut tell),
        Direction::Reverse => run::send(&mut carriage, job),
        Direction::Echo => run::reflect(&mut carriage, job),
    })?;
    listener(Note::End(job, &seen));
    Ok(seen)
}

impl Desk {
    fn put(&self, ticket: u64, flow: Flow) -> Result<(), Failure> {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if flows.len() >= WAITING_FLOWS_MAX {
            return Err(failed(format!(
                "{WAITING_FLOWS_MAX} data flows already wait for a job"
            )));
        }
        flows.insert(ticket, flow);
        self.arrived.notify_all();
        Ok(())
    }

    fn take(&self, ticket: u64, limit: Duration) -> Result<Flow, Failure> {
        let deadline = Instant::now() + limit;
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(flow) = flows.remove(&ticket) {
                return Ok(flow);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed("the client's data flow did not arrive"));
            }
            let waited = self.arrived.wait_timeout(flows, left);
            flows = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
