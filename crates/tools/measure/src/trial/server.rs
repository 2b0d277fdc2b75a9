//! The server of a measurement: accepts control flows and data flows, and does its half of each
//! job.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carina_client::{Flow, Registration};
use carina_sys::{accept_seqpacket, listen_seqpacket};

use super::client::on_own_thread;
use super::control::Control;
use super::error::TrialError;
use super::job::{Direction, Job, Message, SideReport, VERSION, Via};
use super::run;
use crate::transport::Transport;
use crate::transport::bare::BareTransport;
use crate::transport::error::Attempt;
use crate::transport::flow::FlowTransport;
use crate::transport::grants;
use crate::transport::tcp::TcpTransport;
use crate::transport::udp::UdpTransport;
use crate::transport::unix::UnixTransport;
use crate::transport::vsock::VsockListener;

/// How long a client may take between two steps of a job.
const STEP: Duration = Duration::from_secs(20);
/// How long a control channel may be silent between jobs.
const BETWEEN_JOBS: Duration = Duration::from_secs(24 * 3600);
/// Largest number of data flows that wait for their job; further ones are refused.
const WAITING_FLOWS_MAX: usize = 64;

/// What a server reports to its [`Listener`] while it serves.
pub enum Event<'a> {
    /// A job begins.
    Begin(&'a Job),
    /// An interval of a job has ended.
    Interval(&'a SideReport),
    /// A job has ended.
    End(&'a Job, &'a SideReport),
    /// A client's flow failed; the server continues to serve other clients.
    Failed(&'a TrialError),
}

/// Receives the events of all jobs, on the threads that run the jobs.
pub type Listener = dyn Fn(Event<'_>) + Send + Sync;

/// Which jobs clients may request.
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// Jobs over flows only.
    Flows,
    /// All jobs, including those that use sockets and files of this system. Only for a server that
    /// its own benchmark has started.
    Bench,
}

/// Data flows that have arrived and wait for the job with their ticket.
#[derive(Default)]
struct WaitingFlows {
    flows: Mutex<BTreeMap<u64, Flow>>,
    arrived: Condvar,
}

/// Serves clients until the registration ends. With `once`, ends after the first control channel
/// has closed. Refuses jobs that `scope` does not allow.
///
/// # Errors
/// The node has ended.
pub fn serve(
    mut registration: Registration,
    once: bool,
    scope: Scope,
    listener: Arc<Listener>,
) -> Result<(), TrialError> {
    let waiting = Arc::new(WaitingFlows::default());
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
            // The client gave up before the server accepted its flow.
            Err(carina_client::Error::Refused(_)) => continue,
            Err(error) => return Ok(Err(error).attempt("accepting a flow")?),
        };
        let (waiting, listener, done) = (waiting.clone(), listener.clone(), done.clone());
        std::thread::spawn(move || {
            let was_control = match serve_flow(flow, &waiting, scope, &*listener) {
                Ok(was_control) => was_control,
                Err(error) => {
                    listener(Event::Failed(&error));
                    true
                }
            };
            done.fetch_or(was_control, std::sync::atomic::Ordering::AcqRel);
        });
    }
}

/// Reads the purpose of a flow and serves it. Returns whether it was a control channel.
fn serve_flow(
    flow: Flow,
    waiting: &WaitingFlows,
    scope: Scope,
    listener: &Listener,
) -> Result<bool, TrialError> {
    let mut control = Control::new(flow);
    match control.receive(STEP)? {
        Some(Message::Control { version: VERSION }) => {
            serve_control(&mut control, waiting, scope, listener)?;
            Ok(true)
        }
        Some(Message::Control { version }) => {
            let reason = format!(
                "the client uses version {version} of the perf protocol; this server has version \
                 {VERSION}"
            );
            control.send(&Message::Refused(reason))?;
            Ok(true)
        }
        Some(Message::Data { ticket }) => waiting.put(ticket, control.into_flow()).map(|()| false),
        Some(other) => Err(TrialError::OutOfTurn(Box::new(other))),
        None => Ok(false),
    }
}

fn serve_control(
    control: &mut Control,
    waiting: &WaitingFlows,
    scope: Scope,
    listener: &Listener,
) -> Result<(), TrialError> {
    while let Some(message) = control.receive(BETWEEN_JOBS)? {
        let outcome = match message {
            Message::Job(job)
                if matches!(scope, Scope::Flows) && !matches!(job.via, Via::Flow { .. }) =>
            {
                Err(TrialError::FlowsOnly)
            }
            Message::Job(job) => perform(control, &job, waiting, listener).map(Message::Report),
            other => Err(TrialError::OutOfTurn(Box::new(other))),
        };
        let answer = outcome.unwrap_or_else(|error| Message::Refused(error.to_string()));
        control.send(&answer)?;
    }
    Ok(())
}

/// The server's end of a transport, before the client has connected.
enum Opening {
    Flow(u64),
    Udp(UdpSocket),
    Tcp(TcpListener),
    Unix(OwnedFd),
    Vsock(VsockListener),
    RelayedVsock(UnixListener),
    Bare(BareTransport),
}

