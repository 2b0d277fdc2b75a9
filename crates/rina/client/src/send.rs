//! The sending half of a flow.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use carina_ring::{Corrupt, Producer, RECORD_HEADER_BYTES, Refused, RingMap, State, record_cost};
use carina_sys::{Doorbell, Epoll};

use crate::error::Error;
use crate::link::{FlowInfo, Link};
use crate::spin_then_sleep::SpinThenSleep;
use crate::stats::FlowStats;

mod from_file;
mod waiting;

pub use self::from_file::{FromFile, HEAD_BYTES};
use self::waiting::LOOK_EVERY;

/// The sending half of a flow. Dropping it tells the remote application that no more SDUs follow.
#[derive(Debug)]
pub struct FlowSender {
    ring: Producer,
    /// The ring of the other direction, in which the peer marks that it has ended.
    opposite: Arc<RingMap>,
    space_doorbell: Doorbell,
    peer_doorbell: Doorbell,
    link: Arc<Link>,
    piece_max: usize,
    /// An SDU of which `try_send` has sent a part: its length, and how many bytes are in the ring.
    partial: Option<(usize, usize)>,
    /// How many more SDUs may be sent with only a check for room in the ring; 0 while `partial` is
    /// set.
    free_sends: u32,
    /// The value to which `free_sends` was last set. The difference to `free_sends` is the number
    /// of SDUs sent since then, which `stats` does not include yet.
    granted: u32,
    /// How many more SDUs may be granted before the flow's control socket is checked again.
    until_look: u32,
    pollable: OnceLock<Epoll>,
    spin_then_sleep: SpinThenSleep,
    stats: FlowStats,
}

/// Reserved space in the ring for one SDU, which the caller writes in place. Dropping the slot
/// sends nothing.
#[derive(Debug)]
pub struct SendSlot<'a> {
    sender: &'a mut FlowSender,
    length: usize,
}

impl FlowSender {
    pub(crate) fn new(
        ring: Producer,
        opposite: Arc<RingMap>,
        space_doorbell: Doorbell,
        peer_doorbell: Doorbell,
        link: Arc<Link>,
    ) -> FlowSender {
        FlowSender {
            piece_max: piece_max(ring.capacity()),
            ring,
            opposite,
            space_doorbell,
            peer_doorbell,
            link,
            partial: None,
            free_sends: 0,
            granted: 0,
            until_look: LOOK_EVERY,
            pollable: OnceLock::new(),
            spin_then_sleep: SpinThenSleep::new(),
            stats: FlowStats::default(),
        }
    }

