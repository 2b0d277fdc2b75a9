//! What TAP and TUN have in common.

use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::counter_file::Counter;
use carina_engine::frames::{AppContext, AppError, FRAME_BURST, Ports};
use carina_frame::{Frame, Pool};
use carina_netdev::{
    InterfaceWatch, NetdevError, Tap, TapLayer, TapOffload, VNET_HEADER_BYTES, VnetHeader,
    bring_up, interface_exists, interface_mtu,
};
use carina_time::Duration;

use crate::af_packet::check_mtu;
use crate::offload::{header_of, metadata_of};

/// What a device is made from.
pub(crate) struct DeviceConfig<'a> {
    pub name: &'a str,
    pub layer: TapLayer,
    pub mtu: Option<usize>,
    pub offload: bool,
}

/// An open device.
pub(crate) struct Device {
    tap: Tap,
    mtu: Option<usize>,
    watch: InterfaceWatch,
    pool: Pool,
    counters: Counters,
    /// The interface is there.
    is_there: bool,
    /// The last look found no frame that waits.
    is_empty: bool,
}

struct Counters {
    pool_empty: Counter,
    cut: Counter,
    unsupported: Counter,
    refused: Counter,
    down: Counter,
}

impl Device {
    pub fn open(
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
            },
            is_there: true,
            is_empty: false,
        })
    }

    /// Puts frames from the kernel on output 0, as `edit` makes them; one for which it returns
    /// false is dropped.
    pub fn pull(&mut self, ports: &mut Ports<'_>, mut edit: impl FnMut(&mut Frame) -> bool) {
        if !self.is_there {
            self.is_empty = true;
            return;
        }
        self.is_empty = false;
        for _ in 0..ports.room(0).min(FRAME_BURST) {
            let Some(mut frame) = self.pool.take() else {
                return self.counters.pool_empty.add(1);
            };
            let room = frame.tailroom();
            if !frame.set_len(room) {
                return;
            }
            let mut header = [0; VNET_HEADER_BYTES];
            match self.tap.read(&mut header, frame.bytes_mut()) {
                Ok(Some(bytes)) if bytes < room => frame.truncate(bytes),
                Ok(Some(_)) => {
                    self.counters.cut.add(1);
                    continue;
                }
                Ok(None) => {
                    self.is_empty = true;
                    return;
                }
                Err(error) => {
                    self.is_there = !Tap::is_gone(&error);
                    self.is_empty = true;
                    return;
                }
            }
            if header[..2] != [0, 0] {
                match VnetHeader::read(&header) {
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

    /// Gives the kernel the frames that wait at input 0, as `edit` makes them.
    pub fn push(&mut self, ports: &mut Ports<'_>, mut edit: impl FnMut(&mut Frame) -> bool) {
        let (tap, counters, is_there) = (&mut self.tap, &self.counters, &mut self.is_there);
        ports.drain(0, |mut frame| {
            if !edit(&mut frame) {
                return;
            }
            if !*is_there {
                return counters.down.add(1);
            }
            match tap.write(&header_of(&frame).bytes(), frame.bytes()) {
                Ok(true) => {}
                Ok(false) => counters.refused.add(1),
                Err(error) if Tap::is_down(&error) => counters.down.add(1),
                Err(error) if Tap::is_gone(&error) => {
                    *is_there = false;
                    counters.down.add(1);
                }
                Err(_) => counters.refused.add(1),
            }
        });
    }

    /// Makes an interface that was taken away again.
    pub fn look(&mut self) {
        if self.is_there && self.watch.has_changed() {
            self.is_there = interface_exists(self.tap.name());
        }
        if !self.is_there {
            self.is_there = self.attach().is_ok();
        }
    }

    fn attach(&self) -> Result<(), NetdevError> {
        self.tap.attach()?;
        bring_up(self.tap.name(), self.mtu)
    }

    /// Whether the kernel had no more frames at the last look.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

/// How often the interface is looked at for changes.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Frames of the pool are as long as this where TCP may be left uncut: 64 KiB of IP, a MAC header
/// and a tag.
const LONG_FRAME_BYTES: usize = 65_536 + 18;
