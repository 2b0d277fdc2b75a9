//! The client of a measurement: sends jobs to a server, and does its own half of each.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use carina_sys::{connect_seqpacket, pin_to_cpu};
use serde::{Deserialize, Serialize};

use super::control::Control;
use super::error::TrialError;
use super::job::{Direction, Ending, Job, Message, SideReport, VERSION, Via};
use super::run::{self, DRAIN, STILL};
use super::target::Target;
use crate::transport::Transport;
use crate::transport::bare::BareTransport;
use crate::transport::error::Attempt;
use crate::transport::flow::FlowTransport;
use crate::transport::grants;
use crate::transport::tcp::TcpTransport;
use crate::transport::udp::UdpTransport;
use crate::transport::unix::UnixTransport;
use crate::transport::vsock;

/// How long the server may take to answer, in addition to the duration of the job.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// How long the server's report may take after the server has finished, because the control channel
/// may have stalled too.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// The reports of both sides about one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The direction in which the job sent SDUs.
    pub direction: Direction,
    /// Report of the client.
    pub client: SideReport,
    /// Report of the server; all zero if the server did not report.
    pub server: SideReport,
    /// Why the report of the server is missing; `None` if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<String>,
}

impl Trial {
    /// Report of the side that sent.
    pub fn sender(&self) -> &SideReport {
        if self.direction == Direction::Reverse {
            &self.server
        } else {
            &self.client
        }
    }

    /// Report of the side that received; for an echo that of the client, which received the
    /// answers.
    pub fn receiver(&self) -> &SideReport {
        if self.direction == Direction::Forward {
            &self.server
        } else {
            &self.client
        }
    }

    /// Whether the report of the side that sent arrived.
    pub fn sender_reported(&self) -> bool {
        self.direction != Direction::Reverse || self.unreported.is_none()
    }

    /// Whether the report of the side that received arrived.
    pub fn receiver_reported(&self) -> bool {
        self.direction != Direction::Forward || self.unreported.is_none()
    }

    /// Why the flow did not deliver everything in time, as text; `None` if it did.
    pub fn stall(&self) -> Option<String> {
        let stall = match self.receiver().ending {
            Ending::Stalled => Some("the flow stalled: no more SDUs arrived".to_owned()),
            Ending::Late => Some(format!(
                "the flow is slow: SDUs were still missing {} s after the end time",
                DRAIN.as_secs()
            )),
            Ending::Finished | Ending::HeldBack => None,
        };
        let held_back = "the flow stalled: it had no more room for an SDU";
        match (&self.unreported, stall) {
            (None, stall) => stall,
            (Some(why), Some(stall)) => Some(format!("{stall}; {why}")),
            (Some(why), None) if self.sender().ending == Ending::HeldBack => {
                Some(format!("{held_back}; {why}"))
            }
            (Some(why), None) => Some(why.clone()),
        }
    }

    /// Number of SDUs that were sent and never received. Duplicates do not count as received.
    pub fn lost(&self) -> u64 {
        let receiver = self.receiver();
        let duplicates = receiver.tally.map_or(0, |tally| tally.duplicates);
        self.sender()
            .sent
            .saturating_sub(receiver.received - duplicates)
    }

    /// CPU time of both processes for each SDU received, in nanoseconds.
    pub fn cpu_ns_per_sdu(&self) -> f64 {
        (self.client.cpu_ns + self.server.cpu_ns) as f64 / self.receiver().received.max(1) as f64
    }
}

/// Requests measurements from a server over a control channel, and does the client's half of each.
#[derive(Debug)]
pub struct TrialClient {
    control: Control,
    control_target: Target,
    target: Target,
    /// Target of the flows that carry SDUs; `None` if they have the target of the control channel.
    carried_over: Option<Target>,
    next_ticket: u64,
}

impl TrialClient {
    /// Opens the control channel to the server at `target`. The flows of jobs go to the same
    /// target.
    ///
    /// # Errors
    /// The node refuses the flow.
    pub fn open(target: Target) -> Result<Self, TrialError> {
        let control = target.clone();
        Self::open_apart(&control, target)
    }

