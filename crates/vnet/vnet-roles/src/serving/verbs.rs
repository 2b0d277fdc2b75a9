//! Requests of a VNO's operator and of delegates, about networks by name.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, RawQuery, State};
use axum::response::Response;
use axum::routing::{get, post, put};
use carina_api::{ErrorBody, ErrorCode};
use carina_time::Instant;
use carina_vnet::grant::{Grant, Verb};
use carina_vnet::store::Store;
use carina_vnet_web::answers::{answered, document_in, event_query, refusal};
use serde::Serialize;
use tokio::sync::Notify;

use super::entrance::Caller;
use super::executing;
use super::messages::read;
use super::messages::{body_of, unknown_path};
use super::operations::Operations;
use super::rights::{self, Need};
use super::watching::Watching;
use crate::driver::Handle;
use crate::identity::{Identity, Role};
use crate::inside::below::{Below, no_node};
use crate::inside::{NetworkRequest, NodeRequest};

/// What the HTTP handlers of a VNO share. They serve the VNO's operator and delegates. `S` is the
/// VNO's store.
#[derive(Debug)]
pub struct Verbs<S> {
    /// The VNO's state machine.
    pub handle: Handle<Operations<S>>,
    /// The VNO's identity.
    pub party: Identity,
    /// Wakes requests that wait for events.
    pub happened: Arc<Notify>,
    /// Name of the VNO's VNP.
    pub vnp: String,
    /// Forwards requests to the VNP.
    pub below: Below,
    /// Reads the state of the VNO's networks.
    pub watching: Arc<Watching<S>>,
}

impl<S> Clone for Verbs<S> {
    fn clone(&self) -> Verbs<S> {
        Verbs {
            handle: self.handle.clone(),
            party: self.party.clone(),
            happened: Arc::clone(&self.happened),
            vnp: self.vnp.clone(),
            below: self.below.clone(),
            watching: Arc::clone(&self.watching),
        }
    }
}

type VerbsState<S> = State<Verbs<S>>;
type Called = ConnectInfo<Caller>;

/// The HTTP routes of a VNO, for its operator and delegates.
pub fn router<S: Store + Send + 'static>(verbs: Verbs<S>) -> Router {
    let grant = put(set_grant::<S>).delete(withdraw::<S>);
    Router::new()
        .route(
            "/v1/vnets",
            get(list::<S>).post(create::<S>).put(apply::<S>),
        )
        .route("/v1/vnets/{name}", get(seen::<S>).delete(remove::<S>))
        .route("/v1/vnets/{name}/document", get(document::<S>))
        .route("/v1/vnets/{name}/events", get(events::<S>))
        .route("/v1/vnets/{name}/asks", post(ask::<S>))
        .route("/v1/vnets/{name}/grants", get(grants::<S>))
        .route("/v1/vnets/{name}/grants/{to}", grant)
        .fallback(unknown_path)
        .with_state(verbs)
}

