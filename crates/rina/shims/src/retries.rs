//! Timers of requests to a network. A request is repeated until it is answered or times out.

use carina_api::PortId;
use carina_time::{Duration, Instant};

/// The pending requests for flows, and when to repeat each.
pub(crate) struct Retries {
    requests: Vec<Pending>,
    timeout: Duration,
}

struct Pending {
    port: PortId,
    next_at: Instant,
    wait: Duration,
    until: Instant,
}

/// What to do for a request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Send the request, for the first time or again.
    Send(PortId),
    /// The request has timed out and was removed.
    GiveUp(PortId),
}

impl Retries {
    /// An empty set, whose requests time out after `timeout`.
    pub(crate) fn new(timeout: Duration) -> Retries {
        Retries {
            requests: Vec::new(),
            timeout,
        }
    }

    /// Adds a request for the flow `port`, to be sent at `now`.
    pub(crate) fn begin(&mut self, now: Instant, port: PortId) {
        self.requests.push(Pending {
            port,
            next_at: now,
            wait: RETRY_MIN,
            until: now + self.timeout,
        });
    }

    /// Returns what is due at `now`. Call it until it returns `None`.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Due> {
        let at = self
            .requests
            .iter()
            .position(|request| request.until <= now || request.next_at <= now)?;
        let request = &mut self.requests[at];
        if request.until <= now {
            return Some(Due::GiveUp(self.requests.remove(at).port));
        }
        request.next_at = now + request.wait;
        request.wait = (request.wait * 2).min(RETRY_MAX);
        Some(Due::Send(request.port))
    }

    /// Time at which the next request is due; `None` without requests.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let due = |request: &Pending| request.next_at.min(request.until);
        self.requests.iter().map(due).min()
    }

    /// Port-ids of the flows with pending requests, oldest first.
    pub(crate) fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.requests.iter().map(|request| request.port)
    }

    /// Removes a request that was answered or cancelled.
    pub(crate) fn end(&mut self, port: PortId) {
        self.requests.retain(|request| request.port != port);
    }

    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
    }
}

/// Pause before the first repetition of a request. The pause doubles with each repetition.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// Longest pause between repetitions.
const RETRY_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_repeat_with_growing_pauses_and_fail_once() {
        let mut retries = Retries::new(Duration::from_secs(5));
        retries.begin(Instant::ZERO, PortId(7));
        let mut asked = Vec::new();
        let mut given_up = Vec::new();
        while let Some(now) = retries.next_at() {
            while let Some(due) = retries.poll(now) {
                match due {
                    Due::Send(port) => asked.push((now.as_millis(), port)),
                    Due::GiveUp(port) => given_up.push((now.as_millis(), port)),
                }
            }
        }
        let at: Vec<u64> = asked.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [0, 250, 750, 1750, 3750]);
        assert_eq!(given_up, [(5000, PortId(7))]);
    }

    #[test]
    fn an_answer_ends_the_repetition_of_its_question_only() {
        let mut retries = Retries::new(Duration::from_secs(1));
        retries.begin(Instant::ZERO, PortId(1));
        retries.begin(Instant::ZERO, PortId(2));
        retries.end(PortId(1));
        assert_eq!(retries.ports().collect::<Vec<_>>(), [PortId(2)]);
        assert_eq!(retries.poll(Instant::ZERO), Some(Due::Send(PortId(2))));
        assert_eq!(retries.poll(Instant::ZERO), None);
        retries.clear();
        assert_eq!(retries.next_at(), None);
    }
}
