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
//! Each side sends exactly one DEALLOCATE before a channel's number is used again, so nothing of
//! the old flow can be taken for the new one.

use carina_wire::vmpi::Channel;

use super::Side;
use super::credit::{RxCredit, TxCredit};

/// Where a channel is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// This side asked and waits for the answer.
    Requested,
    /// The peer asked and waits for this side's answer.
    Offered,
    /// Data flows.
    Open,
    /// This side deallocated and waits for the peer's DEALLOCATE.
    Closing,
}

/// One channel.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) tx: TxCredit,
    pub(super) rx: RxCredit,
    /// Bytes so far of the SDU that is arriving in pieces.
    pub(super) sdu_bytes: u64,
    /// A CREDIT message is due.
    pub(super) is_credit_due: bool,
    /// The peer answered a request that this side has already given up.
    pub(super) is_answered: bool,
}

/// All channels, indexed by number; as long as the highest number in use.
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

    /// Whether this side opens channels of this number.
    pub(super) fn is_own(&self, channel: Channel) -> bool {
        (channel.number().is_multiple_of(2)) == (self.side == Side::Host)
    }

    /// Channels in use that this side asked for, and that the peer asked for.
    pub(super) fn in_use(&self) -> (usize, usize) {
        (self.own, self.peer)
    }

    /// The lowest free number of this side's half.
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

    /// Empties the table and returns what was in it, in the order of numbers.
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
