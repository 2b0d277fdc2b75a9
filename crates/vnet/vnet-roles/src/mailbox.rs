//! Mailboxes: messages that wait for their receivers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::identity::Identity;

/// The JSON messages for one receiver. If there are too many, the oldest are discarded: roles
/// repeat every message until it is answered.
#[derive(Debug, Default)]
pub struct Mailbox {
    queue: Mutex<Queue>,
    filled: Condvar,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<String>,
    bytes: usize,
    discarded: u64,
    /// Number of calls of [`Mailbox::hear`]. Only the latest call gets messages, because the
    /// earlier callers may be gone.
    hearings: u64,
}

/// The mailboxes of all receivers of a role.
#[derive(Debug, Default)]
pub struct Mailboxes(Mutex<BTreeMap<Identity, Arc<Mailbox>>>);

impl Mailboxes {
    /// The mailbox of a receiver; it is created if needed.
    pub fn of(&self, receiver: &Identity) -> Arc<Mailbox> {
        // Every critical section leaves the map consistent, even after a panic.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(receiver.clone()).or_default())
    }

    /// Number of messages that were discarded because their receivers did not fetch them.
    pub fn discarded(&self) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().map(|mailbox| mailbox.lock().discarded).sum()
    }
}

impl Mailbox {
    /// Adds a message behind the waiting ones, and wakes the receiver. If there are too many,
    /// discards the oldest.
    pub fn put(&self, message: String) {
        let mut queue = self.lock();
        queue.bytes += message.len();
        queue.messages.push_back(message);
        while queue.messages.len() > MESSAGES_MAX || queue.bytes > BYTES_MAX {
            let Some(oldest) = queue.messages.pop_front() else {
                break;
            };
            queue.bytes -= oldest.len();
            queue.discarded += 1;
        }
        drop(queue);
        self.filled.notify_one();
        self.notify.notify_waiters();
    }

    /// Replaces all waiting messages by this one, which makes them obsolete.
    pub fn replace(&self, message: String) {
        {
            let mut queue = self.lock();
            queue.messages.clear();
            queue.bytes = 0;
        }
        self.put(message);
    }

    /// Puts messages that could not be sent back to the front of the queue.
    pub fn put_back(&self, messages: Vec<String>) {
        let mut queue = self.lock();
        for message in messages.into_iter().rev() {
            queue.bytes += message.len();
            queue.messages.push_front(message);
        }
    }

    /// Removes and returns the oldest messages, as many as fit into one request. Without a message,
    /// blocks until one arrives, at most for `wait`.
    pub fn take_within(&self, wait: Duration) -> Vec<String> {
        let deadline = Instant::now() + wait;
        let mut queue = self.lock();
        while queue.messages.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.filled.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.batch()
    }

    /// Like [`Mailbox::take_within`], for an asynchronous task. A second call while one waits makes
    /// the earlier call return at once without messages.
    pub async fn hear(&self, wait: Duration) -> Vec<String> {
        let hearing = {
            let mut queue = self.lock();
            queue.hearings += 1;
            queue.hearings
        };
        self.notify.notify_waiters();
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let notified = self.notify.notified();
            {
                let mut queue = self.lock();
                if queue.hearings != hearing {
                    return Vec::new();
                }
                if !queue.messages.is_empty() {
                    return queue.batch();
                }
            }
            if tokio::time::timeout_at(deadline, notified).await.is_err() {
                return Vec::new();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Every critical section leaves the queue consistent, even after a panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn batch(&mut self) -> Vec<String> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.messages.front() {
            bytes += next.len();
            if !batch.is_empty() && bytes > BATCH_BYTES {
                break;
            }
            self.bytes -= next.len();
            batch.extend(self.messages.pop_front());
        }
        batch
    }
}

/// Joins JSON messages to a JSON list.
pub fn list_of(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

/// Largest number of messages that wait for one receiver.
pub(crate) const MESSAGES_MAX: usize = 4096;
/// Largest number of bytes of messages that wait for one receiver.
const BYTES_MAX: usize = 32 << 20;
/// Largest number of bytes of messages that are sent together; a longer message is sent alone.
const BATCH_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(mailbox: &Mailbox) -> Vec<String> {
        mailbox.take_within(Duration::ZERO)
    }

    #[test]
    fn messages_come_in_order_and_may_be_put_back() {
        let mailbox = Mailbox::default();
        mailbox.put("1".to_owned());
        mailbox.put("2".to_owned());
        let taken = texts(&mailbox);
        assert_eq!(taken, ["1", "2"]);
        mailbox.put("3".to_owned());
        mailbox.put_back(taken);
        let taken = texts(&mailbox);
        assert_eq!(list_of(&taken), "[1,2,3]");
        assert!(texts(&mailbox).is_empty());
    }

    #[test]
    fn oldest_messages_go_when_none_are_fetched() {
        let mailboxes = Mailboxes::default();
        let party = Identity::new(crate::identity::Role::Vnp, "a").unwrap();
        let mailbox = mailboxes.of(&party);
        (0..MESSAGES_MAX + 3).for_each(|number| mailbox.put(number.to_string()));
        assert_eq!(mailboxes.discarded(), 3);
        assert_eq!(texts(&mailbox)[0], "3");
        // The limit on bytes applies, too.
        let large = || "x".repeat(BYTES_MAX / 2);
        (0..3).for_each(|_| mailbox.put(large()));
        assert_eq!(mailboxes.discarded(), 4);
        assert_eq!(texts(&mailbox).len(), 1, "what is large goes alone");
    }

    #[test]
    fn only_the_last_who_asks_gets_messages() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(async {
            let mailbox = Arc::new(Mailbox::default());
            let hear = || {
                let mailbox = Arc::clone(&mailbox);
                async move { mailbox.hear(Duration::from_secs(60)).await }
            };
            let first = tokio::spawn(hear());
            tokio::task::yield_now().await;
            let second = tokio::spawn(hear());
            assert!(first.await.unwrap().is_empty());
            mailbox.put("1".to_owned());
            assert_eq!(second.await.unwrap(), ["1"]);
        });
    }
}
