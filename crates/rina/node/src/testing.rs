//! For tests: a directory that goes away.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use carina_api::paths::RunDir;

/// A directory of its own for one test, removed on drop.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory; `name` only serves people.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cn-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A run directory in it.
    pub fn run_dir(&self) -> RunDir {
        RunDir::new(self.0.join("run"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
