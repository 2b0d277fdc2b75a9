//! CDAP: messages of the Common Distributed Application Protocol, and the state machine of a CDAP
//! connection.
//!
//! Specified in the Pouzin Society's *Common Distributed Application Protocol Specification*.
//!
//! A [`Message`] is an operation on an object of the peer's RIB, or the answer to one. It is
//! encoded as protobuf, with the field numbers that all known implementations use. Implementations
//! differ in the fields that they always write, and in what they require from a sender; [`Rules`]
//! describes that. A [`Connection`] checks which message may be sent or received, assigns invoke
//! ids and matches answers to requests. It does no I/O and has no clock: the caller passes the
//! time.
//!
//! `docs/explanation/cdap.md` lists fields, rules and states.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod connection;
mod error;
mod message;
mod opcode;
mod pending;
mod proto;
mod rules;
mod value;

pub use connection::{Connection, Limits, Receipt, State, Violation};
pub use error::{CdapError, RuleError};
pub use message::{Auth, Message, Party};
pub use opcode::{Flag, Opcode};
pub use pending::Lost;
pub use rules::Rules;
pub use value::Value;
