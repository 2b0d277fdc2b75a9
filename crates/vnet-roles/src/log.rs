//! What a role says to who runs it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Takes lines: what a role discards, and when it reaches or loses another.
#[derive(Clone)]
pub struct Log {
    who: String,
    line: Arc<dyn Fn(&str) + Send + Sync>,
    /// How much of each was discarded when it was said last.
    said: BTreeMap<&'static str, u64>,
}

impl Log {
    /// A log of a party, whose lines go there.
    pub fn new(who: impl fmt::Display, line: Arc<dyn Fn(&str) + Send + Sync>) -> Log {
        Log {
            who: who.to_string(),
            line,
            said: BTreeMap::new(),
        }
    }

    /// Says something.
    pub fn say(&self, what: impl fmt::Display) {
        (self.line)(&format!("{}: {what}", self.who));
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
