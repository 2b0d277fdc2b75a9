//! Timetables of links: when a link is down on purpose.

use std::fmt;
use std::str::FromStr;

use carina_time::Duration;
use serde::{Deserialize, Serialize};

use super::limits::DOWN_TIMES_MAX;
use super::{Span, ValueError};

/// A time during which a link is down: `10s-15s`. Both times count from the moment at which the
/// network was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DownTime {
    /// Time from the ready network until the link goes down.
    pub from: Span,
    /// Time from the ready network until the link comes up again.
    pub until: Span,
}

/// When a link is down on purpose. Without any time, the link is always up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timetable {
    /// The times during which the link is down, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<DownTime>,
    /// Period after which the timetable begins again; `None`: it is followed once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
}

/// Why no link can follow a timetable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimetableError {
    /// The timetable has more times than allowed.
    #[error("down has {0} times; at most {DOWN_TIMES_MAX} are possible")]
    TooMany(usize),
    /// A time ends before it begins, or is too short.
    #[error("down {0}: the second time must be at least {SHORTEST} after the first")]
    Short(DownTime),
    /// A time begins before the link has been up again.
    #[error("down {later}: must begin at least {SHORTEST} after {earlier} has ended")]
    Order {
        /// The time before.
        earlier: DownTime,
        /// The time that begins too early.
        later: DownTime,
    },
    /// The timetable begins again before the link has been up.
    #[error(
        "down_every is {every}; must be longer, so that the link is up for at least {SHORTEST} \
         between {last} and the next {first}"
    )]
    Every {
        /// The period.
        every: Span,
        /// The first time of the timetable.
        first: DownTime,
        /// The last time of the timetable.
        last: DownTime,
    },
    /// A period is given, but no time.
    #[error("down_every needs times that repeat, such as down = [\"10s-15s\"]")]
    Nothing,
}

/// Least time for which a link is down, and up again.
const SHORTEST: Span = Span::MILLIS_100;

impl Timetable {
    /// Whether the link is always up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.down.is_empty()
    }

    /// Checks that a link can follow the timetable.
    ///
    /// # Errors
    /// The first time that is impossible.
    pub fn check(&self) -> Result<(), TimetableError> {
        if self.down.len() > DOWN_TIMES_MAX {
            return Err(TimetableError::TooMany(self.down.len()));
        }
        let (Some(first), Some(last)) = (self.down.first(), self.down.last()) else {
            return self.every.map_or(Ok(()), |_| Err(TimetableError::Nothing));
        };
        let is_long = |from: u64, until: u64| until.saturating_sub(from) >= nanos(SHORTEST);
        for time in &self.down {
            if !is_long(nanos(time.from), nanos(time.until)) {
                return Err(TimetableError::Short(*time));
            }
        }
        for pair in self.down.windows(2) {
            let (earlier, later) = (pair[0], pair[1]);
            if !is_long(nanos(earlier.until), nanos(later.from)) {
                return Err(TimetableError::Order { earlier, later });
            }
        }
        let Some(every) = self.every else {
            return Ok(());
        };
        let next = nanos(every).saturating_add(nanos(first.from));
        if nanos(last.until) > nanos(every) || !is_long(nanos(last.until), next) {
            let (first, last) = (*first, *last);
            return Err(TimetableError::Every { every, first, last });
        }
        Ok(())
    }

    /// Whether the link is down when this time has passed since the network was ready.
    #[must_use]
    pub fn is_down(&self, passed: Duration) -> bool {
        let at = self.within_period(passed.as_nanos());
        let mut times = self.down.iter();
        times.any(|time| (nanos(time.from)..nanos(time.until)).contains(&at))
    }

    /// The next change after this time, which counts as in [`Timetable::is_down`]; `None` if the
    /// timetable has ended.
    #[must_use]
    pub fn next_change(&self, passed: Duration) -> Option<Duration> {
        let at = self.within_period(passed.as_nanos());
        let begin = passed.as_nanos() - at;
        let edges = self.down.iter().flat_map(|time| [time.from, time.until]);
        let next = edges.map(nanos).find(|edge| *edge > at);
        let again = || Some(nanos(self.every?).saturating_add(nanos(self.down.first()?.from)));
        let next = begin.saturating_add(next.or_else(again)?);
        Some(Duration::from_nanos(next))
    }

    fn within_period(&self, passed: u64) -> u64 {
        let every = self.every.map(nanos).filter(|every| *every > 0);
        every.map_or(passed, |every| passed % every)
    }
}

