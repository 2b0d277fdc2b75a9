//! The receiving half of a flow.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use carina_ring::{Consumer, Lease, Producer, Spin, State};
use carina_sys::{Epoll, EventFd, Interest};

use crate::batch::SduBatch;
use crate::error::Error;
use crate::flow::FlowStats;
use crate::link::{FlowInfo, Link, Woken};

/// The receiving half of a flow.
#[derive(Debug)]
pub struct FlowReceiver {
    ring: Consumer,
    data_bell: EventFd,
    peer_bell: EventFd,
    link: Arc<Link>,
    /// A piece that was taken from the ring to look at it and not received yet.
    seen: Option<Lease>,
    /// An SDU of which some pieces were received by calls that do not wait.
    begun: Option<Begun>,
    /// Ring bytes received and not given back to the sender yet, and how many may be.
    owed: usize,
    owed_max: usize,
    /// Calls that found nothing since the control socket was looked at.
    misses: u32,
    armed: bool,
    pollable: OnceLock<Epoll>,
    spin: Spin,
    stats: FlowStats,
}

/// The beginning of an SDU that comes in pieces.
#[derive(Debug, Default)]
struct Begun {
    /// What is kept of the pieces so far.
    kept: Vec<u8>,
    /// Bytes of all pieces so far.
    length: u64,
}

/// One piece of an SDU, in the ring. Most SDUs are one piece; those larger than a quarter of the
/// ring are several. Dropping it gives its space back to the sender.
#[derive(Debug)]
pub struct Piece<'a> {
    receiver: &'a mut FlowReceiver,
}

impl FlowReceiver {
    pub(crate) fn new(
        ring: Consumer,
        data_bell: EventFd,
        peer_bell: EventFd,
        link: Arc<Link>,
        capacity: usize,
    ) -> FlowReceiver {
        FlowReceiver {
            ring,
            data_bell,
            peer_bell,
            link,
            seen: None,
            begun: None,
            owed: 0,
            owed_max: capacity / 8,
            misses: 0,
            armed: false,
            pollable: OnceLock::new(),
            spin: Spin::new(),
            stats: FlowStats::default(),
        }
    }

