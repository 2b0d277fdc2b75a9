//! Contents that no image has: of commands that were killed, and of images that were refused.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::time::Duration;

use carina_sys::lock_file;

use super::{ImageStore, StoredImage, entries};
use crate::error::{Attempt, Error, Result};
use crate::removal::remove_file;

impl ImageStore {
    /// Waits until no other command changes images, and keeps others waiting as long as the file
    /// that is returned is open.
    pub(super) fn lock(&self) -> Result<File> {
        let path = self.0.join("lock");
        let what = || format!("opening {}", path.display());
        fs::create_dir_all(&self.0).attempt(what())?;
        let file = File::create(&path).attempt(what())?;
        if lock_file(&file, LIMIT).attempt(what())? {
            Ok(file)
        } else {
            let what = format!("another command changes {}", self.0.display());
            Err(Error::Timeout { what, limit: LIMIT })
        }
    }

    /// Removes contents that no image has; the lock is held. An entry that cannot be read may have
    /// any of them.
    pub(super) fn remove_unnamed(&self) -> Result<()> {
        let mut images: Vec<StoredImage> = Vec::new();
        for file in entries(&self.names())? {
            match file.strip_suffix(".json").map(|name| self.find(name)) {
                Some(Ok(image)) => images.push(image),
                Some(Err(_)) => return Ok(()),
                // Of an entry that was being written.
                None => remove_file(&self.names().join(file))?,
            }
        }
        let kept: BTreeSet<&str> = images.iter().flat_map(StoredImage::blobs).collect();
        for hash in entries(&self.0.join("blobs"))? {
            if !kept.contains(hash.as_str()) && self.user_of(&hash)?.is_none() {
                remove_file(&self.blob(&hash))?;
            }
        }
        Ok(())
    }
}

/// How long an image may be copied by another command.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, disk: &str) -> String {
        format!(
            "{{\"name\": \"{name}\", \"disk\": \"{disk}\", \"format\": \"raw\", \"bytes\": 1, \
             \"virtual_bytes\": 1, \"added_s\": 0}}"
        )
    }

    #[test]
    fn contents_without_a_name_go_unless_a_name_cannot_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = ImageStore::at(directory.path());
        for place in ["blobs", "names"] {
            fs::create_dir(directory.path().join(place)).unwrap();
        }
        let put = || {
            for blob in ["kept", "lost", "77.part"] {
                fs::write(store.blob(blob), "x").unwrap();
            }
        };
        let blobs = || {
            let mut all = entries(&directory.path().join("blobs")).unwrap();
            all.sort();
            all
        };
        fs::write(store.entry("one"), image("one", "kept")).unwrap();
        fs::write(store.entry("one").with_extension("part"), "{").unwrap();
        put();
        let held = store.lock().unwrap();
        store.remove_unnamed().unwrap();
        drop(held);
        assert_eq!(blobs(), ["kept"]);
        assert_eq!(entries(&store.names()).unwrap(), ["one.json"]);
        put();
        fs::write(store.entry("two"), "{").unwrap();
        store.remove_unnamed().unwrap();
        assert_eq!(blobs(), ["77.part", "kept", "lost"]);
    }
}
