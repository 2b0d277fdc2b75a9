//! A server and a client of gRPC over a flow, with tonic.
//!
//! ```text
//! cargo run --example grpc -- server greeter.example
//! cargo run --example grpc -- client greeter.example world
//! ```
//!
//! The messages are structs, and the codec is 30 lines: nothing is generated from a `.proto` file,
//! so that the build needs no `protoc`. Generated services work in the same way.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use carina_tokio::{FlowInfo, Node, name};
use hyper::http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tower::{Service, service_fn};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `message HelloRequest { string name = 1; }`
#[derive(Clone, PartialEq, Message)]
struct HelloRequest {
    #[prost(string, tag = "1")]
    name: String,
}

/// `message HelloReply { string text = 1; }`
#[derive(Clone, PartialEq, Message)]
struct HelloReply {
    #[prost(string, tag = "1")]
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", own] => server(own).await,
        ["client", remote, whom] => client(remote, whom).await,
        _ => Err("usage: grpc server NAME | grpc client NAME WHOM".into()),
    }
}

async fn server(own: &str) -> Result<(), Failure> {
    let flows = Node::connect()
        .await?
        .listen_streams(&name(own)?, None)
        .await?;
    println!("registered as {own}");
    // The listener is a stream of flows, and a flow is a connection.
    Server::builder()
        .add_service(Greeter)
        .serve_with_incoming(flows)
        .await?;
    Ok(())
}

async fn client(remote: &str, whom: &str) -> Result<(), Failure> {
    let node = Node::connect().await?;
    let (local, remote) = (name("caller.example")?, name(remote)?);
    let connect = service_fn(move |_| {
        let (node, local, remote) = (node.clone(), local.clone(), remote.clone());
        async move {
            node.allocate_stream(&local, &remote, None)
                .await
                .map(TokioIo::new)
        }
    });
    // The name of the application is in the connector; that of the address is not looked at.
    let channel = Endpoint::from_static("http://flow")
        .connect_with_connector(connect)
        .await?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let request = Request::new(HelloRequest {
        name: whom.to_owned(),
    });
    let codec = Protobuf::<HelloRequest, HelloReply>::default();
    let reply = client
        .unary(request, PathAndQuery::from_static(HELLO), codec)
        .await?;
    println!("{}", reply.into_inner().text);
    Ok(())
}

/// `service Greeter { rpc Hello(HelloRequest) returns (HelloReply); }`
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "example.Greeter";
}

impl UnaryService<HelloRequest> for Greeter {
    type Response = HelloReply;
    type Future = std::future::Ready<Result<Response<HelloReply>, Status>>;

    fn call(&mut self, request: Request<HelloRequest>) -> Self::Future {
        let flow = request.extensions().get::<FlowInfo>();
        let caller = flow.map_or_else(String::new, |flow| flow.remote.to_string());
        let text = format!(
            "hello {}, from the server of {caller}",
            request.get_ref().name
        );
        std::future::ready(Ok(Response::new(HelloReply { text })))
    }
}

impl Service<hyper::Request<Body>> for Greeter {
    type Response = hyper::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        let mut grpc = tonic::server::Grpc::new(Protobuf::<HelloReply, HelloRequest>::default());
        Box::pin(async move {
            Ok(match request.uri().path() {
                HELLO => grpc.unary(Greeter, request).await,
                path => Status::unimplemented(format!("no method {path}")).into_http(),
            })
        })
    }
}

/// The codec of Protocol Buffers: sends messages `S` and receives messages `R`.
struct Protobuf<S, R>(PhantomData<fn(S) -> R>);

impl<S, R> Default for Protobuf<S, R> {
    fn default() -> Self {
        Protobuf(PhantomData)
    }
}

impl<S, R> Codec for Protobuf<S, R>
where
    S: Message + Send + 'static,
    R: Message + Default + Send + 'static,
{
    type Encode = S;
    type Decode = R;
    type Encoder = Protobuf<S, R>;
    type Decoder = Protobuf<S, R>;

    fn encoder(&mut self) -> Self::Encoder {
        Protobuf::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Protobuf::default()
    }
}

impl<S: Message, R> Encoder for Protobuf<S, R> {
    type Item = S;
    type Error = Status;

    fn encode(&mut self, item: S, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item.encode_to_vec());
        Ok(())
    }
}

impl<S, R: Message + Default> Decoder for Protobuf<S, R> {
    type Item = R;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<R>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let item = R::decode(bytes).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(item))
    }
}

const HELLO: &str = "/example.Greeter/Hello";
