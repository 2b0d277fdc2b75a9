//! Positions of nodes in pictures of a network.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ValueError;

/// Where a node is in pictures: `12.5 -3`, to the right and downwards, in any unit. A picture
/// scales the positions of all nodes into its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Position {
    /// Millionths of the unit, to the right.
    x_millionths: i64,
    /// Millionths of the unit, downwards.
    y_millionths: i64,
}

impl Position {
    /// The position at `x` and `y`, rounded to millionths; `None` if one of them is not a number,
    /// or beyond ±10⁹.
    #[must_use]
    pub fn at(x: f64, y: f64) -> Option<Position> {
        let millionths = |value: f64| {
            let is_near = value.abs() <= LARGEST;
            is_near.then(|| (value * MILLION).round() as i64)
        };
        Some(Position {
            x_millionths: millionths(x)?,
            y_millionths: millionths(y)?,
        })
    }

    /// Distance to the right.
    #[must_use]
    pub fn x(self) -> f64 {
        self.x_millionths as f64 / MILLION
    }

    /// Distance downwards.
    #[must_use]
    pub fn y(self) -> f64 {
        self.y_millionths as f64 / MILLION
    }
}

impl FromStr for Position {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Position, ValueError> {
        let wrong = || ValueError::new(text, "a position of two numbers", "`12.5 -3`");
        let mut words = text.split_ascii_whitespace();
        let mut number = || words.next()?.parse().ok();
        let (x, y) = (number(), number());
        let position = x.zip(y).and_then(|(x, y)| Position::at(x, y));
        position
            .filter(|_| words.next().is_none())
            .ok_or_else(wrong)
    }
}

impl TryFrom<String> for Position {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Position, ValueError> {
        text.parse()
    }
}

impl From<Position> for String {
    fn from(position: Position) -> String {
        position.to_string()
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.x(), self.y())
    }
}

/// The largest distance in a direction.
const LARGEST: f64 = 1e9;
const MILLION: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_written_as_it_is_read() {
        for text in [
            "0 0",
            "12.5 -3",
            "-0.127758 51.507351",
            "1000000000 -1000000000",
        ] {
            let position: Position = text.parse().unwrap();
            assert_eq!(position.to_string(), text);
        }
        assert_eq!("1  2".parse::<Position>().unwrap().to_string(), "1 2");
        assert_eq!(
            Position::at(-0.0, 0.1234567).unwrap().to_string(),
            "0 0.123457"
        );
    }

    #[test]
    fn what_is_no_position_is_refused_with_an_example() {
        for text in ["", "1", "1 2 3", "a b", "NaN 1", "inf 0", "2e9 0", "1,2"] {
            let error = text.parse::<Position>().unwrap_err().to_string();
            assert!(error.contains("12.5 -3"), "{text}: {error}");
        }
    }
}
