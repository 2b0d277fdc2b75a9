//! A message, whole.

use alloc::string::String;
use alloc::vec::Vec;

use crate::opcode::{Flag, Opcode};
use crate::value::Value;

/// A CDAP message. Fields that a message does not have are 0 or empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What it does.
    pub opcode: Opcode,
    /// Ties an answer to its request; 0 for a request that wants no answer. Not negative.
    pub invoke_id: i32,
    /// Modifies what it does.
    pub flag: Flag,
    /// Class of the object.
    pub class: String,
    /// Name of the object.
    pub name: String,
    /// Number of the object, an alternative to its name.
    pub instance: i64,
    /// Value of the object.
    pub value: Option<Value>,
    /// Of an answer: 0 for success.
    pub result: i32,
    /// Of an answer: why the result is not 0, in words.
    pub reason: String,
    /// How many levels of objects below the named one are meant too.
    pub scope: i32,
    /// Which of the objects in scope are meant.
    pub filter: Vec<u8>,
    /// Authentication.
    pub auth: Option<Auth>,
    /// The party that connects.
    pub src: Party,
    /// To whom.
    pub dst: Party,
    /// Abstract syntax of the connection; in M_CONNECT and its answer only.
    pub abstract_syntax: i32,
    /// Version of the objects' classes; in M_CONNECT and its answer only.
    pub version: i64,
}

/// An application process and one of its entities.
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

/// An authentication value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// Number of the mechanism, for implementations that number them; 0 otherwise.
    pub mechanism: i32,
    /// Name of the policy.
    pub name: String,
    /// Versions of the policy, or a password, as the dialect has it.
    pub texts: Vec<String>,
    /// What the policy says.
    pub value: Vec<u8>,
}

impl Message {
    /// A message without content.
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

    /// An operation on an object.
    #[must_use]
    pub fn object(opcode: Opcode, class: &str, name: &str) -> Message {
        Message {
            class: class.into(),
            name: name.into(),
            ..Message::new(opcode)
        }
    }

    /// The answer to this request: same invoke id, class, name and instance; the parties of a
    /// connection change places.
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

    /// With a value.
    #[must_use]
    pub fn with_value(mut self, value: Value) -> Message {
        self.value = Some(value);
        self
    }

    /// With a result that is not success.
    #[must_use]
    pub fn with_error(mut self, result: i32, reason: &str) -> Message {
        self.result = result;
        self.reason = reason.into();
        self
    }
}

impl Party {
    /// An application process by its name alone.
    #[must_use]
    pub fn of(ap: &str) -> Party {
        Party {
            ap: ap.into(),
            ..Party::default()
        }
    }

    /// True when no part of it is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Party::default()
    }
}
