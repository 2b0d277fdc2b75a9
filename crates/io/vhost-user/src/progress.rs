//! The progress of a device's packed rings, in a file beside the socket, for the successor of a
//! back end that died. See [`PackedProgress`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use carina_sys::{Mapping, Memory, PAGE_BYTES};
use carina_vring::PackedProgress;

/// The file of the progress. It is created when the first packed ring starts.
#[derive(Debug)]
pub(crate) struct Progress {
    path: PathBuf,
    rings: usize,
    mapping: OnceLock<Option<Arc<Mapping>>>,
}

impl Progress {
    pub(crate) fn new(socket: &Path, rings: usize) -> Progress {
        let mut path = socket.as_os_str().to_owned();
        path.push(SUFFIX);
        Progress {
            path: path.into(),
            rings,
            mapping: OnceLock::new(),
        }
    }

    /// Progress in anonymous memory, for rings of a fuzz target.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn in_memory(rings: usize) -> io::Result<Progress> {
        let bytes = (rings * PackedProgress::BYTES).next_multiple_of(PAGE_BYTES);
        let mapping = Memory::anonymous("packed-rings", bytes)?.map()?;
        Ok(Progress {
            path: PathBuf::new(),
            rings,
            mapping: OnceLock::from(Some(Arc::new(mapping))),
        })
    }

    /// The memory for the progress of one ring; `None` if there is no file.
    pub(crate) fn of_ring(&self, index: usize) -> Option<PackedProgress> {
        let mapping = self.mapping.get_or_init(|| match self.map() {
            Ok(mapping) => Some(Arc::new(mapping)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "packed rings do not survive a restart of this process: after one, the \
                     guest must set its interface down and up again"
                );
                None
            }
        });
        let mapping = mapping.as_ref().filter(|_| index < self.rings)?;
        PackedProgress::new(Arc::clone(mapping), index * PackedProgress::BYTES)
    }

    fn map(&self) -> io::Result<Mapping> {
        let bytes = (self.rings * PackedProgress::BYTES).next_multiple_of(PAGE_BYTES);
        match Memory::file(&self.path, bytes) {
            // The file is of a device with another number of rings.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                fs::remove_file(&self.path)?;
                Memory::file(&self.path, bytes)?.map()
            }
            made => made?.map(),
        }
    }

    /// Marks the progress of a ring as invalid, because the front end has stopped the ring and
    /// knows its position.
    pub(crate) fn forget(&self, index: usize) {
        // A ring that never ran has no progress, and no file is created for it.
        if self.mapping.get().is_some()
            && let Some(ring) = self.of_ring(index)
        {
            ring.forget();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let has_file = self.mapping.get().is_some_and(Option::is_some);
        let runs = |index| self.of_ring(index).is_some_and(|ring| ring.is_running());
        if has_file && !(0..self.rings).any(runs) {
            // No ring is running, so no successor needs the file. A file that stays does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Suffix of the file's name behind the name of the socket.
const SUFFIX: &str = ".rings";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_made_at_need_and_goes_with_its_rings() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("card.rings");
        let new = |rings| Progress::new(&directory.path().join("card"), rings);
        let progress = new(2);
        progress.forget(0);
        assert!(!file.exists());
        assert!(progress.of_ring(1).is_some() && progress.of_ring(2).is_none());
        assert_eq!(fs::metadata(&file).unwrap().len(), 4096);
        drop(progress);
        assert!(!file.exists());
        // A file with other contents is replaced.
        fs::write(&file, "x").unwrap();
        assert!(new(1).of_ring(0).is_some());
        // If no file can be created, the rings run without one.
        let nowhere = Progress::new(Path::new("/nonexistent/card"), 2);
        assert!(nowhere.of_ring(0).is_none());
    }
}
