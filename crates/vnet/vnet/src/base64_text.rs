//! Serializes bytes as base64 text (RFC 4648), since JSON's list of numbers takes three times as
//! much room.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes bytes as base64 text; for `#[serde(with)]`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

/// Reads bytes from base64 text; for `#[serde(with)]`.
///
/// # Errors
/// The text is not base64.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(D::Error::custom)
}
