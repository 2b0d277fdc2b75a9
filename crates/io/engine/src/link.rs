//! Links between apps: bounded queues of packets, with the sink's credit.
//!
//! A link has one source and one sink. The source never puts more on it than the sink has allowed.
//! Two limits apply:
//!
//! - **credit** of the link: a running limit of ring bytes, so that one slow reader holds back its
//!   own link and no other;
//! - **room** of the sink app: what the sink as a whole (a device ring) can take in this breath.
//!
//! The sink reports how many bytes its reader has consumed. A windowed link converts that into new
//! credit; any other link passes the number to the source app. Apps never call each other: an app
//! changes its links, and the engine visits the apps that the change concerns.

mod allowance;
mod share;
mod visits;

use std::collections::VecDeque;

use crate::credit::{Close, Credit};
use crate::ids::{AppId, LinkId};
use crate::packet::{Packet, record_cost};

use share::Share;

struct Link {
    from: AppId,
    to: AppId,
    source_cookie: u32,
    sink_cookie: u32,
    queue: VecDeque<Packet>,
    credit: Credit,
    limit: u64,
    sent: u64,
    share: Share,
    consumed: u64,
    piece_max: usize,
    bundles: Option<BundleLimits>,
    closed: Option<Close>,
    listed_ready: bool,
    listed_return: bool,
    listed_starved: bool,
    listed_retry: bool,
}

#[derive(Default)]
struct Side {
    room: u64,
    /// Part of the room for links that send little.
    reserve: u64,
    /// Bytes that all links have put in since the app was added.
    total: u64,
    ready: VecDeque<LinkId>,
    returns: VecDeque<LinkId>,
    starved: Vec<LinkId>,
    woken: bool,
    listed_dirty: bool,
    generation: u32,
}

struct Cell {
    generation: u32,
    link: Option<Link>,
}

/// Limits of the bundles that a sink accepts: packets with several whole SDUs
/// ([`Packet::from_bundle`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleLimits {
    /// Longest bundle that the sink accepts, in bytes.
    pub bytes_max: usize,
    /// Longest SDU in a bundle that the sink accepts, in bytes.
    pub sdu_bytes_max: usize,
}

/// All links of an engine, and the lists of apps to visit because of them.
#[derive(Default)]
pub struct Links {
    cells: Vec<Cell>,
    free: Vec<u32>,
    sides: Vec<Side>,
    woken: Vec<AppId>,
    dirty: VecDeque<AppId>,
    finished: Vec<AppId>,
    left_over: Vec<LinkId>,
    retries: Vec<LinkId>,
    /// Numbers of packets and bytes put on links in this breath.
    pushed: (usize, usize),
    defers_doorbells: bool,
    leaves_processor: bool,
}

impl Links {
    /// Whether apps should ring doorbells only in a later breath, because a woken reader would take
    /// the processor while there is work left.
    #[must_use]
    pub fn defers_doorbells(&self) -> bool {
        self.defers_doorbells
    }

    /// Sets whether doorbells are deferred in this breath.
    pub(crate) fn defer_doorbells(&mut self, hold: bool) {
        self.defers_doorbells = hold;
    }

    /// Whether an app that polls should sleep until its next poll, because another thread needs
    /// this processor.
    #[must_use]
    pub fn leaves_processor(&self) -> bool {
        self.leaves_processor
    }

    /// Sets whether apps should leave the processor.
    pub(crate) fn leave_processor(&mut self, leaves: bool) {
        self.leaves_processor = leaves;
    }

    /// Numbers of packets and bytes put on links since the last call.
    pub(crate) fn take_pushed(&mut self) -> (usize, usize) {
        std::mem::take(&mut self.pushed)
    }

