//! Flows of SDUs.

use bytes::Bytes;
use carina_tokio::{Error, FlowSpec};
use futures_util::{SinkExt, StreamExt};

use crate::support::{TestNode, app, eventually};

/// Lengths of SDUs: empty, small, of several fragments, larger than a ring.
const LENGTHS: [usize; 8] = [5, 0, 1, 300_000, 0, 3_000_000, 65_536, 7];

fn sdu(length: usize) -> Bytes {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

#[tokio::test]
async fn messages_keep_their_boundaries() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (mut caller, mut called) = node.messages().await;
    let sending = tokio::spawn(async move {
        for length in LENGTHS {
            caller.send(sdu(length)).await.unwrap();
        }
    });
    for length in LENGTHS {
        assert_eq!(called.recv().await.unwrap().unwrap(), sdu(length));
    }
    assert_eq!(called.recv().await.unwrap(), None);
    assert!(matches!(called.send("late").await, Err(Error::Closed)));
    sending.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sink_and_stream_carry_many_messages_both_ways() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (caller, called) = node.messages().await;
    const COUNT: u32 = 20_000;
    let echo = tokio::spawn(async move {
        let (sink, stream) = called.split();
        stream.forward(sink).await.unwrap();
    });
    let (mut sink, stream) = caller.split();
    let sending = tokio::spawn(async move {
        for number in 0..COUNT {
            sink.feed(Bytes::from(number.to_be_bytes().repeat(50)))
                .await
                .unwrap();
        }
        sink.close().await.unwrap();
        sink
    });
    let answers: Vec<_> = stream.collect().await;
    assert_eq!(answers.len(), COUNT as usize);
    for (number, answer) in (0..COUNT).zip(answers) {
        assert_eq!(answer.unwrap()[..4], number.to_be_bytes());
    }
    let mut closed = sending.await.unwrap();
    assert!(matches!(
        closed.send(Bytes::new()).await,
        Err(Error::Closed)
    ));
    echo.await.unwrap();
}

#[tokio::test]
async fn message_that_is_too_long_is_an_error_and_the_next_is_whole() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (mut caller, called) = node.messages().await;
    let (_sender, receiver) = called.split();
    let mut receiver = receiver.with_sdu_max(4);
    caller.send("0123456789").await.unwrap();
    caller.send("next").await.unwrap();
    let error = receiver.next().await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::SduTooLarge { len: 10, max: 4 }),
        "{error}"
    );
    assert_eq!(receiver.next().await.unwrap().unwrap(), "next");
}

#[tokio::test]
async fn two_ends_in_one_thread_wait_for_each_other() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (mut caller, mut called) = node.messages().await;
    for _ in 0..2000 {
        tokio::join!(
            async {
                caller.send("ping").await.unwrap();
                assert_eq!(caller.recv().await.unwrap().unwrap(), "pong");
            },
            async {
                assert_eq!(called.recv().await.unwrap().unwrap(), "ping");
                called.send("pong").await.unwrap();
            }
        );
    }
}

#[tokio::test]
async fn messages_reach_a_program_of_the_blocking_library() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let client = node.client().await;
    let _server = node.carina(&["ping", "--listen", "echo", "--wait", "60s"]);
    let (local, echo, spec) = (app("caller"), app("echo"), FlowSpec::reliable());
    let mut flow = eventually(async || client.allocate(&local, &echo, None, &spec).await).await;
    assert_eq!(flow.info().remote, echo);
    for length in LENGTHS {
        flow.send(sdu(length)).await.unwrap();
        assert_eq!(flow.recv().await.unwrap().unwrap(), sdu(length));
    }
}
