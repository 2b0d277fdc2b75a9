//! Values of RIB objects.

use alloc::string::String;
use alloc::vec::Vec;

use crate::proto::ObjectValue;

/// The value of an object. A structured value is protobuf in [`Value::Bytes`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A 32-bit integer.
    Int(i32),
    /// A 32-bit integer that is often negative.
    Sint(i32),
    /// A 64-bit integer.
    Int64(i64),
    /// A 64-bit integer that is often negative.
    Sint64(i64),
    /// A text in UTF-8.
    Text(String),
    /// Bytes. The class of the object determines whether they contain a structure.
    Bytes(Vec<u8>),
    /// A floating point number of 32 bits.
    Float(f32),
    /// A floating point number of 64 bits.
    Double(f64),
    /// A boolean.
    Bool(bool),
}

impl Value {
    /// Returns the bytes, if the value is of type [`Value::Bytes`], otherwise `None`.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the text, if the value is of type [`Value::Text`], otherwise `None`.
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

    /// Converts a protobuf value, which must have at most one type. `Ok(None)` if it has none.
    ///
    /// # Errors
    /// The value has several types.
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

/// Error: an object value has values of several types; exactly one is allowed.
pub(crate) struct Several;
