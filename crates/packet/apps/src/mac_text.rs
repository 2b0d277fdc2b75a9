//! MAC addresses in configuration files, as text: `02:00:00:00:00:01`.

use std::fmt;

use carina_wire::ether::Mac;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A MAC address that is written as text in files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MacText(pub Mac);

impl fmt::Debug for MacText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Serialize for MacText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MacText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MacText, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mac = text.parse().map_err(|error| {
            D::Error::custom(format!(
                "{text:?}: {error}; write a MAC address as 02:00:00:00:00:01"
            ))
        });
        mac.map(MacText)
    }
}
