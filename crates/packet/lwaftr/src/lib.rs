//! The lightweight 4over6 AFTR (RFC 7596): configuration, binding table, packet forwarding.
//!
//! ```text
//!   text --file--> Config + Table --+
//!                  compiled Table --+--> aftr::Aftr: frames in, frames out, no I/O
//! ```
//!
//! A customer's B4 sends IPv4 packets inside IPv6 packets. The AFTR decapsulates them and forwards
//! them to the Internet. It encapsulates packets from the Internet and sends them to the B4 to
//! which the binding table maps their IPv4 address and port. The AFTR keeps no state per flow. The
//! configuration follows the YANG models `snabb-softwire` and `ietf-softwire-br`, in their text
//! form.
#![forbid(unsafe_code)]

pub mod aftr;
pub mod alarms;
pub mod app;
pub mod channel;
pub mod check;
pub mod claim;
pub mod config;
pub mod counters;
pub mod exchange;
pub mod file;
pub mod generate;
pub mod icmp;
pub mod link;
pub mod live;
pub mod monitor;
pub mod numbers;
pub mod packet;
pub mod path;
pub mod path_mtu;
pub mod spread;
pub mod table;
pub mod tables;
pub mod text;
pub mod tree;
