//! Traces the path from one node to another over all hosts of a network: each host watches its own
//! ports while echo requests are sent, and the results are combined here.

use std::time::Duration;

use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::Document;
use carina_vnet::host_part::VnetId;
use carina_vnet::trace::{ECHO, ECHOES_MAX, Together, Trace, TraceQuery};

use super::network_report::whole;
use super::test::SendRequest;
use super::{Answer, Look, NodeRequest};

/// Sends echo requests from one node to another, collects from all hosts where the frames were
/// seen, and returns the path. `session` is a random number that identifies the trace at the hosts.
///
/// # Errors
/// The number of echo requests is out of range, there is no such node, the network is not created
/// yet, no route leads to the destination, or no host answers.
pub fn run(
    (vnet, document): (VnetId, &Document),
    look: &Look,
    query: &TraceQuery,
    session: u64,
    ask: &SendRequest<'_>,
) -> Result<Trace, ErrorBody> {
    if !(1..=ECHOES_MAX).contains(&query.echoes) {
        let what = format!("{} echos: must be 1 to {ECHOES_MAX}", query.echoes);
        return Err(ErrorBody::new(ErrorCode::BadRequest, what));
    }
    for name in [&query.from, &query.to] {
        if !document.extended().node.contains_key(name) {
            let name: String = name.chars().take(64).collect();
            let what = format!("the network has no node {name}");
            return Err(ErrorBody::new(ErrorCode::NotFound, what));
        }
    }
    let layout = look.layout.as_deref().ok_or_else(|| {
        let what = "the network is not created yet";
        ErrorBody::new(ErrorCode::Conflict, what)
    })?;
    let part = whole(vnet, document, layout);
    let together = Together::of(part, [&query.from, &query.to]).map_err(|_| {
        let what = format!("no route leads from {} to {}", query.from, query.to);
        ErrorBody::new(ErrorCode::NotFound, what)
    })?;
    ask(NodeRequest::Seek {
        session,
        sought: together.sought(),
    })?;
    let mut rtts = Vec::new();
    for _ in 0..query.echoes {
        let echo = NodeRequest::Echo {
            node: query.from.clone(),
            to: together.address(),
            limit_ms: u64::try_from(ECHO.as_millis()).unwrap_or(u64::MAX),
        };
        // Requests that are not answered are what the trace explains.
        if let Ok(Answer::Echo { rtt_ns }) = ask(echo) {
            rtts.push(Duration::from_nanos(rtt_ns));
        }
    }
    match ask(NodeRequest::Found { session })? {
        Answer::Found(seen) => Ok(together.trace(query, &rtts, &seen)),
        _ => {
            let what = "something else was answered";
            Err(ErrorBody::new(ErrorCode::Internal, what))
        }
    }
}
