//! The part that `tap` and `tun` share: an open TAP or TUN device.

use std::os::fd::{AsFd, BorrowedFd};

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppContext, AppError, FRAME_BURST, Ports};
use carina_netdev::{
    InterfaceWatch, MAC_HEADER_BYTES, NetdevError, TAG_BYTES, TAP_BURST, Tap, TapLayer, TapOffload,
    TapResult, VNET_HEADER_BYTES, VnetHeader, bring_up, check_interface_name, interface_exists,
    interface_is_up, interface_mtu,
};
use carina_time::Duration;

use crate::af_packet::check_mtu;
use crate::offload::{header_of, metadata_of};

/// The configuration of a device.
pub(crate) struct DeviceConfig<'a> {
    pub name: &'a str,
    pub layer: TapLayer,
    pub mtu: Option<usize>,
    pub offload: bool,
}

/// The MTU is out of range.
#[derive(Debug, thiserror::Error)]
#[error("mtu = {0}: must be 68 to {MTU_MAX}")]
struct MtuError(usize);

/// Checks name and MTU, as far as this is possible without the device.
pub(crate) fn check_device(name: &str, mtu: Option<usize>) -> Result<(), AppError> {
    check_interface_name(name)?;
    match mtu.filter(|mtu| !(68..=MTU_MAX).contains(mtu)) {
        Some(mtu) => Err(MtuError(mtu).into()),
        None => Ok(()),
    }
}

/// Length of the longest frame of an interface with this MTU, in bytes.
pub(crate) fn frame_bytes_of(mtu: usize) -> usize {
    mtu + MAC_HEADER_BYTES + TAG_BYTES
}

/// An open TAP or TUN device.
pub(crate) struct Device {
    tap: Tap,
    mtu: Option<usize>,
    watch: InterfaceWatch,
    pool: Pool,
    counters: Counters,
    /// Frames into which frames from the kernel are read.
    frames: Vec<Frame>,
    /// Frames to be written to the kernel.
    waiting: Vec<Frame>,
    /// The virtio-net headers of the frames, in either direction.
    headers: Box<[[u8; VNET_HEADER_BYTES]; TAP_BURST]>,
    /// The results of the last burst, by position.
    outcomes: Vec<TapResult>,
    /// Number of frames to ask for in the next burst, estimated from the last ones.
    expected: usize,
    /// Whether the TAP interface exists; false after another program has deleted it.
    exists: bool,
    /// Whether the interface is in this network namespace, and was taken down.
    is_down: bool,
    /// Whether the last read found that the kernel has no more frames.
    is_empty: bool,
}

struct Counters {
    pool_empty: Counter,
    cut: Counter,
    unsupported: Counter,
    refused: Counter,
    down: Counter,
    is_up: Counter,
    is_elsewhere: Counter,
}

impl Device {
    pub(crate) fn open(
        config: &DeviceConfig<'_>,
        context: &mut AppContext<'_>,
    ) -> Result<Device, AppError> {
        let pool = context.pool().clone();
        if let Some(mtu) = config.mtu {
            check_mtu(config.name, mtu, pool.frame_bytes())?;
        }
        let offload = TapOffload {
            checksum: config.offload,
            segmentation: config.offload && pool.frame_bytes() >= LONG_FRAME_BYTES,
            ..TapOffload::default()
        };
        let watch = InterfaceWatch::new()?;
        let tap = Tap::open(config.name, config.layer, offload)?;
        bring_up(config.name, config.mtu)?;
        check_mtu(config.name, interface_mtu(config.name)?, pool.frame_bytes())?;
        Ok(Device {
            tap,
            mtu: config.mtu,
            watch,
            pool,
            counters: Counters {
                pool_empty: context.counter("pool_empty"),
                cut: context.counter("drop_cut"),
                unsupported: context.counter("drop_unsupported"),
                refused: context.counter("drop_refused"),
                down: context.counter("drop_down"),
                is_up: context.counter("is_up"),
                is_elsewhere: context.counter("is_elsewhere"),
            },
            frames: Vec::new(),
            waiting: Vec::new(),
            headers: Box::new([[0; VNET_HEADER_BYTES]; TAP_BURST]),
            outcomes: Vec::new(),
            expected: EXPECTED_MIN,
            exists: true,
            is_down: false,
            is_empty: false,
        })
    }

