//! Flow requests of other members: who may allocate a flow, and which worker reads it.

use std::time::{Duration, Instant};

use carina_client::FlowRequest;

use super::Member;
use crate::error::IpError;
use crate::prefix::IpPrefix;
use crate::worker::inbox::{Accepted, Message};

/// A flow request whose caller is not in the directory yet.
#[derive(Debug)]
pub(super) struct EarlyRequest {
    registration: usize,
    request: FlowRequest,
    pub(super) until: Instant,
}

impl Member {
    /// Answers the flow requests of a registration.
    pub(super) fn take_requests(&mut self, index: usize, now: Instant) -> Result<(), IpError> {
        loop {
            let Some(registration) = self.registrations.get_mut(index) else {
                return Ok(());
            };
            match registration.try_next_request() {
                Ok(None) => return Ok(()),
                Ok(Some(request)) => self.take_request(index, request, now),
                Err(source) => {
                    let name = registration.name().clone();
                    return Err(IpError::Ended { name, source });
                }
            }
        }
    }

    fn take_request(&mut self, registration: usize, request: FlowRequest, now: Instant) {
        let Some(remote) = IpPrefix::of_name(&request.remote) else {
            let reason = "the caller's name must be ip: and a prefix, such as ip:10.9.1.0/24";
            return self.deny(registration, &request, reason);
        };
        if !self.settings.may_have(remote) {
            let reason = "the setting `peers` does not allow the prefix of the caller";
            return self.deny(registration, &request, reason);
        }
        match self.first.router.may_accept(remote) {
            Some(true) => self.accept(registration, &request, remote),
            Some(false) => {
                self.deny(
                    registration,
                    &request,
                    "the caller's name is registered here",
                );
            }
            None if self.early.len() >= EARLY_MAX => {
                self.deny(registration, &request, "too many callers are unknown");
            }
            None => {
                self.directory.ask();
                self.early.push(EarlyRequest {
                    registration,
                    request,
                    until: now + EARLY_FOR,
                });
            }
        }
    }

    /// Answers the requests of callers that the directory has now, and of those that it did not get
    /// in time.
    pub(super) fn answer_early(&mut self, now: Instant) {
        for early in std::mem::take(&mut self.early) {
            let remote = IpPrefix::of_name(&early.request.remote);
            let may_accept = |remote| self.first.router.may_accept(remote).is_some();
            if remote.is_some_and(may_accept) {
                self.take_request(early.registration, early.request, now);
            } else if early.until <= now {
                let reason = "the caller's name is not registered in the DIF";
                self.deny(early.registration, &early.request, reason);
            } else {
                self.early.push(early);
            }
        }
    }

    fn deny(&mut self, registration: usize, request: &FlowRequest, reason: &str) {
        self.first.counters.flows_denied += 1;
        // If this fails, the registration has ended: its descriptor reports it.
        let _ = self.registrations[registration].refuse(request, reason);
    }

    fn accept(&mut self, index: usize, request: &FlowRequest, remote: IpPrefix) {
        let Some(admission) = self.admissions.admit(remote) else {
            return self.deny(index, request, "the member has too many flows");
        };
        let accepted = self.registrations[index].accept_request(request);
        let (Ok(flow), Some(local)) = (accepted, IpPrefix::of_name(&request.local)) else {
            self.first.counters.flows_denied += 1;
            return;
        };
        let worker = admission.worker();
        let accepted = Accepted {
            flow,
            local,
            remote,
            admission,
        };
        match worker.checked_sub(1).and_then(|n| self.others.get(n)) {
            None => self.first.adopt(accepted),
            Some(other) => other.inbox.send(Message::Flow(Box::new(accepted))),
        }
    }
}

/// Largest number of flow requests of unknown callers that wait.
const EARLY_MAX: usize = 64;
/// How long a request waits for the directory to get its caller.
const EARLY_FOR: Duration = Duration::from_secs(3);
