//! Moves frames from the graph into a guest's ring.

use std::collections::VecDeque;

use carina_frame::{Frame, SegmentationKind};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppContext, Ports};
use carina_netdev::{VNET_HEADER_BYTES, plain_frames};
use carina_vhost_user::features::net;
use carina_vring::{DeviceRing, Fault, SmallBytes};

use super::{BURST, Pair, header_bytes};
use crate::offload::{Intake, header_of};

/// Writes frames into a guest's rings.
pub(super) struct ToGuest {
    intake: Intake,
    /// Descriptor chains that a frame needed in the last bursts. Determines how many chains to take
    /// for the next burst.
    chains_each: usize,
    too_long: Counter,
    unfinished: Counter,
}

/// Where the frames for one ring come from.
pub(super) struct Source<'a, 'b> {
    /// Length of the longest frame, in bytes. Longer frames are dropped, unless they are still to
    /// be segmented.
    pub(super) bytes_max: usize,
    /// Frames to send before the frames of the link.
    pub(super) backlog: &'a mut VecDeque<Frame>,
    /// The link; `None` if its frames are distributed over several rings.
    pub(super) link: Option<&'a mut Ports<'b>>,
}

impl Source<'_, '_> {
    fn waiting(&self) -> usize {
        let link = self.link.as_ref().map_or(0, |ports| ports.waiting(0));
        link + self.backlog.len()
    }

    #[inline]
    fn front(&self) -> Option<&Frame> {
        match self.backlog.front() {
            Some(frame) => Some(frame),
            None => self.link.as_ref()?.frames(0).next(),
        }
    }

    #[inline]
    fn take(&mut self) -> Option<Frame> {
        match self.backlog.pop_front() {
            Some(frame) => Some(frame),
            None => self.link.as_mut()?.receive(0),
        }
    }
}

impl ToGuest {
    pub(super) fn new(intake: Intake, context: &AppContext<'_>) -> ToGuest {
        ToGuest {
            intake,
            chains_each: 1,
            too_long: context.counter("drop_too_long"),
            unfinished: context.counter("drop_unfinished"),
        }
    }

    /// Sends waiting frames to the guest as long as it offers buffers; returns the number of frames
    /// taken. Fails if the guest has broken the ring.
    #[inline]
    pub(super) fn send<R: DeviceRing>(
        &mut self,
        ring: &mut R,
        features: u64,
        mut source: Source<'_, '_>,
    ) -> Result<usize, Fault> {
        let mut moved = 0;
        while moved < BURST_TO_GUEST && source.front().is_some() {
            let wanted = (source.waiting() * self.chains_each).clamp(1, BURST);
            if ring.take(wanted)? == 0 {
                break;
            }
            let sent = self.fill(ring, features, &mut source);
            ring.put_back();
            // Publishes each burst of chains at once. The in-flight record covers one such burst,
            // for a back end that replaces this one.
            ring.publish();
            moved += sent;
            if sent == 0 {
                // The frame needs more chains than were taken, or than the guest offers.
                if self.chains_each >= BURST {
                    break;
                }
                self.chains_each = (self.chains_each * 4).min(BURST);
            }
        }
        Ok(moved)
    }

    /// Writes frames into the chains that were taken; returns the number of frames.
    #[inline]
    fn fill<R: DeviceRing>(
        &mut self,
        ring: &mut R,
        features: u64,
        source: &mut Source<'_, '_>,
    ) -> usize {
        let header_bytes = header_bytes(features);
        let is_mergeable = features & net::MRG_RXBUF != 0;
        let (count, mut chain, mut moved) = (ring.taken().len(), 0, 0);
        while chain < count {
            let Some(frame) = source.front() else { break };
            if frame.has_metadata() && !takes(features, frame) {
                let Some(frame) = source.take() else { break };
                self.make_plain(&frame, source.backlog);
                moved += 1;
                continue;
            }
            if frame.len() > source.bytes_max && frame.segmentation().is_none() {
                self.too_long.add(1);
                drop(source.take());
                moved += 1;
                continue;
            }
            let needed = header_bytes + frame.len();
            let mut last = chain;
            let mut room = ring.taken().writable(chain);
            while room < needed && is_mergeable && last + 1 < count {
                last += 1;
                room += ring.taken().writable(last);
            }
            if room < needed {
                if is_mergeable && last - chain < BURST - 1 {
                    break;
                }
                self.too_long.add(1);
                drop(source.take());
                moved += 1;
                continue;
            }
            let Some(frame) = source.take() else { break };
            put(ring, chain..=last, header_bytes, &frame);
            self.chains_each = last + 1 - chain;
            chain = last + 1;
            moved += 1;
        }
        moved
    }

