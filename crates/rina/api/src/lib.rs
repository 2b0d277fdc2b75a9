//! What crosses `ipc.sock` and `control.sock`: names, flow specifications, messages.
//!
//! This crate holds types, their checks and their JSON form, and one small blocking client for
//! `control.sock`. It decides nothing: who may do what is the node's business. Every type that
//! comes from outside is checked while it is decoded, so that a value of type [`AppName`] is a
//! valid name wherever it appears.
#![forbid(unsafe_code)]

pub mod control;
pub mod error;
pub mod ipc;
pub mod names;
pub mod paths;
pub mod qemu;
pub mod spec;

pub use error::{ErrorBody, ErrorCode};
pub use names::{AppName, DifName, IpcpId, LocalName, NameError, PortId};
pub use spec::FlowSpec;
