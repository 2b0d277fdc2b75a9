//! The page of an agent for people: a map of each network with states and rates, its events, links
//! made worse by a click, consoles.
//!
//! The page is one file in this program and loads nothing from elsewhere. It asks for what
//! `vnet.sock` answers, over TCP on a loopback address. Every user of this machine, and every page
//! in a browser, can reach that: each request but that for the page itself has to bear a token, a
//! random number that stands in the address behind `#`, which browsers keep to themselves.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use carina_api::{ErrorBody, ErrorCode};

use crate::agent::Agent;
use crate::error::{Attempt, Error, Result};
use crate::random::random_bytes;
use crate::server::{self, Stopped, refusal};

/// A page that is going to be served.
#[derive(Debug)]
pub struct Web {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
}

/// What a request has to bear.
#[derive(Clone)]
struct Token(Arc<str>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Web {
    /// Listens at an address, and draws the token.
    ///
    /// # Errors
    /// The address is no loopback address, or taken.
    pub fn bind(address: SocketAddr) -> Result<Web> {
        if !address.ip().is_loopback() {
            return Err(Error::Unsupported {
                what: format!("a page at {address}"),
                instead: "it is served on a loopback address; `ssh -L` leads there from elsewhere",
            });
        }
        let what = || format!("listening at {address}");
        let listener = TcpListener::bind(address).attempt(what())?;
        let address = listener.local_addr().attempt(what())?;
        let bytes: [u8; 16] = random_bytes()?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Web {
            listener,
            address,
            token: Token(token.into()),
        })
    }

    /// What is to be opened in a browser, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/#{}", self.address, self.token.0)
    }

    /// Serves it until its [`server::Stop`] is dropped.
    ///
    /// # Errors
    /// The runtime cannot be made.
    pub fn serve(self, agent: Arc<Agent>, stopped: Stopped) -> std::io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let token = self.token.clone();
        let router = server::router_of(agent)
            .layer(middleware::from_fn_with_state(token, admit))
            .route("/", get(page));
        server::run(
            async move {
                let listener = tokio::net::TcpListener::from_std(self.listener)?;
                axum::serve(listener, router).await
            },
            stopped,
        )
    }
}

/// The page.
async fn page() -> Response {
    let head = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        // Nothing is loaded, run or sent but what this page itself has and asks for.
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
             connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (head, PAGE).into_response()
}

/// Lets requests with the token pass.
async fn admit(State(token): State<Token>, request: Request, next: Next) -> Response {
    let said = request.headers().get(header::AUTHORIZATION);
    let said = said.map(HeaderValue::as_bytes).unwrap_or_default();
    if is_token(&token.0, said) {
        return next.run(request).await;
    }
    let what = "the request does not bear the token that the agent's address has behind #";
    let mut response = refusal(&ErrorBody::new(ErrorCode::AccessDenied, what));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

/// `Bearer TOKEN`, compared in a time that says nothing of where they differ.
fn is_token(token: &str, said: &[u8]) -> bool {
    let Some(said) = said.strip_prefix(b"Bearer ") else {
        return false;
    };
    let pairs = said.iter().zip(token.as_bytes());
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    differ == 0 && said.len() == token.len()
}

const PAGE: &str = include_str!("web/page.html");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_admits() {
        assert!(is_token("abc", b"Bearer abc"));
        for said in [
            &b""[..],
            b"abc",
            b"Bearer ab",
            b"Bearer abcd",
            b"Bearer abd",
        ] {
            assert!(!is_token("abc", said), "{said:?}");
        }
    }

    #[test]
    fn page_is_served_on_loopback_only() {
        let error = Web::bind(([0, 0, 0, 0], 0).into()).unwrap_err();
        assert!(error.to_string().contains("loopback"), "{error}");
        let web = Web::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let url = web.url();
        let (_, token) = url.split_once("/#").unwrap();
        assert_eq!(token.len(), 32);
        assert!(!format!("{web:?}").contains(token));
    }

    #[test]
    fn page_loads_nothing_from_elsewhere() {
        for word in ["http:", "https:", "src=", "@import", "url("] {
            let allowed = PAGE.replace("http://www.w3.org/2000/svg", "");
            assert!(!allowed.contains(word), "{word}");
        }
    }
}
