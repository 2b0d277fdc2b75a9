//! A machine on a thread of its own, with a clock: it handles what comes, does what is due, and
//! puts what it says into mailboxes.

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

/// Time since 1970 as roles count it: the system's clock when the process began, from then on a
/// clock that is never set.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    at: StdInstant,
}

/// Work for a machine.
type Job<M> = Box<dyn FnOnce(&mut M, Instant) + Send>;

/// A way to a machine that runs.
pub struct Handle<M> {
    jobs: SyncSender<Job<M>>,
}

impl Clock {
    /// The system's time now.
    pub fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            began: Instant::ZERO + Duration::from(since.unwrap_or_default()),
            at: StdInstant::now(),
        }
    }

    /// Now.
    pub fn now(self) -> Instant {
        self.began + Duration::from(self.at.elapsed())
    }
}

impl<M: Machine> Handle<M> {
    /// Starts a machine. It ends when no handle of it is left.
    ///
    /// # Errors
    /// The system gives no thread.
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

    /// Has work done by the machine's thread.
    ///
    /// # Errors
    /// Too much waits already, or the machine has ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut M, Instant) -> T + Send + 'static,
    ) -> Result<T, ErrorBody> {
        let (done, answer) = oneshot::channel();
        self.submit(work, done)?;
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(answer) => answer.map_err(|_| ended()),
            Err(_) => {
                let what = "the role has not come to it in time; its store may be slow";
                Err(ErrorBody::new(ErrorCode::TimedOut, what))
            }
        }
    }

    /// As [`Handle::ask`], for a thread that may wait.
    ///
    /// # Errors
    /// As [`Handle::ask`].
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
            // Who asked may have gone.
            let _ = done.send(work(machine, now));
        });
        self.jobs.try_send(job).map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(_) => {
                let what = "the role has too much to do; try again";
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
            // What came meanwhile goes first: it may make a repetition needless.
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
    ErrorBody::new(ErrorCode::Internal, "the role has ended; its log says more")
}

/// Work that waits for a machine at most.
const JOBS_MAX: usize = 1024;
/// How long one who asks waits for the machine.
const ANSWER: StdDuration = StdDuration::from_secs(30);
/// A machine that has something to do at once waits at least so long, so that it cannot spin.
const WAIT_MIN: StdDuration = StdDuration::from_micros(100);
/// A machine that has nothing to do is looked at again after so long.
const WAIT_MAX: StdDuration = StdDuration::from_secs(3600);
