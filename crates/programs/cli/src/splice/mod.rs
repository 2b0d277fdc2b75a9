//! Joins two flows: SDUs that arrive on either are sent on the other. `carina bridge` relays
//! between applications with it. (The relay between members of one DIF is the RMT of a normal
//! IPCP.)
//!
//! ```text
//!             DIF of --listen-dif                      DIF of --to-dif
//!   caller ======= flow =======[ receiver -> sender ]======= flow ======= called
//!                              [ sender <- receiver ]
//! ```
//!
//! Each direction has its own thread, which waits for room in the outgoing flow before it reads
//! more. So a slow reader holds back the writer through both flows. SDUs keep their boundaries.
//! When one flow ends, the thread delivers everything that arrived before the end, and then ends
//! the other flow.

mod direction;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use carina_client::Flow;
use carina_sys::EventFd;

pub(crate) use self::direction::{Counts, Ending};

/// Report that one direction of a pair of flows has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Number of the pair of flows, as passed to [`join`].
    pub pair: u64,
    /// True for the direction from the caller to the called application.
    pub is_forward: bool,
    /// Why the direction ended.
    pub ending: Ending,
    /// SDUs and bytes that the direction carried.
    pub counts: Counts,
}

/// Receives the reports of ended directions, and can stop all directions.
#[derive(Clone)]
pub(crate) struct Supervisor {
    /// Channel into which each direction puts its report when it ends.
    pub ended: Sender<Ended>,
    /// Signalled after a report is in the channel.
    pub doorbell: Arc<EventFd>,
    /// True when all directions have to end; the method `stop` sets it.
    pub stop: Arc<AtomicBool>,
}

/// Joins two flows. Both directions report to `supervisor` when they end.
///
/// # Errors
/// The system cannot start a thread.
pub(crate) fn join(
    pair: u64,
    caller: Flow,
    called: Flow,
    supervisor: &Supervisor,
) -> std::io::Result<()> {
    let (to_caller, from_caller) = caller.split();
    let (to_called, from_called) = called.split();
    let directions = [
        (true, from_caller, to_called),
        (false, from_called, to_caller),
    ];
    for (is_forward, from, to) in directions {
        let supervisor = supervisor.clone();
        let name = if is_forward { "way-there" } else { "way-back" };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let (ending, counts) = direction::carry(from, to, &supervisor.stop);
                let ended = Ended {
                    pair,
                    is_forward,
                    ending,
                    counts,
                };
                // Sending fails when the bridge has already ended.
                let _ = supervisor.ended.send(ended);
                supervisor.doorbell.signal();
            })?;
    }
    Ok(())
}

impl Supervisor {
    /// Tells all directions to end, and returns at once. Each direction then reports its end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}
