//! Values of the fields of RIB objects.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A whole number.
    Uint(u64),
    /// A whole number with sign.
    Int(i64),
    /// Text.
    Text(String),
    /// Yes or no.
    Bool(bool),
    /// Several texts.
    List(Vec<String>),
}

impl Scalar {
    /// As a parameter of a policy has it.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Scalar::Text(text) => text.clone(),
            Scalar::Uint(number) => number.to_string(),
            Scalar::Int(number) => number.to_string(),
            Scalar::Bool(flag) => flag.to_string(),
            Scalar::List(list) => list.join(","),
        }
    }
}
