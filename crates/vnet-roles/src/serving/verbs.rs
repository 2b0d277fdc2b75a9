//! What operators of a VNO may ask for: its networks, by name.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, RawQuery, State};
use axum::response::Response;
use axum::routing::{get, post};
use carina_api::{ErrorBody, ErrorCode};
use carina_time::Instant;
use carina_vnet::store::Store;
use carina_vnet_host::server::{answered, document_in, event_query, refusal};
use serde::Serialize;
use tokio::sync::Notify;

use super::asks::read;
use super::entrance::Caller;
use super::messages::{body_of, unknown_path};
use super::operations::Operations;
use crate::driver::Handle;
use crate::identity::{Identity, Role};
use crate::inside::below::Below;
use crate::inside::{Ask, Wanted};

/// A VNO that its operators call.
#[derive(Debug)]
pub struct Verbs<S> {
    /// The way to its machine.
    pub handle: Handle<Operations<S>>,
    /// Who it is.
    pub party: Identity,
    /// Tells when something has happened.
    pub happened: Arc<Notify>,
    /// The name of its VNP.
    pub vnp: String,
    /// The ways to it.
    pub below: Below,
}

impl<S> Clone for Verbs<S> {
    fn clone(&self) -> Verbs<S> {
        Verbs {
            handle: self.handle.clone(),
            party: self.party.clone(),
            happened: Arc::clone(&self.happened),
            vnp: self.vnp.clone(),
            below: self.below.clone(),
        }
    }
}

type Of<S> = State<Verbs<S>>;
type Called = ConnectInfo<Caller>;

/// The paths of a VNO.
pub fn router<S: Store + Send + 'static>(verbs: Verbs<S>) -> Router {
    Router::new()
        .route(
            "/v1/vnets",
            get(list::<S>).post(create::<S>).put(apply::<S>),
        )
        .route("/v1/vnets/{name}", get(seen::<S>).delete(remove::<S>))
        .route("/v1/vnets/{name}/document", get(document::<S>))
        .route("/v1/vnets/{name}/events", get(events::<S>))
        .route("/v1/vnets/{name}/asks", post(ask::<S>))
        .fallback(unknown_path)
        .with_state(verbs)
}

impl<S: Store + Send + 'static> Verbs<S> {
    /// Does what an operator of this VNO asks for.
    async fn answer<T: Serialize + Send + 'static>(
        &self,
        ConnectInfo(Caller(caller)): Called,
        work: impl FnOnce(&mut Operations<S>, Instant) -> Result<T, ErrorBody> + Send + 'static,
    ) -> Response {
        let answer = match self.check(&caller) {
            Ok(()) => self.handle.ask(work).await.and_then(|done| done),
            Err(error) => Err(error),
        };
        answered(answer)
    }

    fn check(&self, caller: &Identity) -> Result<(), ErrorBody> {
        let name = &self.party.name;
        match caller.role == Role::Operator && caller.name == *name {
            true => Ok(()),
            false => {
                let what = format!(
                    "{caller} may not give orders to {}; operator {name} may",
                    self.party
                );
                Err(ErrorBody::new(ErrorCode::AccessDenied, what))
            }
        }
    }

    async fn want(&self, from: Called, body: Body, is_new: bool) -> Response {
        if let Err(error) = self.check(&from.0.0) {
            return refusal(&error);
        }
        let document = body_of(body).await.and_then(|body| document_in(&body));
        match document {
            Ok(document) => {
                let work =
                    move |it: &mut Operations<S>, now: Instant| it.want(now, document, is_new);
                self.answer(from, work).await
            }
            Err(error) => refusal(&error),
        }
    }
}

async fn list<S: Store + Send + 'static>(State(verbs): Of<S>, from: Called) -> Response {
    verbs.answer(from, |it, _| Ok(it.list())).await
}

async fn create<S: Store + Send + 'static>(
    State(verbs): Of<S>,
    from: Called,
    body: Body,
) -> Response {
    verbs.want(from, body, true).await
}

async fn apply<S: Store + Send + 'static>(
    State(verbs): Of<S>,
    from: Called,
    body: Body,
) -> Response {
    verbs.want(from, body, false).await
}

async fn seen<S: Store + Send + 'static>(
    State(verbs): Of<S>,
    from: Called,
    Path(name): Path<String>,
) -> Response {
    verbs.answer(from, move |it, _| it.seen(&name)).await
}

async fn document<S: Store + Send + 'static>(
    State(verbs): Of<S>,
    from: Called,
    Path(name): Path<String>,
) -> Response {
    verbs.answer(from, move |it, _| it.document(&name)).await
}

/// Asks the nodes of a network something. What lets someone into a node stands in its events.
async fn ask<S: Store + Send + 'static>(
    State(verbs): Of<S>,
    from: Called,
    Path(name): Path<String>,
    body: Body,
) -> Response {
    let ConnectInfo(Caller(caller)) = from;
    let asked = async {
        verbs.check(&caller)?;
        let ask: Ask = read(&body_of(body).await?)?;
        let (who, deed) = (caller.to_string(), ask.deed());
        let node = ask.node().map(str::to_owned);
        let vnet = verbs.handle.ask(move |it, now| {
            let seen = it.seen(&name)?;
            if let (Some(node), Some(deed)) = (node, deed) {
                it.tell(now, &name, format!("node {node}: {who} {deed}"));
            }
            Ok::<_, ErrorBody>(seen.vnet)
        });
        let wanted = Wanted {
            vnet: vnet.await??,
            ask,
            who: vec![caller.to_string()],
        };
        verbs.below.ask(vec![verbs.vnp.clone()], wanted).await
    };
    answered(asked.await)
}

async fn remove<S: Store + Send + 'static>(
    State(verbs): Of<S>,
    from: Called,
    Path(name): Path<String>,
) -> Response {
    verbs
        .answer(from, move |it, now| it.remove(now, &name))
        .await
}

async fn events<S: Store + Send + 'static>(
    State(verbs): Of<S>,
    from: Called,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let (since, wait) = match event_query(query.as_deref().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => return refusal(&error),
    };
    if let Err(error) = verbs.check(&from.0.0) {
        return refusal(&error);
    }
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let happened = verbs.happened.notified();
        let name = name.clone();
        let events = verbs.handle.ask(move |it, _| it.events(&name, since)).await;
        let events = events.and_then(|events| events);
        let is_over = tokio::time::Instant::now() >= deadline;
        if is_over || !events.as_ref().is_ok_and(Vec::is_empty) {
            return answered(events);
        }
        // Whether it came or the time is over: look again.
        let _ = tokio::time::timeout_at(deadline, happened).await;
    }
}
