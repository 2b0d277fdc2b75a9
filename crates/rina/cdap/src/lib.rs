//! CDAP: messages of the Common Distributed Application Protocol, and the machine that keeps a
//! CDAP connection in order.
//!
//! After the Pouzin Society's *Common Distributed Application Protocol Specification*.
//!
//! A [`Message`] is an operation on an object of the other side's RIB, or the answer to one. It is
//! written as protobuf with the field numbers that all known implementations share; what differs
//! between them (which fields are always written, what a receiver insists on) is a [`Rules`] value.
//! A [`Connection`] says which message may be sent or received when, gives out invoke ids and
//! matches answers to requests. It does no I/O and knows no clock: its caller says what time it is.
//!
//! `docs/explanation/cdap.md` lists the fields, the rules and the states.

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
