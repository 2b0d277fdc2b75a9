//! Values of fields of RIB objects.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Value of one field of a RIB object, such as the number `1500` in `sdu_max = 1500`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// An integer of 0 or more.
    Uint(u64),
    /// An integer that may be negative.
    Int(i64),
    /// A text in UTF-8.
    Text(String),
    /// True or false.
    Bool(bool),
    /// A list of texts, such as the names of a member's N-1 DIFs.
    List(Vec<String>),
}

impl Scalar {
    /// Writes the value in the form of a policy parameter: `true`, `-3`, `a,b`.
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
