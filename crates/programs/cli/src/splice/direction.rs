//! One direction of two joined flows.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use carina_client::{Error, FlowReceiver, FlowSender, PortId};
use carina_measure::traffic::SDU_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How many SDUs and bytes one direction of a pair of flows has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of SDUs forwarded to the other flow.
    pub sdus: u64,
    /// Number of bytes in those SDUs.
    pub bytes: u64,
    /// Number of SDUs dropped because the other flow cannot carry SDUs of their size.
    pub too_large: u64,
}

/// Why a direction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The application that sends in this direction closed its flow, and all its SDUs were
    /// delivered.
    Closed,
    /// The application that receives in this direction closed its flow.
    Unread,
    /// One of the two flows failed. The caller has to deallocate the other flow, so that its
    /// application gets an error.
    Failed {
        /// Why the flow failed, as text for people.
        reason: String,
        /// The flow that still exists.
        other: PortId,
    },
    /// The bridge was stopped.
    Stopped,
}

/// Carries SDUs from one flow to the other until a flow ends or `stop` is set. Returns why it
/// ended, and the counts.
pub(super) fn carry(
    mut from: FlowReceiver,
    mut to: FlowSender,
    stop: &AtomicBool,
) -> (Ending, Counts) {
    let mut counts = Counts::default();
    let ending = loop {
        if stop.load(Ordering::Acquire) {
            break Ending::Stopped;
        }
        let sdu = match from.try_recv_vec(SDU_MAX as usize) {
            Ok(Some(sdu)) => sdu,
            Ok(None) => match await_sdu(&mut from) {
                Ok(()) => continue,
                Err(error) => break ending(error, to.info().port, true),
            },
            // Only this SDU is lost; the flow continues.
            Err(Error::SduTooLarge { .. }) => {
                counts.too_large += 1;
                continue;
            }
            Err(error) => break ending(error, to.info().port, true),
        };
        match pass(&mut to, &sdu, stop) {
            Ok(true) => {
                counts.sdus += 1;
                counts.bytes += sdu.len() as u64;
            }
            Ok(false) => break Ending::Stopped,
            Err(Error::SduTooLarge { .. }) => counts.too_large += 1,
            Err(error) => break ending(error, from.info().port, false),
        }
    };
    (ending, counts)
}

/// Waits until an SDU has arrived, or at most [`LOOK_AGAIN`].
fn await_sdu(from: &mut FlowReceiver) -> Result<(), Error> {
    if from.arm()? {
        wait(from.poll_fd()?);
    }
    Ok(())
}

/// Sends an SDU as soon as there is room. Returns false when the bridge was stopped before that.
fn pass(to: &mut FlowSender, sdu: &[u8], stop: &AtomicBool) -> Result<bool, Error> {
    while !to.try_send(sdu)? {
        if stop.load(Ordering::Acquire) {
            return Ok(false);
        }
        if to.arm(sdu.len())? {
            wait(to.space_fd());
        }
    }
    Ok(true)
}

/// Waits until a descriptor is readable, or until it is time to check whether to stop.
fn wait(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    // An interrupted wait is treated as one that timed out.
    let _ = poll(&mut fds, Some(&LOOK_AGAIN));
}

fn ending(error: Error, other: PortId, is_source: bool) -> Ending {
    match error {
        Error::Closed if is_source => Ending::Closed,
        Error::Closed => Ending::Unread,
        error => Ending::Failed {
            reason: error.to_string(),
            other,
        },
    }
}

const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
