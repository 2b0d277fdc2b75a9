//! **tun**: an interface of the kernel for IP packets, whose other end is this graph.
//!
//! Packets of such an interface have no MAC header. The app adds one to each packet that enters the
//! graph, and removes it from each that leaves. It creates, brings up and removes the interface as
//! [`tap`](crate::tap) does.
//!
//! - inputs: `input`: frames for the kernel's stack
//! - outputs: `output`: frames from the kernel's stack
//! - configuration:
//!   - `name`, `mtu`, `offload`: as for `tap`
//!   - `source`, `destination`: MAC addresses of the frames that enter the graph (defaults:
//!     `02:00:00:00:00:01` and `02:00:00:00:00:02`)
//! - counters: as for `tap`; `drop_not_ip`: packets other than IPv4 or IPv6, in either direction
//! - cost: as for `tap`: one copy in each direction, and a system call per burst or per frame

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd};

use carina_apps::mac_text::MacText;
use carina_frame::{Checksum, Frame, Segmentation};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Outside, Port, PortList, Ports, Sole,
    WhenFull, made,
};
use carina_netdev::{MAC_HEADER_BYTES, TapLayer};
use carina_sys::Interest;
use carina_time::Duration;
use carina_wire::ether::Mac;
use serde::Deserialize;

use crate::tap::device::{Device, DeviceConfig, LOOK_EVERY, check_device, frame_bytes_of};

/// The configuration of the app `tun`, which connects a graph to the kernel's stack through a TUN
/// interface, which carries IP packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunConfig {
    /// Name of the TUN interface, such as `tun0`.
    pub name: String,
    /// MTU to set at the interface; `None` leaves the MTU that the interface has.
    #[serde(default)]
    pub mtu: Option<usize>,
    /// Whether packets from the kernel keep missing checksums and pending segmentation as metadata.
    /// If not, the kernel completes and segments them before the app gets them.
    #[serde(default)]
    pub offload: bool,
    /// Source MAC address of the frames that enter the graph.
    #[serde(default = "default_source")]
    pub source: MacText,
    /// Destination MAC address of the frames that enter the graph.
    #[serde(default = "default_destination")]
    pub destination: MacText,
}

impl TunConfig {
    /// A configuration for the interface `name`, with the default of each other key.
    #[must_use]
    pub fn of(name: &str) -> TunConfig {
        TunConfig {
            name: name.to_owned(),
            mtu: None,
            offload: false,
            source: default_source(),
            destination: default_destination(),
        }
    }
}

fn default_source() -> MacText {
    MacText(Mac([2, 0, 0, 0, 0, 1]))
}

fn default_destination() -> MacText {
    MacText(Mac([2, 0, 0, 0, 0, 2]))
}

/// The running app `tun`: connects a graph to the kernel's stack through a TUN interface, which
/// carries IP packets.
pub struct Tun {
    device: Device,
    addresses: [u8; 12],
    not_ip: Counter,
}

impl AppConfig for TunConfig {
    const KIND: &'static str = "tun";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    const TICK: Option<Duration> = Some(LOOK_EVERY);
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    const OPENS: bool = true;

    type App = Tun;

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

    fn build(&self, context: &mut AppContext<'_>) -> Result<Tun, AppError> {
        let config = DeviceConfig {
            name: &self.name,
            layer: TapLayer::Ip,
            mtu: self.mtu,
            offload: self.offload,
        };
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&self.destination.0.0);
        addresses[6..].copy_from_slice(&self.source.0.0);
        Ok(Tun {
            device: Device::open(&config, context)?,
            addresses,
            not_ip: context.counter("drop_not_ip"),
        })
    }
}

impl FrameApp for Tun {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (addresses, not_ip) = (&self.addresses, &self.not_ip);
        self.device.pull(ports, |frame| {
            let is_ip = put_header(frame, addresses);
            not_ip.add(u64::from(!is_ip));
            is_ip
        });
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let not_ip = &self.not_ip;
        self.device.push(ports, |frame| {
            let is_ip = take_header(frame);
            not_ip.add(u64::from(!is_ip));
            is_ip
        });
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

/// Adds a MAC header to an IP packet; returns `false` for anything but IPv4 and IPv6.
fn put_header(frame: &mut Frame, addresses: &[u8; 12]) -> bool {
    let ethertype = match frame.bytes().first().map(|byte| byte >> 4) {
        Some(4) => IPV4,
        Some(6) => IPV6,
        _ => return false,
    };
    let mut header = [0; MAC_HEADER_BYTES];
    header[..12].copy_from_slice(addresses);
    header[12..].copy_from_slice(&ethertype);
    if !frame.prepend(&header) {
        return false;
    }
    shift(frame, |at| at.checked_add(MAC_HEADER_BYTES as u16));
    true
}

/// Removes the MAC header of an IP packet; returns `false` for anything but IPv4 and IPv6.
fn take_header(frame: &mut Frame) -> bool {
    let is_ip = matches!(frame.bytes().get(12..14), Some(kind) if kind == IPV4 || kind == IPV6);
    if is_ip {
        frame.advance(MAC_HEADER_BYTES);
        shift(frame, |at| at.checked_sub(MAC_HEADER_BYTES as u16));
    }
    is_ip
}

/// Shifts the offsets in the frame's metadata.
fn shift(frame: &mut Frame, to: impl Fn(u16) -> Option<u16>) {
    let (checksum, cut) = (frame.checksum(), frame.segmentation());
    if let Some(sum) = checksum {
        let start = to(sum.start);
        frame.set_checksum(start.map(|start| Checksum { start, ..sum }));
    }
    if let Some(cut) = cut {
        let headers = to(cut.headers).unwrap_or(0);
        frame.set_segmentation(Some(Segmentation { headers, ..cut }));
    }
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