impl<S: Store + Send + 'static> Verbs<S> {
    /// Runs `work` for network `name`, if the caller has the right: the given verb, or any grant
    /// there if no verb is given.
    async fn of_network<T, W>(
        &self,
        ConnectInfo(Caller(caller)): Called,
        (name, verb): (String, Option<Verb>),
        work: W,
    ) -> Response
    where
        T: Serialize + Send + 'static,
        W: FnOnce(&mut Operations<S>, Instant, &str) -> Result<T, ErrorBody> + Send + 'static,
    {
        let vno = self.party.clone();
        let answer = self.handle.ask(move |it, now| {
            let need = match verb {
                Some(verb) => Need::Verb {
                    name: &name,
                    verb,
                    node: None,
                },
                None => Need::Any { name: &name },
            };
            rights::check(it, &vno, &caller, (now, need))?;
            work(it, now, &name)
        });
        answered(answer.await.and_then(|done| done))
    }

    /// Runs `work`, if the caller is the operator.
    async fn of_operator<T: Serialize + Send + 'static>(
        &self,
        ConnectInfo(Caller(caller)): Called,
        work: impl FnOnce(&mut Operations<S>, Instant, &Identity) -> Result<T, ErrorBody>
        + Send
        + 'static,
    ) -> Response {
        let vno = self.party.clone();
        let answer = self.handle.ask(move |it, now| {
            rights::check(it, &vno, &caller, (now, Need::Operator))?;
            work(it, now, &caller)
        });
        answered(answer.await.and_then(|done| done))
    }

    async fn want(&self, from: Called, body: Body, is_new: bool) -> Response {
        // The body of an unknown caller's request is not even read.
        if let Err(error) = rights::is_known(&self.party, &from.0.0) {
            return refusal(&error);
        }
        let document = body_of(body).await.and_then(|body| document_in(&body));
        let document = match document {
            Ok(document) => document,
            Err(error) => return refusal(&error),
        };
        if is_new {
            self.of_operator(from, move |it, now, _| it.want(now, document, true))
                .await
        } else {
            let of = (document.vnet.name.clone(), Some(Verb::Apply));
            let caller = from.0.0.clone();
            self.of_network(from, of, move |it, now, name| {
                let seen = it.want(now, document, false)?;
                if caller.role == Role::Delegate {
                    let what = format!("{caller} has changed what is wanted");
                    it.tell_of(now, name, &caller, what);
                }
                Ok(seen)
            })
            .await
        }
    }
}

/// All networks; for a delegate, those for which it has a grant.
async fn list<S: Store + Send + 'static>(State(verbs): VerbsState<S>, from: Called) -> Response {
    let ConnectInfo(Caller(caller)) = from;
    let vno = verbs.party.clone();
    let listed = verbs.handle.ask(move |it, now| {
        rights::is_known(&vno, &caller)?;
        let mut all = it.list();
        all.retain(|seen| {
            let need = Need::Any { name: &seen.name };
            rights::check(it, &vno, &caller, (now, need)).is_ok()
        });
        Ok(all)
    });
    answered(listed.await.and_then(|done| done))
}

async fn create<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    body: Body,
) -> Response {
    verbs.want(from, body, true).await
}

async fn apply<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    body: Body,
) -> Response {
    verbs.want(from, body, false).await
}

async fn seen<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path(name): Path<String>,
) -> Response {
    let of = (name, None);
    verbs
        .of_network(from, of, |it, _, name| it.seen(name))
        .await
}

async fn document<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path(name): Path<String>,
) -> Response {
    let of = (name, Some(Verb::See));
    verbs
        .of_network(from, of, |it, _, name| it.document(name))
        .await
}

/// Sends a request to the nodes of a network. A request that gives a person access to a node is
/// recorded in the network's events. With `stream=true`, the response to a command is its output
/// while it runs.
async fn ask<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let ConnectInfo(Caller(caller)) = from;
    let streams = match query.as_deref() {
        None | Some("") => false,
        Some("stream=true") => true,
        Some(other) => {
            let what = format!("{other:?}: unknown query; expected stream=true");
            return refusal(&ErrorBody::new(ErrorCode::BadRequest, what));
        }
    };
    match verbs.wanted(&caller, name, body, streams).await {
        Err(error) => refusal(&error),
        Ok(wanted) if streams => executing::stream(&verbs.below, &verbs.vnp, caller, wanted).await,
        Ok(wanted) => answered(executing::ask(&verbs.below, &verbs.vnp, &caller, wanted).await),
    }
}

