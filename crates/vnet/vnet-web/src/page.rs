//! The web page: of an agent, with the networks of its host and their substrate; of an operator,
//! with networks alone; or of a provider.
//!
//! The page is part of this program and loads nothing from elsewhere. It is served over TCP on a
//! loopback address. Every user of this machine, and every web site in a browser, can reach that
//! address. Therefore each request except those for the page's own files must carry a token: a
//! random number that is in the page's URL behind `#`, a part that browsers do not send.

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use carina_api::{ErrorBody, ErrorCode};
use serde::Serialize;

use crate::answers::refusal;
use crate::reading;

/// The server of a web page: a listener bound to a loopback address, and the token that requests
/// must carry. [`PageServer::of`] serves the page.
#[derive(Debug)]
pub struct PageServer {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
}

/// Which page a [`PageServer`] serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The page of a host's agent or of an operator: the agent's or the operator's networks.
    Networks,
    /// The page of a provider: its hosts, and the networks on them.
    Provider,
}

/// The token that a request must carry.
#[derive(Clone)]
struct Token(Arc<str>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What the page learns first from its server: whose page it is, and which requests it may send.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// `agent`, `vno` or `pip`.
    pub role: &'static str,
    /// Name of the host, the operator or the provider.
    pub title: String,
    /// Keywords of the parts that the page shows; it hides the others.
    pub can: &'static [&'static str],
}

/// Why a page cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The address is not a loopback address.
    #[error(
        "the page cannot be served at {0}: use a loopback address, and `ssh -L` to reach it from \
         another host"
    )]
    NotLoopback(SocketAddr),
    /// The page cannot listen on the address.
    #[error("listening at {address}: {source}")]
    Listen {
        /// The address on which the page was to be served.
        address: SocketAddr,
        /// Why the operating system refused to listen on the address.
        source: io::Error,
    },
    /// The address of the page's listener cannot be read.
    #[error("reading the address of the page: {0}")]
    Address(io::Error),
    /// The system provides no random number for the token.
    #[error("drawing a random number: {0}")]
    Random(io::Error),
}

impl PageServer {
    /// Listens on a loopback address, and draws the random token.
    ///
    /// # Errors
    /// The address is not a loopback address or is in use, or the system provides no random number.
    pub fn bind(address: SocketAddr) -> Result<PageServer, WebError> {
        PageServer::on(PageServer::listen(address)?)
    }

    /// Listens on a loopback address, for [`PageServer::on`] in a process that has another loopback
    /// interface.
    ///
    /// # Errors
    /// The address is not a loopback address, or is in use.
    pub fn listen(address: SocketAddr) -> Result<TcpListener, WebError> {
        if !address.ip().is_loopback() {
            return Err(WebError::NotLoopback(address));
        }
        carina_sys::listen_tcp(&[address]).map_err(|source| WebError::Listen { address, source })
    }

    /// Draws the random token for a page on `listener`.
    ///
    /// # Errors
    /// The system provides no random number, or the listener has no address.
    pub fn on(listener: TcpListener) -> Result<PageServer, WebError> {
        let address = listener.local_addr().map_err(WebError::Address)?;
        let mut bytes = [0; 16];
        File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut bytes))
            .map_err(WebError::Random)?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(PageServer {
            listener,
            address,
            token: Token(token.into()),
        })
    }

    /// The URL to open in a browser; contains the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/#{}", self.address, self.token.0)
    }

    /// Serves the page of this kind, with `api` for its requests, on the current tokio runtime.
    /// Returns only on an error: it does not end by itself.
    ///
    /// # Errors
    /// The socket is unusable.
    pub async fn of(self, kind: Kind, api: Router) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        axum::serve(listener, router(kind, api, self.token)).await
    }
}

/// The routes of the page; those of `api` require the token.
fn router(kind: Kind, api: Router, token: Token) -> Router {
    let text = match kind {
        Kind::Networks => PAGE,
        Kind::Provider => PROVIDER_PAGE,
    };
    api.route("/v1/read", post(reading::read))
        .layer(middleware::from_fn_with_state(token, admit))
        .route(
            "/",
            get(async move || sent("text/html; charset=utf-8", text)),
        )
        .route(
            "/console",
            get(async move || sent("text/html; charset=utf-8", CONSOLE_PAGE)),
        )
        .route("/page/{file}", get(file))
}

/// A file of the page.
async fn file(Path(name): Path<String>) -> Response {
    let file = FILES.iter().find(|(known, _)| *known == name);
    let Some((name, text)) = file else {
        let what = "the page has no such file";
        return refusal(&ErrorBody::new(ErrorCode::NotFound, what));
    };
    if name.ends_with(".css") {
        sent("text/css; charset=utf-8", text)
    } else {
        sent("text/javascript; charset=utf-8", text)
    }
}