    /// Who is at the ends of the flow and what it offers.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        self.link.info()
    }

    /// Waits for one SDU, copies it into `buffer` and gives its length.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] when the remote application closed the flow and everything that it sent
    /// was received; [`Error::FlowFailed`] or [`Error::NodeGone`] when the flow broke;
    /// [`Error::SduTooLarge`] when the SDU is longer than `buffer`: then its beginning is in the
    /// buffer, the rest is lost, and the next call receives the next SDU.
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            if let Some(piece) = self.take()? {
                if !piece.more() && self.begun.is_none() {
                    return self.deliver(&piece, buffer);
                }
                let received = self.recv_pieces(piece, buffer, None)?;
                return Ok(received.expect("without a deadline nothing ends the wait but an error"));
            }
            self.wait(None)?;
        }
    }

    /// Receives as [`Self::recv`] does, waiting for at most `limit`: `None` when no SDU came.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`].
    pub fn recv_timeout(
        &mut self,
        buffer: &mut [u8],
        limit: Duration,
    ) -> Result<Option<usize>, Error> {
        let until = Instant::now().checked_add(limit);
        loop {
            if let Some(piece) = self.take()? {
                if !piece.more() && self.begun.is_none() {
                    return self.deliver(&piece, buffer).map(Some);
                }
                return self.recv_pieces(piece, buffer, until);
            }
            if !self.wait(until)? {
                return Ok(None);
            }
        }
    }

    /// Receives an SDU that is there, or gives `None`; never waits. Of an SDU in pieces those that
    /// are there are kept until the others come.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`].
    #[inline]
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        match self.take()? {
            Some(piece) if !piece.more() && self.begun.is_none() => {
                self.deliver(&piece, buffer).map(Some)
            }
            Some(piece) => {
                let Some(begun) = self.keep_pieces(piece, buffer.len())? else { return Ok(None) };
                let kept = begun.kept.len().min(buffer.len());
                buffer[..kept].copy_from_slice(&begun.kept[..kept]);
                self.count(begun.length, kept as u64).map(|()| Some(kept))
            }
            None => self.missed().map(|()| None),
        }
    }

    /// Waits for one SDU of at most `max` bytes and gives it as a vector of its length.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], with `max` in place of the length of the buffer.
    pub fn recv_vec(&mut self, max: usize) -> Result<Vec<u8>, Error> {
        loop {
            let Some(piece) = self.take()? else {
                self.wait(None)?;
                continue;
            };
            if let Some(begun) = self.keep_pieces(piece, max)? {
                self.count(begun.length, begun.kept.len() as u64)?;
                return Ok(begun.kept);
            }
        }
    }

    /// Waits for an SDU and takes with it all others that are there and fit into `batch`, whose
    /// former contents are dropped. Gives the number of SDUs.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], when not even the first SDU could be received.
    pub fn recv_burst(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        batch.clear();
        let length = self.recv(batch.room())?;
        batch.take(length);
        self.fill(batch)
    }

    /// Takes all SDUs that are there and fit into `batch`, whose former contents are dropped;
    /// never waits. Gives the number of SDUs, which may be 0.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], when not even the first SDU could be received.
    pub fn try_recv_burst(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        batch.clear();
        match self.try_recv(batch.room())? {
            None => Ok(0),
            Some(length) => {
                batch.take(length);
                self.fill(batch)
            }
        }
    }

    /// Waits for the next piece of an SDU and shows it where it lies in the ring.
    ///
    /// Not to be mixed with `recv` calls within an SDU of several pieces.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], except that no SDU is too large.
    pub fn peek(&mut self) -> Result<Piece<'_>, Error> {
        while self.seen.is_none() {
            self.seen = self.take()?;
            if self.seen.is_none() {
                self.wait(None)?;
            }
        }
        Ok(Piece { receiver: self })
    }

    /// As [`Self::peek`], but gives `None` at once when there is nothing.
    ///
    /// # Errors
    ///
    /// As for [`Self::peek`].
    pub fn try_peek(&mut self) -> Result<Option<Piece<'_>>, Error> {
        if self.seen.is_none() {
            self.seen = self.take()?;
        }
        if self.seen.is_none() {
            return self.missed().map(|()| None);
        }
        Ok(Some(Piece { receiver: self }))
    }

    /// Asks to be woken through [`Self::poll_fd`] when something can be received or the flow ends.
    /// Gives `false` when that is so already: then nothing will wake, and `try_recv` has news.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`] when the flow has ended.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.release();
        if self.seen.is_some() || self.ring.pending_bytes() > 0 {
            return Ok(false);
        }
        self.data_bell.drain();
        self.armed = self.ring.arm();
        if self.armed {
            self.look_now()?;
        }
        Ok(self.armed)
    }

    /// The descriptor for poll and epoll: readable after [`Self::arm`] once something can be
    /// received or the flow has ended. It is made by the first call.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when this process has too many open files.
    pub fn poll_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.pollable.get().is_none() {
            let failed = Error::system("cannot make the flow pollable");
            let epoll = self.make_pollable().map_err(failed)?;
            let _ = self.pollable.set(epoll);
        }
        Ok(self.pollable.get().expect("it was set just now").as_fd())
    }

    /// What this half has counted.
    #[must_use]
    pub fn stats(&self) -> FlowStats {
        self.stats
    }

    fn make_pollable(&self) -> std::io::Result<Epoll> {
        let epoll = Epoll::new()?;
        epoll.add(self.data_bell.as_fd(), 0, Interest::READ)?;
        epoll.add(self.link.as_fd(), 1, Interest::READ)?;
        Ok(epoll)
    }

    /// Takes the next piece off the ring, if there is one.
    #[inline]
    fn take(&mut self) -> Result<Option<Lease>, Error> {
        if self.armed {
            self.armed = false;
            self.ring.disarm();
        }
        if let Some(piece) = self.seen.take() {
            return Ok(Some(piece));
        }
        self.ring.next().map_err(|corrupt| Error::FlowFailed { reason: corrupt.to_string() })
    }

    /// Copies an SDU of one piece.
    #[inline]
    fn deliver(&mut self, piece: &Lease, buffer: &mut [u8]) -> Result<usize, Error> {
        let length = piece.len();
        let fits = length.min(buffer.len());
        piece.copy_to(&mut buffer[..fits]);
        self.done(length);
        self.count(length as u64, fits as u64).map(|()| fits)
    }

    /// Receives an SDU in pieces into `buffer` as they come, from `piece` on. When `until` passes
    /// before the last one, keeps what came.
    #[cold]
    fn recv_pieces(
        &mut self,
        mut piece: Lease,
        buffer: &mut [u8],
        until: Option<Instant>,
    ) -> Result<Option<usize>, Error> {
        let Begun { kept, mut length } = self.begun.take().unwrap_or_default();
        let mut filled = kept.len().min(buffer.len());
        buffer[..filled].copy_from_slice(&kept[..filled]);
        loop {
            // Bytes are taken only while nothing before them was dropped.
            let room = if filled as u64 == length { buffer.len() - filled } else { 0 };
            let fits = piece.len().min(room);
            piece.copy_to(&mut buffer[filled..filled + fits]);
            filled += fits;
            length += piece.len() as u64;
            self.done(piece.len());
            if !piece.more() {
                return self.count(length, filled as u64).map(|()| Some(filled));
            }
            piece = loop {
                if let Some(piece) = self.take()? {
                    break piece;
                }
                if !self.wait(until)? {
                    self.begun = Some(Begun { kept: buffer[..filled].to_vec(), length });
                    return Ok(None);
                }
            };
        }
    }

    /// Takes `piece` and those behind it that are there; gives the SDU if it became whole. Keeps
    /// its first `max` bytes.
    fn keep_pieces(&mut self, mut piece: Lease, max: usize) -> Result<Option<Begun>, Error> {
        let mut begun = self.begun.take().unwrap_or_default();
        loop {
            let filled = begun.kept.len();
            let whole = filled as u64 == begun.length;
            let room = if whole { max.saturating_sub(filled) } else { 0 };
            let fits = piece.len().min(room);
            begun.kept.resize(filled + fits, 0);
            piece.copy_to(&mut begun.kept[filled..]);
            begun.length += piece.len() as u64;
            self.done(piece.len());
            if !piece.more() {
                return Ok(Some(begun));
            }
            match self.take()? {
                Some(next) => piece = next,
                None => {
                    self.begun = Some(begun);
                    return Ok(None);
                }
            }
        }
    }

    /// Takes further SDUs of one piece while they are there and fit.
    fn fill(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        while !batch.is_full() {
            let Ok(Some(piece)) = self.take() else { break };
            if piece.more() || piece.len() > batch.room().len() {
                self.seen = Some(piece);
                break;
            }
            let length = self.deliver(&piece, batch.room())?;
            batch.take(length);
        }
        Ok(batch.len())
    }

    /// Counts a received SDU, and says so when not all of it was kept.
    #[inline]
    fn count(&mut self, length: u64, kept: u64) -> Result<(), Error> {
        self.stats.sdus_received += 1;
        self.stats.bytes_received += length;
        if kept < length {
            self.stats.sdus_too_large += 1;
            return Err(Error::SduTooLarge { len: length, max: kept });
        }
        Ok(())
    }

    /// Notes that a piece was received; gives space back when enough has come together. The
    /// sender never needs more than a quarter of the ring at once, so an eighth may be kept.
    #[inline]
    fn done(&mut self, length: usize) {
        self.owed += Producer::record_cost(length);
        if self.owed >= self.owed_max {
            self.release();
        }
    }

    /// Gives the space of all received pieces back and wakes the sender if it waits for it.
    fn release(&mut self) {
        self.owed = 0;
        if self.ring.release() {
            self.stats.bells_rung += 1;
            self.peer_bell.signal();
        }
    }

    /// Nothing was there: now and then looks whether anything will ever come.
    fn missed(&mut self) -> Result<(), Error> {
        self.misses += 1;
        if self.misses >= LOOK_EVERY || self.ring.state() != State::Open {
            return self.look_now();
        }
        Ok(())
    }

    /// Asks whether the flow has ended, to be called when the ring was found empty.
    fn look_now(&mut self) -> Result<(), Error> {
        self.misses = 0;
        let ended = self.link.look();
        let state = self.ring.state();
        if !ended && state == State::Open {
            return Ok(());
        }
        // The mark of the end comes after the last SDU: look once more for what came between.
        if self.ring.pending_bytes() > 0 {
            return Ok(());
        }
        Err(if state == State::Closed { Error::Closed } else { self.link.failure() })
    }

    /// Waits until something can be received: `true`, or until the time is over: `false`.
    fn wait(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        let ring = &mut self.ring;
        if self.spin.until(|| ring.pending_bytes() > 0) {
            return Ok(true);
        }
        self.release();
        self.look_now()?;
        if !self.ring.arm() {
            return Ok(true);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.stats.sleeps += 1;
        let woken = self.link.sleep(self.data_bell.as_fd(), left);
        self.ring.disarm();
        if woken? == Woken::Bell {
            self.data_bell.drain();
        }
        if self.ring.pending_bytes() > 0 {
            return Ok(true);
        }
        self.look_now()?;
        Ok(self.ring.pending_bytes() > 0 || until.is_none_or(|until| Instant::now() < until))
    }
}