    /// Reads frames from the kernel, and puts them on output 0 after `edit` has changed them. Drops
    /// a frame for which `edit` returns `false`.
    pub(crate) fn pull(&mut self, ports: &mut Ports<'_>, mut edit: impl FnMut(&mut Frame) -> bool) {
        if !self.exists {
            self.is_empty = true;
            return;
        }
        self.is_empty = false;
        let wanted = ports.room(0).min(self.expected);
        if wanted == 0 {
            return;
        }
        while self.frames.len() < wanted {
            let Some(mut frame) = self.pool.take() else {
                self.counters.pool_empty.add(1);
                break;
            };
            let room = frame.tailroom();
            if !frame.set_len(room) {
                return;
            }
            self.frames.push(frame);
        }
        let wanted = wanted.min(self.frames.len());
        let buffers = self.frames[..wanted].iter_mut().map(Frame::bytes_mut);
        let results = self.tap.read(self.headers.iter_mut().zip(buffers));
        self.outcomes.clear();
        self.outcomes.extend(results);
        // A frame that arrived during the burst can be behind positions that found none.
        let used = self
            .outcomes
            .iter()
            .rposition(is_done)
            .map_or(0, |last| last + 1);
        self.is_empty = self.outcomes.len() > used;
        if self.outcomes.contains(&TapResult::Gone) {
            self.exists = false;
        }
        // Keeps only a few frames of the pool here for the next burst.
        self.frames.truncate(used + EXPECTED_MIN);
        self.expected = if used == wanted {
            (self.expected * 4).min(FRAME_BURST)
        } else {
            (2 * used).clamp(EXPECTED_MIN, FRAME_BURST)
        };
        for (at, mut frame) in self.frames.drain(..used).enumerate() {
            let TapResult::Done(bytes) = self.outcomes[at] else {
                continue;
            };
            let header = &self.headers[at];
            if bytes >= frame.len() {
                self.counters.cut.add(1);
                continue;
            }
            frame.truncate(bytes);
            if header[..2] != [0, 0] {
                match VnetHeader::read(header) {
                    Some(header) => frame.set_metadata(&metadata_of(&header)),
                    None => {
                        self.counters.unsupported.add(1);
                        continue;
                    }
                }
            }
            if edit(&mut frame) {
                ports.transmit(0, frame);
            }
        }
    }

    /// Writes the frames at input 0 to the kernel, after `edit` has changed them. Drops a frame for
    /// which `edit` returns `false`.
    pub(crate) fn push(&mut self, ports: &mut Ports<'_>, mut edit: impl FnMut(&mut Frame) -> bool) {
        loop {
            while self.waiting.len() < TAP_BURST
                && let Some(mut frame) = ports.receive(0)
            {
                if edit(&mut frame) {
                    self.waiting.push(frame);
                }
            }
            if self.waiting.is_empty() {
                return;
            }
            self.write();
            self.waiting.clear();
        }
    }

    /// Writes the collected frames. A frame that the kernel does not accept is dropped and counted.
    fn write(&mut self) {
        if !self.exists {
            return self.counters.down.add(self.waiting.len() as u64);
        }
        for (frame, header) in self.waiting.iter().zip(self.headers.iter_mut()) {
            *header = header_of(frame).bytes();
        }
        let frames = self.waiting.iter().map(Frame::bytes);
        let results = self.tap.write(self.headers.iter().zip(frames));
        for result in results {
            match result {
                TapResult::Done(_) => {}
                TapResult::Down => self.counters.down.add(1),
                TapResult::Gone => {
                    self.exists = false;
                    self.counters.down.add(1);
                }
                TapResult::Later | TapResult::Refused => self.counters.refused.add(1),
            }
        }
    }

    /// Checks the interface: creates it again if it was removed, and continues to use it if it was
    /// moved to another network namespace.
    pub(crate) fn check_interface(&mut self) {
        if self.watch.has_changed() || !self.exists {
            let is_here = interface_exists(self.tap.name());
            let is_elsewhere = !is_here && self.tap.is_attached();
            self.counters.is_elsewhere.set(u64::from(is_elsewhere));
            self.exists = is_here && self.exists || is_elsewhere;
            self.is_down = is_here && !interface_is_up(self.tap.name());
        }
        if !self.exists {
            self.exists = self.attach().is_ok();
            self.is_down = false;
        }
        let is_up = self.exists && !self.is_down;
        self.counters.is_up.set(u64::from(is_up));
    }

    fn attach(&mut self) -> Result<(), NetdevError> {
        self.tap.attach()?;
        bring_up(self.tap.name(), self.mtu)
    }

    /// Whether the last read found that the kernel has no more frames.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

fn is_done(outcome: &TapResult) -> bool {
    matches!(outcome, TapResult::Done(_))
}

/// Smallest number of frames to ask for in a burst.
const EXPECTED_MIN: usize = 4;

const _: () = assert!(FRAME_BURST <= TAP_BURST);

/// The largest MTU that the kernel allows for such a device.
const MTU_MAX: usize = 65_521;

/// How often to check the interface for changes.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Least length of the pool's frames at which TCP segmentation may stay pending: 64 KiB of IP, a
/// MAC header and a tag.
const LONG_FRAME_BYTES: usize = 65_536 + 18;
