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
pub mod app;
pub mod check;
pub mod config;
pub mod counters;
pub mod file;
pub mod generate;
pub mod icmp;
pub mod link;
pub mod packet;
pub mod table;
pub mod text;
