//! A link to another party: sends the messages that wait for the party and listens to the party's
//! messages. If the connection is lost, the link connects again, with growing waiting times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carina_api::ErrorBody;
use rustls::pki_types::CertificateDer;

use super::connection::{CallError, Callee, Connection, Request};
use crate::log::Log;
use crate::mailbox::{Mailbox, list_of};
use crate::wire::Ender;

/// A connection to another party that is kept up: messages go out of a mailbox, and messages of the
/// party come in. Dropping it ends the connection.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
}

/// Processes the messages that the other party has sent: a JSON list.
pub type Listener = Box<dyn FnMut(&[u8]) -> Result<(), ErrorBody> + Send>;

type Shown = (Ender, Option<CertificateDer<'static>>);

/// The purpose of a connection to another party: to send messages, or to wait for them.
#[derive(Clone, Copy, Debug)]
enum Use {
    Hear,
    Say,
}

#[derive(Debug)]
struct Shared {
    callee: Callee,
    log: Log,
    has_ended: AtomicBool,
    /// Whether the party answers; otherwise its messages stay in the mailbox.
    is_up: AtomicBool,
    /// One connection for listening and one for sending, each with the certificate that the party
    /// has shown.
    enders: Mutex<[Option<Shown>; 2]>,
}

impl Link {
    /// Starts threads that send the messages of `mailbox` to the party, and pass the party's
    /// messages to `listener`. Returns at once; the threads connect, and reconnect if the
    /// connection is lost.
    ///
    /// # Errors
    /// The system cannot start threads.
    pub fn start(
        callee: Callee,
        mailbox: Arc<Mailbox>,
        mut listener: Listener,
        log: Log,
    ) -> std::io::Result<Link> {
        let shared = Arc::new(Shared {
            callee,
            log,
            has_ended: AtomicBool::new(false),
            is_up: AtomicBool::new(false),
            enders: Mutex::default(),
        });
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let hearing = Arc::clone(&shared);
        named("hear").spawn(move || hearing.hear(&mut listener))?;
        let saying = Arc::clone(&shared);
        named("say").spawn(move || saying.say(&mailbox))?;
        Ok(Link { shared })
    }

    /// Whether the connection on which the party's messages arrive is open at present.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.shared.is_up.load(Ordering::Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        let enders = &self.shared.enders;
        let enders = enders.lock().unwrap_or_else(PoisonError::into_inner);
        enders.iter().flatten().for_each(|(ender, _)| ender.end());
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Listens to the party until the link ends.
    fn hear(&self, listener: &mut Listener) {
        let mut wait = AGAIN_MIN;
        while !self.has_ended() {
            let outcome = self.connect(Use::Hear).and_then(|mut connection| {
                self.is_up.store(true, Ordering::Relaxed);
                self.log.say(format_args!("reaches {}", self.callee.party));
                self.hear_over(&mut connection, listener, &mut wait)
            });
            self.is_up.store(false, Ordering::Relaxed);
            if self.has_ended() {
                return;
            }
            if let Err(error) = outcome {
                self.log.say(format_args!("{error}; trying again"));
            }
            self.pause(wait);
            wait = (wait * 2).min(AGAIN_MAX);
        }
    }

    fn hear_over(
        &self,
        connection: &mut Connection,
        listener: &mut Listener,
        wait: &mut Duration,
    ) -> Result<(), CallError> {
        let target = format!("/v1/messages?wait_ms={}", HEAR.as_millis());
        let request = Request {
            method: "GET",
            target: &target,
            body: "",
            wait: HEAR,
        };
        while !self.has_ended() {
            let heard = self.callee.request(connection, &request)?;
            // A message that is refused after the handshake still shows that the connection works.
            *wait = AGAIN_MIN;
            if let Err(refusal) = listener(&heard) {
                self.log.say(format_args!(
                    "a message of {} is rejected: {refusal}",
                    self.callee.party
                ));
            }
        }
        Ok(())
    }

    /// Sends the messages of the mailbox until the link ends.
    fn say(&self, mailbox: &Mailbox) {
        let mut connection = None;
        let (mut lists, mut checked) = (0, Instant::now());
        while !self.has_ended() {
            lists = self.follow_lists(lists, &mut checked);
            if !self.is_up.load(Ordering::Relaxed) {
                connection = None;
                self.pause(AGAIN_MIN / 4);
                continue;
            }
            let messages = mailbox.take_within(LOOK);
            if messages.is_empty() {
                continue;
            }
            let mut outcome = self.say_over(&mut connection, &messages);
            if let Err(CallError::Broken { .. }) = outcome {
                // The connection may have been idle for too long. A message that is sent twice is
                // answered the same way.
                outcome = self.say_over(&mut connection, &messages);
            }
            match outcome {
                Ok(()) => {}
                Err(CallError::Refused(refusal)) => {
                    let callee = &self.callee.party;
                    self.log
                        .say(format_args!("{callee} rejects a message: {refusal}"));
                }
                Err(error) => {
                    self.log.say(&error);
                    mailbox.put_back(messages);
                    self.pause(AGAIN_MIN);
                }
            }
        }
    }

    /// Ends the connections if the party's certificate is revoked or has expired. Returns the
    /// number of the current revocation list.
    fn follow_lists(&self, seen: u64, checked: &mut Instant) -> u64 {
        let lists = match self.callee.tls.reload_if_changed() {
            Ok(lists) => lists,
            Err(error) => {
                self.log
                    .say(format_args!("{error}; the previous list stays in force"));
                return seen;
            }
        };
        if lists != seen || checked.elapsed() >= EXPIRY {
            *checked = Instant::now();
            let enders = self.enders.lock().unwrap_or_else(PoisonError::into_inner);
            for (ender, certificate) in enders.iter().flatten() {
                let is_good = |certificate| self.callee.tls.is_good(certificate);
                if certificate
                    .as_ref()
                    .is_some_and(|certificate| !is_good(certificate))
                {
                    ender.end();
                }
            }
        }
        lists
    }

    fn say_over(
        &self,
        connection: &mut Option<Connection>,
        messages: &[String],
    ) -> Result<(), CallError> {
        let mut current = match connection.take() {
            Some(connection) => connection,
            None => self.connect(Use::Say)?,
        };
        let body = list_of(messages);
        let request = Request {
            method: "POST",
            target: "/v1/messages",
            body: &body,
            wait: Duration::ZERO,
        };
        let outcome = self.callee.request(&mut current, &request);
        if matches!(outcome, Ok(_) | Err(CallError::Refused(_))) {
            *connection = Some(current);
        }
        outcome.map(drop)
    }

    /// Connects, and replaces the earlier connection for the same purpose.
    fn connect(&self, what_for: Use) -> Result<Connection, CallError> {
        let connection = self.callee.connect()?;
        let mut enders = self.enders.lock().unwrap_or_else(PoisonError::into_inner);
        let ender = connection.ender().ok();
        enders[what_for as usize] = ender.map(|ender| (ender, connection.certificate()));
        Ok(connection)
    }

    /// Waits, but not after the link has ended.
    fn pause(&self, wait: Duration) {
        let mut left = wait;
        while !left.is_zero() && !self.has_ended() {
            let step = left.min(LOOK);
            std::thread::sleep(step);
            left -= step;
        }
    }
}

/// How long a listening request waits for messages.
const HEAR: Duration = Duration::from_secs(20);
/// Time between two checks whether the link has ended.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time between two checks whether certificates have expired.
const EXPIRY: Duration = Duration::from_secs(30);
/// Time between two failed calls, at first.
const AGAIN_MIN: Duration = Duration::from_millis(100);
/// Longest time between two failed calls.
const AGAIN_MAX: Duration = Duration::from_secs(5);