    /// Creates a link from `from` to `to`. The sink grants credit as `credit` says; packets have at
    /// most `piece_max` bytes.
    pub fn connect(&mut self, from: AppId, to: AppId, credit: Credit, piece_max: usize) -> LinkId {
        let limit = match credit {
            Credit::Unlimited => u64::MAX,
            Credit::Stated => 0,
            Credit::Window(bytes) => bytes,
        };
        let link = Link {
            from,
            to,
            source_cookie: 0,
            sink_cookie: 0,
            queue: VecDeque::new(),
            credit,
            limit,
            sent: 0,
            share: Share::default(),
            consumed: 0,
            piece_max,
            bundles: None,
            closed: None,
            listed_ready: false,
            listed_return: false,
            listed_starved: false,
            listed_retry: false,
        };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.cells.push(Cell {
                    generation: 0,
                    link: None,
                });
                (self.cells.len() - 1) as u32
            }
        };
        let cell = &mut self.cells[index as usize];
        cell.link = Some(link);
        LinkId {
            index,
            generation: cell.generation,
        }
    }

    /// Removes a link with its packets. Returns how many packets were dropped with it.
    pub fn disconnect(&mut self, id: LinkId) -> usize {
        let Some(cell) = self.cells.get_mut(id.index as usize) else {
            return 0;
        };
        if cell.generation != id.generation {
            return 0;
        }
        let Some(link) = cell.link.take() else {
            return 0;
        };
        cell.generation = cell.generation.wrapping_add(1);
        self.free.push(id.index);
        link.queue.len()
    }

    fn link(&self, id: LinkId) -> Option<&Link> {
        let cell = self.cells.get(id.index as usize)?;
        if cell.generation == id.generation {
            cell.link.as_ref()
        } else {
            None
        }
    }

    fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        let cell = self.cells.get_mut(id.index as usize)?;
        if cell.generation == id.generation {
            cell.link.as_mut()
        } else {
            None
        }
    }

    fn side_mut(&mut self, app: AppId) -> Option<&mut Side> {
        let side = self.sides.get_mut(app.index as usize)?;
        (side.generation == app.generation).then_some(side)
    }

    /// For the source: sets a number by which the source finds its state for this link (a channel,
    /// a flow).
    pub fn set_source_cookie(&mut self, id: LinkId, cookie: u32) {
        if let Some(link) = self.link_mut(id) {
            link.source_cookie = cookie;
        }
    }

    /// Returns the number set by [`Links::set_source_cookie`]; 0 before.
    #[must_use]
    pub fn source_cookie(&self, id: LinkId) -> u32 {
        self.link(id).map_or(0, |link| link.source_cookie)
    }

    /// For the sink: sets a number by which the sink finds its state for this link (a channel, a
    /// flow).
    pub fn set_sink_cookie(&mut self, id: LinkId, cookie: u32) {
        if let Some(link) = self.link_mut(id) {
            link.sink_cookie = cookie;
        }
    }

    /// Returns the number set by [`Links::set_sink_cookie`]; 0 before.
    #[must_use]
    pub fn sink_cookie(&self, id: LinkId) -> u32 {
        self.link(id).map_or(0, |link| link.sink_cookie)
    }

    /// Whether `app` is the sink of the link.
    #[must_use]
    pub fn leads_to(&self, id: LinkId, app: AppId) -> bool {
        self.link(id).is_some_and(|link| link.to == app)
    }

    /// For the source: whether a packet of `len` bytes may be pushed. If the sink has no room, the
    /// link remembers the source, and the engine visits it when there is room. If the link lacks
    /// credit, the engine visits the source when the link gets more.
    pub fn may_push(&mut self, id: LinkId, len: usize) -> bool {
        let cost = record_cost(len);
        let Some(link) = self.link(id) else {
            return false;
        };
        if link.closed.is_some() || link.sent.saturating_add(cost) > link.limit {
            return false;
        }
        // Only a sink that states its credit has room of its own: a device that many links share.
        let (to, listed, share) = (link.to, link.listed_starved, link.share);
        if link.credit != Credit::Stated {
            return true;
        }
        let Some(side) = self.side_mut(to) else {
            return false;
        };
        if side.room_for(share) >= cost + ROOM_OVERHEAD {
            return true;
        }
        if !listed {
            side.starved.push(id);
            if let Some(link) = self.link_mut(id) {
                link.listed_starved = true;
            }
        }
        false
    }

    /// Puts a packet on the link. Only the source of the link may call this.
    ///
    /// # Errors
    /// Returns the packet if the link has ended; the caller counts the drop.
    pub fn push(&mut self, id: LinkId, packet: Packet) -> Result<(), Packet> {
        let (len, cost) = (packet.len(), packet.cost());
        let Some(link) = self.link_mut(id) else {
            return Err(packet);
        };
        if link.closed.is_some() {
            return Err(packet);
        }
        link.sent += cost;
        link.queue.push_back(packet);
        let (to, list) = (link.to, !link.listed_ready);
        link.listed_ready = true;
        self.pushed.0 += 1;
        self.pushed.1 += len;
        let Some(side) = self.side_mut(to) else {
            return Ok(());
        };
        side.room = side.room.saturating_sub(cost + ROOM_OVERHEAD);
        side.total += cost;
        let (total, reserve) = (side.total, side.reserve);
        if list {
            side.ready.push_back(id);
            self.mark_dirty(to);
        }
        if reserve > 0
            && let Some(link) = self.link_mut(id)
        {
            link.share.add(cost, total);
        }
        Ok(())
    }

    fn mark_dirty(&mut self, app: AppId) {
        let Some(side) = self.side_mut(app) else {
            return;
        };
        if !side.listed_dirty {
            side.listed_dirty = true;
            self.dirty.push_back(app);
        }
        self.wake(app);
    }

    /// For the sink: returns the next input link that has packets or has ended; `None` if no link
    /// is ready.
    #[must_use]
    pub fn next_ready(&mut self, app: AppId) -> Option<LinkId> {
        loop {
            let id = self.side_mut(app)?.ready.pop_front()?;
            if let Some(link) = self.link_mut(id) {
                link.listed_ready = false;
                return Some(id);
            }
        }
    }

    /// For the sink: takes the oldest packet from a link; `None` if the link is empty.
    #[must_use]
    pub fn pop(&mut self, id: LinkId) -> Option<Packet> {
        self.link_mut(id)?.queue.pop_front()
    }

    /// For the sink: leaves the remaining packets on the link until it calls [`Links::retry`]. At
    /// the end of the breath they are moved into buffers, so that their ring can be released.
    pub fn leave(&mut self, id: LinkId) {
        self.left_over.push(id);
    }

    /// Makes this link ready again in the next breath. Only the sink of the link may call this.
    pub fn retry(&mut self, id: LinkId) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        if !link.listed_retry {
            link.listed_retry = true;
            self.retries.push(id);
        }
    }

    /// Makes the links ready for which [`Links::retry`] was called.
    pub(crate) fn apply_retries(&mut self) {
        for id in std::mem::take(&mut self.retries) {
            let Some(link) = self.link_mut(id) else {
                continue;
            };
            link.listed_retry = false;
            let (to, list) = (link.to, !link.listed_ready);
            link.listed_ready = true;
            if list {
                if let Some(side) = self.side_mut(to) {
                    side.ready.push_back(id);
                }
                self.mark_dirty(to);
            }
        }
    }

    /// Returns the number of packets that wait on a link.
    #[must_use]
    pub fn queued(&self, id: LinkId) -> usize {
        self.link(id).map_or(0, |link| link.queue.len())
    }

    /// Ends a link and wakes the sink. No more packets can be pushed; those in the queue are still
    /// delivered. If called several times, the first reason stays.
    pub fn close(&mut self, id: LinkId, close: Close) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        if link.closed.is_some() {
            return;
        }
        link.closed = Some(close);
        let (from, to) = (link.from, link.to);
        self.wake(from);
        self.wake(to);
        self.retry(id);
    }

    /// Returns how the link has ended; `None` while it has not. The sink may act on it only when
    /// the queue is empty.
    #[must_use]
    pub fn closed(&self, id: LinkId) -> Option<&Close> {
        self.link(id)?.closed.as_ref()
    }

    /// Makes the engine visit `app` in the next breath.
    pub fn wake(&mut self, app: AppId) {
        let Some(side) = self.side_mut(app) else {
            return;
        };
        if !side.woken {
            side.woken = true;
            self.woken.push(app);
        }
    }

    /// Asks the engine to remove `app` at the end of this breath.
    pub fn finish(&mut self, app: AppId) {
        self.finished.push(app);
    }

    pub(crate) fn queue_mut(&mut self, id: LinkId) -> Option<&mut VecDeque<Packet>> {
        self.link_mut(id).map(|link| &mut link.queue)
    }
}

/// Ring bytes that a sink may need for a packet beyond its cost: an 8-byte header and its padding.
pub(crate) const ROOM_OVERHEAD: u64 = 16;
