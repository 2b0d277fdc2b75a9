//! The wire format of the RIB: object names, classes, values and result codes.
//!
//! Only this module contains object names, class names and field numbers.
//! `docs/explanation/management.md` documents them.

mod dif;
mod names;
mod objects;
mod routes;
mod values;

use alloc::string::ToString;
use alloc::vec::Vec;

use carina_cdap::{Auth, Message, Opcode, Party, Value};

pub(super) use dif::{decode_dif, encode_dif};
pub(super) use names::{Object, class, flow_path, link_path, route_path};
pub(super) use objects::{decode_objects, encode_objects};
pub(super) use routes::{decode_routing, encode_routing};
pub(super) use values::{
    ChannelEnd, ConnectionRenewal, Digests, EnrollmentRequest, FlowEnd, FlowObject, Greeting,
    MemberValue, Part, Piece, Registrants, SpecValue, decode, decode_digests, decode_entries,
    encode, encode_digests, encode_entries,
};

/// Version of the format that this module defines.
pub(super) const SYNTAX: u32 = 1;

/// Result codes of answers.
pub(super) mod result {
    /// The answer will come later.
    pub(crate) const PENDING: i32 = 1;
    /// The operation failed.
    pub(crate) const ERROR: i32 = -1;
    /// The object does not exist.
    pub(crate) const OBJECT: i32 = -2;
    /// The object is of another class.
    pub(crate) const CLASS: i32 = -3;
    /// The object does not support the operation.
    pub(crate) const OPERATION: i32 = -4;
    /// The value is malformed.
    pub(crate) const VALUE: i32 = -5;
    /// The connection is refused for a lasting reason.
    pub(crate) const REJECTED: i32 = -6;
    /// Access control denies the operation.
    pub(crate) const ACCESS: i32 = -7;
    /// The connection is refused now; a later attempt may succeed.
    pub(crate) const LATER: i32 = -8;
    /// The connection is refused: the other side belongs to another DIF of the same name.
    pub(crate) const OTHER_DIF: i32 = -9;
    /// The application is not registered at this member.
    pub(crate) const NOT_HERE: i32 = -10;
    /// A limit is reached.
    pub(crate) const FULL: i32 = -11;
}

/// A request: an operation on an object, with an encoded value if it needs one.
pub(super) fn request(opcode: Opcode, object: &Object, value: Option<Vec<u8>>) -> Message {
    let message = Message::object(opcode, object.class(), &object.path());
    match value {
        Some(bytes) => message.with_value(Value::Bytes(bytes)),
        None => message,
    }
}

/// The successful answer to `message`, with an encoded value if it has one.
pub(super) fn answer(message: &Message, value: Option<Vec<u8>>) -> Message {
    let answer = message.answer();
    match value {
        Some(bytes) => answer.with_value(Value::Bytes(bytes)),
        None => answer,
    }
}

/// Makes an M_CONNECT.
pub(super) fn connect(greeting: &Greeting, invoke_id: i32) -> Message {
    let src = Party {
        ae: AE.to_string(),
        ..Party::of(&greeting.name)
    };
    let dst = Party {
        ae: AE.to_string(),
        ..Party::of(&greeting.dif)
    };
    let mut message = Message::connect(src, dst);
    message.invoke_id = invoke_id;
    message.auth = Some(auth(greeting));
    message
}

/// Makes the M_CONNECT_R that answers `message`.
pub(super) fn connect_answer(message: &Message, greeting: &Greeting) -> Message {
    let mut answer = message.answer();
    answer.src = Party {
        ae: AE.to_string(),
        ..Party::of(&greeting.name)
    };
    answer.auth = Some(auth(greeting));
    answer
}

/// The greeting in an M_CONNECT or M_CONNECT_R; `None` when it is malformed.
pub(super) fn greeting(message: &Message) -> Option<Greeting> {
    let greeting: Greeting = decode(&message.auth.as_ref()?.value)?;
    let is_named = carina_wire::check_name(&greeting.name).is_ok();
    (is_named && greeting.name == message.src.ap && greeting.nonce != 0).then_some(greeting)
}

/// The bytes of a message's value; empty when the message has none.
pub(super) fn bytes(message: &Message) -> &[u8] {
    message
        .value
        .as_ref()
        .and_then(Value::as_bytes)
        .unwrap_or_default()
}

fn auth(greeting: &Greeting) -> Auth {
    Auth {
        name: greeting.mechanism.clone(),
        value: encode(greeting),
        ..Auth::default()
    }
}

/// Application entity at both ends of management connections.
const AE: &str = "Management";