impl<S: Store + Send + 'static> Verbs<S> {
    /// Parses a request to the nodes of a network, and checks that the caller has the right to it.
    async fn wanted(
        &self,
        caller: &Identity,
        name: String,
        body: Body,
        streams: bool,
    ) -> Result<NetworkRequest, ErrorBody> {
        rights::is_known(&self.party, caller)?;
        let mut ask: NodeRequest = read(&body_of(body).await?)?;
        if streams && !matches!(ask, NodeRequest::Exec { .. }) {
            let what = "stream=true: only the answer of a command is a stream";
            return Err(ErrorBody::new(ErrorCode::BadRequest, what));
        }
        let (vno, asker) = (self.party.clone(), caller.clone());
        let found = self.handle.ask(move |it, now| {
            let of = |verb, node| Need::Verb {
                name: &name,
                verb,
                node,
            };
            let need = of(ask.verb(), ask.node());
            rights::check(it, &vno, &asker, (now, need))?;
            let seen = it.seen(&name)?;
            let document = it.document(&name)?;
            ask.find_access(&document)?;
            if let Some(node) = ask.node()
                && !document.extended().node.contains_key(node)
            {
                return Err(no_node(node));
            }
            if let (Some(node), Some(deed)) = (ask.node(), ask.deed()) {
                let what = format!("node {node}: {asker} {deed}");
                it.tell_of(now, &name, &asker, what);
            }
            Ok::<_, ErrorBody>((seen.vnet, ask))
        });
        let (vnet, ask) = found.await??;
        Ok(NetworkRequest {
            vnet,
            ask,
            who: vec![caller.to_string()],
        })
    }
}

async fn remove<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path(name): Path<String>,
) -> Response {
    let of = (name, Some(Verb::Remove));
    verbs
        .of_network(from, of, |it, now, name| it.remove(now, name))
        .await
}

async fn grants<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path(name): Path<String>,
) -> Response {
    verbs
        .of_operator(from, move |it, _, _| it.grants(&name).cloned())
        .await
}

async fn set_grant<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path((name, to)): Path<(String, String)>,
    body: Body,
) -> Response {
    if let Err(error) = rights::is_known(&verbs.party, &from.0.0) {
        return refusal(&error);
    }
    let grant = body_of(body).await.and_then(|body| read::<Grant>(&body));
    match grant {
        Ok(grant) => verbs.change_grant(from, name, to, Some(grant)).await,
        Err(error) => refusal(&error),
    }
}

async fn withdraw<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path((name, to)): Path<(String, String)>,
) -> Response {
    verbs.change_grant(from, name, to, None).await
}

impl<S: Store + Send + 'static> Verbs<S> {
    async fn change_grant(
        &self,
        from: Called,
        name: String,
        to: String,
        grant: Option<Grant>,
    ) -> Response {
        self.of_operator(from, move |it, now, caller| {
            // The delegate's name as in a certificate.
            let to = Identity::new(Role::Delegate, &to).map_err(|error| {
                ErrorBody::new(carina_api::ErrorCode::BadRequest, error.to_string())
            })?;
            let what = match &grant {
                Some(grant) => {
                    let now_s = now.since(Instant::ZERO).as_secs();
                    let left = grant.until.map(|until| until.saturating_sub(now_s));
                    let left = left.map_or(String::new(), |left| format!(", for {left} s"));
                    format!("{caller} lets {to} do this: {grant}{left}")
                }
                None => format!("{caller} takes back what {to} may do"),
            };
            it.grant(now, &name, &to.name, grant)?;
            it.tell(now, &name, what);
            Ok(())
        })
        .await
    }
}

async fn events<S: Store + Send + 'static>(
    State(verbs): VerbsState<S>,
    from: Called,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let ConnectInfo(Caller(caller)) = from;
    let (since, wait) = match event_query(query.as_deref().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => return refusal(&error),
    };
    if let Err(error) = rights::is_known(&verbs.party, &caller) {
        return refusal(&error);
    }
    if !wait.is_zero() {
        verbs.watching.wake();
    }
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let happened = verbs.happened.notified();
        let (vno, caller, name) = (verbs.party.clone(), caller.clone(), name.clone());
        let events = verbs.handle.ask(move |it, now| {
            let need = Need::Verb {
                name: &name,
                verb: Verb::See,
                node: None,
            };
            rights::check(it, &vno, &caller, (now, need))?;
            it.events(&name, since)
        });
        let events = events.await.and_then(|events| events);
        let is_over = tokio::time::Instant::now() >= deadline;
        if is_over || !events.as_ref().is_ok_and(Vec::is_empty) {
            return answered(events);
        }
        // After a notification or a timeout, the events are checked again.
        let _ = tokio::time::timeout_at(deadline, happened).await;
    }
}
