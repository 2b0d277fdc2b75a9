//! The IPC process as a state machine without I/O.
//!
//! [`Ipcp`] is one member of one normal DIF. Its input is commands, SDUs of its flows, PDUs of its
//! N-1 flows and the time. Its output is events, SDUs, PDUs and the next deadline. The node
//! connects it to rings and sockets, the simulator to a virtual clock.
//!
//! ```text
//!              N flows (FlowKey)                       commands, events
//!        on_sdu |        ^ poll_deliver                  |        ^
//!               v        |                               v        |
//!   +-----------------------------------+     +----------------------------+
//!   | data_transfer: delimiting, EFCP,  |<--->| layer_management: RIB,     |
//!   | RMT, forwarding, SDU protection   |  api| CDAP, enrollment, directory|
//!   |                                   |     | flow allocator, routing    |
//!   +-----------------------------------+     +----------------------------+
//!        on_pdu ^        | take_transmit
//!               |        v
//!             N-1 flows (N1Port)
//! ```
//!
//! A DIF's [`Dialect`](carina_wire::dif::Dialect) determines the layout of PDUs, implemented by
//! [`Syntax`](carina_wire::dif::Syntax), and layer management, behind the trait
//! [`LayerManagement`]. Layer management is in other crates: `carina-management` for native DIFs,
//! `carina-dialects` for DIFs of other stacks. A program passes the [`Dialects`] that it supports
//! to [`Ipcp::new`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod api;
mod cause;
pub mod config;
mod connect_reader;
pub mod data_transfer;
mod dialects;
pub mod event_log;
mod ipcp;
pub mod layer;
pub mod policy;
pub mod random;
pub mod rib_view;
mod scalar;
pub mod security;
pub mod trace;

pub use api::{
    Command, Delivery, Event, FlowKey, N1Dif, N1Port, N1Properties, Passage, Reason, Watch,
};
pub use cause::Cause;
pub use config::{Config, DifConfig, PolicySpec, QosCube};
pub use connect_reader::ConnectReader;
pub use data_transfer::{Counters, DataPath, DropReason};
pub use dialects::Dialects;
pub use ipcp::Ipcp;
pub use layer::{AllocateError, ConnectNames, CreateError, LayerManagement};
pub use policy::Catalogue;
pub use trace::{TraceEvent, TraceSink, Tracer};