    /// Completes or segments a frame, and puts the results at the front of the backlog.
    #[cold]
    fn make_plain(&mut self, frame: &Frame, backlog: &mut VecDeque<Frame>) {
        let header = header_of(frame).bytes();
        let mut at = 0;
        let pool = &self.intake.pool;
        let cut = plain_frames(&header, frame.bytes(), |bytes| match pool.frame_of(bytes) {
            Some(frame) => {
                backlog.insert(at, frame);
                at += 1;
            }
            None => self.unfinished.add(1),
        });
        self.unfinished.add(u64::from(cut.is_err()));
    }
}

/// Writes a frame and its header into chains, and completes the chains.
#[inline]
fn put<R: DeviceRing>(
    ring: &mut R,
    chains: std::ops::RangeInclusive<usize>,
    header_bytes: usize,
    frame: &Frame,
) {
    let (first, last) = (*chains.start(), *chains.end());
    // The field behind the common header is the number of chains that the frame occupies.
    let count = last + 1 - first;
    let mut header = (count as u128) << (8 * VNET_HEADER_BYTES);
    if frame.has_metadata() {
        header |= work_left(frame);
    }
    let taken = ring.taken();
    // Most headers equal what the buffer already holds from an earlier frame, so the write to their
    // cache line is avoided.
    taken.write_if_other(first, &SmallBytes::new(header, header_bytes));
    let bytes = frame.bytes();
    let mut done = taken.write(first, header_bytes, bytes);
    ring.complete((header_bytes + done) as u32);
    for chain in first + 1..=last {
        let part = ring.taken().write(chain, 0, &bytes[done..]);
        done += part;
        ring.complete(part as u32);
    }
}

/// The frame's missing checksum and pending segmentation, as the first bytes of its header.
fn work_left(frame: &Frame) -> u128 {
    let mut header = [0; 16];
    header[..VNET_HEADER_BYTES].copy_from_slice(&header_of(frame).bytes());
    u128::from_le_bytes(header)
}

/// Whether the driver accepts a frame with its missing checksum or pending segmentation.
fn takes(features: u64, frame: &Frame) -> bool {
    let sum = frame.checksum().is_none() || features & net::GUEST_CSUM != 0;
    let cut = match frame.segmentation().map(|cut| cut.kind) {
        None => true,
        Some(SegmentationKind::Tcp4) => features & net::GUEST_TSO4 != 0,
        Some(SegmentationKind::Tcp6) => features & net::GUEST_TSO6 != 0,
        Some(SegmentationKind::Udp) => false,
    };
    sum && cut
}

/// Distributes the frames at the input over the backlogs of several ring pairs. A frame whose
/// backlog is full waits on the link if the link has back-pressure; otherwise it is dropped.
pub(super) fn spread(ports: &mut Ports<'_>, pairs: &mut [Pair], no_room: &Counter) {
    let (waits, count) = (ports.has_back_pressure(0), pairs.len());
    loop {
        let flow = ports.frames(0).next().map(flow);
        let Some(flow) = flow else { return };
        let backlog = &mut pairs[flow as usize % count].backlog;
        let is_full = backlog.len() >= BURST_TO_GUEST;
        if is_full && waits {
            return;
        }
        match ports.receive(0) {
            Some(frame) if !is_full => backlog.push_back(frame),
            _ => no_room.add(1),
        }
    }
}

/// A number that is equal for all frames of a flow: the frame's hash, or a hash of the bytes where
/// most frames have addresses and ports.
pub(super) fn flow(frame: &Frame) -> u32 {
    if let Some(hash) = frame.hash() {
        return hash;
    }
    let bytes = frame.bytes();
    let bytes = &bytes[bytes.len().min(26)..bytes.len().min(38)];
    let sum = bytes.chunks(4).fold(0, |sum: u32, part| {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        (sum ^ u32::from_le_bytes(word)).wrapping_mul(0x9e37_79b1)
    });
    sum >> 16
}

/// Largest number of frames that a visit sends: as many as a full link holds.
pub(super) const BURST_TO_GUEST: usize = 1024;
