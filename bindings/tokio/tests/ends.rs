//! What a task that waits learns when the node or its peer is killed.

use carina_tokio::{Error, FlowSpec};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{TestNode, app, eventually};

#[tokio::test]
async fn refusal_has_the_code_of_the_node() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let client = node.client().await;
    let (local, unregistered) = (app("caller"), app("unregistered"));
    let spec = FlowSpec::reliable();
    let error = client
        .allocate(&local, &unregistered, None, &spec)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Refused(body) if body.code.as_str() == "unknown-name"),
        "{error}"
    );
    let _first = client.listen(&app("taken"), None).await.unwrap();
    let error = client
        .listen_streams(&app("taken"), None)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Refused(body) if body.code.as_str() == "duplicate-name"),
        "{error}"
    );
}

#[tokio::test]
async fn killed_node_ends_what_waits_for_it() {
    let Some(mut node) = TestNode::start() else {
        return;
    };
    let client = node.client().await;
    let mut listener = client.listen(&app("waits"), None).await.unwrap();
    let (mut caller, _called) = node.messages().await;
    let accepting = tokio::spawn(async move {
        let first = listener.next().await.unwrap();
        (first, listener.next().await.is_none())
    });
    let receiving = tokio::spawn(async move { (caller.recv().await, caller) });
    // Both tasks wait now: the runtime has one thread, which they have left.
    tokio::task::yield_now().await;
    node.kill();
    let (accepted, has_ended) = accepting.await.unwrap();
    assert!(matches!(accepted, Err(Error::NodeGone)) && has_ended);
    let (received, mut caller) = receiving.await.unwrap();
    assert!(matches!(received, Err(Error::NodeGone)), "{received:?}");
    // A sender looks for the end of its flow now and then.
    let error = loop {
        if let Err(error) = caller.send("x").await {
            break error;
        }
    };
    assert!(matches!(error, Error::NodeGone), "{error}");
    let error = client.listen(&app("late"), None).await.unwrap_err();
    assert!(matches!(error, Error::NoNode { .. }), "{error}");
}

#[tokio::test]
async fn killed_node_ends_a_sender_that_waits_for_space() {
    let Some(mut node) = TestNode::start() else {
        return;
    };
    let (mut caller, _called) = node.messages().await;
    let sending = tokio::spawn(async move {
        loop {
            if let Err(error) = caller.send(vec![7; 10_000]).await {
                return error;
            }
        }
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!sending.is_finished());
    node.kill();
    let error = sending.await.unwrap();
    assert!(matches!(error, Error::NodeGone), "{error}");
}

#[tokio::test]
async fn killed_peer_fails_a_flow_over_rings() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let client = node.client().await;
    let mut server = node.carina(&["ping", "--listen", "echo", "--wait", "60s"]);
    let (local, echo, spec) = (app("caller"), app("echo"), FlowSpec::reliable());
    let mut flow = eventually(async || client.allocate(&local, &echo, None, &spec).await).await;
    flow.send("alive").await.unwrap();
    assert_eq!(flow.recv().await.unwrap().unwrap(), "alive");
    let receiving = tokio::spawn(async move { flow.recv().await });
    tokio::task::yield_now().await;
    server.kill();
    let received = receiving.await.unwrap();
    assert!(
        matches!(received, Err(Error::FlowFailed { .. })),
        "{received:?}"
    );
}

#[tokio::test]
async fn killed_peer_ends_a_byte_stream() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let client = node.client().await;
    let mut server = node.carina(&["cat", "--listen", "sink", "--wait", "60s"]);
    let (local, sink) = (app("caller"), app("sink"));
    let mut stream = eventually(async || client.allocate_stream(&local, &sink, None).await).await;
    stream.write_all(b"alive").await.unwrap();
    server.kill();
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest).await;
    assert!(read.is_ok() && rest.is_empty(), "{read:?} {rest:?}");
    let error = loop {
        // What is written until the node has noticed the end is discarded.
        if let Err(error) = stream.write_all(b"x").await {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}
