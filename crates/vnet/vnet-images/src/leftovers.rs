//! Removes files that belong to no image: of commands that were killed, and of refused images.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use carina_sys::lock_file;

use crate::error::{Attempt, ImageError, Result};
use crate::{ImageStore, StoredImage, absent_is_done, entries};

fn remove_file(path: &Path) -> Result<()> {
    let removed = absent_is_done(fs::remove_file(path));
    removed.attempt(format!("removing {}", path.display()))
}

impl ImageStore {
    /// Locks the store against other commands that change images. The lock lasts until the returned
    /// file is closed.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.0.join("lock");
        let what = || format!("opening {}", path.display());
        fs::create_dir_all(&self.0).attempt(what())?;
        let file = File::create(&path).attempt(what())?;
        if lock_file(&file, LIMIT).attempt(what())? {
            Ok(file)
        } else {
            let store = self.0.clone();
            Err(ImageError::Locked {
                store,
                limit: LIMIT,
            })
        }
    }

    /// Removes files that belong to no image. The caller holds the lock. If an entry cannot be
    /// read, no file is removed, because it may name any of them.
    pub(crate) fn remove_unnamed(&self) -> Result<()> {
        let mut images: Vec<StoredImage> = Vec::new();
        for file in entries(&self.names())? {
            match file.strip_suffix(".json").map(|name| self.find(name)) {
                Some(Ok(image)) => images.push(image),
                Some(Err(_)) => return Ok(()),
                // An entry that was not written completely.
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

/// How long to wait for another command that changes images.
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
