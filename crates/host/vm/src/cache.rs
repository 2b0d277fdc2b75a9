//! The cache: a directory with downloaded kernels, built images and probe results.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Context, Error, Result};
use crate::hash::{Hash, hash_of_file};

/// A cache directory. It may be deleted at any time while it is not in use.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens the cache at `root`, and creates the directory if it is missing.
    ///
    /// # Errors
    ///
    /// The directory cannot be created.
    pub fn new(root: impl Into<PathBuf>) -> Result<Cache> {
        let root = root.into();
        fs::create_dir_all(&root).context("create", &root)?;
        Ok(Cache { root })
    }

    /// Opens the cache at `$CARINA_CACHE`, otherwise `$XDG_CACHE_HOME/carina`, otherwise
    /// `~/.cache/carina`.
    ///
    /// # Errors
    ///
    /// None of `CARINA_CACHE`, `XDG_CACHE_HOME` and `HOME` is set, or the directory cannot be
    /// created.
    pub fn default_location() -> Result<Cache> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = from("CARINA_CACHE")
            .map(PathBuf::from)
            .or_else(|| from("XDG_CACHE_HOME").map(|home| Path::new(&home).join("carina")))
            .or_else(|| from("HOME").map(|home| Path::new(&home).join(".cache/carina")))
            .ok_or_else(|| Error::Invalid {
                what: "cache directory".into(),
                reason: "none of CARINA_CACHE, XDG_CACHE_HOME and HOME is set".into(),
            })?;
        Cache::new(root)
    }

    /// The path of an entry, whether or not it exists.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The hash of a file's contents. The cache keeps it as long as the file's metadata is
    /// unchanged.
    pub(crate) fn hash_of(&self, path: &Path) -> Result<String> {
        let metadata = path.metadata().context("look at", path)?;
        let mut looks = Hash::new();
        looks.field(path.as_os_str().as_encoded_bytes());
        for number in [
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime().cast_unsigned(),
            metadata.mtime_nsec().cast_unsigned(),
        ] {
            looks.field(&number.to_le_bytes());
        }
        let remembered = self.path("contents").join(looks.to_string());
        if let Ok(hash) = fs::read_to_string(&remembered)
            && hash.len() == HASH_DIGITS
        {
            return Ok(hash);
        }
        let hash = hash_of_file(path)?;
        write_whole(&remembered, hash.as_bytes())?;
        Ok(hash)
    }

    /// Locks the cache, so that no other process or thread fills it until the guard is dropped.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.path("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .context("open", &path)?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(std::io::Error::from)
            .context("lock", &path)?;
        Ok(file)
    }
}

const HASH_DIGITS: usize = 32;
static PARTS: AtomicU64 = AtomicU64::new(0);

/// Writes a file atomically: a reader sees either no file or the complete file.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).context("create", parent)?;
    }
    // Each writer needs a temporary file of its own, also among threads.
    let number = PARTS.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.{number}.part", std::process::id()));
    let part = path.with_file_name(name);
    fs::write(&part, bytes).context("write", &part)?;
    fs::rename(&part, path).context("rename to", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_write_one_file_at_once_all_succeed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contents/file");
        std::thread::scope(|scope| {
            for letter in b'a'..=b'h' {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_whole(path, &[letter; 64]).unwrap();
                    }
                });
            }
        });
        let left = fs::read(&path).unwrap();
        assert!(left.len() == 64 && left.iter().all(|byte| *byte == left[0]));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
