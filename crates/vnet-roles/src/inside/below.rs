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

    /// Asks parties, one after the other, and adds their answers up.
    ///
    /// # Errors
    /// The list is empty: the caller has no such node. Or one refuses, or is not reached.
    pub async fn ask(&self, parties: Vec<String>, wanted: Wanted) -> Result<Answer, ErrorBody> {
        let below = self.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let mut all: Option<Answer> = None;
            for party in &parties {
                let answer = below.ask_one(party, &wanted)?;
                match &mut all {
                    None => all = Some(answer),
                    Some(all) => all.add(answer),
                }
            }
            all.ok_or_else(|| nothing(&wanted))
        });
        asked.await.unwrap_or_else(|_| {
            let what = "the role failed; its log says more";
            Err(ErrorBody::new(ErrorCode::Internal, what))
        })
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