fn sent(kind: &'static str, text: &'static str) -> Response {
    let head = [
        (header::CONTENT_TYPE, kind),
        // The browser may load, run and request only what this page itself provides.
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
             img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (head, text).into_response()
}

/// Admits requests with the token.
async fn admit(State(token): State<Token>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.map(HeaderValue::as_bytes).unwrap_or_default();
    if is_token(&token.0, given) {
        return next.run(request).await;
    }
    let what = "the request lacks the token that follows # in the page's address: open the \
         address that the command printed last";
    let mut response = refusal(&ErrorBody::new(ErrorCode::AccessDenied, what));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

/// Compares with `Bearer TOKEN`, in a time that does not depend on where the texts differ.
fn is_token(token: &str, given: &[u8]) -> bool {
    let Some(given) = given.strip_prefix(b"Bearer ") else {
        return false;
    };
    let pairs = given.iter().zip(token.as_bytes());
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    differ == 0 && given.len() == token.len()
}

const PAGE: &str = include_str!("page/page.html");
const PROVIDER_PAGE: &str = include_str!("page/provider.html");
const CONSOLE_PAGE: &str = include_str!("page/console.html");

/// The files of the page, by name.
const FILES: [(&str, &str); 30] = [
    ("page.css", include_str!("page/page.css")),
    ("ask.js", include_str!("page/ask.js")),
    ("begin.js", include_str!("page/begin.js")),
    ("capture.js", include_str!("page/capture.js")),
    ("clusters.js", include_str!("page/clusters.js")),
    ("coordinates.js", include_str!("page/coordinates.js")),
    ("details.js", include_str!("page/details.js")),
    ("document.js", include_str!("page/document.js")),
    ("drawing.js", include_str!("page/drawing.js")),
    ("elements.js", include_str!("page/elements.js")),
    ("figures.js", include_str!("page/figures.js")),
    ("grants.js", include_str!("page/grants.js")),
    ("hosts.js", include_str!("page/hosts.js")),
    ("layers.js", include_str!("page/layers.js")),
    ("layout.js", include_str!("page/layout.js")),
    ("main.js", include_str!("page/main.js")),
    ("map.js", include_str!("page/map.js")),
    ("network.js", include_str!("page/network.js")),
    ("picture.js", include_str!("page/picture.js")),
    ("places.js", include_str!("page/places.js")),
    ("promises.js", include_str!("page/promises.js")),
    ("provider.js", include_str!("page/provider.js")),
    ("roles.js", include_str!("page/roles.js")),
    ("room.js", include_str!("page/room.js")),
    ("screen.js", include_str!("page/screen.js")),
    ("terminal.js", include_str!("page/terminal.js")),
    ("time.js", include_str!("page/time.js")),
    ("toml.js", include_str!("page/toml.js")),
    ("trace.js", include_str!("page/trace.js")),
    ("window.js", include_str!("page/window.js")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_admits() {
        assert!(is_token("abc", b"Bearer abc"));
        for given in [
            &b""[..],
            b"abc",
            b"Bearer ab",
            b"Bearer abcd",
            b"Bearer abd",
        ] {
            assert!(!is_token("abc", given), "{given:?}");
        }
    }

    #[test]
    fn page_is_served_on_loopback_only() {
        let error = PageServer::bind(([0, 0, 0, 0], 0).into()).unwrap_err();
        assert!(error.to_string().contains("loopback"), "{error}");
        let server = PageServer::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let url = server.url();
        let (_, token) = url.split_once("/#").unwrap();
        assert_eq!(token.len(), 32);
        assert!(!format!("{server:?}").contains(token));
    }

    #[test]
    fn page_loads_nothing_from_elsewhere() {
        let parts = FILES
            .iter()
            .map(|(_, text)| *text)
            .chain([PAGE, PROVIDER_PAGE, CONSOLE_PAGE]);
        for text in parts {
            let own = text.replace("http://www.w3.org/2000/svg", "");
            for word in ["http:", "https:", "//cdn", "@import", "url(", "innerHTML"] {
                assert!(!own.contains(word), "{word}");
            }
            // Every file that is named exists.
            for quoted in own
                .split(['"', '\''])
                .filter(|piece| piece.contains("/page/"))
            {
                let name = quoted.trim_start_matches("/page/");
                assert!(FILES.iter().any(|(known, _)| *known == name), "{quoted}");
            }
            let imports = own.lines().filter(|line| line.starts_with("import "));
            for line in imports {
                let name = line
                    .split('"')
                    .nth(1)
                    .and_then(|piece| piece.strip_prefix("./"));
                let is_known = FILES.iter().any(|(known, _)| Some(*known) == name);
                assert!(is_known, "{line}");
            }
        }
    }
}
