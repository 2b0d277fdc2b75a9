//! The lightweight 4over6 AFTR (RFC 7596): configuration, binding table, function.
//!
//! ```text
//!   text --file--> Config + Table --+
//!                  compiled Table --+--> aftr::Aftr: frames in, frames out, no I/O
//! ```
//!
//! A customer's B4 sends packets of IPv4 within IPv6. The AFTR takes them out and sends them to the
//! Internet, and packets from there back, by a table of who has which ports of which address: it
//! keeps no state of flows. The configuration is that of the YANG models `snabb-softwire` and
//! `ietf-softwire-br`, in their text form.
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