    /// Returns the names at the ends of the flow, its DIF and its limits.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        self.link.info()
    }

    /// Returns the longest SDU in bytes that crosses the ring in one fragment; it is the limit of
    /// [`Self::reserve`] and about a quarter of the ring. Longer SDUs are sent in fragments, and
    /// the receiver reassembles them.
    #[must_use]
    pub fn piece_max(&self) -> usize {
        self.piece_max
    }

    /// Sends one SDU of 0 bytes or more, and waits for space while the ring is full.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::FlowFailed`] or [`Error::NodeGone`] when the flow has ended;
    /// [`Error::SduTooLarge`] when the flow does not carry SDUs of that length;
    /// [`Error::Unfinished`] when an earlier `try_send` of an SDU of another length must be
    /// finished first.
    #[inline]
    pub fn send(&mut self, sdu: &[u8]) -> Result<(), Error> {
        if self.push_whole(sdu) {
            self.publish();
            return Ok(());
        }
        self.send_waiting(sdu, None).map(drop)
    }

    /// Sends one SDU like [`Self::send`], but waits for space until `until` at most. Returns
    /// whether the SDU was sent. The clock is read only while the ring is full.
    ///
    /// As with [`Self::try_send`], an SDU of more than [`Self::piece_max`] bytes may have been sent
    /// in part when the call returns `false`.
    #[inline]
    pub fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, Error> {
        if self.push_whole(sdu) {
            self.publish();
            return Ok(true);
        }
        self.send_waiting(sdu, Some(until))
    }

    /// Sends one SDU if there is space, and returns whether it was sent.
    ///
    /// An SDU of more than [`Self::piece_max`] bytes may be sent in part: after `false`, repeat the
    /// call with the same SDU until it returns `true`.
    #[inline]
    pub fn try_send(&mut self, sdu: &[u8]) -> Result<bool, Error> {
        if self.push_whole(sdu) {
            self.publish();
            return Ok(true);
        }
        self.check(sdu.len())?;
        if self.push_pieces(sdu)? {
            return Ok(true);
        }
        // The ring is full, so check whether the receiver still exists.
        self.check_end_now()?;
        Ok(false)
    }

    /// Sends several SDUs and publishes them to the remote application together, which is cheaper
    /// than publishing each. Publishes long ones earlier, so that the remote application receives
    /// them while the next are copied. Waits for space like [`Self::send`].
    ///
    /// # Errors
    ///
    /// As for [`Self::send`]; the SDUs before the one that failed have been sent.
    pub fn send_burst(&mut self, sdus: &[&[u8]]) -> Result<(), Error> {
        let mut unpublished = 0;
        for sdu in sdus {
            if !self.push_whole(sdu) {
                self.publish();
                self.send_waiting(sdu, None)?;
                unpublished = 0;
                continue;
            }
            unpublished += sdu.len();
            if unpublished >= PUBLISH_BYTES {
                self.publish();
                unpublished = 0;
            }
        }
        self.publish();
        Ok(())
    }

    /// Sends as many of `sdus` as there is space for, in order, and returns how many.
    ///
    /// # Errors
    ///
    /// As for [`Self::send`], when not even the first could be sent.
    pub fn try_send_burst(&mut self, sdus: &[&[u8]]) -> Result<usize, Error> {
        let (mut sent, mut unpublished) = (0, 0);
        while sent < sdus.len() && self.push_whole(sdus[sent]) {
            unpublished += sdus[sent].len();
            sent += 1;
            if unpublished >= PUBLISH_BYTES {
                self.publish();
                unpublished = 0;
            }
        }
        self.publish();
        if sent == 0 && !sdus.is_empty() && self.try_send(sdus[0])? {
            sent = 1;
        }
        Ok(sent)
    }

    /// Waits for space and returns `length` bytes of the ring. The caller writes the SDU there and
    /// sends it with [`SendSlot::commit`].
    ///
    /// # Errors
    ///
    /// [`Error::SduTooLarge`] for more than [`Self::piece_max`] bytes; otherwise as for
    /// [`Self::send`].
    pub fn reserve(&mut self, length: usize) -> Result<SendSlot<'_>, Error> {
        if length > self.piece_max {
            return Err(too_large(length, self.piece_max as u64));
        }
        self.check(length)?;
        if self.partial.is_some() {
            return Err(Error::Unfinished {
                expected: length,
                got: length,
            });
        }
        let cost = record_cost(length);
        while let Err(refused) = self.ring.reserve(length) {
            not_broken(refused)?;
            self.wait_for_space(cost, None)?;
        }
        Ok(SendSlot {
            sender: self,
            length,
        })
    }

    /// Returns the length in bytes of the SDU that non-blocking calls have sent in part, if any. It
    /// must be finished before another SDU can be sent.
    #[must_use]
    pub fn unfinished(&self) -> Option<usize> {
        self.partial.map(|(length, _)| length)
    }

    /// Returns the counters of the sending half since the flow was allocated.
    #[must_use]
    pub fn stats(&self) -> FlowStats {
        FlowStats {
            sdus_sent: self.stats.sdus_sent + u64::from(self.granted - self.free_sends),
            ..self.stats
        }
    }

    /// Puts an SDU that fits in one fragment into the ring. Returns whether it did; `send_waiting`
    /// finds out why not.
    #[inline]
    fn push_whole(&mut self, sdu: &[u8]) -> bool {
        if self.free_sends == 0 {
            return self.push_after_look(sdu);
        }
        self.push_free(sdu)
    }

    /// Puts an SDU into the ring and decrements `free_sends`, which must be above 0.
    #[inline]
    fn push_free(&mut self, sdu: &[u8]) -> bool {
        if sdu.len() > self.piece_max || !self.ring.push_sdu(sdu) {
            return false;
        }
        self.free_sends -= 1;
        self.stats.bytes_sent += sdu.len() as u64;
        true
    }

    /// Puts an SDU into the ring unless a partial SDU, the peer's mark of its end, or a check of
    /// the control socket that is due forbids it.
    #[inline(never)]
    fn push_after_look(&mut self, sdu: &[u8]) -> bool {
        if self.partial.is_some() || self.until_look == 0 || self.opposite.state() != State::Open {
            return false;
        }
        self.grant(self.until_look.min(STATE_EVERY));
        self.until_look -= self.granted;
        self.push_free(sdu)
    }

    /// Allows `sdus` further SDUs without a check, and counts those sent under the previous grant.
    fn grant(&mut self, sdus: u32) {
        self.stats.sdus_sent += u64::from(self.granted - self.free_sends);
        self.granted = sdus;
        self.free_sends = sdus;
    }

    /// Publishes the SDUs in the ring, and wakes the receiver if it sleeps.
    #[inline]
    fn publish(&mut self) {
        if self.ring.publish() {
            self.stats.doorbells_rung += 1;
            self.peer_doorbell.signal();
        }
    }

    /// Sends one SDU that could not be sent at once. Returns `false` if `until` passes first;
    /// `None` means no limit.
    #[cold]
    fn send_waiting(&mut self, sdu: &[u8], until: Option<Instant>) -> Result<bool, Error> {
        self.check(sdu.len())?;
        while !self.push_pieces(sdu)? {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
            let sent = self.partial.map_or(0, |(_, sent)| sent);
            let next = (sdu.len() - sent).min(self.piece_max);
            self.wait_for_space(record_cost(next), until)?;
        }
        Ok(true)
    }

    /// Puts as many further fragments of the SDU into the ring as there is space for. Returns
    /// whether the last one is in the ring.
    fn push_pieces(&mut self, sdu: &[u8]) -> Result<bool, Error> {
        let mut sent = self.partial.take().map_or(0, |(_, sent)| sent);
        loop {
            let end = sdu.len().min(sent + self.piece_max);
            if let Err(refused) = self.ring.push(&[&sdu[sent..end]], end < sdu.len()) {
                self.partial = (sent > 0).then_some((sdu.len(), sent));
                self.grant(0);
                return not_broken(refused).map(|()| false);
            }
            self.publish();
            sent = end;
            if sent == sdu.len() {
                self.stats.sdus_sent += 1;
                self.stats.bytes_sent += sdu.len() as u64;
                return Ok(true);
            }
        }
    }

    /// Fails if an SDU of `length` bytes may not be sent, whatever the space. Checks the control
    /// socket when that is due or when the peer has marked its end.
    fn check(&mut self, length: usize) -> Result<(), Error> {
        if self.until_look == 0 || self.opposite.state() != State::Open {
            self.check_end_now()?;
        }
        if let Some((expected, _)) = self.partial.filter(|(expected, _)| *expected != length) {
            return Err(Error::Unfinished {
                expected,
                got: length,
            });
        }
        let sdu_max = self.link.info().sdu_max;
        if length as u64 > sdu_max {
            return Err(too_large(length, sdu_max));
        }
        Ok(())
    }
}

