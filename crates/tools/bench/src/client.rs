//! The client of a bench's measurements: each has a deadline, and one that fails spoils no other.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use carina_api::DifName;
use carina_measure::trial::client::{Trial, TrialClient};
use carina_measure::trial::job::Job;
use carina_measure::trial::target::Target;

use crate::error::{Error, Result};

/// A client that opens its control channel when it is needed: at first, and after a measurement
/// that failed, when the two ends of the old one may be in different states.
#[derive(Debug)]
pub struct Client {
    target: Target,
    open: Option<TrialClient>,
}

impl Client {
    /// Opens a client of the server.
    ///
    /// # Errors
    /// The node refuses the flow.
    pub fn open(target: Target) -> Result<Self> {
        let mut client = Self { target, open: None };
        client.ready()?;
        Ok(client)
    }

    /// A ticket for a job over a flow.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn ticket(&mut self) -> Result<u64> {
        Ok(self.ready()?.ticket())
    }

    /// Sets the target of the flows that carry SDUs; `None` for that of the control channel.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn carry_over(&mut self, target: Option<Target>) -> Result<()> {
        self.ready()?.carry_over(target);
        Ok(())
    }

    /// As [`Client::carry_over`], over a certain DIF; over any for `None`.
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

    /// Does one job.
    ///
    /// # Errors
    /// The job fails, or has no result at its deadline; the next one begins with a new control
    /// channel.
    pub fn run(&mut self, job: Job) -> Result<Trial> {
        self.ready()?;
        let Some(mut client) = self.open.take() else {
            return Err(Error::NoAnswer("the client is not open".to_owned()));
        };
        let limit = limit(&job);
        let (done, result) = channel();
        // Every step of a job has a limit of its own; a step that has none after all is left
        // behind with its thread.
        std::thread::spawn(move || {
            let outcome = client.run(&job, &mut |_| {});
            // The receiver is gone after the deadline.
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

/// How long a measurement may take.
pub fn limit(job: &Job) -> Duration {
    let sends = match job.duration_ns {
        0 => COUNTED,
        ns => Duration::from_nanos(ns),
    };
    sends.saturating_add(BESIDE)
}

/// How long a job may send that ends with a count.
const COUNTED: Duration = Duration::from_secs(600);
/// What a measurement takes beside sending: connecting, what is still under way, the report.
pub const BESIDE: Duration = Duration::from_secs(75);
