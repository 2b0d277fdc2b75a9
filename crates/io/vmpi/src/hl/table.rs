//! The channels of one link and the state of each.
//!
//! ```text
//!            allocate                 ALLOCATE from the peer
//!   free ----------------> Requested      free ------------> Offered
//!                           |    |                            |   |
//!              ACCEPTED     |    |  refused: free    respond  |   | refuse: free
//!                           v    v                            v
//!                          Open <-----------------------------+
//!                           |  \
//!      deallocate: sends    |   \  DEALLOCATE from the peer:
//!      DEALLOCATE           v    \ answers DEALLOCATE, free
//!                        Closing
//!                           |
//!                           | DEALLOCATE from the peer: free
//! ```
//!
//! Each side sends exactly one DEALLOCATE before the number of a channel is used again. Therefore
//! no message of the old flow can be mistaken for one of the new flow.

use carina_wire::vmpi::Channel;

use super::Side;
use super::credit::{RxCredit, TxCredit};

/// State of a channel in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// This side requested the flow and waits for the answer.
    Requested,
    /// The peer requested the flow and waits for this side's answer.
    Offered,
    /// The flow is allocated; data passes.
    Open,
    /// This side deallocated and waits for the peer's DEALLOCATE.
    Closing,
}

/// State of one channel.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) tx: TxCredit,
    pub(super) rx: RxCredit,
    /// Bytes received so far of an SDU that arrives in several pieces.
    pub(super) sdu_bytes: u64,
    /// This side should send a CREDIT message for the channel.
    pub(super) is_credit_due: bool,
    /// The peer has answered a request that this side had already given up.
    pub(super) is_answered: bool,
}

/// All channels of a link, indexed by number. The table is as long as the highest number in use.
#[derive(Debug)]
pub(super) struct Table {
    side: Side,
    entries: Vec<Option<Box<Entry>>>,
    own: usize,
    peer: usize,
}

impl Table {
    pub(super) fn new(side: Side) -> Table {
        Table {
            side,
            entries: Vec::new(),
            own: 0,
            peer: 0,
        }
    }

    pub(super) fn entry(&mut self, channel: Channel) -> Option<&mut Entry> {
        self.entries.get_mut(channel.index())?.as_deref_mut()
    }

    pub(super) fn peek(&self, channel: Channel) -> Option<&Entry> {
        self.entries.get(channel.index())?.as_deref()
    }

    /// Whether this side opens the channels with this parity: even for the host, odd for the guest.
    pub(super) fn is_own(&self, channel: Channel) -> bool {
        (channel.number().is_multiple_of(2)) == (self.side == Side::Host)
    }

    /// Number of channels in use that this side requested, and number that the peer requested.
    pub(super) fn in_use(&self) -> (usize, usize) {
        (self.own, self.peer)
    }

    /// The lowest free channel that this side may open.
    pub(super) fn lowest_free(&self) -> Option<Channel> {
        let first = match self.side {
            Side::Host => 2,
            Side::Guest => 1,
        };
        (first..=u16::MAX)
            .step_by(2)
            .find(|n| {
                self.entries
                    .get(usize::from(*n))
                    .is_none_or(Option::is_none)
            })
            .map(Channel::new)
    }

    pub(super) fn insert(&mut self, channel: Channel, entry: Entry) {
        if self.entries.len() <= channel.index() {
            self.entries.resize_with(channel.index() + 1, || None);
        }
        let slot = &mut self.entries[channel.index()];
        debug_assert!(slot.is_none(), "channel {channel} inserted twice");
        *slot = Some(Box::new(entry));
        *self.count(channel) += 1;
    }

    pub(super) fn remove(&mut self, channel: Channel) {
        if self
            .entries
            .get_mut(channel.index())
            .and_then(Option::take)
            .is_some()
        {
            *self.count(channel) -= 1;
        }
    }

    /// Empties the table. Returns the channels that were in use, in the order of their numbers.
    pub(super) fn clear(&mut self) -> Vec<(Channel, State)> {
        let ended = self
            .entries
            .iter()
            .enumerate()
            .filter_map(|(n, e)| e.as_ref().map(|e| (Channel::new(n as u16), e.state)))
            .collect();
        *self = Table::new(self.side);
        ended
    }

    fn count(&mut self, channel: Channel) -> &mut usize {
        if self.is_own(channel) {
            &mut self.own
        } else {
            &mut self.peer
        }
    }
}