impl Piece<'_> {
    /// Length of the piece in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lease().len()
    }

    /// Says whether the piece has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says whether further pieces of the same SDU follow.
    #[must_use]
    pub fn more(&self) -> bool {
        self.lease().more()
    }

    /// Copies the piece to the start of `to`. The sender can still change the bytes: whoever
    /// checks them must check the copy.
    ///
    /// # Panics
    ///
    /// When `to` is shorter than the piece.
    pub fn copy_to(&self, to: &mut [u8]) {
        let length = self.len();
        self.lease().copy_to(&mut to[..length]);
    }

    /// Where the piece lies. The memory is shared with the sender, who may change it at any time,
    /// and stays mapped for as long as this value lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.lease().as_ptr()
    }

    /// Receives the piece, as dropping it does.
    pub fn release(self) {
        drop(self);
    }

    /// Leaves the piece to be received by the next call.
    pub fn put_back(self) {
        std::mem::forget(self);
    }

    fn lease(&self) -> &Lease {
        self.receiver.seen.as_ref().expect("a piece is made only of one that was seen")
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.receiver.seen.take() {
            let length = lease.len();
            self.receiver.stats.bytes_received += length as u64;
            self.receiver.stats.sdus_received += u64::from(!lease.more());
            self.receiver.done(length);
        }
    }
}

/// Calls that find nothing between two looks at the control socket: few, so that somebody who
/// calls ten times a second knows within a second, and enough to make the system call cheap.
const LOOK_EVERY: u32 = 8;
