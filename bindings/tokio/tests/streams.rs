//! Flows that are byte streams.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::TestNode;

#[tokio::test]
async fn stream_carries_bytes_both_ways_and_ends_each_alone() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (caller, mut called) = node.streams().await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let (mut reads, mut writes) = tokio::io::split(caller);
    let expected = sent.clone();
    let echo = async {
        let mut bytes = Vec::new();
        called.read_to_end(&mut bytes).await.unwrap();
        called.write_all(&bytes).await.unwrap();
        called.shutdown().await.unwrap();
    };
    let write = async {
        writes.write_all(&sent).await.unwrap();
        writes.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let ((), (), read) = tokio::join!(echo, write, reads.read_to_end(&mut received));
    assert_eq!(read.unwrap(), expected.len());
    assert!(received == expected);
}

#[tokio::test]
async fn vectored_write_keeps_the_order_of_its_slices() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (mut caller, mut called) = node.streams().await;
    // More slices than one call of the kernel takes.
    let slices = [std::io::IoSlice::new(b"ab"); 3000];
    let written = caller.write_vectored(&slices).await.unwrap();
    drop(caller);
    let mut text = String::new();
    called.read_to_string(&mut text).await.unwrap();
    assert_eq!(text.len(), written);
    assert!(written > 0 && text == "ab".repeat(written / 2));
}

#[tokio::test]
async fn socket_of_a_stream_stays_blocking_for_other_processes() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (caller, _called) = node.streams().await;
    let flags = rustix::fs::fcntl_getfl(&caller).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
}
