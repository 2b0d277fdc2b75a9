//! The RIB as it is on the wire: object names, classes, values, results.
//!
//! No other module spells an object name, a class or a field of a value.
//! `docs/explanation/management.md` has the same for people.

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

/// Version of everything in this module.
pub(super) const SYNTAX: u32 = 1;

/// Results of answers.
pub(super) mod result {
    /// The answer will come later.
    pub(crate) const PENDING: i32 = 1;
    /// It did not work.
    pub(crate) const ERROR: i32 = -1;
    /// There is no such object.
    pub(crate) const OBJECT: i32 = -2;
    /// The object is of another class.
    pub(crate) const CLASS: i32 = -3;
    /// The object does not know the operation.
    pub(crate) const OPERATION: i32 = -4;
    /// The value is malformed.
    pub(crate) const VALUE: i32 = -5;
    /// No connection: refused for good.
    pub(crate) const REJECTED: i32 = -6;
    /// Not allowed.
    pub(crate) const ACCESS: i32 = -7;
    /// No connection now; it may be asked for again.
    pub(crate) const LATER: i32 = -8;
    /// No connection: another DIF of the same name.
    pub(crate) const OTHER_DIF: i32 = -9;
    /// The application is not registered here.
    pub(crate) const NOT_HERE: i32 = -10;
    /// No room for it: a limit is reached.
    pub(crate) const FULL: i32 = -11;
}

/// An operation on an object.
pub(super) fn request(opcode: Opcode, object: &Object, value: Option<Vec<u8>>) -> Message {
    let message = Message::object(opcode, object.class(), &object.path());
    match value {
        Some(bytes) => message.with_value(Value::Bytes(bytes)),
        None => message,
    }
}

/// The answer to `message`, with a value.
pub(super) fn answer(message: &Message, value: Option<Vec<u8>>) -> Message {
    let answer = message.answer();
    match value {
        Some(bytes) => answer.with_value(Value::Bytes(bytes)),
        None => answer,
    }
}

/// M_CONNECT.
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

/// M_CONNECT_R to `message`.
pub(super) fn connect_answer(message: &Message, greeting: &Greeting) -> Message {
    let mut answer = message.answer();
    answer.src = Party {
        ae: AE.to_string(),
        ..Party::of(&greeting.name)
    };
    answer.auth = Some(auth(greeting));
    answer
}

/// What an M_CONNECT or M_CONNECT_R says.
pub(super) fn greeting(message: &Message) -> Option<Greeting> {
    let greeting: Greeting = decode(&message.auth.as_ref()?.value)?;
    let is_named = carina_wire::check_name(&greeting.name).is_ok();
    (is_named && greeting.name == message.src.ap && greeting.nonce != 0).then_some(greeting)
}

/// The bytes of a structured value; empty when the message has no value.
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

/// Application entity that management connections are between.
const AE: &str = "Management";
