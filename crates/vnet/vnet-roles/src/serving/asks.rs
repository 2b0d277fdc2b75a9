//! `POST /v1/asks` takes requests to nodes from the role above. At a PIP, agents fetch them with
//! `GET /v1/asks` and answer with `POST /v1/answers`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::response::Response;
use axum::routing::{get, post, put};
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::store::Store;
use carina_vnet::vnp::Vnp;
use carina_vnet_web::answers::{answered, event_query};
use tokio::task::JoinSet;

use super::entrance::Caller;
use super::messages::{body_of, read};
use super::pip_handlers::PipHandlers;
use super::{drains, moves};
use crate::driver::Handle;
use crate::identity::{Identity, Role};
use crate::inside::below::{Below, together};
use crate::inside::request_queue::Reply;
use crate::inside::{Answer, NetworkRequest, NodeRequest};
use crate::machine::{no_right, of_another};

/// What the HTTP handlers of a VNP share. They take requests about nodes from VNOs, and forward
/// them to the PIPs that have the nodes. `S` is the VNP's store.
#[derive(Debug)]
pub struct VnpHandlers<S> {
    /// The VNP's state machine.
    pub handle: Handle<Vnp<S>>,
    /// Forwards requests to the VNP's PIPs.
    pub below: Below,
}

impl<S> Clone for VnpHandlers<S> {
    fn clone(&self) -> VnpHandlers<S> {
        VnpHandlers {
            handle: self.handle.clone(),
            below: self.below.clone(),
        }
    }
}

type Called = ConnectInfo<Caller>;

/// The route of a VNP for requests about nodes.
pub fn vnp_router<S: Store + Send + 'static>(asks: VnpHandlers<S>) -> Router {
    Router::new()
        .route("/v1/asks", post(ask_vnp::<S>))
        .with_state(asks)
}

/// The routes of a PIP for requests about nodes, for moves of nodes, and for draining hosts.
pub fn pip_router<S: Store + Send + 'static>(asks: PipHandlers<S>) -> Router {
    Router::new()
        .route("/v1/asks", get(fetch::<S>).post(ask_pip::<S>))
        .route("/v1/answers", post(answer::<S>))
        .route("/v1/moves", post(moves::move_node::<S>))
        .route(
            "/v1/hosts/{host}/drain",
            put(drains::drain::<S>).delete(drains::undrain::<S>),
        )
        .with_state(asks)
}

async fn ask_vnp<S: Store + Send + 'static>(
    State(asks): State<VnpHandlers<S>>,
    from: Called,
    body: Body,
) -> Response {
    let asked = async {
        let (caller, wanted) = wanted_of(from, Role::Vnp, Role::Vno, body).await?;
        let (vnet, node) = (wanted.vnet, wanted.ask.node().map(str::to_owned));
        let looks = matches!(wanted.ask, NodeRequest::Look {});
        let asker = caller.clone();
        let pips = asks.handle.ask(move |it, now| {
            let owner = it.owner(now, vnet);
            if owner.is_some_and(|owner| owner != caller.name) {
                return Err(of_another());
            }
            let pips = it.pips_for(&caller.name, vnet, node.as_deref());
            let layout = it.layout(&caller.name, vnet).filter(|_| looks);
            Ok((pips, layout.cloned().map(Box::new)))
        });
        let (pips, layout) = pips.await??;
        let mut answer = asks.below.ask(&asker, pips, wanted).await?;
        if let Answer::Looked(look) = &mut answer {
            look.layout = layout;
        }
        Ok(answer)
    };
    answered(asked.await)
}

async fn ask_pip<S: Store + Send + 'static>(
    State(asks): State<PipHandlers<S>>,
    from: Called,
    body: Body,
) -> Response {
    let asked = async {
        let (caller, wanted) = wanted_of(from, Role::Pip, Role::Vnp, body).await?;
        let (vnet, node) = (wanted.vnet, wanted.ask.node().map(str::to_owned));
        let hosts = asks.handle.ask(move |it, now| {
            let hosts = it.hosts_for(now, &caller.name, vnet, node.as_deref());
            let owner = it.owner(now, vnet);
            if hosts.is_empty() && owner.is_some_and(|owner| owner != caller.name) {
                Err(of_another())
            } else {
                Ok(hosts)
            }
        });
        let mut asked = JoinSet::new();
        for host in hosts.await?? {
            let (queue, wanted) = (Arc::clone(&asks.queue), wanted.clone());
            asked.spawn(async move { queue.ask(&host, wanted).await });
        }
        together(asked.join_all().await, &wanted)
    };
    answered(asked.await)
}

async fn fetch<S: Store + Send + 'static>(
    State(asks): State<PipHandlers<S>>,
    from: Called,
    RawQuery(query): RawQuery,
) -> Response {
    let fetched = async {
        let host = host_of(&asks, from).await?;
        let (_, wait) = event_query(query.as_deref().unwrap_or_default())?;
        Ok::<_, ErrorBody>(asks.queue.fetch(&host, wait).await)
    };
    answered(fetched.await)
}

async fn answer<S: Store + Send + 'static>(
    State(asks): State<PipHandlers<S>>,
    from: Called,
    body: Body,
) -> Response {
    let taken = async {
        let host = host_of(&asks, from).await?;
        let replies: Vec<(u64, Reply)> = read(&body_of(body).await?)?;
        for (number, reply) in replies {
            asks.queue.answer(&host, number, reply);
        }
        Ok::<_, ErrorBody>(())
    };
    answered(taken.await)
}

/// The host whose agent calls.
async fn host_of<S: Store + Send + 'static>(
    asks: &PipHandlers<S>,
    ConnectInfo(Caller(caller)): Called,
) -> Result<String, ErrorBody> {
    if caller.role != Role::Agent {
        return Err(no_right(Role::Pip, &caller, &[Role::Agent]));
    }
    let host = caller.name;
    let named = host.clone();
    let is_known = asks.handle.ask(move |it, _| it.has_host(&named));
    if is_known.await? {
        Ok(host)
    } else {
        let what = format!("host {host} is not in the inventory");
        Err(ErrorBody::new(ErrorCode::NotFound, what))
    }
}

/// Parses a request and appends the caller to those on whose behalf it is made.
async fn wanted_of(
    ConnectInfo(Caller(caller)): Called,
    callee: Role,
    may: Role,
    body: Body,
) -> Result<(Identity, NetworkRequest), ErrorBody> {
    if caller.role != may {
        return Err(no_right(callee, &caller, &[may]));
    }
    let mut wanted: NetworkRequest = read(&body_of(body).await?)?;
    if matches!(
        wanted.ask,
        NodeRequest::WatchEchoes { .. } | NodeRequest::EndEchoes { .. }
    ) {
        let what = "only a PIP may send this request to its hosts";
        return Err(ErrorBody::new(ErrorCode::AccessDenied, what));
    }
    let is_long = |who: &String| who.len() > WHO_BYTES_MAX || who.contains(char::is_control);
    if wanted.who.len() >= WHO_MAX || wanted.who.iter().any(is_long) {
        let what = "the request is on behalf of too many parties, or of a party without a name";
        return Err(ErrorBody::new(ErrorCode::BadRequest, what));
    }
    wanted.who.push(caller.to_string());
    Ok((caller, wanted))
}

/// Largest number of parties in the list: an operator or delegate, a VNO, a VNP.
const WHO_MAX: usize = 3;
const WHO_BYTES_MAX: usize = 64;