/// Opens the server's end. Returns the message that tells the client where.
fn open(via: &Via) -> Result<(Opening, Message), TrialError> {
    let (opening, at) = match via {
        Via::Flow { ticket } => (Opening::Flow(*ticket), None),
        Via::Udp { server, .. } => {
            let (socket, local) = UdpTransport::bind(*server)?;
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
            // An earlier job may have left the file; the listener must create it.
            let _ = std::fs::remove_file(path);
            let listener = listen_seqpacket(path).attempt("listening on a Unix socket")?;
            (Opening::Unix(listener), None)
        }
        Via::Vsock {
            relayed_to: Some(path),
            ..
        } => {
            // An earlier job may have left the file; the listener must create it.
            let _ = std::fs::remove_file(path);
            let listener = UnixListener::bind(path).attempt("listening on a Unix socket")?;
            (Opening::RelayedVsock(listener), None)
        }
        Via::Vsock { port, .. } => (Opening::Vsock(VsockListener::bind(*port)?), None),
        Via::Bare { server, .. } => (Opening::Bare(BareTransport::open(server, false)?), None),
        Via::Grants { client, .. } => {
            let (rings, reference) = grants::grant(*client)?;
            return Ok((Opening::Bare(rings), Message::Granted(reference)));
        }
    };
    Ok((opening, Message::Opened(at)))
}

fn perform(
    control: &mut Control,
    job: &Job,
    waiting: &WaitingFlows,
    listener: &Listener,
) -> Result<SideReport, TrialError> {
    job.sizes.check()?;
    let (opening, opened) = open(&job.via)?;
    control.send(&opened)?;
    let client = match control.receive(STEP)? {
        Some(Message::Connected(client)) => client,
        Some(other) => return Err(TrialError::OutOfTurn(Box::new(other))),
        None => return Err(TrialError::ClientLeft),
    };
    match opening {
        Opening::Flow(ticket) => {
            let flow = waiting.take(ticket, STEP)?;
            run_job(control, FlowTransport::new(flow), job, listener)
        }
        Opening::Udp(socket) => {
            let mut client = client.ok_or(TrialError::NoAddress)?;
            let through = match job.via {
                Via::Udp { through, .. } => through,
                _ => None,
            };
            client.set_ip(through.unwrap_or(client.ip()));
            let mut transport = UdpTransport::connect(socket, client)?;
            if through.is_some() {
                transport = transport.call()?;
            }
            run_job(control, transport, job, listener)
        }
        Opening::Tcp(tcp) => run_job(control, TcpTransport::new(accept(&tcp)?)?, job, listener),
        Opening::Unix(unix) => {
            let socket = accept_seqpacket(&unix).attempt("accepting a Unix socket")?;
            run_job(control, UnixTransport::new(socket)?, job, listener)
        }
        Opening::Vsock(vsock) => run_job(
            control,
            TcpTransport::over(vsock.accept(STEP)?)?,
            job,
            listener,
        ),
        Opening::RelayedVsock(unix) => run_job(
            control,
            TcpTransport::over(accept_stream(&unix)?.into())?,
            job,
            listener,
        ),
        Opening::Bare(bare) => run_job(control, bare, job, listener),
    }
}

/// Accepts the connection of a program that relays for a client.
fn accept_stream(unix: &UnixListener) -> Result<UnixStream, TrialError> {
    unix.set_nonblocking(true).attempt("accepting a relay")?;
    let deadline = Instant::now() + STEP;
    loop {
        match unix.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).attempt("accepting a relay")?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Ok(Err(error).attempt("accepting a relay")?),
        }
    }
}

/// Accepts the connection of a client that has reported to be connected.
fn accept(tcp: &TcpListener) -> Result<TcpStream, TrialError> {
    tcp.set_nonblocking(true).attempt("accepting TCP")?;
    let deadline = Instant::now() + STEP;
    loop {
        match tcp.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).attempt("accepting TCP")?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Ok(Err(error).attempt("accepting TCP")?),
        }
    }
}

fn run_job<C: Transport + Send>(
    control: &mut Control,
    mut transport: C,
    job: &Job,
    listener: &Listener,
) -> Result<SideReport, TrialError> {
    control.send(&Message::Go)?;
    listener(Event::Begin(job));
    let mut on_interval = |seen: &SideReport| listener(Event::Interval(seen));
    let seen = on_own_thread(job.pin.map(|pin| pin[1]), || match job.direction {
        Direction::Forward => run::receive(&mut transport, job, &mut on_interval),
        Direction::Reverse => run::send(&mut transport, job),
        Direction::Echo => run::reflect(&mut transport, job),
    })?;
    listener(Event::End(job, &seen));
    Ok(seen)
}

impl WaitingFlows {
    fn put(&self, ticket: u64, flow: Flow) -> Result<(), TrialError> {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if flows.len() >= WAITING_FLOWS_MAX {
            return Err(TrialError::WaitingFlows(WAITING_FLOWS_MAX));
        }
        flows.insert(ticket, flow);
        self.arrived.notify_all();
        Ok(())
    }

    fn take(&self, ticket: u64, limit: Duration) -> Result<Flow, TrialError> {
        let deadline = Instant::now() + limit;
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(flow) = flows.remove(&ticket) {
                return Ok(flow);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TrialError::NoDataFlow);
            }
            let waited = self.arrived.wait_timeout(flows, left);
            flows = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
