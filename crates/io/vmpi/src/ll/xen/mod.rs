//! VMPI over Xen: memory that the guest grants, and an event channel, from user space.
//!
//! "Reducing Complexity of Virtual Machine Networking" (S. Vrijders and others, 2016), section IV,
//! names Xen as the second hypervisor of VMPI. Here the guest's node allocates pages
//! (`/dev/xen/gntalloc`), grants them to the host's domain and writes their address into its
//! directory of the xenstore; the node of the host maps them (`/dev/xen/gntdev`) and binds the
//! event channel (`/dev/xen/evtchn`).
//!
//! ```text
//!   guest's domain                        xenstore                       host's domain
//!   grants region, offers channel  ->  data/carina/vmpi/HOST  ->  maps region, binds channel
//!   <------------- attach handshake in the station block, rings, event channel ------------->
//!   process ends: the kernel clears a byte of the station and rings; the node is written anew
//! ```
//!
//! The region, the handshake and the rings are those of every shared memory (`device`). A thread
//! of each device speaks with the xenstore, so that the data plane never waits for it.
//!
//! A domain that is saved and restored has neither its grants nor its event channel any more, and
//! its directory of the xenstore is new. The guest's thread sees that its node is missing, opens
//! new event channels and grants a new region.

mod address;
mod channels;
mod device;
mod guest;
mod host;
mod message;
mod region;
mod store;

use std::io;

use carina_sys::XenDomain;
use thiserror::Error;

pub use address::{Address, AddressError};
pub use carina_sys::xen_devices_exist as devices_exist;
pub use guest::open_guest;
pub use host::HostPort;
pub use message::{Decoder, HEADER_BYTES, Kind, Message, MessageError, PAYLOAD_BYTES_MAX, encode};

/// Size of every region over grants in bytes: 2 MiB. Host and guest must agree on it.
pub const REGION_BYTES: usize = region::REGION_BYTES;

/// The domain that holds the host's node by default.
pub const DOM0: XenDomain = 0;

/// The node of the xenstore, in the directory of the guest's domain, at which `host` finds the
/// region.
fn node_for(host: XenDomain) -> String {
    format!("data/carina/vmpi/{host}")
}

/// Why a region cannot be granted or mapped.
#[derive(Debug, Error)]
#[non_exhaustive]
enum RegionError {
    #[error("{0}")]
    Device(#[from] io::Error),
    #[error("Xen does not map {count} grants of the domain: {error}")]
    Grants { count: usize, error: io::Error },
    #[error("no event channel to the process that granted the region; it may have ended: {0}")]
    NoChannel(#[source] io::Error),
    #[error("the page that the domain granted is no region")]
    NoRegion,
    #[error("the region has {bytes} bytes, {REGION_BYTES} are expected")]
    Size { bytes: u32 },
    #[error("the region has {shown} grant references, {count} are expected")]
    References { shown: u32, count: usize },
}
