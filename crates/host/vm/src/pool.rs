//! Pools of paused clones that are ready for use.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::running::Running;
use crate::template::Templates;

/// A pool of paused clones of machines of one kind. The pool replaces each clone that is taken, but
/// only once none was taken for a second, so that the processors first serve the machines that were
/// taken. A paused clone uses memory for the pages that it has written, and no processor time.
#[derive(Debug)]
pub struct Pool {
    shelf: Arc<Shelf>,
    cache: Cache,
    templates: Templates,
    key: String,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shelf {
    stock: Mutex<Stock>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Stock {
    ready: VecDeque<Running>,
    is_closed: bool,
    failed: u64,
    /// Time at which a clone was last taken from the pool.
    taken: Option<Instant>,
}

impl Pool {
    /// Starts to keep `size` clones of machines like `kind` in `kind`'s run directory, under its
    /// name with a number. With [`Machine::dies_with_parent`] the clones that were taken also end
    /// with the pool.
    ///
    /// # Errors
    ///
    /// As for [`Templates::obtain`], which creates the template first.
    pub fn new(kind: Machine, size: usize, cache: Cache, templates: Templates) -> Result<Pool> {
        let key = templates.obtain(&cache, &kind)?.info().key.clone();
        let shelf = Arc::new(Shelf {
            stock: Mutex::default(),
            changed: Condvar::new(),
        });
        let keeper = {
            let (shelf, cache, templates) = (Arc::clone(&shelf), cache.clone(), templates.clone());
            std::thread::Builder::new()
                .name("vm-pool".into())
                .spawn(move || keep(&shelf, &kind, size, &cache, &templates))
        };
        let keeper = keeper.map_err(|error| Error::Invalid {
            what: "thread of a pool of machines".into(),
            reason: error.to_string(),
        })?;
        Ok(Pool {
            shelf,
            cache,
            templates,
            key,
            keeper: Some(keeper),
        })
    }

    /// Like [`Machine::start_clone`], but uses a clone of the pool if one is ready. The guest then
    /// only has to resume and take its identity. Its cards are connected to their back ends by a
    /// hub.
    ///
    /// # Errors
    ///
    /// As for [`Machine::start_clone`], or the machine is not of the pool's kind.
    pub fn take(&self, machine: Machine) -> Result<Running> {
        let called = Instant::now();
        if self.templates.key_of(&self.cache, &machine)? != self.key {
            return Err(Error::Invalid {
                what: format!("machine {} from a pool", machine.name()),
                reason: "must have the same memory, processors, cards and image as the machines \
                    of the pool"
                    .into(),
            });
        }
        let taken = {
            let mut stock = self.shelf.lock();
            stock.taken = Some(called);
            stock.ready.pop_front()
        };
        self.shelf.changed.notify_all();
        match taken {
            Some(running) => machine.wake(running, called),
            None => machine.start_clone(&self.cache, &self.templates),
        }
    }

    /// Number of clones of the VM that are ready in this pool now. Does not wait.
    pub fn ready(&self) -> usize {
        self.shelf.lock().ready.len()
    }

    /// Number of failed attempts to create a clone. A failed attempt is repeated after a second.
    pub fn failed(&self) -> u64 {
        self.shelf.lock().failed
    }

    /// Waits until at least `wanted` clones of the VM are ready in this pool.
    ///
    /// # Errors
    ///
    /// Fewer clones are ready after `limit`.
    pub fn wait_ready(&self, wanted: usize, limit: Duration) -> Result<()> {
        let stock = self.shelf.lock();
        let too_few = |stock: &mut Stock| stock.ready.len() < wanted;
        let waited = self.shelf.changed.wait_timeout_while(stock, limit, too_few);
        let (stock, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        if !outcome.timed_out() {
            return Ok(());
        }
        Err(Error::Invalid {
            what: "pool of machines".into(),
            reason: format!(
                "has {} of {wanted} ready after {} s, and {} attempts failed",
                stock.ready.len(),
                limit.as_secs(),
                stock.failed
            ),
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shelf.lock().is_closed = true;
        self.shelf.changed.notify_all();
        if let Some(keeper) = self.keeper.take() {
            // If the thread has panicked, there is nothing left to end.
            let _ = keeper.join();
        }
        self.shelf.lock().ready.clear();
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Stock> {
        // A panic leaves the stock consistent, so a poisoned lock is usable.
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Waits until a clone must be created. Returns false if the pool is dropped.
    fn wait_for_need(&self, size: usize) -> bool {
        let mut stock = self.lock();
        loop {
            let since = stock.taken.map(|at| at.elapsed());
            let rest = since.map_or(Duration::ZERO, |since| REST.saturating_sub(since));
            if stock.is_closed {
                return false;
            }
            let is_short = stock.ready.len() < size;
            if is_short && rest.is_zero() {
                return true;
            }
            let wait = if is_short { rest } else { FOREVER };
            let waited = self.changed.wait_timeout(stock, wait);
            stock = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Creates clones until the pool is dropped.
fn keep(shelf: &Shelf, kind: &Machine, size: usize, cache: &Cache, templates: &Templates) {
    for number in 0_u64.. {
        if !shelf.wait_for_need(size) {
            return;
        }
        match kind.stand(number, cache, templates) {
            Ok(running) => shelf.lock().ready.push_back(running),
            Err(_) => {
                let mut stock = shelf.lock();
                stock.failed += 1;
                let is_open = |stock: &mut Stock| !stock.is_closed;
                // The loop itself checks whether the second has passed or the pool was closed.
                drop(shelf.changed.wait_timeout_while(stock, AGAIN, is_open));
            }
        }
        shelf.changed.notify_all();
    }
}

const AGAIN: Duration = Duration::from_secs(1);
/// How long after a clone was taken the pool creates another one.
const REST: Duration = Duration::from_secs(1);
/// Longest wait of a pool in which nothing changes; a change ends the wait.
const FOREVER: Duration = Duration::from_secs(86_400);
