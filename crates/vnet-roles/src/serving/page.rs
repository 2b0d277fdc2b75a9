//! The page of a VNO: what its operator may ask for, in a browser on the machine of the VNO.
//!
//! Who has the token of the page's address has the rights of the operator. It has the networks of
//! the operator, as documents and conditions; there is no word in it of what carries them.

use axum::Router;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use carina_vnet::store::Store;
use carina_vnet_host::server::answered;
use carina_vnet_host::web::{About, written};

use super::entrance::Caller;
use super::verbs::{self, Verbs};
use crate::identity::{Identity, Role};

/// All that the page of a VNO can ask for.
pub fn router<S: Store + Send + 'static>(verbs: Verbs<S>) -> Router {
    let operator = Identity {
        role: Role::Operator,
        name: verbs.party.name.clone(),
    };
    let own = Router::new()
        .route("/v1/page", get(about::<S>))
        .route("/v1/vnets/{name}/document/{form}", get(document::<S>))
        .with_state(verbs.clone());
    let speaks = move |mut request: Request, next: Next| {
        let caller = ConnectInfo(Caller(operator.clone()));
        request.extensions_mut().insert(caller);
        next.run(request)
    };
    verbs::router(verbs)
        .merge(own)
        .layer(middleware::from_fn(speaks))
}

async fn about<S: Store + Send + 'static>(State(verbs): State<Verbs<S>>) -> Response {
    answered(Ok(About {
        role: "vno",
        title: verbs.party.name.clone(),
        can: &[],
    }))
}

async fn document<S: Store + Send + 'static>(
    State(verbs): State<Verbs<S>>,
    Path((name, form)): Path<(String, String)>,
) -> Response {
    let document = verbs.handle.ask(move |it, _| it.document(&name)).await;
    written(document.and_then(|found| found), &form)
}
