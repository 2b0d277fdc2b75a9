//! The web page of virtual networks, and what agents and roles answer over HTTP.
//!
//! ```text
//!   browser --token--> Web (loopback) --+-- the page itself, in this crate
//!                                       +-- the router of an agent, a VNO or a PIP:
//!                                           answers, histories, captures
//! ```
//!
//! The agent of a host and the roles serve the same page, each over a router of its own. This crate
//! has what their routers share: [`answers`] in JSON, histories of networks (`history`), and
//! [`captures`] as files and as text.
//!
//! Deliberately absent: agents, roles and engines. Frames of a capture come from a [`FrameSource`],
//! which the caller provides.

#![forbid(unsafe_code)]

pub mod answers;
pub mod captures;
mod frame_source;
mod history;
mod page;
mod reading;
pub mod streamed;

pub use frame_source::FrameSource;
pub use history::{History, HistoryReport, LinkRate, Moment, SampleReport};
pub use page::{About, Kind, PageServer, WebError};
pub use reading::written;