    /// Opens the control channel to `control_target`. The flows of jobs will go to `target`.
    ///
    /// # Errors
    /// The node refuses the flow.
    pub fn open_apart(control_target: &Target, target: Target) -> Result<Self, TrialError> {
        let mut control = Control::new(control_target.allocate()?);
        control.send(&Message::Control { version: VERSION })?;
        // Another client of the same server is unlikely to start with the same ticket.
        let next_ticket = (u64::from(std::process::id()) << 32) ^ carina_sys::monotonic_ns();
        Ok(Self {
            control,
            control_target: control_target.clone(),
            target,
            carried_over: None,
            next_ticket,
        })
    }

    /// Opens a new control channel after a job that failed, because the two ends of the old one may
    /// disagree about the state of the job.
    ///
    /// # Errors
    /// The node refuses the flow.
    pub fn reopen(&mut self) -> Result<(), TrialError> {
        let mut control = Control::new(self.control_target.allocate()?);
        control.send(&Message::Control { version: VERSION })?;
        self.control = control;
        Ok(())
    }

    /// Returns a new number for [`Via::Flow`], by which the server assigns a data flow to its job.
    pub fn ticket(&mut self) -> u64 {
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.next_ticket
    }

    /// Sets the target of the flows that carry SDUs. `None` means the target of the control
    /// channel.
    pub fn carry_over(&mut self, target: Option<Target>) {
        self.carried_over = target;
    }

    /// Runs one job, and waits until both sides have ended it. A flow that stalled is an error,
    /// unlike in [`TrialClient::measure`].
    ///
    /// # Errors
    /// Those of [`TrialClient::measure`], and [`TrialError::Stalled`] when the flow stalled.
    pub fn run(
        &mut self,
        job: &Job,
        on_interval: &mut (dyn FnMut(&SideReport) + Send),
    ) -> Result<Trial, TrialError> {
        let trial = self.measure(job, on_interval)?;
        let may_lose = matches!(job.via, Via::Udp { .. });
        match trial.stall() {
            Some(stall) if trial.unreported.is_some() || !may_lose => {
                Err(TrialError::Stalled(stall))
            }
            _ => Ok(trial),
        }
    }

    /// Runs one job. Calls `on_interval` at each interval if the client receives. A flow that
    /// stalled is not an error: the trial then holds what arrived by the end time, see
    /// [`Trial::stall`]. After a trial without the server's report the client cannot run further
    /// jobs.
    ///
    /// # Errors
    /// The server refuses, the transport breaks, or either side has ended.
    pub fn measure(
        &mut self,
        job: &Job,
        on_interval: &mut (dyn FnMut(&SideReport) + Send),
    ) -> Result<Trial, TrialError> {
        self.control.send(&Message::Job(job.clone()))?;
        let opened = self.receive(ANSWER_WAIT)?;
        if !matches!(opened, Message::Opened(_) | Message::Granted(_)) {
            return Err(unexpected(opened));
        }
        let client = match &job.via {
            Via::Flow { ticket } => {
                let flow = self.data_flow(*ticket)?;
                self.begin(flow, None, job, on_interval)?
            }
            Via::Udp {
                client,
                through: Some(_),
                ..
            } => {
                let (socket, local) = UdpTransport::bind(*client)?;
                self.control.send(&Message::Connected(Some(local)))?;
                let transport = UdpTransport::await_call(socket)?;
                self.go(transport, job, on_interval)?
            }
            Via::Udp { client, .. } => {
                let (socket, local) = UdpTransport::bind(*client)?;
                let transport = UdpTransport::connect(socket, address(&opened)?)?;
                self.begin(transport, Some(local), job, on_interval)?
            }
            Via::Tcp { .. } => {
                let connected = TcpStream::connect_timeout(&address(&opened)?, ANSWER_WAIT);
                let stream = connected.attempt("connecting TCP")?;
                self.begin(TcpTransport::new(stream)?, None, job, on_interval)?
            }
            Via::Unix { path } => {
                let socket =
                    connect_seqpacket(path, ANSWER_WAIT).attempt("connecting a Unix socket")?;
                self.begin(UnixTransport::new(socket)?, None, job, on_interval)?
            }
            Via::Vsock { device, port, .. } => {
                let stream = vsock::connect(device, *port, ANSWER_WAIT)?;
                self.begin(TcpTransport::over(stream)?, None, job, on_interval)?
            }
            Via::Bare { client, .. } => {
                self.begin(BareTransport::open(client, true)?, None, job, on_interval)?
            }
            Via::Grants { server, .. } => {
                let rings = grants::map(*server, reference(&opened)?)?;
                self.begin(rings, None, job, on_interval)?
            }
        };
        let (server, unreported) = self.report(job, &client)?;
        Ok(Trial {
            direction: job.direction,
            client,
            server,
            unreported,
        })
    }

