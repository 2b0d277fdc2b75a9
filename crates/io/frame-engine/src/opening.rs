//! Opening of what apps need before they are built, on threads of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use carina_frame::Pool;

use crate::app::{AnyConfig, AppContext, Opened};
use crate::counter_file::CounterFile;
use crate::notices::Notices;

/// The apps that have something to open, and what their context provides.
pub(super) struct Opening {
    pub(super) apps: Vec<(String, Arc<dyn AnyConfig>)>,
    pub(super) pool: Pool,
    pub(super) counters: CounterFile,
    pub(super) notices: Notices,
}

impl Opening {
    /// Opens for all apps at the same time, each on a thread. Returns when all are done.
    pub(super) fn open(&self) -> BTreeMap<String, Opened> {
        std::thread::scope(|scope| {
            let threads = self.apps.iter().map(|(name, config)| {
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                let open = || self.open_one(name, &**config);
                (name, thread.spawn_scoped(scope, open))
            });
            let threads: Vec<_> = threads.collect();
            let done = threads.into_iter().filter_map(|(name, thread)| {
                // An app for which no thread could be started, or whose thread panicked, opens when
                // it is built.
                let opened = thread.ok()?.join().ok()??;
                Some((name.clone(), opened))
            });
            done.collect()
        })
    }

    fn open_one(&self, name: &str, config: &dyn AnyConfig) -> Option<Opened> {
        config.open_any(&mut AppContext {
            name,
            pool: &self.pool,
            counters: &self.counters,
            notices: &self.notices,
            running: None,
            opened: None,
        })
    }
}

/// Stack size of a thread that opens, equal to that of a worker, on which apps are otherwise built.
const STACK_BYTES: usize = 2 << 20;
