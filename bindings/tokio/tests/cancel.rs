//! Futures that are dropped at any point lose nothing and leak nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use carina_tokio::FlowSpec;
use tokio::time::timeout;

use crate::support::{PATIENCE, TestNode, app, open_descriptors};

/// How many futures are dropped in each test.
const CANCELLATIONS: u32 = 1000;

/// The time after which a future is dropped: another one each time, up to `limit`.
fn moment(number: u32, limit: Duration) -> Duration {
    limit * (number.wrapping_mul(0x9e37_79b9) >> 16) / (1 << 16)
}

/// Waits until as many descriptors are open as before: some close in other threads.
async fn settle(before: usize) {
    let patience = Instant::now() + PATIENCE;
    while open_descriptors() > before {
        assert!(
            Instant::now() < patience,
            "{} open, {before} before",
            open_descriptors()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_receives_and_sends_lose_no_message() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let (mut caller, mut called) = node.messages().await;
    let sending = tokio::spawn(async move {
        let (mut number, mut cancelled) = (0_u32, 0);
        while cancelled < CANCELLATIONS {
            let sdu = number.to_be_bytes().repeat(2000);
            // Polled once when the time is zero.
            let limit = moment(number + cancelled, Duration::from_micros(30));
            match timeout(limit, caller.send(sdu)).await {
                Ok(sent) => {
                    sent.unwrap();
                    number += 1;
                }
                Err(_dropped) => cancelled += 1,
            }
        }
        number
    });
    let (mut next, mut cancelled) = (0_u32, 0);
    loop {
        let limit = moment(next + cancelled, Duration::from_micros(100));
        match timeout(limit, called.recv()).await {
            Err(_dropped) => cancelled += 1,
            Ok(received) => {
                let Some(sdu) = received.unwrap() else { break };
                assert_eq!((&sdu[..4], sdu.len()), (&next.to_be_bytes()[..], 8000));
                next += 1;
            }
        }
        // A slow reader: the sender has to wait for space.
        if next % 64 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert_eq!(next, sending.await.unwrap());
    assert!(next > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_accepts_lose_no_flow() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let client = node.client().await;
    let before = open_descriptors();
    static FLOWS: AtomicU32 = AtomicU32::new(0);
    let mut listener = client.listen(&app("slow"), None).await.unwrap();
    let (caller, slow, spec) = (app("caller"), app("slow"), FlowSpec::reliable());
    let allocating = tokio::spawn(async move {
        for _ in 0..200 {
            client.allocate(&caller, &slow, None, &spec).await.unwrap();
            FLOWS.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (mut accepted, mut cancelled) = (0, 0);
    while accepted < 200 || cancelled < CANCELLATIONS {
        let limit = moment(accepted + cancelled, Duration::from_micros(300));
        match timeout(limit, listener.accept()).await {
            Ok(flow) => {
                flow.unwrap();
                accepted += 1;
            }
            Err(_dropped) => cancelled += 1,
        }
    }
    allocating.await.unwrap();
    assert_eq!(FLOWS.load(Ordering::Relaxed), accepted);
    drop(listener);
    settle(before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_allocations_leak_nothing() {
    let Some(node) = TestNode::start() else {
        return;
    };
    let client = node.client().await;
    let mut listener = client.listen(&app("echo"), None).await.unwrap();
    let echo = tokio::spawn(async move {
        loop {
            let Ok(mut flow) = listener.accept().await else {
                return;
            };
            tokio::spawn(async move {
                while let Ok(Some(sdu)) = flow.recv().await {
                    let _ = flow.send(sdu).await;
                }
            });
        }
    });
    let (local, remote, spec) = (app("caller"), app("echo"), FlowSpec::reliable());
    // The first allocation starts a thread of the runtime.
    drop(client.allocate(&local, &remote, None, &spec).await.unwrap());
    let before = open_descriptors();
    let mut made = 0;
    for number in 0..CANCELLATIONS {
        let limit = moment(number, Duration::from_millis(3));
        let allocating = client.allocate(&local, &remote, None, &spec);
        if let Ok(flow) = timeout(limit, allocating).await {
            let mut flow = flow.unwrap();
            flow.send("whole").await.unwrap();
            assert_eq!(flow.recv().await.unwrap().unwrap(), "whole");
            made += 1;
        }
    }
    assert!(made < CANCELLATIONS, "no allocation was dropped");
    settle(before).await;
    echo.abort();
}
