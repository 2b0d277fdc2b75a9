//! The role below: a VNO asks its VNP, a VNP its PIPs.

use std::collections::BTreeMap;
use std::sync::Arc;

use carina_api::{ErrorBody, ErrorCode};

use super::{Answer, Wanted};
use crate::calling::connection::{CallError, Callee, Request};
use crate::log::Log;

/// The ways to the processes of parties, by their names.
#[derive(Clone, Debug)]
pub struct Below {
    callees: Arc<BTreeMap<String, Vec<Callee>>>,
    log: Log,
}

impl Below {
    /// With these ways.
    pub fn new(callees: BTreeMap<String, Vec<Callee>>, log: Log) -> Below {
        let callees = Arc::new(callees);
        Below { callees, log }
    }

    /// Asks parties, all at once, and adds their answers up. Where the whole network is asked,
    /// the answers of some will do: of the others nothing is known.
    ///
    /// # Errors
    /// The list is empty: the caller has no such node. Or all refuse, or are not reached.
    pub async fn ask(&self, parties: Vec<String>, wanted: Wanted) -> Result<Answer, ErrorBody> {
        let below = self.clone();
        let asked = tokio::task::spawn_blocking(move || below.ask_and_wait(&parties, &wanted));
        asked.await.unwrap_or_else(|_| {
            let what = "the role failed; its log says more";
            Err(ErrorBody::new(ErrorCode::Internal, what))
        })
    }

    /// As [`Below::ask`], for a thread that may wait.
    ///
    /// # Errors
    /// As [`Below::ask`].
    pub fn ask_and_wait(&self, parties: &[String], wanted: &Wanted) -> Result<Answer, ErrorBody> {
        let answers = std::thread::scope(|scope| {
            let asks = parties
                .iter()
                .map(|party| scope.spawn(|| self.ask_one(party, wanted)));
            // All are asked before the first is waited for.
            let asks: Vec<_> = asks.collect();
            let failed = || ErrorBody::new(ErrorCode::Internal, "the role failed");
            let answers = asks
                .into_iter()
                .map(|ask| ask.join().unwrap_or_else(|_| Err(failed())));
            answers.collect::<Vec<_>>()
        });
        together(answers, wanted)
    }

    fn ask_one(&self, party: &str, wanted: &Wanted) -> Result<Answer, ErrorBody> {
        let body = serde_json::to_string(wanted).expect("asks have no keys but texts and numbers");
        let request = Request {
            method: "POST",
            target: "/v1/asks",
            body: &body,
            wait: wanted.ask.limit(),
        };
        for callee in self.callees.get(party).into_iter().flatten() {
            let reached = callee.connect();
            let answer = reached.and_then(|mut it| callee.request(&mut it, &request));
            match answer {
                Ok(answer) => {
                    return serde_json::from_slice(&answer).map_err(|error| {
                        self.log.say(format_args!("{}: {error}", callee.party));
                        unreached()
                    });
                }
                Err(CallError::Refused(refusal)) => return Err(refusal),
                // Another process may answer; one that has got it may have carried it out.
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

/// The sum of several answers to an ask.
///
/// # Errors
/// There is no answer: the first refusal.
pub fn together(
    answers: Vec<Result<Answer, ErrorBody>>,
    wanted: &Wanted,
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
    all.ok_or_else(|| refused.unwrap_or_else(|| nothing(wanted)))
}

/// The refusal of an ask for which there is no node.
pub fn nothing(wanted: &Wanted) -> ErrorBody {
    let what = match wanted.ask.node() {
        Some(node) => {
            let node: String = node.chars().take(64).collect();
            format!("the network has no node {node}, or it is not made yet")
        }
        None => "the network is not made yet".to_owned(),
    };
    ErrorBody::new(ErrorCode::NotFound, what)
}

fn unreached() -> ErrorBody {
    ErrorBody::new(ErrorCode::TimedOut, "the provider does not answer")
}
