//! The client of a measurement: asks a server for jobs and does its own half.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use carina_sys::{connect_seqpacket, pin_to_cpu};
use serde::{Deserialize, Serialize};

use super::control::{Control, Route};
use super::job::{Direction, Ending, Job, Message, Seen, VERSION, Via};
use super::run::{self, DRAIN};
use crate::carriage::Carriage;
use crate::carriage::bare::BareCarriage;
use crate::carriage::flow::FlowCarriage;
use crate::carriage::tcp::TcpCarriage;
use crate::carriage::udp::UdpCarriage;
use crate::carriage::unix::UnixCarriage;
use crate::failure::{Attempt, Failure, failed};

/// How long the server may take to answer, beyond the time that the job itself takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the server's report may take once the server has nothing to wait for any more: the
/// control channel may have stalled as well.
const REPORT: Duration = Duration::from_secs(2);

/// What both sides saw of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What was asked.
    pub direction: Direction,
    /// What the client saw.
    pub client: Seen,
    /// What the server saw; nothing where it did not say.
    pub server: Seen,
    /// Why there is no report of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<String>,
}

impl Trial {
    /// The side that sent.
    pub fn sender(&self) -> &Seen {
        if self.direction == Direction::Reverse {
            &self.server
        } else {
            &self.client
        }
    }

    /// The side that received and counted; the client of an echo, which got the answers.
    pub fn receiver(&self) -> &Seen {
        if self.direction == Direction::Forward {
            &self.server
        } else {
            &self.client
        }
    }

    /// Whether the side that sent has told what it saw.
    pub fn sender_told(&self) -> bool {
        self.direction != Direction::Reverse || self.unreported.is_none()
    }

    /// Whether the side that received has told what it saw.
    pub fn receiver_told(&self) -> bool {
        self.direction != Direction::Forward || self.unreported.is_none()
    }

    /// In words, that the flow did not bring everything in the time given; `None` when it did.
    pub fn stall(&self) -> Option<String> {
        let told = match self.receiver().ending {
            Ending::Stalled => {
                Some("the flow stalled: nothing came any more after the end time".to_owned())
            }
            Ending::Late => Some(format!(
                "the flow is slow: not everything had come {} s after the end time",
                DRAIN.as_secs()
            )),
            Ending::Finished | Ending::HeldBack => None,
        };
        let held_back = "the flow stalled: nothing could be sent when the end time came";
        match (&self.unreported, told) {
            (None, told) => told,
            (Some(why), Some(told)) => Some(format!("{told}; {why}")),
            (Some(why), None) if self.sender().ending == Ending::HeldBack => {
                Some(format!("{held_back}; {why}"))
            }
            (Some(why), None) => Some(why.clone()),
        }
    }

    /// SDUs sent and never received, duplicates not counted as received.
    pub fn lost(&self) -> u64 {
        let receiver = self.receiver();
        let duplicates = receiver.tally.map_or(0, |tally| tally.duplicates);
        self.sender()
            .sent
            .saturating_sub(receiver.received - duplicates)
    }

    /// CPU time of both processes per SDU received, in nanoseconds.
    pub fn cpu_ns_per_sdu(&self) -> f64 {
        (self.client.cpu_ns + self.server.cpu_ns) as f64 / self.receiver().received.max(1) as f64
    }
}

/// A client with its control channel.
#[derive(Debug)]
pub struct TrialClient {
    control: Control,
    route: Route,
    /// Of the flows that carry SDUs, where it is not that of the control channel.
    carried_over: Option<Route>,
    next_ticket: u64,
}

impl TrialClient {
    /// Opens the control channel to the server.
    ///
    /// # Errors
    /// The node refuses the flow.
    pub fn open(route: Route) -> Result<Self, Failure> {
        let control = route.clone();
        Self::open_apart(&control, route)
    }

    /// Opens the control channel on a way of its own; the flows of jobs take `route`.
    ///
    /// # Errors
    /// The node refuses the flow.
    pub fn open_apart(control: &Route, route: Route) -> Result<Self, Failure> {
        let mut control = Control::new(control.allocate()?);
        control.say(&Message::Control { version: VERSION })?;
        // Unlikely to be the ticket of another client of the same server.
        let next_ticket = (u64::from(std::process::id()) << 32) ^ carina_sys::monotonic_ns();
        Ok(Self {
            control,
            route,
            carried_over: None,
            next_ticket,
        })
    }

    /// A ticket for `Via::Flow`.
    pub fn ticket(&mut self) -> u64 {
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.next_ticket
    }

    /// Sets the way of the flows that carry SDUs; `None` for that of the control channel.
    pub fn carry_over(&mut self, route: Option<Route>) {
        self.carried_over = route;
    }

