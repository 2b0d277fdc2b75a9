//! What apps have to say to the operator: that one has stopped, and why.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Notices of the apps of a graph, from all of its workers. Clones are the same list.
///
/// A notice costs a lock, so it is for what happens now and then, never for packets. The list has
/// [`NOTICES_MAX`] places; what comes while they are taken is only counted.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<Notice>,
    missed: u64,
}

/// What an app has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The app's name in the graph.
    pub app: String,
    /// One line.
    pub text: String,
    /// The app has stopped, and drops what comes until it is replaced.
    pub has_stopped: bool,
}

impl Notices {
    /// Adds a notice. One that says that an app has stopped takes the place of the oldest, if all
    /// places are taken.
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

    /// Takes the notices that wait, the oldest first, and how many there was no place for since
    /// this was last called.
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

/// Notices that wait at most.
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