impl Drop for FlowSender {
    fn drop(&mut self) {
        // A thread that panics may leave a partial SDU. The receiver must see a failed flow, not a
        // complete one.
        let state = if std::thread::panicking() {
            State::Failed
        } else {
            State::Closed
        };
        if self.ring.close(state) {
            self.peer_doorbell.signal();
        }
    }
}

impl SendSlot<'_> {
    /// Returns the length of the SDU in bytes, as reserved.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the SDU has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Writes `bytes` at `offset` of the SDU. Bytes that are never written have an unspecified
    /// value.
    ///
    /// # Panics
    ///
    /// When `bytes` do not fit in the SDU at `offset`.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        let length = self.length;
        let mut slot = self.sender.ring.reserve(length).expect(RESERVED);
        slot.write_at(offset, bytes);
    }

    /// Sends the SDU; the remote application can receive it from now on.
    pub fn commit(self) {
        let slot = self.sender.ring.reserve(self.length).expect(RESERVED);
        slot.commit(false);
        self.sender.stats.sdus_sent += 1;
        self.sender.stats.bytes_sent += self.length as u64;
        self.sender.publish();
    }
}

/// Returns an error unless the ring was merely full.
fn not_broken(refused: Refused) -> Result<(), Error> {
    match refused {
        Refused::Full => Ok(()),
        Refused::Corrupt(corrupt) => Err(broken(corrupt)),
        other => Err(Error::FlowFailed {
            reason: other.to_string(),
        }),
    }
}

/// The error for a ring whose indices the receiver has corrupted.
fn broken(corrupt: Corrupt) -> Error {
    Error::FlowFailed {
        reason: format!("the remote end broke the ring: {corrupt}"),
    }
}

/// Largest fragment for a ring of `capacity` bytes: its record is a quarter of the ring, so that
/// sender and receiver can work at the same time on a large SDU.
pub(crate) fn piece_max(capacity: usize) -> usize {
    capacity / 4 - RECORD_HEADER_BYTES
}

fn too_large(length: usize, max: u64) -> Error {
    Error::SduTooLarge {
        len: length as u64,
        max,
    }
}

/// SDUs that are sent between two checks of the peer's mark of its end. The mark shares a cache
/// line with an index that the peer writes whenever it sends, so reading it is expensive.
const STATE_EVERY: u32 = 8;

/// Bytes of a burst of SDUs that wait for being published together. Above this, publishing costs
/// much less than the copies.
const PUBLISH_BYTES: usize = 1 << 16;

const RESERVED: &str = "space was found before the slot was made and only we take it";
