//! The web page of a VNO, for its operator's browser on the VNO's machine.
//!
//! A browser with the token in the page's address has the rights of the operator. The page shows
//! the operator's networks with their nodes and links as the operator knows them, and nothing of
//! the substrate. Its paths are the same as those of an agent's page, where they mean the same.

mod consoles;
mod remote_frames;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post, put};
use carina_api::{ErrorBody, ErrorCode};
use carina_random::Random;
use carina_vnet::impairment::LinkImpairment;
use carina_vnet::message::Condition;
use carina_vnet::report::{ConsoleTyped, LinkReport, VnetReport};
use carina_vnet::store::Store;
use carina_vnet::trace::TraceQuery;
use carina_vnet_web::answers::{answer, answered, event_query};
use carina_vnet_web::captures::{self, CaptureWanted, Captures};
use carina_vnet_web::{About, written};
use serde::Serialize;

use self::consoles::Consoles;
use self::remote_frames::RemoteFrames;
use super::entrance::Caller;
use super::messages::read;
use super::verbs::{self, Verbs};
use super::watching::Watching;
use crate::identity::{Identity, Role};
use crate::inside::copied::Copied;
use crate::inside::{self, Answer, NodeRequest, impairments};
use crate::numbers::Numbers;

/// The state of a VNO's page, in addition to the verbs of operators.
#[derive(Debug)]
struct Page<S> {
    operator: Identity,
    watching: Arc<Watching<S>>,
    consoles: Arc<Consoles>,
    captures: Arc<Captures>,
    numbers: Arc<Numbers>,
}

impl<S> Clone for Page<S> {
    fn clone(&self) -> Page<S> {
        Page {
            operator: self.operator.clone(),
            watching: Arc::clone(&self.watching),
            consoles: Arc::clone(&self.consoles),
            captures: Arc::clone(&self.captures),
            numbers: Arc::clone(&self.numbers),
        }
    }
}

/// A network as its operator's page shows it.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    report: VnetReport,
    /// The conditions of the network that hold at present, such as `LinksUp`.
    conditions: Vec<Condition>,
    /// Whether the network's document is refused until the operator changes it.
    is_refused: bool,
}

type PageState<S> = State<Page<S>>;

/// The routes of a VNO's page. Session numbers are drawn from `random`.
pub fn router<S: Store + Send + 'static>(verbs: Verbs<S>, random: Random) -> Router {
    let operator = Identity {
        role: Role::Operator,
        name: verbs.party.name.clone(),
    };
    let captures: Arc<Captures> = Arc::default();
    let page = Page {
        operator: operator.clone(),
        watching: Arc::clone(&verbs.watching),
        consoles: Arc::default(),
        captures: Arc::clone(&captures),
        numbers: Arc::new(Numbers::new(random)),
    };
    let own = Router::new()
        .route("/v1/page", get(about::<S>))
        .route("/v1/vnets/{name}/document/{form}", get(document::<S>))
        .with_state(verbs.clone());
    let looks = Router::new()
        .route("/v1/vnets/{name}/report", get(report::<S>))
        .route("/v1/vnets/{name}/history", get(history::<S>))
        .route("/v1/vnets/{name}/history/{at_ms}", get(moment::<S>))
        .route("/v1/vnets/{name}/links/{link}/impairment", put(impair::<S>))
        .route(
            "/v1/vnets/{name}/nodes/{node}/console",
            get(console_output::<S>).post(console_type::<S>),
        )
        .route("/v1/vnets/{name}/captures", post(begin_capture::<S>))
        .route("/v1/vnets/{name}/trace", post(trace::<S>))
        .route("/v1/vnets/{name}/test", post(test::<S>))
        .with_state(page);
    let speaks = move |mut request: Request, next: Next| {
        let caller = ConnectInfo(Caller(operator.clone()));
        request.extensions_mut().insert(caller);
        next.run(request)
    };
    verbs::router(verbs)
        .merge(own)
        .merge(looks)
        .merge(captures::routes(captures))
        .layer(middleware::from_fn(speaks))
}

