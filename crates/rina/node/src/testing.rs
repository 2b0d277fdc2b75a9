//! For tests: a temporary directory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use carina_api::paths::RunDir;

/// A directory for one test, removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory. Its name contains `name`, to help people.
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cn-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A run directory inside it.
    pub(crate) fn run_dir(&self) -> RunDir {
        RunDir::new(self.0.join("run"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
