//! A setting of a link that both directions share, or that each direction has for itself.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ValueError;

/// A setting for each direction of a link. Written as one text if both directions have the same
/// value (`"10ms"`), else as a list: first what applies to frames that the link's first end sends,
/// then what applies to those of the second end (`["10ms", "20ms"]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerDirection<T> {
    /// Setting for frames that the first end sends.
    pub from_first: T,
    /// Setting for frames that the second end sends.
    pub from_second: T,
}

impl<T: Copy> PerDirection<T> {
    /// The same value for both directions.
    pub const fn both(value: T) -> Self {
        Self {
            from_first: value,
            from_second: value,
        }
    }

    /// The settings, by the side of the end that sends.
    pub fn sides(&self) -> [T; 2] {
        [self.from_first, self.from_second]
    }
}

impl<T: Copy + FromStr<Err = ValueError>> FromStr for PerDirection<T> {
    type Err = ValueError;

    /// Parses one value, or two with a space between them, as XML has them.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.split_once(|c: char| c.is_ascii_whitespace()) {
            None => text.parse().map(Self::both),
            Some((first, second)) => Ok(Self {
                from_first: first.parse()?,
                from_second: second.trim_ascii_start().parse()?,
            }),
        }
    }
}

impl<T: Copy + PartialEq + Serialize> Serialize for PerDirection<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.from_first == self.from_second {
            self.from_first.serialize(serializer)
        } else {
            self.sides().serialize(serializer)
        }
    }
}

impl<'de, T: Copy + FromStr<Err = ValueError>> Deserialize<'de> for PerDirection<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrTwo(PhantomData))
    }
}

/// Reads one text, or a list of two.
struct OneOrTwo<T>(PhantomData<T>);

impl<'de, T: Copy + FromStr<Err = ValueError>> Visitor<'de> for OneOrTwo<T> {
    type Value = PerDirection<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value for both directions, or a list of two: first end, second end")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map(PerDirection::both).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut next = |at: usize| {
            let text: Option<String> = list.next_element()?;
            let text = text.ok_or_else(|| A::Error::invalid_length(at, &self))?;
            text.parse().map_err(A::Error::custom)
        };
        Ok(PerDirection {
            from_first: next(0)?,
            from_second: next(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Span;

    fn read(json: &str) -> Result<PerDirection<Span>, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn one_text_is_for_both_and_a_list_for_each() {
        let both = read("\"10ms\"").unwrap();
        assert_eq!(both, PerDirection::both("10ms".parse().unwrap()));
        assert_eq!(serde_json::to_string(&both).unwrap(), "\"10ms\"");
        let each = read("[\"10ms\", \"20ms\"]").unwrap();
        assert_eq!(each.sides().map(|side| side.to_string()), ["10ms", "20ms"]);
        assert_eq!(serde_json::to_string(&each).unwrap(), "[\"10ms\",\"20ms\"]");
        assert_eq!("10ms  20ms".parse(), Ok(each));
        assert_eq!("10ms".parse(), Ok(both));
    }

    #[test]
    fn other_values_are_refused_with_what_would_be_right() {
        for json in ["[\"1ms\"]", "[\"1ms\", \"2ms\", \"3ms\"]", "7", "{}"] {
            let error = read(json).unwrap_err();
            let is_clear = error.contains("list of two") || error.contains("trailing");
            assert!(is_clear, "{json}: {error}");
        }
        for text in ["\"10ms 20ms\"", "[\"1ms\", \"soon\"]"] {
            let error = read(text).unwrap_err();
            assert!(error.contains("10ms"), "{text}: {error}");
        }
        assert!("1ms 2ms 3ms".parse::<PerDirection<Span>>().is_err());
    }
}
