//! Two flows made one: what comes out of either goes into the other.
//!
//! ```text
//!             DIF of --listen-dif                      DIF of --to-dif
//!   caller ======= flow =======[ receiver -> sender ]======= flow ======= called
//!                              [ sender <- receiver ]
//! ```
//!
//! Each direction has a thread of its own, which waits for room before it takes more: whoever
//! reads slowly holds back whoever writes, through both flows. An SDU stays an SDU. The end of a
//! flow ends the other one after everything that came before it was passed on.

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

/// Where the ends of directions are told, and how all of them are told to end.
#[derive(Clone)]
pub struct Desk {
    /// The ends.
    pub ended: Sender<Ended>,
    /// Rings when there is one.
    pub doorbell: Arc<EventFd>,
    /// Everything is to end.
    pub stop: Arc<AtomicBool>,
}

/// Joins two flows; both directions tell `desk` when they end.
///
/// # Errors
/// The system has no thread to give.
pub fn join(pair: u64, caller: Flow, called: Flow, desk: &Desk) -> std::io::Result<()> {
    let (to_caller, from_caller) = caller.split();
    let (to_called, from_called) = called.split();
    let ways = [
        (true, from_caller, to_called),
        (false, from_called, to_caller),
    ];
    for (is_forward, from, to) in ways {
        let desk = desk.clone();
        let name = if is_forward { "way-there" } else { "way-back" };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let (ending, counts) = way::carry(from, to, &desk.stop);
                let ended = Ended {
                    pair,
                    is_forward,
                    ending,
                    counts,
                };
                // A desk that is gone has no more to hear.
                let _ = desk.ended.send(ended);
                desk.doorbell.signal();
            })?;
    }
    Ok(())
}

impl Desk {
    /// Tells everything to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}
