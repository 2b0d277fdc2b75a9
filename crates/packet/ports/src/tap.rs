//! **tap**: an interface of the kernel whose wire is this graph.
//!
//! The kernel's stack, a bridge of it or a hypervisor uses the interface. It is made if it does not
//! exist, brought up, and goes with the app; one that was made before (`ip tuntap add`) stays.
//!
//! - inputs: `input`: frames for the kernel's stack
//! - outputs: `output`: frames from it
//! - configuration:
//!   - `name`: of the interface
//!   - `mtu`: of the interface, 68 to 65521; without it the interface keeps its own
//!   - `offload`: take frames without having their checksums filled in and, where those of the pool
//!     are long enough (65554 bytes), long ones cut; `false` where nothing is said
//! - counters: `pool_empty`: bursts cut short because the pool had no frame; `drop_cut`: longer
//!   than a frame of the pool; `drop_unsupported`: offload work that is not known; `drop_refused`:
//!   the kernel did not take a frame; `drop_down`: to the interface while it was down or away;
//!   `is_up`: 1 while the interface exists; `is_elsewhere`: 1 while it is in another network
//!   namespace
//! - cost: one copy, each way; a system call for a burst of frames where the kernel has io_uring
//!   for it (Linux 6.4) and allows it, and one for each frame where not: a TAP device has no ring
//!
//! An interface that is taken away is made again within 100 ms. One that is moved to another
//! network namespace is used there, once it is up again: the kernel takes it down.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Outside, Port, PortList, Ports, Sole,
    WhenFull, made,
};
use carina_netdev::TapLayer;
use carina_sys::Interest;
use carina_time::Duration;
use serde::{Deserialize, Serialize};

use self::device::{Device, DeviceConfig, LOOK_EVERY, check_device, frame_bytes_of};

pub(crate) mod device;

/// The configuration of a TAP device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapConfig {
    /// Name of the interface.
    pub name: String,
    /// Its MTU.
    #[serde(default)]
    pub mtu: Option<usize>,
    /// Frames keep what is left to be done with them in their metadata.
    #[serde(default)]
    pub offload: bool,
}

/// The app.
pub struct Tap {
    device: Device,
}

impl AppConfig for TapConfig {
    const KIND: &'static str = "tap";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    const TICK: Option<Duration> = Some(LOOK_EVERY);
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    const OPENS: bool = true;

    type App = Tap;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        check_device(&self.name, self.mtu)
    }

    fn outside(&self) -> Outside {
        Outside::Something
    }

    fn frame_bytes(&self) -> usize {
        self.mtu.map_or(0, frame_bytes_of)
    }

    fn sole(&self) -> Vec<Sole> {
        vec![Sole::new(
            "name",
            &*self.name,
            "one app is attached to an interface",
        )]
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Tap, AppError> {
        let config = DeviceConfig {
            name: &self.name,
            layer: TapLayer::Ethernet,
            mtu: self.mtu,
            offload: self.offload,
        };
        Ok(Tap {
            device: Device::open(&config, context)?,
        })
    }
}

impl FrameApp for Tap {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        self.device.pull(ports, |_| true);
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        self.device.push(ports, |_| true);
    }

    fn tick(&mut self, _: &mut Ports<'_>) {
        self.device.look();
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.device.as_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        self.device.is_empty()
    }
}
