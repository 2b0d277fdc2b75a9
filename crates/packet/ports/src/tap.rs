//! **tap**: an interface of the kernel whose other end is this graph.
//!
//! The kernel's stack, a bridge or a hypervisor uses the interface. The app creates the interface
//! if it does not exist, brings it up, and removes it at the end. An interface that existed before
//! (`ip tuntap add`) stays.
//!
//! - inputs: `input`: frames for the kernel's stack
//! - outputs: `output`: frames from the kernel's stack
//! - configuration:
//!   - `name`: name of the interface
//!   - `mtu`: MTU of the interface, 68 to 65521 (default: the interface's own)
//!   - `offload`: accept frames with checksums missing and, if frames of the pool are long enough
//!     (65554 bytes), with segmentation pending, and note this in their metadata (default: `false`)
//! - counters: `pool_empty`: bursts that ended early because the pool had no frame; `drop_cut`:
//!   frames longer than a frame of the pool; `drop_unsupported`: frames with an unknown offload
//!   request; `drop_refused`: frames that the kernel did not accept; `drop_down`: frames for the
//!   interface while it was down or did not exist; `is_up`: 1 while the interface exists and is
//!   up, or is in another network namespace, where the app cannot see whether it is up;
//!   `is_elsewhere`: 1 while the interface is in another network namespace
//! - cost: one copy in each direction. One system call per burst if the kernel supports io_uring
//!   for this device (Linux 6.4) and permits it; otherwise one per frame, because a TAP device has
//!   no ring
//!
//! If the interface is removed, the app creates it again within 100 ms. If it is moved to another
//! network namespace, which takes it down, the app continues to use it there once it is up again.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd};

use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Outside, Port, PortList, Ports, Sole,
    WhenFull, made,
};
use carina_netdev::TapLayer;
use carina_sys::Interest;
use carina_time::Duration;
use serde::{Deserialize, Serialize};

use self::device::{Device, DeviceConfig, LOOK_EVERY, check_device, frame_bytes_of};

pub(crate) mod device;

/// The configuration of the app `tap`, which connects a graph to the kernel's stack through a TAP
/// interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapConfig {
    /// Name of the TAP interface, such as `tap0`.
    pub name: String,
    /// MTU to set at the interface; `None` leaves the MTU that the interface has.
    #[serde(default)]
    pub mtu: Option<usize>,
    /// Whether frames from the kernel keep missing checksums and pending segmentation as metadata.
    /// If not, the kernel completes and segments them before the app gets them.
    #[serde(default)]
    pub offload: bool,
}

/// The running app `tap`: connects a graph to the kernel's stack through a TAP interface.
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
            "only one app can attach to an interface",
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
        self.device.check_interface();
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.device.as_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        self.device.is_empty()
    }
}
