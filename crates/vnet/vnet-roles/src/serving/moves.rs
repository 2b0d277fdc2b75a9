//! `POST /v1/moves`: the operator of a PIP moves a node to another host of the PIP.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::host_part::VnetId;
use carina_vnet::message::{Reason, ReasonCode};
use carina_vnet::pip::MoveOutcome;
use carina_vnet::report::MigrationReport;
use carina_vnet::store::Store;
use carina_vnet_web::answers::answered;
use serde::{Deserialize, Serialize};

use super::entrance::Caller;
use super::messages::body_of;
use super::messages::read;
use super::pip_handlers::PipHandlers;
use crate::identity::{Identity, Role};
use crate::inside::{Answer, NetworkRequest, NodeRequest};
use crate::machine::no_right;

/// A request to move a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The network's uid, or its name if that is unique.
    pub vnet: String,
    /// Name of the node to move.
    pub node: String,
    /// Name of the destination host.
    pub to: String,
    /// Longest time until the node has arrived, ms.
    pub limit_ms: u64,
}

/// A stream of echo requests to the moving node.
struct Watch {
    host: String,
    node: String,
    vnet: VnetId,
    session: u64,
    who: Vec<String>,
}

/// Moves a node and answers when it has moved. The move continues if the caller stops waiting.
pub(super) async fn move_node<S: Store + Send + 'static>(
    State(asks): State<PipHandlers<S>>,
    ConnectInfo(Caller(caller)): ConnectInfo<Caller>,
    body: Body,
) -> Response {
    let moved = async {
        check_operator(&asks, &caller)?;
        let request: MoveRequest = read(&body_of(body).await?)?;
        moved(&asks, &request, vec![caller.to_string()]).await
    };
    answered(moved.await)
}

/// Checks that the caller is the operator of the PIP.
pub(super) fn check_operator<S>(asks: &PipHandlers<S>, caller: &Identity) -> Result<(), ErrorBody> {
    if caller.role != Role::Operator {
        return Err(no_right(Role::Pip, caller, &[Role::Operator]));
    }
    if caller.name != asks.name {
        let what = format!("{caller} is not the operator of pip {}", asks.name);
        return Err(ErrorBody::new(ErrorCode::AccessDenied, what));
    }
    Ok(())
}

/// Moves a node. Meanwhile a neighbour sends echo requests to it, if one can.
pub(super) async fn moved<S: Store + Send + 'static>(
    asks: &PipHandlers<S>,
    request: &MoveRequest,
    who: Vec<String>,
) -> Result<MigrationReport, ErrorBody> {
    let began = Instant::now();
    let number = random()?;
    let watch = watch(asks, request, who).await?;
    let outcome = outcome(asks, request, number).await;
    let (mut sent, mut lost, mut gap_ms) = (0, None, None);
    let total = began.elapsed();
    let watched_from = match &watch {
        Some(watch) => match watch.end(asks).await {
            Ok((asked, answered, gap)) => {
                (sent, lost) = (asked, Some(asked.saturating_sub(answered)));
                gap_ms = Some(ms(gap));
                Some(watch.node.clone())
            }
            // The move counts even if its measurement has failed.
            Err(_) => None,
        },
        None => None,
    };
    let (paused_us, is_made_anew) = match outcome? {
        MoveOutcome::Moved { paused_us } => (paused_us, false),
        MoveOutcome::Recreated {} => (None, true),
        MoveOutcome::Stayed { reason } => {
            let what = format!("node {} stays where it was: {reason}", request.node);
            return Err(ErrorBody::new(ErrorCode::Internal, what));
        }
    };
    Ok(MigrationReport {
        node: request.node.clone(),
        to: Some(request.to.clone()),
        downtime_ms: paused_us.map(|us| ms(Duration::from_micros(us))),
        total_ms: ms(total),
        watched_from,
        sent,
        lost,
        gap_ms,
        is_made_anew,
    })
}

