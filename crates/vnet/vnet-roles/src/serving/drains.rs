//! `PUT` and `DELETE /v1/hosts/HOST/drain`: the operator of a PIP drains a host, which moves its
//! nodes to other hosts and gets no new ones, or ends the draining.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{ConnectInfo, Path, State};
use axum::response::Response;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::host_part::VnetId;
use carina_vnet::message::{Reason, ReasonCode};
use carina_vnet::pip::NodeAway;
use carina_vnet::report::MigrationReport;
use carina_vnet::store::Store;
use carina_vnet_web::answers::answered;
use serde::{Deserialize, Serialize};

use super::entrance::Caller;
use super::messages::body_of;
use super::messages::read;
use super::moves::{MoveRequest, check_operator, moved, refusal};
use super::pip_handlers::PipHandlers;

/// A request to drain a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Time limit for all nodes together, ms. A move that is not complete then is given up.
    pub limit_ms: u64,
}

/// Which nodes have left a drained host, and which have not, with the reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainReport {
    /// Name of the host that was drained.
    pub host: String,
    /// Nodes that have moved, in this order.
    pub moved: Vec<MovedNode>,
    /// Nodes that are still on the host.
    pub stayed: Vec<StayedNode>,
}

/// A node that has left the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MovedNode {
    /// Identifier (uid) of the node's network.
    pub vnet: VnetId,
    /// Name of the node's network.
    pub name: String,
    /// The new host, and measurements of the move.
    pub report: MigrationReport,
}

/// A node that a drain left on the host, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StayedNode {
    /// Identifier (uid) of the node's network.
    pub vnet: VnetId,
    /// Name of the node's network.
    pub name: String,
    /// Name of the node that is still on the host.
    pub node: String,
    /// Why the node is still on the drained host.
    pub reason: String,
}

/// Drains a host, and answers when that is complete. If the caller stops waiting, the current move
/// is completed and the host stays drained; a repeated request moves the remaining nodes.
pub(super) async fn drain<S: Store + Send + 'static>(
    State(asks): State<PipHandlers<S>>,
    ConnectInfo(Caller(caller)): ConnectInfo<Caller>,
    Path(host): Path<String>,
    body: Body,
) -> Response {
    let drained = async {
        check_operator(&asks, &caller)?;
        let request: DrainRequest = read(&body_of(body).await?)?;
        let limit = Duration::from_millis(request.limit_ms.min(LIMIT_MS_MAX));
        let who = vec![caller.to_string()];
        drained(&asks, &host, Instant::now() + limit, who).await
    };
    answered(drained.await)
}

/// Ends the draining of a host.
pub(super) async fn undrain<S: Store + Send + 'static>(
    State(asks): State<PipHandlers<S>>,
    ConnectInfo(Caller(caller)): ConnectInfo<Caller>,
    Path(host): Path<String>,
) -> Response {
    let undrained = async {
        check_operator(&asks, &caller)?;
        let is_new = set_drained(&asks, &host, false).await?;
        let what = || format!("host {host} is not drained");
        is_new
            .then_some(())
            .ok_or_else(|| ErrorBody::new(ErrorCode::Conflict, what()).for_good())
    };
    answered(undrained.await)
}

async fn drained<S: Store + Send + 'static>(
    asks: &PipHandlers<S>,
    host: &str,
    deadline: Instant,
    who: Vec<String>,
) -> Result<DrainReport, ErrorBody> {
    let is_new = set_drained(asks, host, true).await?;
    let mut report = DrainReport {
        host: host.to_owned(),
        moved: Vec::new(),
        stayed: Vec::new(),
    };
    let mut has_begun = false;
    loop {
        let mut away = nodes_away(asks, host).await?;
        away.retain(|candidate| !report.stayed.iter().any(|stayed| stayed.is(candidate)));
        let is_for_good = |away: &NodeAway| match &away.to {
            Err(reason) => reason.code != ReasonCode::Conflict,
            Ok(_) => false,
        };
        let (stay, mut away): (Vec<_>, Vec<_>) = away.into_iter().partition(is_for_good);
        report.stayed.extend(stay.into_iter().map(StayedNode::of));
        if !has_begun && !report.stayed.is_empty() {
            if is_new {
                set_drained(asks, host, false).await?;
            }
            let stayed = report.stayed.iter().map(ToString::to_string);
            let what = format!(
                "host {host} is not drained: {}",
                stayed.collect::<Vec<_>>().join("; ")
            );
            return Err(ErrorBody::new(ErrorCode::Unsupported, what));
        }
        if away.is_empty() {
            return Ok(report);
        }
        if Instant::now() >= deadline {
            report.stayed.extend(away.into_iter().map(StayedNode::of));
            return Ok(report);
        }
        let place = away.iter().position(|candidate| candidate.to.is_ok());
        let Some(next) = place.map(|place| away.swap_remove(place)) else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        has_begun = true;
        match moved(asks, &request(&next, deadline), who.clone()).await {
            Ok(of_node) => report.moved.push(MovedNode {
                vnet: next.vnet,
                name: next.name,
                report: of_node,
            }),
            // The network is being changed, or the node has left meanwhile.
            Err(error) if error.code == ErrorCode::Conflict => tokio::time::sleep(AGAIN).await,
            Err(error) => report.stayed.push(StayedNode {
                reason: error.message,
                ..StayedNode::of(next)
            }),
        }
    }
}

/// The move of a node to the first host that can take it.
fn request(away: &NodeAway, deadline: Instant) -> MoveRequest {
    let left = deadline.saturating_duration_since(Instant::now());
    let to = away.to.iter().flatten().next();
    MoveRequest {
        vnet: away.vnet.to_string(),
        node: away.node.clone(),
        to: to.cloned().unwrap_or_default(),
        limit_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    }
}

impl StayedNode {
    fn of(away: NodeAway) -> StayedNode {
        let reason = match away.to {
            Ok(_) => "the time limit has passed".to_owned(),
            Err(reason) => reason.message,
        };
        StayedNode {
            vnet: away.vnet,
            name: away.name,
            node: away.node,
            reason,
        }
    }

    fn is(&self, away: &NodeAway) -> bool {
        (self.vnet, &self.node) == (away.vnet, &away.node)
    }
}

impl std::fmt::Display for StayedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}: {}", self.node, self.name, self.reason)
    }
}

impl std::fmt::Display for DrainReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for node in &self.moved {
            writeln!(f, "{}: {}", node.name, node.report)?;
        }
        for stayed in &self.stayed {
            writeln!(f, "node {stayed}")?;
        }
        write!(f, "host {} takes no new nodes", self.host)
    }
}

async fn set_drained<S: Store + Send + 'static>(
    asks: &PipHandlers<S>,
    host: &str,
    is_drained: bool,
) -> Result<bool, ErrorBody> {
    let host = host.to_owned();
    let set = asks
        .handle
        .ask(move |pip, now| pip.set_drained(now, &host, is_drained));
    set.await?.map_err(|reason: Reason| refusal(reason))
}

async fn nodes_away<S: Store + Send + 'static>(
    asks: &PipHandlers<S>,
    host: &str,
) -> Result<Vec<NodeAway>, ErrorBody> {
    let host = host.to_owned();
    asks.handle
        .ask(move |pip, now| pip.nodes_away(now, &host))
        .await
}

/// Time between two attempts while the nodes' networks are being changed.
const AGAIN: Duration = Duration::from_millis(200);
const LIMIT_MS_MAX: u64 = 24 * 3_600_000;
