//! The log of a role, for those who run it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of times that a line was logged, and the time of the last one.
#[derive(Debug)]
struct Repeats {
    count: u64,
    /// When the line was last logged.
    last: Instant,
}

/// Writes lines about what a role discards, and when it reaches or loses another party.
#[derive(Clone)]
pub struct Log {
    who: String,
    line: Arc<dyn Fn(&str) + Send + Sync>,
    /// For each reason, the count of discarded things when it was last logged.
    logged: BTreeMap<&'static str, u64>,
    /// Recent lines, for counting repetitions.
    lines: Arc<Mutex<BTreeMap<String, Repeats>>>,
}

impl Log {
    /// A log of the party `who`, which passes its lines to `line`.
    pub fn new(who: impl fmt::Display, line: Arc<dyn Fn(&str) + Send + Sync>) -> Log {
        Log {
            who: who.to_string(),
            line,
            logged: BTreeMap::new(),
            lines: Arc::default(),
        }
    }

    /// Logs a line. If it repeats, it is logged again only each time its count has doubled. After
    /// ten minutes without the line, it counts as new.
    pub fn say(&self, what: impl fmt::Display) {
        self.say_at(Instant::now(), what);
    }

    fn say_at(&self, now: Instant, what: impl fmt::Display) {
        let what = what.to_string();
        let count = self.count(now, &what);
        let who = &self.who;
        match count {
            1 => (self.line)(&format!("{who}: {what}")),
            many if many.is_power_of_two() => {
                (self.line)(&format!("{who}: {what} ({many} times)"));
            }
            _ => {}
        }
    }

    /// How often a line has come, including this time.
    fn count(&self, now: Instant, what: &str) -> u64 {
        // Every critical section leaves the entries consistent, even after a panic.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= LINES_MAX && !lines.contains_key(what) {
            let oldest = lines.iter().min_by_key(|(_, line)| line.last);
            if let Some(oldest) = oldest.map(|(line, _)| line.clone()) {
                lines.remove(&oldest);
            }
        }
        let new = Repeats {
            count: 0,
            last: now,
        };
        let line = lines.entry(what.to_owned()).or_insert(new);
        if now.saturating_duration_since(line.last) >= QUIET {
            line.count = 0;
        }
        line.count += 1;
        line.last = now;
        line.count
    }

    /// Logs how many messages were discarded for each reason, from counts that only grow. A reason
    /// is logged at its first count, and then each time its count has doubled.
    pub fn counts(&mut self, discarded: &BTreeMap<&'static str, u64>) {
        for (reason, count) in discarded {
            let logged = self.logged.get(reason).copied().unwrap_or_default();
            if *count >= (logged * 2).max(1) {
                self.logged.insert(reason, *count);
                self.say(format_args!("discarded, {count} so far: {reason}"));
            }
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("who", &self.who).finish()
    }
}

/// Largest number of different lines whose repetitions are counted.
const LINES_MAX: usize = 256;
/// Time after which a line counts as new; longer than the time between retries.
const QUIET: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_comes_without_end_is_counted() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let line = move |text: &str| to.lock().unwrap().push(text.to_owned());
        let log = Log::new("agent h1", Arc::new(line));
        for _ in 0..616 {
            log.clone().say("part x is refused");
            log.say("pip uk is not reached");
        }
        log.say("pip uk is reached");
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 21, "{lines:?}");
        assert_eq!(lines[0], "agent h1: part x is refused");
        assert_eq!(lines[18], "agent h1: part x is refused (512 times)");
        assert_eq!(lines[20], "agent h1: pip uk is reached");
    }

    #[test]
    fn line_that_comes_back_after_a_while_is_new() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let line = move |text: &str| to.lock().unwrap().push(text.to_owned());
        let log = Log::new("agent h1", Arc::new(line));
        let began = Instant::now();
        for minutes in [0, 9, 18, 29] {
            log.say_at(began + minutes * Duration::from_secs(60), "no room");
        }
        for number in 0..2 * LINES_MAX {
            log.say_at(began, format_args!("line {number}"));
        }
        assert_eq!(log.lines.lock().unwrap().len(), LINES_MAX);
        let lines = lines.lock().unwrap();
        let expected = ["no room", "no room (2 times)", "no room", "line 0"];
        let expected = expected.map(|expected| format!("agent h1: {expected}"));
        assert_eq!(lines[..4], expected, "{lines:?}");
    }

    #[test]
    fn discards_are_said_at_first_and_when_they_double() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let line = move |text: &str| to.lock().unwrap().push(text.to_owned());
        let mut log = Log::new("pip uk", Arc::new(line));
        for count in 1..=9 {
            log.counts(&BTreeMap::from([("late", count)]));
        }
        let lines = lines.lock().unwrap();
        let counts: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(counts.len(), 4, "{counts:?}");
        assert_eq!(counts[3], "pip uk: discarded, 8 so far: late");
    }
}
