//! Runs a role's state machine on a thread of its own, with a clock: passes input to it, calls its
//! timeouts, and puts its messages into mailboxes.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration as StdDuration, Instant as StdInstant, SystemTime, UNIX_EPOCH};

use carina_api::{ErrorBody, ErrorCode};
use carina_time::{Duration, Instant};
use tokio::sync::oneshot;

use crate::log::Log;
use crate::machine::Machine;
use crate::mailbox::Mailboxes;

/// The time since 1970 as roles use it: the system's time when the process began, advanced by a
/// clock that is never set back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    at: StdInstant,
}

/// A function to run on the machine's thread.
type Job<M> = Box<dyn FnOnce(&mut M, Instant) + Send>;

/// Sends work to a state machine that runs on a thread of its own. Clones refer to the same
/// machine, which ends with the last of them.
pub struct Handle<M> {
    jobs: SyncSender<Job<M>>,
}

impl Clock {
    /// Starts the clock at the system's current time.
    pub fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            began: Instant::ZERO + Duration::from(since.unwrap_or_default()),
            at: StdInstant::now(),
        }
    }

    /// The current time since 1970, which never goes back.
    pub fn now(self) -> Instant {
        self.began + Duration::from(self.at.elapsed())
    }
}

impl<M: Machine> Handle<M> {
    /// Starts a state machine. It ends when the last handle is dropped.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(machine: M, mailboxes: Arc<Mailboxes>, log: Log) -> std::io::Result<Handle<M>> {
        let (jobs, waiting) = sync_channel(JOBS_MAX);
        let driver = Driver {
            machine,
            mailboxes,
            log,
            clock: Clock::start(),
        };
        let thread = std::thread::Builder::new().name(M::ROLE.word().to_owned());
        thread.spawn(move || driver.run(&waiting))?;
        Ok(Handle { jobs })
    }

    /// Runs a function on the machine's thread with the current time, and waits for its result.
    ///
    /// # Errors
    /// Too many functions are waiting, the machine has ended, or there is no result within 30
    /// seconds.
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut M, Instant) -> T + Send + 'static,
    ) -> Result<T, ErrorBody> {
        let (done, answer) = oneshot::channel();
        self.submit(work, done)?;
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(answer) => answer.map_err(|_| ended()),
            Err(_) => {
                let what = "the role did not handle the request in time; its store may be slow";
                Err(ErrorBody::new(ErrorCode::TimedOut, what))
            }
        }
    }

    /// Like [`Handle::ask`], but blocks the calling thread, without a time limit.
    ///
    /// # Errors
    /// Too many functions are waiting, or the machine has ended.
    pub fn ask_and_wait<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut M, Instant) -> T + Send + 'static,
    ) -> Result<T, ErrorBody> {
        let (done, answer) = oneshot::channel();
        self.submit(work, done)?;
        answer.blocking_recv().map_err(|_| ended())
    }

    fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut M, Instant) -> T + Send + 'static,
        done: oneshot::Sender<T>,
    ) -> Result<(), ErrorBody> {
        let job: Job<M> = Box::new(move |machine, now| {
            // The caller may have stopped waiting.
            let _ = done.send(work(machine, now));
        });
        self.jobs.try_send(job).map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(_) => {
                let what = "the role is overloaded; try again";
                ErrorBody::new(ErrorCode::LimitReached, what)
            }
            std::sync::mpsc::TrySendError::Disconnected(_) => ended(),
        })
    }
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Handle<M> {
        Handle {
            jobs: self.jobs.clone(),
        }
    }
}

impl<M> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

struct Driver<M> {
    machine: M,
    mailboxes: Arc<Mailboxes>,
    log: Log,
    clock: Clock,
}

impl<M: Machine> Driver<M> {
    fn run(mut self, jobs: &Receiver<Job<M>>) {
        loop {
            let wait = self.machine.poll_timeout().since(self.clock.now());
            let wait = StdDuration::from(wait).clamp(WAIT_MIN, WAIT_MAX);
            match jobs.recv_timeout(wait) {
                Ok(job) => job(&mut self.machine, self.clock.now()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Input that has come meanwhile is processed first, because it may make a repetition
            // unnecessary.
            for job in jobs.try_iter().take(JOBS_MAX) {
                job(&mut self.machine, self.clock.now());
            }
            let now = self.clock.now();
            if self.machine.poll_timeout() <= now {
                self.machine.handle_timeout(now);
            }
            while let Some((receiver, message)) = self.machine.poll_transmit() {
                self.mailboxes.of(&receiver).put(message);
            }
            while let Some(note) = self.machine.poll_note() {
                self.log.say(note);
            }
            self.log.counts(self.machine.discarded());
        }
    }
}

fn ended() -> ErrorBody {
    ErrorBody::new(
        ErrorCode::Internal,
        "the role has ended; its log has the reason",
    )
}

/// Largest number of functions that wait for a machine.
const JOBS_MAX: usize = 1024;
/// Longest time to wait for a result.
const ANSWER: StdDuration = StdDuration::from_secs(30);
/// Least time between two timeouts, so that a machine that always has something to do cannot spin.
const WAIT_MIN: StdDuration = StdDuration::from_micros(100);
/// Longest time between two timeouts of an idle machine.
const WAIT_MAX: StdDuration = StdDuration::from_secs(3600);
