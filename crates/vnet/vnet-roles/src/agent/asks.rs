//! Requests to nodes that an agent fetches from its PIP, carries out, and answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carina_api::{ErrorBody, ErrorCode};
use serde_json::Value;

use super::Hosting;
use crate::calling::connection::{CallError, Callee, Connection, Request};
use crate::inside::request_queue::Reply;
use crate::inside::tenants::Places;
use crate::inside::{NetworkRequest, NodeRequest};
use crate::log::Log;
use crate::serving::messages::BODY_MAX;
use crate::wire::Ender;

/// Fetches requests from one process of a PIP until this is dropped; requests in progress are then
/// still completed.
#[derive(Debug)]
pub(super) struct RequestFetcher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    callee: Callee,
    log: Log,
    has_ended: AtomicBool,
    ender: Mutex<Option<Ender>>,
    /// Limits the number of requests that are carried out at the same time.
    works: Places,
    /// Limits the requests that end a command separately, so that a command can be ended even when
    /// `works` is full.
    ends: Places,
    /// The connection over which answers are sent, one at a time.
    answers: Mutex<Option<Connection>>,
}

impl RequestFetcher {
    pub(super) fn start(
        host: Arc<impl Hosting>,
        callee: Callee,
        log: Log,
    ) -> std::io::Result<RequestFetcher> {
        let shared = Arc::new(Shared {
            callee,
            log,
            has_ended: AtomicBool::new(false),
            ender: Mutex::default(),
            works: Places::new("asks", WORKS_MAX),
            ends: Places::new("ends of commands", WORKS_MAX),
            answers: Mutex::default(),
        });
        let fetches = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("asks".to_owned());
        thread.spawn(move || fetches.run(&host))?;
        Ok(RequestFetcher { shared })
    }
}

impl Drop for RequestFetcher {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        let ender = &self.shared.ender;
        let ender = ender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ender) = ender {
            ender.end();
        }
    }
}

impl Shared {
    fn run(self: Arc<Shared>, host: &Arc<impl Hosting>) {
        let mut wait = AGAIN_MIN;
        while !self.has_ended.load(Ordering::Relaxed) {
            // The main connection with the same process already reports why it is not reached.
            if let Ok(mut connection) = self.callee.connect() {
                wait = AGAIN_MIN;
                let ender = connection.ender().ok();
                *self.ender.lock().unwrap_or_else(PoisonError::into_inner) = ender;
                let fetched = self.fetch_over(&mut connection, host);
                if let Err(CallError::Refused(refusal)) = fetched {
                    self.log
                        .say(format_args!("fetching requests of the provider: {refusal}"));
                    wait = AGAIN_MAX;
                }
            }
            let mut left = wait;
            while !left.is_zero() && !self.has_ended.load(Ordering::Relaxed) {
                let step = left.min(AGAIN_MIN);
                std::thread::sleep(step);
                left -= step;
            }
            wait = (wait * 2).min(AGAIN_MAX);
        }
    }

    fn fetch_over(
        self: &Arc<Shared>,
        connection: &mut Connection,
        host: &Arc<impl Hosting>,
    ) -> Result<(), CallError> {
        let target = format!("/v1/asks?wait_ms={}", FETCH.as_millis());
        let request = Request {
            method: "GET",
            target: &target,
            body: "",
            wait: FETCH,
        };
        while !self.has_ended.load(Ordering::Relaxed) {
            let fetched = self.callee.request(connection, &request)?;
            let asks = serde_json::from_slice::<Vec<(u64, Value)>>(&fetched);
            let asks = asks.map_err(|error| CallError::Answer {
                callee: self.callee.party.clone(),
                what: error.to_string(),
            })?;
            for (number, ask) in asks {
                match serde_json::from_value(ask) {
                    Ok(wanted) => self.begin(number, wanted, host),
                    // Roles of a later version ask for more; the others are asks as any.
                    Err(error) => {
                        let what =
                            format!("the node's host does not understand the request: {error}");
                        let refusal = ErrorBody::new(ErrorCode::BadRequest, what);
                        self.reply(number, Reply::Refusal(refusal));
                    }
                }
            }
        }
        Ok(())
    }

    /// Carries out a request on a thread of its own.
    fn begin(self: &Arc<Shared>, number: u64, wanted: NetworkRequest, host: &Arc<impl Hosting>) {
        let places = match wanted.ask {
            NodeRequest::EndExec { .. } => &self.ends,
            _ => &self.works,
        };
        let place = places.take(&wanted.who);
        let (shared, host) = (Arc::clone(self), Arc::clone(host));
        let act = move || {
            let reply = match &place {
                Ok(_) => match host.inside(&wanted) {
                    Ok(answer) => Reply::Answer(answer),
                    Err(refusal) => Reply::Refusal(refusal),
                },
                Err(full) => {
                    Reply::Refusal(ErrorBody::new(ErrorCode::LimitReached, full.to_string()))
                }
            };
            // The place is free before the answer is sent, because the caller may send its next
            // request at once.
            drop(place);
            shared.reply(number, reply);
        };
        let thread = std::thread::Builder::new().name("ask".to_owned());
        if let Err(error) = thread.spawn(act) {
            self.log
                .say(format_args!("carrying out a request: {error}"));
        }
    }

    fn reply(&self, number: u64, reply: Reply) {
        let text = |reply: Reply| {
            let body = serde_json::to_string(&[(number, reply)]);
            body.expect("answers have no keys but texts and numbers")
        };
        let mut body = text(reply);
        if body.len() > BODY_MAX {
            let what = "the output is too long for an answer (about 3 MB): write it to a file in \
                 the node, and fetch the file in parts";
            body = text(Reply::Refusal(ErrorBody::new(
                ErrorCode::LimitReached,
                what,
            )));
        }
        let request = Request {
            method: "POST",
            target: "/v1/answers",
            body: &body,
            wait: Duration::ZERO,
        };
        let mut kept = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // An idle connection may be broken, so that a second one is tried. The PIP accepts an
        // answer only once.
        for connection in [kept.take().map(Ok), None] {
            let connection = connection.unwrap_or_else(|| self.callee.connect());
            let sent = connection.and_then(|mut connection| {
                self.callee.request(&mut connection, &request)?;
                Ok(connection)
            });
            match sent {
                Ok(connection) => {
                    *kept = Some(connection);
                    return;
                }
                Err(error) => self.log.say(format_args!("answering a request: {error}")),
            }
        }
    }
}

/// How long the PIP may wait for a request before it answers a fetch.
const FETCH: Duration = Duration::from_secs(20);
/// Largest number of requests of one PIP process that are carried out at a time. A user who watches
/// consoles has one request for each of them, in addition to other requests.
const WORKS_MAX: usize = 128;
/// Time between two failed calls, at first and at most.
const AGAIN_MIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
