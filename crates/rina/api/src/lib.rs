//! The types that programs and the node exchange on `ipc.sock` and `control.sock`: names, flow
//! specifications and messages.
//!
//! This crate contains the types, their checks and their JSON form, and a small blocking client for
//! `control.sock`. It makes no decisions: the node decides who may do what. Every type is checked
//! while it is decoded, so that a value of type [`AppName`] is always a valid name.
#![forbid(unsafe_code)]

pub mod control;
pub mod error;
pub mod ipc;
pub mod names;
pub mod output;
pub mod paths;
pub mod qemu;
pub mod spec;

pub use error::{ErrorBody, ErrorCode};
pub use names::{AppName, DifName, IpcpId, LocalName, NameError, PortId};
pub use spec::FlowSpec;
