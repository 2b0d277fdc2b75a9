//! Mailboxes between the threads of the manager and of the data plane.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use carina_sys::EventFd;

/// A queue with a doorbell, for many writers and one reader. It is for rare messages, not for SDUs.
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    doorbell: EventFd,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Mailbox<T> {
        Mailbox {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Mailbox<T> {
    /// Makes an empty mailbox.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn new() -> io::Result<Mailbox<T>> {
        let shared = Shared {
            queue: Mutex::new(VecDeque::new()),
            doorbell: EventFd::new()?,
        };
        Ok(Mailbox {
            shared: Arc::new(shared),
        })
    }

    /// Adds `item` to the queue, and rings the doorbell unless it already rings. Does not block.
    pub fn put(&self, item: T) {
        // A poisoned lock is safe: a panic elsewhere cannot leave a VecDeque half changed.
        let mut queue = self
            .shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        queue.push_back(item);
        if queue.len() == 1 {
            self.shared.doorbell.signal();
        }
    }

    /// Rings the doorbell without adding an item, to wake the reader.
    pub fn ring(&self) {
        self.shared.doorbell.signal();
    }

    /// Returns the number of items that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes and returns the oldest item; `None` if none waits. Does not block.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        let mut queue = self
            .shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if queue.is_empty() {
            self.shared.doorbell.drain();
        }
        queue.pop_front()
    }
}

impl<T> AsFd for Mailbox<T> {
    /// The descriptor is readable while there may be items: call [`Mailbox::take`] until it returns
    /// `None`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.doorbell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbell_is_silent_only_after_the_mailbox_was_empty() {
        let mail = Mailbox::new().unwrap();
        let ringing = |mail: &Mailbox<u32>| mail.shared.doorbell.wait(Some(0)).unwrap();
        mail.put(1);
        mail.put(2);
        assert!(ringing(&mail));
        assert_eq!(mail.take(), Some(1));
        assert!(ringing(&mail));
        assert_eq!(mail.take(), Some(2));
        mail.put(3);
        assert_eq!(mail.take(), Some(3));
        assert_eq!(mail.take(), None);
        assert!(!ringing(&mail));
    }
}