    /// Asks the server for anything but a job and waits for `Done`.
    ///
    /// # Errors
    /// The server refuses or has gone.
    pub fn ask(&mut self, message: &Message) -> Result<(), Failure> {
        self.control.say(message)?;
        match self.hear(PATIENCE)? {
            Message::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Does one job that must bring everything where SDUs are not lost.
    ///
    /// # Errors
    /// As for [`TrialClient::measure`], and a flow that stalled.
    pub fn run(
        &mut self,
        job: &Job,
        tell: &mut (dyn FnMut(&Seen) + Send),
    ) -> Result<Trial, Failure> {
        let trial = self.measure(job, tell)?;
        let may_lose = matches!(job.via, Via::Udp { .. });
        match trial.stall() {
            Some(stall) if trial.unreported.is_some() || !may_lose => Err(failed(stall)),
            _ => Ok(trial),
        }
    }

    /// Does one job; `tell` hears of intervals when the client is the one that receives. What a
    /// flow that stalled has brought by the end time is told as well, see [`Trial::stall`]; after a
    /// trial without the server's report the client is of no use any more.
    ///
    /// # Errors
    /// The server refuses, the carriage breaks, or either side has gone.
    pub fn measure(
        &mut self,
        job: &Job,
        tell: &mut (dyn FnMut(&Seen) + Send),
    ) -> Result<Trial, Failure> {
        self.control.say(&Message::Job(job.clone()))?;
        let at = match self.hear(PATIENCE)? {
            Message::Opened(at) => at,
            other => return Err(unexpected(&other)),
        };
        let client = match &job.via {
            Via::Flow { ticket } => {
                let route = self.carried_over.as_ref().unwrap_or(&self.route);
                let mut control = Control::new(route.allocate()?);
                control.say(&Message::Data { ticket: *ticket })?;
                self.begin(FlowCarriage::new(control.into_flow()), None, job, tell)?
            }
            Via::Udp {
                client,
                through: Some(_),
                ..
            } => {
                let (socket, local) = UdpCarriage::bind(*client)?;
                self.control.say(&Message::Connected(Some(local)))?;
                let carriage = UdpCarriage::await_call(socket)?;
                self.go(carriage, job, tell)?
            }
            Via::Udp { client, .. } => {
                let (socket, local) = UdpCarriage::bind(*client)?;
                let carriage = UdpCarriage::connect(socket, address(at)?)?;
                self.begin(carriage, Some(local), job, tell)?
            }
            Via::Tcp { .. } => {
                let stream = TcpStream::connect(address(at)?).attempt("connecting TCP")?;
                self.begin(TcpCarriage::new(stream)?, None, job, tell)?
            }
            Via::Unix { path } => {
                let socket = connect_seqpacket(path).attempt("connecting a Unix socket")?;
                self.begin(UnixCarriage::new(socket)?, None, job, tell)?
            }
            Via::Bare { path } => self.begin(BareCarriage::open(path, true)?, None, job, tell)?,
        };
        let (server, unreported) = self.report(job, &client)?;
        Ok(Trial {
            direction: job.direction,
            client,
            server,
            unreported,
        })
    }

    /// Waits for the server's report, no longer than it can take.
    fn report(&mut self, job: &Job, client: &Seen) -> Result<(Seen, Option<String>), Failure> {
        let limit = match (client.ending, job.direction) {
            (Ending::Finished, _) => PATIENCE,
            // The server waits for what is under way, and for no longer than this.
            (_, Direction::Forward) => DRAIN + REPORT,
            _ => REPORT,
        };
        match self.control.hear_within(limit)? {
            None => {
                let why = format!("the server reported nothing within {} s", limit.as_secs());
                Ok((Seen::default(), Some(why)))
            }
            Some(heard) => match sense(heard)? {
                Message::Report(seen) => Ok((seen, None)),
                other => Err(unexpected(&other)),
            },
        }
    }

    fn begin<C: Carriage + Send>(
        &mut self,
        carriage: C,
        local: Option<SocketAddr>,
        job: &Job,
        tell: &mut (dyn FnMut(&Seen) + Send),
    ) -> Result<Seen, Failure> {
        self.control.say(&Message::Connected(local))?;
        self.go(carriage, job, tell)
    }

    fn go<C: Carriage + Send>(
        &mut self,
        mut carriage: C,
        job: &Job,
        tell: &mut (dyn FnMut(&Seen) + Send),
    ) -> Result<Seen, Failure> {
        match self.hear(PATIENCE)? {
            Message::Go => {}
            other => return Err(unexpected(&other)),
        }
        on_own_thread(job.pin.map(|pin| pin[0]), || match job.direction {
            Direction::Forward => run::send(&mut carriage, job),
            Direction::Reverse => run::receive(&mut carriage, job, tell),
            Direction::Echo => run::ping(&mut carriage, job, tell),
        })
    }

    fn hear(&mut self, limit: Duration) -> Result<Message, Failure> {
        sense(self.control.hear(limit)?)
    }
}

/// What the server said when it neither refused nor closed the channel.
fn sense(heard: Option<Message>) -> Result<Message, Failure> {
    match heard {
        Some(Message::Refused(reason)) => Err(failed(format!("the server refused: {reason}"))),
        Some(message) => Ok(message),
        None => Err(failed("the server closed the control channel")),
    }
}

/// Runs a loop on a thread of its own, so that pinning it leaves nothing behind.
pub fn on_own_thread<T: Send>(
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let Some(cpu) = cpu else { return work() };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin_to_cpu(cpu).attempt(format!("pinning to CPU {cpu}"))?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(failed("the measuring thread panicked")))
    })
}

fn address(at: Option<SocketAddr>) -> Result<SocketAddr, Failure> {
    at.ok_or_else(|| failed("the server opened a socket and did not say where"))
}

fn unexpected(message: &Message) -> Failure {
    failed(format!(
        "the server said something out of turn: {message:?}"
    ))
}
