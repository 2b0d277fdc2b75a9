//! Two flows joined: what comes out of either goes into the other. A relay for applications, used
//! by `carina bridge` alone; a relay between members of one DIF is the RMT of a normal IPCP.
//!
//! ```text
//!             DIF of --listen-dif                      DIF of --to-dif
//!   caller ======= flow =======[ receiver -> sender ]======= flow ======= called
//!                              [ sender <- receiver ]
//! ```
//!
//! Each direction has a thread of its own, which waits for room before it takes more: a slow reader
//! holds back the writer through both flows. SDUs keep their boundaries. The end of a flow ends the
//! other one after everything before it was delivered.

mod way;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use carina_client::Flow;
use carina_sys::EventFd;

pub use self::way::{Counts, Ending};

/// A direction of two flows made one has ended.
#[derive(Debug)]
pub struct Ended {
    /// Which pair of flows.
    pub pair: u64,
    /// The way from the caller to the called, or the one back.
    pub is_forward: bool,
    /// Why.
    pub ending: Ending,
    /// What has passed.
    pub counts: Counts,
}

/// Receives the ends of directions, and stops all of them.
#[derive(Clone)]
pub struct Supervisor {
    /// Ends of directions.
    pub ended: Sender<Ended>,
    /// Signalled for each end.
    pub doorbell: Arc<EventFd>,
    /// Set when all directions are to end.
    pub stop: Arc<AtomicBool>,
}

/// Joins two flows; both directions report to `supervisor` when they end.
///
/// # Errors
/// The system has no thread to give.
pub fn join(pair: u64, caller: Flow, called: Flow, supervisor: &Supervisor) -> std::io::Result<()> {
    let (to_caller, from_caller) = caller.split();
    let (to_called, from_called) = called.split();
    let ways = [
        (true, from_caller, to_called),
        (false, from_called, to_caller),
    ];
    for (is_forward, from, to) in ways {
        let supervisor = supervisor.clone();
        let name = if is_forward { "way-there" } else { "way-back" };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let (ending, counts) = way::carry(from, to, &supervisor.stop);
                let ended = Ended {
                    pair,
                    is_forward,
                    ending,
                    counts,
                };
                // An error means that the bridge has ended already.
                let _ = supervisor.ended.send(ended);
                supervisor.doorbell.signal();
            })?;
    }
    Ok(())
}

impl Supervisor {
    /// Makes all directions end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}
