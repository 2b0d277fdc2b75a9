//! Works on many nodes and links at the same time, on a bounded number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Result;

/// Calls a function for each item, on several threads. Returns the first error after all calls have
/// ended.
pub(crate) fn each<T: Sync>(items: &[T], act: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let first = Mutex::new(None);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = act(item) {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(error);
            }
        }
    };
    on_threads(items.len(), work);
    let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
    first.map_or(Ok(()), Err)
}

/// Calls a function with each item, on several threads. Returns when all calls have ended.
pub(crate) fn each_owned<T: Send>(items: Vec<T>, act: impl Fn(T) + Sync) {
    let count = items.len();
    let items = Mutex::new(items);
    let next = || {
        let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
        items.pop()
    };
    on_threads(count, || {
        while let Some(item) = next() {
            act(item);
        }
    });
}

fn on_threads(items: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..items.min(THREADS) {
            scope.spawn(&work);
        }
    });
}

/// Largest number of items that are worked on at the same time.
const THREADS: usize = 16;
