//! What a source may put on its links (credit, room of the sink, sizes, bundles), and what the
//! reader's consumption returns.

use super::{BundleLimits, Links, ROOM_OVERHEAD};
use crate::credit::Credit;
use crate::ids::{AppId, LinkId};

impl Links {
    /// For the sink: states that all its inputs together may take `bytes` of ring space in this
    /// breath. The engine visits the sources that were waiting for room.
    pub fn set_room(&mut self, app: AppId, bytes: u64) {
        let Some(side) = self.side_mut(app) else {
            return;
        };
        side.room = bytes;
        if bytes > 0 && !side.starved.is_empty() {
            for id in std::mem::take(&mut side.starved) {
                let Some(link) = self.link_mut(id) else {
                    continue;
                };
                link.listed_starved = false;
                let from = link.from;
                self.wake(from);
            }
        }
    }

    /// Whether a source waits until the sink `app` has room.
    #[must_use]
    pub fn is_wanted(&self, app: AppId) -> bool {
        self.sides
            .get(app.index as usize)
            .is_some_and(|side| !side.starved.is_empty())
    }

    /// For the sink of a [`Credit::Stated`] link: the source may send `credit` more ring bytes from
    /// now on, in packets of at most `piece_max` bytes. Wakes the source if it may now send more.
    pub fn set_credit(&mut self, id: LinkId, credit: u64, piece_max: usize) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        let limit = link.sent.saturating_add(credit);
        let grown = limit > link.limit;
        link.limit = limit;
        link.piece_max = piece_max;
        let from = link.from;
        if grown {
            self.wake(from);
        }
    }

    /// Changes the largest packet that the source may put on this link, in bytes. Wakes the source
    /// if it has changed.
    pub fn set_piece_max(&mut self, id: LinkId, piece_max: usize) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        if link.piece_max != piece_max {
            link.piece_max = piece_max;
            let from = link.from;
            self.wake(from);
        }
    }

    /// Returns the largest packet that the source may put on this link, in bytes; 0 before it is
    /// known.
    #[must_use]
    pub fn piece_max(&self, id: LinkId) -> usize {
        self.link(id).map_or(0, |link| link.piece_max)
    }

    /// For the sink: allows the source to put bundles within these limits on the link.
    pub fn accept_bundles(&mut self, id: LinkId, limits: BundleLimits) {
        if let Some(link) = self.link_mut(id) {
            link.bundles = Some(limits);
        }
    }

    /// For the source: returns the limits for a bundle that is pushed now; `None` if the sink
    /// accepts no bundles. The room may be 0 bytes. Unlike [`Links::may_push`], this does not
    /// register the source for a visit.
    #[must_use]
    pub fn bundle_room(&self, id: LinkId) -> Option<BundleLimits> {
        let link = self.link(id).filter(|link| link.closed.is_none())?;
        let limits = link.bundles?;
        let mut room = link.limit.saturating_sub(link.sent);
        if link.credit == Credit::Stated {
            let side = self.sides.get(link.to.index as usize)?;
            let free = side.room_for(link.share);
            room = room.min(free.saturating_sub(ROOM_OVERHEAD));
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        Some(BundleLimits {
            bytes_max: limits.bytes_max.min(room),
            ..limits
        })
    }

    /// For the sink: reports that `total` ring bytes of this link have left its reader's ring since
    /// the start. On a windowed link this becomes credit; on any other link it is passed to the
    /// source app.
    pub fn report(&mut self, id: LinkId, total: u64) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        if total <= link.consumed {
            return;
        }
        link.consumed = total;
        let from = link.from;
        if let Credit::Window(bytes) = link.credit {
            link.limit = total.saturating_add(bytes);
            self.wake(from);
            return;
        }
        if !link.listed_return {
            link.listed_return = true;
            if let Some(side) = self.side_mut(from) {
                side.returns.push_back(id);
            }
            self.wake(from);
        }
    }

    /// For the source: returns the next output link whose reader has consumed something, with the
    /// total of ring bytes since the start; `None` if no reader has consumed anything since the
    /// last call.
    #[must_use]
    pub fn next_return(&mut self, app: AppId) -> Option<(LinkId, u64)> {
        loop {
            let id = self.side_mut(app)?.returns.pop_front()?;
            if let Some(link) = self.link_mut(id) {
                link.listed_return = false;
                return Some((id, link.consumed));
            }
        }
    }
}
