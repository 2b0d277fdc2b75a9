//! IP over flows: a TUN interface whose packets travel to the members of a DIF that have registered
//! prefixes as names.
//!
//! ```text
//!  programs                                                       programs
//!     | IP                                                           | IP
//!  tun 10.9.1.1 --[member]-- node ==== DIF ==== node --[member]-- tun 10.9.1.2
//!                    |  registers ip:10.9.1.1/32        |  registers ip:10.9.1.2/32
//! ```
//!
//! A [`Member`] registers a name for each of its prefixes. It reads the other members' names from
//! the DIF's directory, and sends a packet over a flow to the name with the longest prefix that
//! matches the destination. Each flow carries one direction: a member sends only on flows that it
//! allocated, because the DIF leads these to the application that registered the name.
//!
//! [`router`] decides what happens to each packet; it does no I/O and has no clock.
#![forbid(unsafe_code)]

mod admission;
mod class;
mod counters;
mod cut;
mod directory;
mod error;
mod flows;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod icmp;
mod interface;
mod join;
mod member;
mod members;
pub mod packet;
mod prefix;
pub mod router;
pub mod sdu;
mod settings;
mod status;
mod vm_link;
mod worker;

pub use class::Class;
pub use counters::Counters;
pub use error::IpError;
pub use member::Member;
pub use members::Members;
pub use prefix::{Address, IpPrefix, PrefixTable};
pub use settings::{IDLE_MS, IpSettings};
pub use status::{FlowStatus, Offloads, Status, read_all, status_directory};
pub use vm_link::VmLink;
