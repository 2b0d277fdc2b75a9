//! The hash of a run: two runs of a seed are the same run if their hashes are equal.

use std::fmt;

/// Hashes every event of a run. With a sink, also writes the events to it as text.
#[derive(Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    sink: Option<Sink>,
}

/// Receives every event as a line of text.
pub type Sink = Box<dyn FnMut(&str)>;

impl Trace {
    /// A trace without a sink.
    #[must_use]
    pub fn new() -> Trace {
        Trace::default()
    }

    /// Prints every event from now on to `sink`, one line each.
    pub fn show(&mut self, sink: impl FnMut(&str) + 'static) {
        self.sink = Some(Box::new(sink));
    }

    /// Adds an event to the hash: time, number of the object, kind and bytes. `words` are formatted
    /// only if there is a sink.
    pub fn note(&mut self, now: u64, who: u64, what: &str, bytes: &[u8], words: impl fmt::Display) {
        self.fold(now);
        self.fold(who);
        self.fold_bytes(what.as_bytes());
        self.fold_bytes(bytes);
        self.events += 1;
        if let Some(sink) = &mut self.sink {
            sink(&format!("{:>14.6} {what} {words}", now as f64 / 1e9));
        }
    }

    /// The hash of all events so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events in the hash.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    fn fold(&mut self, word: u64) {
        // One multiplication for each word, as in FNV and similar hashes. The input comes from no
        // adversary.
        self.hash = (self.hash.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        self.hash ^= self.hash >> 29;
    }

    fn fold_bytes(&mut self, bytes: &[u8]) {
        self.fold(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({:016x}, {} events)", self.hash, self.events)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn every_part_of_an_event_counts() {
        let hash = |now, who, what: &str, bytes: &[u8]| {
            let mut trace = Trace::new();
            trace.note(now, who, what, bytes, "");
            trace.hash()
        };
        let all = [
            hash(1, 2, "pdu", b"abc"),
            hash(2, 2, "pdu", b"abc"),
            hash(1, 3, "pdu", b"abc"),
            hash(1, 2, "sdu", b"abc"),
            hash(1, 2, "pdu", b"abd"),
            hash(1, 2, "pdu", b"abc\0"),
        ];
        let mut unique = all.to_vec();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), all.len());
    }

    #[test]
    fn looking_changes_nothing() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let (mut seen, mut unseen) = (Trace::new(), Trace::new());
        let copy = Rc::clone(&lines);
        seen.show(move |line| copy.borrow_mut().push(line.to_owned()));
        for trace in [&mut seen, &mut unseen] {
            trace.note(1_500_000_000, 4, "crash", &[], "system s4");
        }
        assert_eq!(seen.hash(), unseen.hash());
        assert_eq!(lines.borrow()[..], ["      1.500000 crash system s4"]);
    }
}
