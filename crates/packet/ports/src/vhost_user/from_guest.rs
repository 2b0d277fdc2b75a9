//! Moves frames from a guest's ring into the graph.

use std::collections::VecDeque;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppContext, Ports};
use carina_netdev::{MAC_HEADER_BYTES, VnetHeader, complete_checksum};
use carina_vring::{DeviceRing, Fault, Taken};

use super::{BURST, HEADER_BYTES, header_bytes};
use crate::offload::{Intake, metadata_of};

/// Reads frames from the guest's rings.
pub(super) struct FromGuest {
    intake: Intake,
    /// Segments of a long frame for which the link had no room yet.
    backlog: VecDeque<Frame>,
    /// Buffer for a frame that must be segmented.
    whole: Vec<u8>,
    counters: Counters,
}

struct Counters {
    pool_empty: Counter,
    length: Counter,
    unsupported: Counter,
    no_frame: Counter,
}

impl FromGuest {
    pub(super) fn new(intake: Intake, context: &AppContext<'_>) -> FromGuest {
        FromGuest {
            intake,
            backlog: VecDeque::new(),
            whole: Vec::new(),
            counters: Counters {
                pool_empty: context.counter("pool_empty"),
                length: context.counter("drop_length"),
                unsupported: context.counter("drop_unsupported"),
                no_frame: context.counter("drop_no_frame"),
            },
        }
    }

    /// The pool of the graph.
    pub(super) fn pool(&self) -> &Pool {
        &self.intake.pool
    }

    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Puts frames that an earlier visit left in the backlog on the output; returns the room that
    /// remains.
    pub(super) fn put_backlog(&mut self, ports: &mut Ports<'_>) -> usize {
        let room = ports.room(0).min(BURST);
        if self.backlog.is_empty() {
            return room;
        }
        room - ports.fill(0, room, || self.backlog.pop_front())
    }

    /// Takes up to `room` frames from a ring; returns the number of descriptor chains taken. Fails
    /// if the guest has broken the ring.
    #[inline]
    pub(super) fn take<R: DeviceRing>(
        &mut self,
        ring: &mut R,
        features: u64,
        ports: &mut Ports<'_>,
        room: usize,
    ) -> Result<usize, Fault> {
        let count = ring.take(room)?;
        if count == 0 {
            return Ok(0);
        }
        let header_bytes = header_bytes(features);
        let mut chain = 0;
        ports.fill(0, room, || {
            loop {
                if !self.backlog.is_empty() {
                    return self.backlog.pop_front();
                }
                if chain == count {
                    return None;
                }
                let Some(mut frame) = self.intake.pool.take() else {
                    self.counters.pool_empty.add(1);
                    return None;
                };
                let is_read = self.read(ring.taken(), chain, header_bytes, &mut frame);
                chain += 1;
                ring.complete(0);
                if is_read {
                    return Some(frame);
                }
            }
        });
        ring.put_back();
        ring.publish();
        Ok(chain)
    }

    /// Copies a frame from a chain. Returns `false` if the chain has no valid frame, or if it was
    /// segmented into the backlog.
    #[inline]
    fn read(&mut self, taken: &Taken, chain: usize, header: usize, frame: &mut Frame) -> bool {
        let mut front = [0; HEADER_BYTES];
        let all = taken.readable(chain);
        taken.read(chain, 0, &mut front);
        if front[0] & NEEDS_CHECKSUM != 0 || front[1] != 0 {
            return self.read_unfinished(taken, chain, &front[..header], frame);
        }
        let len = all.wrapping_sub(header);
        let fits = all >= header + MAC_HEADER_BYTES && len <= self.intake.pool.frame_bytes();
        if !fits || !frame.set_len(len) {
            self.counters.length.add(1);
            return false;
        }
        taken.read(chain, header, frame.bytes_mut());
        if front[0] & CHECKSUM_VALID != 0 {
            frame.set_checksum_valid(true);
        }
        true
    }

    /// Copies a frame with a missing checksum or pending segmentation.
    #[inline(never)]
    fn read_unfinished(
        &mut self,
        taken: &Taken,
        chain: usize,
        front: &[u8],
        frame: &mut Frame,
    ) -> bool {
        let len = taken.readable(chain).saturating_sub(front.len());
        if !(MAC_HEADER_BYTES..=LONG_FRAME_MAX).contains(&len) {
            self.counters.length.add(1);
            return false;
        }
        let known = front.first_chunk().and_then(VnetHeader::read);
        let Some(known) = known.filter(|known| fits_frame(known, len)) else {
            self.counters.unsupported.add(1);
            return false;
        };
        let keeps = self.intake.keeps(len);
        let is_one = keeps || known.segments.is_none() && len <= self.intake.pool.frame_bytes();
        if !is_one || !frame.set_len(len) {
            self.cut(taken, chain, front, len);
            return false;
        }
        taken.read(chain, front.len(), frame.bytes_mut());
        if keeps {
            frame.set_metadata(&metadata_of(&known));
        } else if let Some((start, offset)) = known.checksum {
            let bytes = frame.bytes_mut();
            let done = complete_checksum(bytes, start.into(), offset.into());
            self.counters.unsupported.add(u64::from(done.is_err()));
            return done.is_ok();
        }
        true
    }

    /// Segments a long frame into the backlog.
    #[cold]
    fn cut(&mut self, taken: &Taken, chain: usize, front: &[u8], len: usize) {
        self.whole.resize(len, 0);
        taken.read(chain, front.len(), &mut self.whole);
        let backlog = &mut self.backlog;
        let done = self
            .intake
            .take(front, &self.whole, None, |frame| backlog.push_back(frame));
        self.counters
            .unsupported
            .add(u64::from(done.is_unsupported));
        self.counters.no_frame.add(done.no_frame);
    }
}

/// Whether the offsets that a guest states for a frame lie within the frame.
fn fits_frame(header: &VnetHeader, len: usize) -> bool {
    let sum = header
        .checksum
        .is_none_or(|(start, offset)| usize::from(start) + usize::from(offset) + 2 <= len);
    let cut = header
        .segments
        .is_none_or(|(_, size, headers)| size > 0 && usize::from(headers) <= len);
    sum && cut
}

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;

/// Longest frame with pending segmentation that a guest may send, in bytes: 64 KiB of IP, a MAC
/// header and a tag.
const LONG_FRAME_MAX: usize = 65_535 + MAC_HEADER_BYTES + 4;