fn nanos(span: Span) -> u64 {
    span.duration().as_nanos()
}

impl FromStr for DownTime {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<DownTime, ValueError> {
        let wrong = || ValueError::new(text, "a time from when until when", "`10s-15s`");
        let (from, until) = text.split_once('-').ok_or_else(wrong)?;
        Ok(DownTime {
            from: from.parse()?,
            until: until.parse()?,
        })
    }
}

impl TryFrom<String> for DownTime {
    type Error = ValueError;

    fn try_from(text: String) -> Result<DownTime, ValueError> {
        text.parse()
    }
}

impl From<DownTime> for String {
    fn from(time: DownTime) -> String {
        time.to_string()
    }
}

impl fmt::Display for DownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.until)
    }
}

impl fmt::Display for Timetable {
    /// Writes the timetable as text for people: `10s-15s 40s-1m, every 2m`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let times: Vec<String> = self.down.iter().map(ToString::to_string).collect();
        f.write_str(&times.join(" "))?;
        match self.every {
            Some(every) => write!(f, ", every {every}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timetable(down: &[&str], every: Option<&str>) -> Timetable {
        Timetable {
            down: down.iter().map(|text| text.parse().unwrap()).collect(),
            every: every.map(|text| text.parse().unwrap()),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn link_is_down_at_its_times_in_each_period() {
        let once = timetable(&["10s-15s", "20s-30s"], None);
        let down: Vec<u64> = (0..60)
            .filter(|candidate| once.is_down(seconds(*candidate)))
            .collect();
        let wanted: Vec<u64> = (10..15).chain(20..30).collect();
        assert_eq!(down, wanted);
        assert_eq!(once.next_change(seconds(0)), Some(seconds(10)));
        assert_eq!(once.next_change(seconds(10)), Some(seconds(15)));
        assert_eq!(once.next_change(seconds(30)), None);

        let again = timetable(&["0s-5s"], Some("1m"));
        assert_eq!(again.check(), Ok(()));
        for at in [0, 4, 60, 64, 3600] {
            assert!(again.is_down(seconds(at)), "{at}");
        }
        for at in [5, 59, 65] {
            assert!(!again.is_down(seconds(at)), "{at}");
        }
        assert_eq!(again.next_change(seconds(61)), Some(seconds(65)));
        assert_eq!(again.next_change(seconds(65)), Some(seconds(120)));
        assert_eq!(again.to_string(), "0ns-5s, every 1m");
        assert_eq!(Timetable::default().next_change(seconds(1)), None);
    }

    #[test]
    fn impossible_timetables_are_named() {
        for (timetable, words) in [
            (
                timetable(&["15s-10s"], None),
                "at least 100ms after the first",
            ),
            (
                timetable(&["1s-2s", "2s-3s"], None),
                "after 1s-2s has ended",
            ),
            (timetable(&["0s-5s"], Some("5s")), "down_every is 5s"),
            (timetable(&["4s-6s"], Some("5s")), "down_every is 5s"),
            (timetable(&[], Some("5s")), "down_every needs times"),
            (timetable(&["1s-2s"; 65], None), "has 65 times"),
        ] {
            let error = timetable.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for text in ["", "10s", "10-15s", "10s-15", "10s-15s-20s"] {
            assert!(text.parse::<DownTime>().is_err(), "{text}");
        }
    }
}
