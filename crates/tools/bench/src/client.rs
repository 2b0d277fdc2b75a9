//! The client of a benchmark's measurements. Each measurement has a deadline, and a failed one does
//! not affect the others.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use carina_api::{AppName, DifName};
use carina_measure::trial::client::{Trial, TrialClient};
use carina_measure::trial::job::Job;
use carina_measure::trial::target::Target;

use crate::error::{Error, Result};

/// Runs measurements against a server, over a control channel that it opens when it is needed: at
/// first, and again after a failed measurement, because the two ends of the old channel may then
/// disagree about the state.
#[derive(Debug)]
pub struct Client {
    target: Target,
    open: Option<TrialClient>,
    /// Clients of the systems whose server is elsewhere, with the names of these systems.
    elsewhere: Vec<(Vec<&'static str>, Client)>,
}

impl Client {
    /// Connects to the server of measurements at `target`.
    ///
    /// # Errors
    /// The node refuses the flow.
    pub fn open(target: Target) -> Result<Self> {
        let mut client = Self {
            target,
            open: None,
            elsewhere: Vec::new(),
        };
        client.ready()?;
        Ok(client)
    }

    /// Has `client` run the measurements of `systems`, whose server is in another guest.
    pub(crate) fn add(&mut self, systems: Vec<&'static str>, client: Client) {
        self.elsewhere.push((systems, client));
    }

    /// The client of a system's measurements.
    pub(crate) fn of(&mut self, system: &str) -> &mut Client {
        let place = self
            .elsewhere
            .iter()
            .position(|(systems, _)| systems.contains(&system));
        match place {
            Some(place) => &mut self.elsewhere[place].1,
            None => self,
        }
    }

    /// Returns a number that no other job of this client has, by which the server recognizes the
    /// flow of a job.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn ticket(&mut self) -> Result<u64> {
        Ok(self.ready()?.ticket())
    }

    /// Sets the target of the flows that carry SDUs. `None` means the target of the control
    /// channel.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn carry_over(&mut self, target: Option<Target>) -> Result<()> {
        self.ready()?.carry_over(target);
        Ok(())
    }

    /// The target of flows to another application of the server's system, over the DIF `dif`.
    pub(crate) fn target_of(&self, name: &AppName, dif: Option<&DifName>) -> Target {
        Target {
            remote: name.clone(),
            dif: dif.cloned(),
            ..self.target.clone()
        }
    }

    /// Like [`Client::carry_over`], with the same target over the DIF `dif`; `None` means any DIF.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn carry_over_dif(&mut self, dif: Option<&DifName>) -> Result<()> {
        let target = dif.map(|dif| Target {
            dif: Some(dif.clone()),
            ..self.target.clone()
        });
        self.carry_over(target)
    }

    /// Runs one measurement, and waits for the reports of both sides.
    ///
    /// # Errors
    /// The job fails, or has no result at its deadline. The next job then begins with a new control
    /// channel.
    pub fn run(&mut self, job: Job) -> Result<Trial> {
        self.ready()?;
        let Some(mut client) = self.open.take() else {
            return Err(Error::NoAnswer("the client is not open".to_owned()));
        };
        let limit = limit(&job);
        let (done, result) = channel();
        // Every step of a job should have a limit of its own. If one has none, its thread is
        // abandoned at the deadline.
        std::thread::spawn(move || {
            let outcome = client.run(&job, &mut |_| {});
            // The receiver is closed after the deadline.
            let _ = done.send((client, outcome));
        });
        match result.recv_timeout(limit) {
            Ok((client, Ok(trial))) => {
                self.open = Some(client);
                Ok(trial)
            }
            Ok((_, Err(error))) => Err(error.into()),
            Err(RecvTimeoutError::Timeout) => Err(Error::NoAnswer(format!(
                "no result within {} s",
                limit.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::NoAnswer("the measurement panicked".to_owned()))
            }
        }
    }

    fn ready(&mut self) -> Result<&mut TrialClient> {
        let open = match self.open.take() {
            Some(open) => open,
            None => TrialClient::open(self.target.clone())?,
        };
        Ok(self.open.insert(open))
    }
}

/// Longest time that a measurement may take, from the request to the reports.
pub fn limit(job: &Job) -> Duration {
    let sends = match job.duration_ns {
        0 => COUNTED,
        ns => Duration::from_nanos(ns),
    };
    sends.saturating_add(BESIDE)
}

/// How long a job may send whose end is a count of SDUs.
const COUNTED: Duration = Duration::from_secs(600);
/// How much longer than its sending time a measurement may take: for connecting, for SDUs in
/// transit, and for the report.
pub const BESIDE: Duration = Duration::from_secs(75);
