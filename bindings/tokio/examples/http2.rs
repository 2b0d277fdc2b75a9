//! A server and a client of HTTP/2 over a flow, with hyper.
//!
//! ```text
//! cargo run --example http2 -- server web.example
//! cargo run --example http2 -- client web.example /hello
//! ```
//!
//! A node must run; `CARINA_RUN` names its run directory.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use std::convert::Infallible;

use bytes::Bytes;
use carina_tokio::{ByteStream, Node, name};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", own] => server(own).await,
        ["client", remote, path] => client(remote, path).await,
        _ => Err("usage: http2 server NAME | http2 client NAME PATH".into()),
    }
}

async fn server(own: &str) -> Result<(), Failure> {
    let mut listener = Node::connect()
        .await?
        .listen_streams(&name(own)?, None)
        .await?;
    println!("registered as {own}");
    loop {
        let stream = listener.accept().await?;
        tokio::spawn(serve(stream));
    }
}

/// Serves the requests of one flow at once, until its client closes it.
async fn serve(stream: ByteStream) {
    let client = stream.info().remote.to_string();
    let answer = service_fn(|request: Request<Incoming>| {
        let text = format!("{} for {client}\n", request.uri().path());
        async move { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(text))) }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        println!("the flow of {client} failed: {error}");
    }
}

async fn client(remote: &str, path: &str) -> Result<(), Failure> {
    let node = Node::connect().await?;
    let stream = node
        .allocate_stream(&name("browser.example")?, &name(remote)?, None)
        .await?;
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(format!("http://{remote}{path}")).body(Empty::<Bytes>::new())?;
    let answer = requests.send_request(request).await?;
    let status = answer.status();
    let text = answer.into_body().collect().await?.to_bytes();
    print!("{status}: {}", String::from_utf8_lossy(&text));
    Ok(())
}
