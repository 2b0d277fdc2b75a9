//! What a role says to who runs it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes lines: what a role discards, and when it reaches or loses another.
#[derive(Clone)]
pub struct Log {
    who: String,
    line: Arc<dyn Fn(&str) + Send + Sync>,
    /// How much of each was discarded when it was said last.
    said: BTreeMap<&'static str, u64>,
    /// The last line, and how often it has come in a row.
    last: Arc<Mutex<(String, u64)>>,
}

impl Log {
    /// A log of a party, whose lines go there.
    pub fn new(who: impl fmt::Display, line: Arc<dyn Fn(&str) + Send + Sync>) -> Log {
        Log {
            who: who.to_string(),
            line,
            said: BTreeMap::new(),
            last: Arc::default(),
        }
    }

    /// Says something. What is said again and again is counted: it is said the first time, and then
    /// each time that its count has doubled.
    pub fn say(&self, what: impl fmt::Display) {
        let what = what.to_string();
        let count = {
            // The two are changed together.
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match last.0 == what {
                true => last.1 += 1,
                false => *last = (what.clone(), 1),
            }
            last.1
        };
        let who = &self.who;
        match count {
            1 => (self.line)(&format!("{who}: {what}")),
            count if count.is_power_of_two() => {
                (self.line)(&format!("{who}: {what} ({count} times in a row)"));
            }
            _ => {}
        }
    }

    /// Says what was discarded: the first time, and then each time that it has doubled.
    pub fn counts(&mut self, discarded: &BTreeMap<&'static str, u64>) {
        for (reason, count) in discarded {
            let said = self.said.get(reason).copied().unwrap_or_default();
            if *count >= (said * 2).max(1) {
                self.said.insert(reason, *count);
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn equal_lines_are_counted_and_not_repeated() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let line = move |text: &str| to.lock().unwrap().push(text.to_owned());
        let log = Log::new("agent h1", Arc::new(line));
        for _ in 0..616 {
            log.clone().say("part x is refused");
        }
        log.say("pip uk is reached");
        log.say("part x is refused");
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 12, "{lines:?}");
        assert_eq!(lines[0], "agent h1: part x is refused");
        assert_eq!(lines[9], "agent h1: part x is refused (512 times in a row)");
        assert_eq!(lines[11], "agent h1: part x is refused");
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
