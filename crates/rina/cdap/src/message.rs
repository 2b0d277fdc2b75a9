//! The CDAP message.

use alloc::string::String;
use alloc::vec::Vec;

use crate::opcode::{Flag, Opcode};
use crate::value::Value;

/// A CDAP message. Absent fields are 0 or empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Operation that the message requests, or to which it is the answer.
    pub opcode: Opcode,
    /// Matches an answer to its request; 0 for a request without answer. Never negative.
    pub invoke_id: i32,
    /// Modifier of the operation, such as "another answer follows".
    pub flag: Flag,
    /// Class of the object on which the operation acts.
    pub class: String,
    /// Name of the object on which the operation acts.
    pub name: String,
    /// Number of the object; it can be used instead of the object's name.
    pub instance: i64,
    /// Value of the object that the operation writes or the answer returns; `None` if the message
    /// has no value.
    pub value: Option<Value>,
    /// Result code in an answer: 0 for success.
    pub result: i32,
    /// In an answer: why the result is not 0, as text.
    pub reason: String,
    /// How many levels of objects below the named one the operation includes.
    pub scope: i32,
    /// Expression that selects objects within the scope; empty for all.
    pub filter: Vec<u8>,
    /// Authentication value, if the message has one.
    pub auth: Option<Auth>,
    /// Name of the party that sends the message; only in M_CONNECT and its answer.
    pub src: Party,
    /// Name of the party to which the message is addressed; only in M_CONNECT and its answer.
    pub dst: Party,
    /// Number of the abstract syntax of the connection; only in M_CONNECT and its answer.
    pub abstract_syntax: i32,
    /// Version of the objects' classes; in most dialects only in M_CONNECT and its answer.
    pub version: i64,
}

/// One end of a CDAP connection: an application process and one of its application entities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// Application process name.
    pub ap: String,
    /// Application process instance.
    pub api: String,
    /// Application entity name.
    pub ae: String,
    /// Application entity instance.
    pub aei: String,
}

/// An authentication value: the data of one step of an authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// Number of the mechanism, in implementations that number mechanisms; otherwise 0.
    pub mechanism: i32,
    /// Name of the authentication policy.
    pub name: String,
    /// Versions of the policy, or a password, depending on the dialect.
    pub texts: Vec<String>,
    /// The message of the authentication policy, as bytes.
    pub value: Vec<u8>,
}

impl Message {
    /// Makes a message with this operation and no other contents.
    #[must_use]
    pub fn new(opcode: Opcode) -> Message {
        Message {
            opcode,
            invoke_id: 0,
            flag: Flag::None,
            class: String::new(),
            name: String::new(),
            instance: 0,
            value: None,
            result: 0,
            reason: String::new(),
            scope: 0,
            filter: Vec::new(),
            auth: None,
            src: Party::default(),
            dst: Party::default(),
            abstract_syntax: 0,
            version: 0,
        }
    }

    /// Makes the request for an operation on the object with this class and name.
    #[must_use]
    pub fn object(opcode: Opcode, class: &str, name: &str) -> Message {
        Message {
            class: class.into(),
            name: name.into(),
            ..Message::new(opcode)
        }
    }

    /// Makes an answer to this request: it has the same invoke id, class, name and instance. The
    /// parties of a connection are swapped.
    #[must_use]
    pub fn answer(&self) -> Message {
        Message {
            invoke_id: self.invoke_id,
            class: self.class.clone(),
            name: self.name.clone(),
            instance: self.instance,
            src: self.dst.clone(),
            dst: self.src.clone(),
            abstract_syntax: self.abstract_syntax,
            version: self.version,
            ..Message::new(self.opcode.response())
        }
    }

    /// Returns this message with `value` as its object's value.
    #[must_use]
    pub fn with_value(mut self, value: Value) -> Message {
        self.value = Some(value);
        self
    }

    /// Returns this message with a result other than success, and the reason.
    #[must_use]
    pub fn with_error(mut self, result: i32, reason: &str) -> Message {
        self.result = result;
        self.reason = reason.into();
        self
    }
}

impl Party {
    /// Makes a party that consists of an application process name only; the other three parts are
    /// empty.
    #[must_use]
    pub fn of(ap: &str) -> Party {
        Party {
            ap: ap.into(),
            ..Party::default()
        }
    }

    /// Whether all four parts of the name are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Party::default()
    }
}
