//! A part of a scenario: fewer members, faults and calls; everything else stays as drawn.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::Scenario;

/// A set of members, faults or calls, by their numbers from 0.
///
/// Text form: numbers and ranges with commas between them, such as `0-3,7`, or `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub BTreeSet<usize>);

/// The part of a scenario that is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Members to keep; only cables, faults and calls between kept members remain.
    pub members: Numbers,
    /// Faults to keep, by their position in the scenario's list.
    pub faults: Numbers,
    /// Calls to keep, in order of their times.
    pub calls: Numbers,
}

/// Why a part of a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectionError {
    /// The scenario has no member, fault or call of this number.
    Unknown {
        /// `member`, `fault` or `call`.
        what: &'static str,
        /// Number of the member, fault or call, as the user wrote it. The scenario has no such one.
        number: usize,
        /// Number of members, faults or calls that the scenario has.
        count: usize,
    },
    /// The selection keeps fewer than two members.
    TooFew,
    /// The cables do not connect all kept members.
    Apart,
}

impl std::error::Error for SelectionError {}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown {
                what,
                number,
                count: 0,
            } => write!(f, "{what} {number} does not exist: the scenario has none"),
            Self::Unknown {
                what,
                number,
                count,
            } => write!(
                f,
                "{what} {number} does not exist: must be 0 to {}",
                count - 1
            ),
            Self::TooFew => write!(f, "at least two members must be kept"),
            Self::Apart => write!(
                f,
                "the remaining cables do not connect all members that are kept"
            ),
        }
    }
}

impl Numbers {
    /// All numbers below `count`.
    #[must_use]
    pub fn below(count: usize) -> Numbers {
        Numbers((0..count).collect())
    }

    /// Whether the set contains a number.
    #[must_use]
    pub fn has(&self, number: usize) -> bool {
        self.0.contains(&number)
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn check(&self, what: &'static str, count: usize) -> Result<(), SelectionError> {
        match self.0.range(count..).next() {
            Some(number) => Err(SelectionError::Unknown {
                what,
                number: *number,
                count,
            }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let mut comma = "";
        let mut rest = self.0.iter().copied().peekable();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            if last == first {
                write!(f, "{comma}{first}")?
            } else {
                write!(f, "{comma}{first}-{last}")?
            }
            comma = ",";
        }
        Ok(())
    }
}

/// Why a text is not a set of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumbersError {
    part: String,
}

impl std::error::Error for NumbersError {}

impl fmt::Display for NumbersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = &self.part;
        write!(
            f,
            "{part:?} is neither a number below {NUMBER_MAX} nor a range of such numbers; write \
             for example 0-3,7, or none"
        )
    }
}

impl FromStr for Numbers {
    type Err = NumbersError;

    fn from_str(text: &str) -> Result<Numbers, NumbersError> {
        let mut numbers = BTreeSet::new();
        if text == "none" {
            return Ok(Numbers(numbers));
        }
        for part in text.split(',') {
            let wrong = || NumbersError {
                part: part.to_owned(),
            };
            let parse = |digits: &str| {
                let number = digits.parse::<usize>().map_err(|_| wrong())?;
                (number < NUMBER_MAX).then_some(number).ok_or_else(wrong)
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (parse(first)?, parse(last)?),
                None => (parse(part)?, parse(part)?),
            };
            if first > last {
                return Err(wrong());
            }
            numbers.extend(first..=last);
        }
        Ok(Numbers(numbers))
    }
}

/// Upper limit of a number: more members, faults or calls than any scenario has.
const NUMBER_MAX: usize = 1_000_000;

impl Selection {
    /// The selection that keeps everything.
    #[must_use]
    pub(super) fn all(members: usize, faults: usize, calls: usize) -> Selection {
        Selection {
            members: Numbers::below(members),
            faults: Numbers::below(faults),
            calls: Numbers::below(calls),
        }
    }
}

impl Scenario {
    /// The same scenario, reduced to these members, faults and calls.
    ///
    /// # Errors
    /// The scenario does not have a number, or cables do not connect the members.
    pub fn keep(&self, kept: Selection) -> Result<Scenario, SelectionError> {
        kept.members.check("member", self.members)?;
        kept.faults.check("fault", self.faults.len())?;
        kept.calls.check("call", self.calls)?;
        if kept.members.len() < 2 {
            return Err(SelectionError::TooFew);
        }
        let scenario = Scenario {
            kept,
            ..self.clone()
        };
        if scenario.is_connected() {
            Ok(scenario)
        } else {
            Err(SelectionError::Apart)
        }
    }

    /// Whether both ends of an edge are kept members.
    pub(super) fn has_edge(&self, edge: usize) -> bool {
        let ends = self.edges.get(edge);
        ends.is_some_and(|ends| ends.iter().all(|end| self.kept.members.has(*end)))
    }

    /// Whether cables connect all kept members.
    fn is_connected(&self) -> bool {
        let members = &self.kept.members.0;
        let mut found: BTreeSet<usize> = members.first().into_iter().copied().collect();
        loop {
            let before = found.len();
            for (number, [a, b]) in self.edges.iter().enumerate() {
                if self.has_edge(number) && (found.contains(a) || found.contains(b)) {
                    found.extend([*a, *b]);
                }
            }
            if found.len() == before {
                return found.len() == members.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Overrides;
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for text in ["none", "0", "0-3,7", "1,3,5", "0-1"] {
            let numbers: Numbers = text.parse().expect("numbers");
            assert_eq!(numbers.to_string(), text);
        }
        let wild: Numbers = "7,0-2,1,3".parse().expect("numbers");
        assert_eq!(wild.to_string(), "0-3,7");
        for wrong in ["", "a", "3-1", "1,,2", "-1", "1-", "99999999"] {
            let error = wrong.parse::<Numbers>().expect_err("no numbers");
            assert!(error.to_string().contains("for example 0-3,7"), "{error}");
        }
    }

    #[test]
    fn a_part_without_cables_or_of_unknown_members_is_refused() {
        let mut scenario = Scenario::new(7, Overrides::default());
        scenario.members = 4;
        scenario.edges = vec![[0, 1], [1, 2], [2, 3]];
        scenario.calls = 2;
        scenario.faults.clear();
        let keep = |members: &str, faults: &str, calls: &str| {
            let parse = |text: &str| text.parse::<Numbers>().expect("numbers");
            let kept = Selection {
                members: parse(members),
                faults: parse(faults),
                calls: parse(calls),
            };
            scenario.keep(kept).map(|kept| kept.kept.members.len())
        };
        assert_eq!(keep("1-3", "none", "0"), Ok(3));
        assert_eq!(keep("0,2", "none", "0"), Err(SelectionError::Apart));
        assert_eq!(keep("2", "none", "0"), Err(SelectionError::TooFew));
        let texts = [
            keep("0-4", "none", "0"),
            keep("0-1", "0", "0"),
            keep("0-1", "none", "2"),
        ];
        let texts = texts.map(|kept| kept.expect_err("unknown").to_string());
        assert_eq!(
            texts,
            [
                "member 4 does not exist: must be 0 to 3",
                "fault 0 does not exist: the scenario has none",
                "call 2 does not exist: must be 0 to 1",
            ]
        );
    }
}
