//! A crowd of flows that send all the time, beside a flow that is measured.
//!
//! One thread serves all flows of each end, so that the crowd loads the link between the two
//! systems and not the processors with a thread for each flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use carina_client::{Error, Flow, FlowReceiver, FlowSender, Registration, SduBatch};

use crate::transport::TransportError;
use crate::transport::error::Attempt;
use crate::trial::target::Target;

/// Flows that send all the time until the value is dropped.
#[derive(Debug)]
pub struct Crowd {
    ends: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Vec<Flow>>>,
}

impl Crowd {
    /// Allocates `flows` flows to the server of [`drain`], and sends SDUs of `sdu` bytes on all of
    /// them.
    ///
    /// # Errors
    /// The node refuses a flow.
    pub fn start(target: &Target, flows: usize, sdu: usize) -> Result<Crowd, TransportError> {
        let flows = (0..flows).map(|_| target.allocate());
        let flows = flows.collect::<Result<Vec<Flow>, _>>()?;
        let ends = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let (flag, count) = (Arc::clone(&ends), Arc::clone(&sent));
        let thread = spawn(move || send_all(flows, sdu, &flag, &count));
        Ok(Crowd {
            ends,
            sent,
            thread: Some(thread),
        })
    }

    /// Number of SDUs that were sent so far on all flows.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops sending, and waits until the server has received everything that was sent. Without
    /// this wait, the SDUs in the rings load the link for many seconds more, and the flows of
    /// the next crowd are added to these flows.
    ///
    /// # Errors
    /// The server has not received everything within two minutes.
    pub fn finish(mut self) -> Result<(), TransportError> {
        let deadline = Instant::now() + FINISH;
        let flows = self.stop();
        // Dropping the sending half closes it. The server closes its end after the last SDU.
        let receivers: Vec<FlowReceiver> = flows.into_iter().map(|flow| flow.split().1).collect();
        let mut flows = 0;
        for mut receiver in receivers {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok(None) = receiver.recv_timeout(&mut [0; 1], left) {
                flows += 1;
            }
        }
        if flows == 0 {
            return Ok(());
        }
        Err(TransportError::Unfinished {
            flows,
            limit: FINISH,
        })
    }

    fn stop(&mut self) -> Vec<Flow> {
        self.ends.store(true, Ordering::Relaxed);
        // A thread that panicked has been reported already.
        let thread = self.thread.take();
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

/// Sends until `ends` is set. Returns the flows that have not failed.
fn send_all(mut flows: Vec<Flow>, sdu: usize, ends: &AtomicBool, sent: &AtomicU64) -> Vec<Flow> {
    let bytes = vec![0x5a; sdu];
    while !ends.load(Ordering::Relaxed) && !flows.is_empty() {
        let mut count = 0;
        flows.retain_mut(|flow| {
            for _ in 0..BURST {
                match flow.try_send(&bytes) {
                    Ok(true) => count += 1,
                    Ok(false) => return true,
                    Err(_) => return false,
                }
            }
            true
        });
        sent.fetch_add(count, Ordering::Relaxed);
        if count == 0 {
            // All rings are full, and their node has work for longer than this.
            sleep(PAUSE);
        }
    }
    flows
}

/// Accepts all flows to a registered name and discards their SDUs. Returns only with an error.
///
/// # Errors
/// The node has ended (this is the usual end), or a flow cannot be accepted.
pub fn drain(mut registration: Registration) -> Result<(), TransportError> {
    let mut flows: Vec<(FlowSender, FlowReceiver)> = Vec::new();
    let mut batch = SduBatch::new(BURST, BATCH_BYTES);
    loop {
        let limit = if flows.is_empty() {
            IDLE
        } else {
            Duration::ZERO
        };
        let request = registration.next_request_timeout(limit);
        if let Some(request) = request.attempt("waiting for flows")? {
            match registration.accept_request(&request) {
                Ok(flow) => flows.push(flow.split()),
                // The client gave up before the server accepted its flow.
                Err(Error::Refused(_)) => {}
                Err(error) => return Err(error).attempt("accepting a flow"),
            }
        }
        let mut count = 0;
        flows.retain_mut(|(_, flow)| match flow.try_recv_burst(&mut batch) {
            Ok(received) => {
                count += received;
                true
            }
            Err(_) => false,
        });
        if count == 0 && !flows.is_empty() {
            sleep(PAUSE);
        }
    }
}

/// Largest number of SDUs that one flow sends, or receives, before the next flow.
const BURST: usize = 32;

/// Size of the buffer of received SDUs in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Time between two rounds without an SDU. It is far shorter than a full ring lasts.
const PAUSE: Duration = Duration::from_micros(200);

/// How long a server may receive what a crowd has sent before its end. The rings of 63 flows hold
/// 63 MiB.
const FINISH: Duration = Duration::from_secs(120);

/// Time between two looks for flows without any.
const IDLE: Duration = Duration::from_millis(100);
