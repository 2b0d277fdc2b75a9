//! The client of a measurement: asks a server for jobs and does its own half.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use carina_sys::{connect_seqpacket, pin_to_cpu};
use serde::{Deserialize, Serialize};

use super::control::{Control, Route};
use super::job::{Direction, Job, Message, Seen, VERSION, Via};
use super::run;
use crate::carriage::Carriage;
use crate::carriage::bare::BareCarriage;
use crate::carriage::flow::FlowCarriage;
use crate::carriage::tcp::TcpCarriage;
use crate::carriage::udp::UdpCarriage;
use crate::carriage::unix::UnixCarriage;
use crate::failure::{Attempt, Failure, failed};

/// How long the server may take to answer, beyond the time that the job itself takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What both sides saw of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What was asked.
    pub direction: Direction,
    /// What the client saw.
    pub client: Seen,
    /// What the server saw.
    pub server: Seen,
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

    /// Does one job; `tell` hears of intervals when the client is the one that receives.
    ///
    /// # Errors
    /// The server refuses, the carriage breaks, or either side has gone.
    pub fn run(
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
        let server = match self.hear(PATIENCE)? {
            Message::Report(seen) => seen,
            other => return Err(unexpected(&other)),
        };
        Ok(Trial {
            direction: job.direction,
            client,
            server,
        })
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
        match self.control.hear(limit)? {
            Some(Message::Refused(reason)) => Err(failed(format!("the server refused: {reason}"))),
            Some(message) => Ok(message),
            None => Err(failed("the server closed the control channel")),
        }
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