    /// Allocates the flow of the job with this ticket.
    fn data_flow(&self, ticket: u64) -> Result<FlowTransport, TrialError> {
        let target = self.carried_over.as_ref().unwrap_or(&self.target);
        let mut control = Control::new(target.allocate()?);
        control.send(&Message::Data { ticket })?;
        Ok(FlowTransport::new(control.into_flow()))
    }

    /// Waits for the server's report for as long as the server can take to notice the end.
    fn report(
        &mut self,
        job: &Job,
        client: &SideReport,
    ) -> Result<(SideReport, Option<String>), TrialError> {
        let limit = match (client.ending, job.direction) {
            (Ending::Finished, _) => ANSWER_WAIT,
            // Without an end time, the server notices a stall by itself, up to `STILL` later.
            (_, Direction::Forward) if job.duration_ns == 0 => STILL + REPORT_WAIT,
            // The server waits for SDUs still on their way, but at most `DRAIN`.
            (_, Direction::Forward) => DRAIN + REPORT_WAIT,
            _ => REPORT_WAIT,
        };
        match self.control.receive_within(limit)? {
            None => {
                let why = format!("the server sent no report within {} s", limit.as_secs());
                Ok((SideReport::default(), Some(why)))
            }
            Some(received) => match answer_of(received)? {
                Message::Report(seen) => Ok((seen, None)),
                other => Err(unexpected(other)),
            },
        }
    }

    fn begin<C: Transport + Send>(
        &mut self,
        transport: C,
        local: Option<SocketAddr>,
        job: &Job,
        on_interval: &mut (dyn FnMut(&SideReport) + Send),
    ) -> Result<SideReport, TrialError> {
        self.control.send(&Message::Connected(local))?;
        self.go(transport, job, on_interval)
    }

    fn go<C: Transport + Send>(
        &mut self,
        mut transport: C,
        job: &Job,
        on_interval: &mut (dyn FnMut(&SideReport) + Send),
    ) -> Result<SideReport, TrialError> {
        match self.receive(ANSWER_WAIT)? {
            Message::Go => {}
            other => return Err(unexpected(other)),
        }
        on_own_thread(job.pin.map(|pin| pin[0]), || match job.direction {
            Direction::Forward => run::send(&mut transport, job),
            Direction::Reverse => run::receive(&mut transport, job, on_interval),
            Direction::Echo => run::ping(&mut transport, job, on_interval),
        })
    }

    fn receive(&mut self, limit: Duration) -> Result<Message, TrialError> {
        answer_of(self.control.receive(limit)?)
    }
}

/// The server's answer. Fails if the server refused, or closed the channel.
fn answer_of(received: Option<Message>) -> Result<Message, TrialError> {
    match received {
        Some(Message::Refused(reason)) => Err(TrialError::Refused(reason)),
        Some(message) => Ok(message),
        None => Err(TrialError::ServerClosed),
    }
}

/// Runs `work` on a thread of its own. Pinning to `cpu` then does not affect the calling thread.
pub fn on_own_thread<T: Send>(
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<T, TrialError> + Send,
) -> Result<T, TrialError> {
    let Some(cpu) = cpu else { return work() };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin_to_cpu(cpu).map_err(|source| TrialError::Pin { cpu, source })?;
            work()
        });
        thread.join().unwrap_or_else(|_| Err(TrialError::Panicked))
    })
}

/// The address at which the server has opened its end.
fn address(opened: &Message) -> Result<SocketAddr, TrialError> {
    match opened {
        Message::Opened(Some(at)) => Ok(*at),
        _ => Err(TrialError::NoAddress),
    }
}

/// The grant reference of the rings that the server has opened.
fn reference(opened: &Message) -> Result<u32, TrialError> {
    match opened {
        Message::Granted(reference) => Ok(*reference),
        _ => Err(TrialError::NoReference),
    }
}

fn unexpected(message: Message) -> TrialError {
    TrialError::OutOfTurn(Box::new(message))
}
