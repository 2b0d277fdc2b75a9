//! Forwards requests to the role below: from a VNO to its VNP, from a VNP to its PIPs.

use std::collections::BTreeMap;
use std::sync::Arc;

use carina_api::{ErrorBody, ErrorCode};

use super::{Answer, NetworkRequest};
use crate::calling::connection::{CallError, Callee, Request};
use crate::identity::{Identity, Role};
use crate::log::Log;
use crate::shares::{Share, Shares};

/// Forwards requests to the parties of the role below: a VNO's VNP, or a VNP's PIPs. It knows the
/// addresses of their processes, and limits the requests of each caller that are in progress.
#[derive(Clone, Debug)]
pub struct Below {
    callees: Arc<BTreeMap<String, Vec<Callee>>>,
    /// Requests in progress, counted per caller. They remain counted when the caller stops waiting.
    asks: Arc<Shares<Identity>>,
    log: Log,
}

/// One request of a caller that counts as in progress until this value is dropped.
#[derive(Debug)]
pub struct PendingRequest(#[expect(dead_code, reason = "it is there for its end")] Share<Identity>);

impl Below {
    /// Forwards to these parties, each with the ways to call its processes. `log` gets what fails.
    pub fn new(callees: BTreeMap<String, Vec<Callee>>, log: Log) -> Below {
        let callees = Arc::new(callees);
        Below {
            callees,
            asks: Arc::default(),
            log,
        }
    }

    /// Sends a caller's request to several parties at the same time, and combines their answers.
    /// For a request about the whole network, the answers of some parties suffice; nodes of the
    /// others are then unknown.
    ///
    /// # Errors
    /// `parties` is empty: the caller has no such node. Or all parties refuse or are not reached.
    /// Or too many requests of the caller are in progress.
    pub async fn ask(
        &self,
        caller: &Identity,
        parties: Vec<String>,
        wanted: NetworkRequest,
    ) -> Result<Answer, ErrorBody> {
        let below = self.clone();
        let pending = begin(&self.asks, caller)?;
        let asked = tokio::task::spawn_blocking(move || {
            let _pending = pending;
            below.ask_and_wait(&parties, &wanted)
        });
        asked.await.unwrap_or_else(|_| {
            let what = "the role failed; its log has the reason";
            Err(ErrorBody::new(ErrorCode::Internal, what))
        })
    }

    /// Counts one more request of a caller as in progress, for a caller that sends a series of
    /// requests.
    ///
    /// # Errors
    /// Too many requests of the caller are in progress.
    pub fn place(&self, caller: &Identity) -> Result<PendingRequest, ErrorBody> {
        begin(&self.asks, caller).map(PendingRequest)
    }

    /// Like [`Below::ask`], for a thread that may block.
    ///
    /// # Errors
    /// Those of [`Below::ask`].
    pub fn ask_and_wait(
        &self,
        parties: &[String],
        wanted: &NetworkRequest,
    ) -> Result<Answer, ErrorBody> {
        let answers = std::thread::scope(|scope| {
            let asks = parties
                .iter()
                .map(|party| scope.spawn(|| self.ask_one(party, wanted)));
            // All requests are sent before the first answer is awaited.
            let asks: Vec<_> = asks.collect();
            let failed = || ErrorBody::new(ErrorCode::Internal, "the role failed");
            let answers = asks
                .into_iter()
                .map(|ask| ask.join().unwrap_or_else(|_| Err(failed())));
            answers.collect::<Vec<_>>()
        });
        together(answers, wanted)
    }

    fn ask_one(&self, party: &str, wanted: &NetworkRequest) -> Result<Answer, ErrorBody> {
        let body = serde_json::to_string(wanted).expect("asks have no keys but texts and numbers");
        let request = Request {
            method: "POST",
            target: "/v1/asks",
            body: &body,
            wait: wanted.ask.limit(),
        };
        for callee in self.callees.get(party).into_iter().flatten() {
            let reached = callee.connect();
            let answer =
                reached.and_then(|mut connection| callee.request(&mut connection, &request));
            match answer {
                Ok(answer) => {
                    return serde_json::from_slice(&answer).map_err(|error| {
                        self.log.say(format_args!("{}: {error}", callee.party));
                        unreached()
                    });
                }
                Err(CallError::Refused(refusal)) => return Err(refusal),
                // If a process is not reached, another one is tried. A process that got the request
                // may have carried it out.
                Err(error @ CallError::Unreached { .. }) => self.log.say(&error),
                Err(error) => {
                    self.log.say(&error);
                    break;
                }
            }
        }
        Err(unreached())
    }
}

/// Counts a request of a caller.
///
/// # Errors
/// Too many requests of the caller are in progress.
fn begin(asks: &Arc<Shares<Identity>>, caller: &Identity) -> Result<Share<Identity>, ErrorBody> {
    let limit = match caller.role {
        Role::Delegate => OF_DELEGATE_MAX,
        _ => OF_CALLER_MAX,
    };
    asks.take(caller, limit).map_err(|has| {
        let what = format!(
            "{has} requests of {caller} are not answered yet, and the limit is {limit}: wait for \
             one of them, or give commands a shorter time limit"
        );
        ErrorBody::new(ErrorCode::LimitReached, what)
    })
}

/// Combines several answers to a request, without host names that an agent should not have sent.
///
/// # Errors
/// There is no answer; the error is the first refusal.
pub fn together(
    answers: Vec<Result<Answer, ErrorBody>>,
    wanted: &NetworkRequest,
) -> Result<Answer, ErrorBody> {
    let (mut all, mut refused): (Option<Answer>, Option<ErrorBody>) = (None, None);
    for answer in answers {
        match (answer, &mut all) {
            (Ok(answer), None) => all = Some(answer),
            (Ok(answer), Some(all)) => all.add(answer),
            (Err(refusal), _) => {
                refused.get_or_insert(refusal);
            }
        }
    }
    let all = all.map(Answer::for_operators);
    all.ok_or_else(|| refused.unwrap_or_else(|| nothing(wanted)))
}

/// The refusal of a request for which no party exists that could answer it.
pub fn nothing(wanted: &NetworkRequest) -> ErrorBody {
    match wanted.ask.node() {
        Some(node) => no_node(node),
        None => ErrorBody::new(ErrorCode::NotFound, "the network is not created yet"),
    }
}

/// The refusal of a request for a node that does not exist.
pub fn no_node(node: &str) -> ErrorBody {
    let shown = node.chars().filter(|char| !char.is_control());
    let node: String = shown.take(64).collect();
    let what = format!("the network has no node {node}, or the node is not created yet");
    ErrorBody::new(ErrorCode::NotFound, what)
}

fn unreached() -> ErrorBody {
    ErrorBody::new(ErrorCode::TimedOut, "the provider does not answer")
}

/// Largest number of requests of a caller in progress; fewer than the connections that the role
/// below allows.
const OF_CALLER_MAX: usize = 48;
/// Largest number of requests of a delegate in progress.
const OF_DELEGATE_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegate_who_asks_too_much_waits_and_keeps_no_other_out() {
        let asks = Arc::<Shares<Identity>>::default();
        let [bob, eve] = ["bob", "eve"].map(|name| Identity::new(Role::Delegate, name).unwrap());
        let mut pending: Vec<Share<Identity>> = (0..OF_DELEGATE_MAX)
            .map(|_| begin(&asks, &bob).unwrap())
            .collect();
        let refusal = begin(&asks, &bob).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::LimitReached);
        begin(&asks, &eve).unwrap();
        pending.pop();
        pending.push(begin(&asks, &bob).unwrap());
        drop(pending);
        assert!(asks.is_empty());
    }
}
