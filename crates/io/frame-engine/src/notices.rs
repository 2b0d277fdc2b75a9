//! Notices of apps to the operator, for instance that an app has stopped, and why.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The notices of a graph's apps, from all of its workers. Clones share the list.
///
/// A notice costs a lock, so it is for rare events, never for packets. The list has [`NOTICES_MAX`]
/// places; notices that find no place are only counted.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<Notice>,
    missed: u64,
}

/// A message of an app to the operator, for instance that the app has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Name in the graph of the app that gave the notice.
    pub app: String,
    /// Text of the message, in one line.
    pub text: String,
    /// Whether the app has stopped. It then drops all frames until it is replaced.
    pub has_stopped: bool,
}

impl Notices {
    /// Adds a notice. If all places are taken, a notice that an app has stopped replaces the oldest
    /// notice.
    pub fn add(&self, notice: Notice) {
        let mut list = self.list();
        if list.waiting.len() >= NOTICES_MAX {
            list.missed += 1;
            if !notice.has_stopped {
                return;
            }
            list.waiting.pop_front();
        }
        list.waiting.push_back(notice);
    }

    /// Takes the notices that wait, oldest first. Returns them with the number of notices since the
    /// last call that were lost because all places were taken.
    #[must_use]
    pub fn take(&self) -> (Vec<Notice>, u64) {
        let mut list = self.list();
        let missed = std::mem::take(&mut list.missed);
        (list.waiting.drain(..).collect(), missed)
    }

    fn list(&self) -> std::sync::MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Largest number of notices that wait for the operator.
pub const NOTICES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_of_a_stop_finds_a_place() {
        let notices = Notices::default();
        let notice = |number: usize, has_stopped| Notice {
            app: "a".to_owned(),
            text: number.to_string(),
            has_stopped,
        };
        for number in 0..NOTICES_MAX + 2 {
            notices.add(notice(number, false));
        }
        notices.clone().add(notice(999, true));
        let (taken, missed) = notices.take();
        assert_eq!((taken.len(), missed), (NOTICES_MAX, 3));
        assert_eq!(
            (&*taken[0].text, &*taken[NOTICES_MAX - 1].text),
            ("1", "999")
        );
        assert_eq!(notices.take(), (Vec::new(), 0));
    }
}
