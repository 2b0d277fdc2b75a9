//! A crossing: a flow between two workers, which is a channel in memory with a flow app at each
//! end.
//!
//! ```text
//!   worker of the IPCP that provides the flow     worker of the normal IPCP that uses it
//!   IPCP <--links--> flow app ==== two rings ==== flow app <--links--> normal IPCP
//! ```
//!
//! The rings carry SDUs, credit and wake-ups like any channel. The ends also exchange the longest
//! SDU that each accepts, and why each has closed. These values lie in memory that both ends share.
//! The end at the IPCP that provides the flow reports the end of the flow to the manager.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use carina_api::{IpcpId, PortId};
use carina_engine::Close;
use carina_ipcp::N1Port;
use carina_ring::WakeMode;
use carina_ring::channel::{ChannelMemory, Endpoint, Side};

/// The end of a crossing at the normal IPCP that uses it, while another worker provides the flow.
pub struct Crossed {
    /// Id of the normal IPCP that uses the flow as an N-1 flow.
    pub ipcp: IpcpId,
    /// The number by which the IPCP knows the N-1 flow; it must not be in use.
    pub n1: N1Port,
    /// Port-id of the flow on this system.
    pub port: PortId,
    pub(crate) end: Box<Endpoint>,
    pub(crate) with: Crossing,
}

/// State that the two ends of a crossing exchange besides the rings: the longest SDU, and why the
/// flow ends. Dropping it marks this end's ring as failed, unless the ring was closed before.
pub struct Crossing {
    shared: Arc<Shared>,
    side: Side,
}

/// Memory that both ends share. Arrays are indexed by [`Side::tx_ring`] of the end that writes.
struct Shared {
    channel: ChannelMemory,
    /// The longest SDU that each end's IPCP accepts, in bytes; 0 before it is known.
    piece_max: [AtomicUsize; 2],
    /// Why each end has closed its ring.
    closes: Mutex<[Option<Close>; 2]>,
}

/// Creates both ends of a crossing.
///
/// # Errors
/// Memory or descriptors are used up.
pub(crate) fn crossing() -> io::Result<[(Box<Endpoint>, Crossing); 2]> {
    let channel = ChannelMemory::create(CROSSING_BYTES)?;
    let end = |side| channel.endpoint(side, WakeMode::Fence).map(Box::new);
    let (a, b) = (end(Side::A)?, end(Side::B)?);
    let shared = Arc::new(Shared {
        channel,
        piece_max: Default::default(),
        closes: Mutex::default(),
    });
    let crossing = |side| Crossing {
        shared: Arc::clone(&shared),
        side,
    };
    Ok([(a, crossing(Side::A)), (b, crossing(Side::B))])
}

impl Crossing {
    /// Publishes the longest SDU that this end accepts, in bytes. Returns whether the value has
    /// changed; the caller must then wake the other end.
    pub fn state_piece_max(&self, bytes: usize) -> bool {
        let stated = &self.shared.piece_max[self.side.tx_ring()];
        // Relaxed is enough: only this end writes the value.
        if stated.load(Ordering::Relaxed) == bytes {
            return false;
        }
        stated.store(bytes, Ordering::Release);
        true
    }

    /// Returns the longest SDU that the other end accepts, in bytes; 0 before the other end has
    /// published it.
    #[must_use]
    pub fn piece_max(&self) -> usize {
        self.shared.piece_max[self.side.other().tx_ring()].load(Ordering::Acquire)
    }

    /// Publishes why this end is about to close its ring. Only the first call has an effect.
    pub fn close(&self, close: &Close) {
        let closes = self.shared.closes.lock();
        let mut closes = closes.unwrap_or_else(PoisonError::into_inner);
        closes[self.side.tx_ring()].get_or_insert_with(|| close.clone());
    }

    /// Returns the reason that the other end published with [`Self::close`] before it closed its
    /// ring. Returns [`Close::Failed`] if it has published no reason.
    #[must_use]
    pub fn closed(&self) -> Close {
        let closes = self.shared.closes.lock();
        let closes = closes.unwrap_or_else(PoisonError::into_inner);
        closes[self.side.other().tx_ring()]
            .clone()
            .unwrap_or_else(|| {
                Close::Failed("the other data-plane thread dropped the flow".to_owned())
            })
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        self.shared.channel.fail(self.side);
    }
}

/// Bytes of each ring of a crossing. A user on the same worker receives at once whatever a flow
/// without flow control brings. A user on another worker does not always run, and SDUs that find no
/// room meanwhile are lost.
pub(crate) const CROSSING_BYTES: usize = 4 << 20;

/// Largest number of ring bytes that may be in transit from the user of a crossing. When more is
/// queued, the user must wait.
pub(crate) const CROSSING_WINDOW: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use carina_ring::State;

    use super::*;

    #[test]
    fn each_end_hears_what_the_other_one_states() {
        let [(_, a), (_, b)] = crossing().unwrap();
        assert_eq!((a.piece_max(), b.piece_max()), (0, 0));
        assert!(a.state_piece_max(1_500));
        assert!(!a.state_piece_max(1_500), "no news");
        assert_eq!((a.piece_max(), b.piece_max()), (0, 1_500));
        a.close(&Close::Graceful("left".to_owned()));
        a.close(&Close::Failed("later".to_owned()));
        assert_eq!(b.closed(), Close::Graceful("left".to_owned()));
        assert!(matches!(a.closed(), Close::Failed(_)));
    }

    #[test]
    fn a_dropped_end_fails_its_ring_and_wakes_the_other() {
        let [(end, a), (mut peer, _b)] = crossing().unwrap();
        drop((end, a));
        assert_eq!(peer.rx.state(), State::Failed);
        assert!(peer.my_rx_doorbell.wait(Some(0)).unwrap());
    }

    #[test]
    fn an_end_that_closed_its_ring_stays_closed_when_dropped() {
        let [(mut end, a), (mut peer, _b)] = crossing().unwrap();
        end.close(State::Closed);
        drop((end, a));
        assert_eq!(peer.rx.state(), State::Closed);
    }
}
