//! Values of objects.

use alloc::string::String;
use alloc::vec::Vec;

use crate::proto::ObjectValue;

/// The value of an object. Structured ones are protobuf in [`Value::Bytes`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Int(i32),
    /// A number that is often negative.
    Sint(i32),
    /// A large number.
    Int64(i64),
    /// A large number that is often negative.
    Sint64(i64),
    /// Text.
    Text(String),
    /// Bytes; a structure when the class says so.
    Bytes(Vec<u8>),
    /// A number with a fraction.
    Float(f32),
    /// A number with a fraction.
    Double(f64),
    /// Yes or no.
    Bool(bool),
}

impl Value {
    /// The bytes of a structured value.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn into_proto(self) -> ObjectValue {
        let mut proto = ObjectValue::default();
        match self {
            Value::Int(v) => proto.int = Some(v),
            Value::Sint(v) => proto.sint = Some(v),
            Value::Int64(v) => proto.int64 = Some(v),
            Value::Sint64(v) => proto.sint64 = Some(v),
            Value::Text(v) => proto.text = Some(v),
            Value::Bytes(v) => proto.bytes = Some(v),
            Value::Float(v) => proto.float = Some(v),
            Value::Double(v) => proto.double = Some(v),
            Value::Bool(v) => proto.bool = Some(v),
        }
        proto
    }

    /// The value of a message that sets at most one kind; `Ok(None)` when it sets none.
    ///
    /// # Errors
    /// It sets several.
    pub(crate) fn from_proto(proto: ObjectValue) -> Result<Option<Value>, Several> {
        let kinds = [
            proto.int.map(Value::Int),
            proto.sint.map(Value::Sint),
            proto.int64.map(Value::Int64),
            proto.sint64.map(Value::Sint64),
            proto.text.map(Value::Text),
            proto.bytes.map(Value::Bytes),
            proto.float.map(Value::Float),
            proto.double.map(Value::Double),
            proto.bool.map(Value::Bool),
        ];
        let mut found = kinds.into_iter().flatten();
        match (found.next(), found.next()) {
            (value, None) => Ok(value),
            _ => Err(Several),
        }
    }
}

/// An object value that is of several kinds at once.
pub(crate) struct Several;