/// Begins the move, and waits until it has ended.
async fn outcome<S: Store + Send + 'static>(
    asks: &PipHandlers<S>,
    request: &MoveRequest,
    number: u64,
) -> Result<MoveOutcome, ErrorBody> {
    let wanted = request.clone();
    let limit_ms = wanted.limit_ms.min(LIMIT_MS_MAX);
    let begun = asks.handle.ask(move |pip, now| {
        let names = [&*wanted.vnet, &*wanted.node, &*wanted.to];
        let limit = carina_time::Duration::from_millis(limit_ms);
        pip.begin_move(now, names, number, limit)
    });
    let vnet = begun.await?.map_err(refusal)?;
    // By then the move has been given up, or its hosts have got their orders again.
    let deadline = Instant::now() + Duration::from_millis(limit_ms) * 2 + MARGIN;
    while Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
        let ended = asks
            .handle
            .ask(move |pip, now| pip.outcome_of_move(now, vnet, number));
        if let Some(outcome) = ended.await?.map_err(refusal)? {
            return Ok(outcome);
        }
    }
    let what = "the operation did not end in time; the provider continues it";
    Err(ErrorBody::new(ErrorCode::TimedOut, what))
}

/// Makes a namespace neighbour of the node send echo requests to it, if there is one whose host
/// does that.
async fn watch<S: Store + Send + 'static>(
    asks: &PipHandlers<S>,
    request: &MoveRequest,
    who: Vec<String>,
) -> Result<Option<Watch>, ErrorBody> {
    let wanted = request.clone();
    let found = asks.handle.ask(move |pip, now| {
        let vnet = pip.vnet_named(now, &wanted.vnet)?;
        Ok::<_, Reason>((vnet, pip.neighbours(vnet, &wanted.node)))
    });
    let (vnet, neighbours) = found.await?.map_err(refusal)?;
    for neighbour in neighbours
        .into_iter()
        .filter(|neighbour| neighbour.is_namespace)
    {
        let watch = Watch {
            host: neighbour.host,
            node: neighbour.node,
            vnet,
            session: random()?,
            who: who.clone(),
        };
        if watch.begin(asks, neighbour.address).await.is_ok() {
            return Ok(Some(watch));
        }
    }
    Ok(None)
}

impl Watch {
    async fn begin<S>(&self, asks: &PipHandlers<S>, to: Ipv4Addr) -> Result<(), ErrorBody> {
        let ask = NodeRequest::WatchEchoes {
            node: self.node.clone(),
            to,
            session: self.session,
        };
        self.ask(asks, ask).await.map(drop)
    }

    /// Ends the echo requests. Returns how many were sent and answered, and the longest time
    /// without a reply.
    async fn end<S>(&self, asks: &PipHandlers<S>) -> Result<(u64, u64, Duration), ErrorBody> {
        let ask = NodeRequest::EndEchoes {
            node: self.node.clone(),
            session: self.session,
        };
        match self.ask(asks, ask).await? {
            Answer::Echoes {
                sent,
                answered,
                gap_ns,
            } => Ok((sent, answered, Duration::from_nanos(gap_ns))),
            other => {
                let what = format!("the host sent an unexpected answer: {other:.200?}");
                Err(ErrorBody::new(ErrorCode::Internal, what))
            }
        }
    }

    async fn ask<S>(&self, asks: &PipHandlers<S>, ask: NodeRequest) -> Result<Answer, ErrorBody> {
        let wanted = NetworkRequest {
            vnet: self.vnet,
            ask,
            who: self.who.clone(),
        };
        asks.queue.ask(&self.host, wanted).await
    }
}

pub(super) fn refusal(reason: Reason) -> ErrorBody {
    let body = |code| ErrorBody::new(code, reason.message.clone());
    match reason.code {
        ReasonCode::Impossible => body(ErrorCode::Unsupported).for_good(),
        ReasonCode::Insufficient => body(ErrorCode::LimitReached),
        ReasonCode::Unreachable => body(ErrorCode::TimedOut),
        _ => body(ErrorCode::Conflict),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn random() -> Result<u64, ErrorBody> {
    let drawn = crate::random::drawn();
    drawn.map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))
}

/// Time between two checks of a move's state.
const LOOK: Duration = Duration::from_millis(20);
const LIMIT_MS_MAX: u64 = 3_600_000;
/// Time that a move may take in addition to the transfer of the guest.
const MARGIN: Duration = Duration::from_secs(60);
