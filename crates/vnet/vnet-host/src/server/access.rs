//! HTTP requests about the access points of networks.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use carina_vnet_web::answers::{answer, json_in};

use super::{Service, Shared};
use carina_vnet::access::{TokenWanted, UserWanted};

/// The routes for access points.
pub(super) fn routes() -> Router<Service> {
    Router::new()
        .route("/v1/vnets/{name}/access", get(access))
        .route("/v1/vnets/{name}/access/{access}/tokens", post(token))
        .route("/v1/vnets/{name}/access/{access}/revocations", post(revoke))
}

async fn access(State(service): Shared, Path(name): Path<String>) -> Response {
    answer(move || Ok(service.agent.access(&name)?)).await
}

async fn token(
    State(service): Shared,
    Path((name, access)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    answer(move || {
        let wanted: TokenWanted = json_in(&body)?;
        Ok(service.agent.token(&name, &access, &wanted)?)
    })
    .await
}

async fn revoke(
    State(service): Shared,
    Path((name, access)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    answer(move || {
        let wanted: UserWanted = json_in(&body)?;
        Ok(service.agent.revoke(&name, &access, &wanted.user)?)
    })
    .await
}