async fn about<S: Store + Send + 'static>(State(verbs): State<Verbs<S>>) -> Response {
    answered(Ok(About {
        role: "vno",
        title: verbs.party.name.clone(),
        can: &[
            "rates", "history", "impair", "console", "capture", "test", "trace", "grants",
        ],
    }))
}

async fn document<S: Store + Send + 'static>(
    State(verbs): State<Verbs<S>>,
    Path((name, form)): Path<(String, String)>,
) -> Response {
    let document = verbs.handle.ask(move |it, _| it.document(&name)).await;
    written(document.and_then(|found| found), &form)
}

async fn report<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path(name): Path<String>,
) -> Response {
    answer(move || {
        let now = page.watching.now(&name)?;
        Ok(Shown {
            conditions: now.seen.standing.holds.iter().copied().collect(),
            is_refused: now.seen.standing.is_refused,
            report: now.report,
        })
    })
    .await
}

async fn history<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, _) = event_query(query.as_deref().unwrap_or_default())?;
        page.watching.history(&name, since)
    })
    .await
}

async fn moment<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path((name, at_ms)): Path<(String, u64)>,
) -> Response {
    answer(move || page.watching.moment(&name, at_ms)).await
}

async fn impair<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path((name, number)): Path<(String, u32)>,
    body: Bytes,
) -> Response {
    answer(move || {
        let wanted: LinkImpairment = read(&body)?;
        let link = page.link(&name, number)?;
        for ask in impairments(&link, &wanted) {
            page.ask(&name, ask)?;
        }
        Ok(())
    })
    .await
}

async fn console_output<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path((name, node)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, wait) = event_query(query.as_deref().unwrap_or_default())?;
        let ask = |ask| page.ask(&name, ask);
        page.consoles
            .output([&name, &node], (since, wait), &page.numbers, &ask)
    })
    .await
}

async fn console_type<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path((name, node)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    answer(move || {
        let typed: ConsoleTyped = read(&body)?;
        let ask = |ask| page.ask(&name, ask);
        page.consoles.type_in([&name, &node], &typed.text, &ask)
    })
    .await
}

async fn begin_capture<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    answer(move || {
        let CaptureWanted { link, side } = read(&body)?;
        let link = page.link(&name, link)?;
        let (Some(near), Some(far)) = (link.ends.get(side), link.ends.get(1 - side.min(1))) else {
            let what = format!("side {side}: must be 0 or 1");
            return Err(ErrorBody::new(ErrorCode::BadRequest, what));
        };
        let copied = Copied::of([near, far], Some(captures::SNAP), page.numbers.next());
        // Captures end with the page; they are not part of its state.
        let (watching, operator) = (Arc::clone(&page.watching), page.operator.clone());
        let ask = move |ask| watching.ask(&operator, &name, ask);
        page.captures.begin(move || {
            let frames = RemoteFrames::begin(copied, Box::new(ask))?;
            Ok(Box::new(frames))
        })
    })
    .await
}

async fn trace<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    answer(move || {
        let query: TraceQuery = read(&body)?;
        let (now, look) = page.watching.hosts(&name)?;
        let ask = |ask| page.ask(&name, ask);
        let vnet = (now.seen.vnet, &now.document);
        inside::trace::run(vnet, &look, &query, page.numbers.next(), &ask)
    })
    .await
}

async fn test<S: Store + Send + 'static>(
    State(page): PageState<S>,
    Path(name): Path<String>,
) -> Response {
    answer(move || {
        let (now, look) = page.watching.hosts(&name)?;
        let ask = |ask| page.ask(&name, ask);
        Ok(inside::test::run(&now.document, &look, &ask))
    })
    .await
}

impl<S: Store + Send + 'static> Page<S> {
    fn ask(&self, name: &str, ask: NodeRequest) -> Result<Answer, ErrorBody> {
        self.watching.ask(&self.operator, name, ask)
    }

    fn link(&self, name: &str, number: u32) -> Result<LinkReport, ErrorBody> {
        let (now, _) = self.watching.hosts(name)?;
        let links = now.report.links.into_iter();
        let found = { links }.find(|link| link.number == number);
        found.ok_or_else(|| {
            let what = format!("the network has no link {number}");
            ErrorBody::new(ErrorCode::NotFound, what)
        })
    }
}
