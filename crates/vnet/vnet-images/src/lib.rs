//! Images that users add for their machines: files stored by the hash of their content, under
//! names.
//!
//! ```text
//!   STORE/blobs/SHA256               a disk, kernel or initramfs; never changed
//!   STORE/names/NAME.json            the image of a name
//!   STORE/nodes/UID/NODE.HASH.qcow2  what a node has written, over the disk with that hash
//!   STORE/nodes/UID/NODE.iso         the volume for cloud-init in the node
//!   STORE/nodes/UID/NODE.instance    UID of the network where a moved node began
//!   STORE/lock                       locked while images are added or removed
//! ```
//!
//! `STORE` is `$CARINA_IMAGES`, or `/var/lib/carina/images` by default. It is not in the run
//! directory, because that is in memory, which is too small for disks.

#![forbid(unsafe_code)]

mod absent;
mod adding;
mod error;
mod leftovers;
mod moving_disk;
mod node_disk;
mod seed;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use carina_vnet::document::is_name;
use carina_vnet::host_part::VnetId;
use serde::{Deserialize, Serialize};

pub use self::absent::absent_is_done;
pub use self::adding::NewImage;
pub use self::error::ImageError;
use self::error::{Attempt, Result};
pub use self::moving_disk::MovingDisk;
pub use self::node_disk::NodeDisk;

/// The name of Carina's own guest, which is not in the store.
pub const OWN: &str = carina_vnet::document::OWN_IMAGE;

/// The directory in which a host keeps the images of machines and the disks of nodes.
#[derive(Clone, Debug)]
pub struct ImageStore(PathBuf);

/// The description of an image in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredImage {
    /// Name of the image in the store.
    pub name: String,
    /// SHA-256 of the disk file.
    pub disk: String,
    /// Format of the disk file: `qcow2` or `raw`.
    pub format: String,
    /// Size of the disk file, bytes.
    pub bytes: u64,
    /// Size of the disk as a machine sees it, bytes.
    pub virtual_bytes: u64,
    /// The kernel to boot instead of the one on the disk, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<StoredKernel>,
    /// `user-data` for cloud-init, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// When the image was added, in seconds since 1970.
    pub added_s: u64,
}

/// A kernel that belongs to an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredKernel {
    /// SHA-256 of the kernel file.
    pub image: String,
    /// SHA-256 of the initramfs file, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initramfs: Option<String>,
    /// The kernel's command line.
    #[serde(default)]
    pub command_line: String,
}

impl StoredImage {
    /// The hashes of the files that the image consists of.
    fn blobs(&self) -> BTreeSet<&str> {
        let kernel = self.kernel.as_ref();
        let initramfs = kernel.and_then(|kernel| kernel.initramfs.as_deref());
        let kernel = kernel.map(|kernel| kernel.image.as_str());
        [Some(self.disk.as_str()), kernel, initramfs]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl ImageStore {
    /// The image store of this host.
    #[must_use]
    pub fn of_this_host() -> ImageStore {
        let named = std::env::var_os("CARINA_IMAGES").filter(|path| !path.is_empty());
        ImageStore(named.map_or_else(|| PathBuf::from(DEFAULT), PathBuf::from))
    }

    /// The image store at a path.
    #[must_use]
    pub fn at(path: &Path) -> ImageStore {
        ImageStore(path.to_owned())
    }

    fn names(&self) -> PathBuf {
        self.0.join("names")
    }

    fn entry(&self, name: &str) -> PathBuf {
        self.names().join(format!("{name}.json"))
    }

    fn blob(&self, hash: &str) -> PathBuf {
        self.0.join("blobs").join(hash)
    }

    fn nodes(&self) -> PathBuf {
        self.0.join("nodes")
    }

    fn of_network(&self, vnet: VnetId) -> PathBuf {
        self.nodes().join(vnet.to_string())
    }

    /// All images, sorted by name. Entries that cannot be read are left out.
    ///
    /// # Errors
    /// The store exists but cannot be read.
    pub fn list(&self) -> Result<Vec<StoredImage>> {
        let names = entries(&self.names())?;
        let names = names.iter().filter_map(|name| name.strip_suffix(".json"));
        let mut images: Vec<StoredImage> = names.filter_map(|name| self.find(name).ok()).collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// The description of the image with this name.
    ///
    /// # Errors
    /// There is no such image; the error lists those that exist.
    pub fn find(&self, name: &str) -> Result<StoredImage> {
        let missing = || {
            let known = entries(&self.names()).unwrap_or_default();
            let known = known.iter().filter_map(|name| name.strip_suffix(".json"));
            let known: Vec<&str> = [OWN].into_iter().chain(known).collect();
            ImageError::Unknown {
                name: name.to_owned(),
                known: known.join(", "),
            }
        };
        if !is_name(name) {
            return Err(missing());
        }
        let path = self.entry(name);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
            text => text.attempt(format!("reading {}", path.display()))?,
        };
        serde_json::from_slice(&text).attempt(format!("reading {}", path.display()))
    }

    /// Removes an image, and the files that no other image uses.
    ///
    /// # Errors
    /// There is no such image, a node's disk is based on the image's disk, or something cannot be
    /// removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        // A missing image is reported without taking the lock.
        self.find(name)?;
        let _lock = self.lock()?;
        let image = self.find(name)?;
        if let Some(user) = self.user_of(&image.disk)? {
            return Err(ImageError::InUse {
                name: name.to_owned(),
                user,
            });
        }
        let entry = self.entry(name);
        fs::remove_file(&entry).attempt(format!("removing {}", entry.display()))?;
        self.remove_unnamed()
    }

    /// A node whose disk is based on the disk with this hash, as `UID/NODE`; `None` if there is
    /// none.
    fn user_of(&self, disk: &str) -> Result<Option<String>> {
        let end = format!(".{}.qcow2", short(disk));
        for vnet in entries(&self.nodes())? {
            let files = entries(&self.nodes().join(&vnet))?;
            let found = files.iter().find_map(|file| file.strip_suffix(&end));
            if let Some(node) = found {
                return Ok(Some(format!("{vnet}/{node}")));
            }
        }
        Ok(None)
    }

    /// Removes the disks of all nodes of a network.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove_network(&self, vnet: VnetId) -> Result<()> {
        let directory = self.of_network(vnet);
        let removed = absent_is_done(fs::remove_dir_all(&directory));
        removed.attempt(format!("removing {}", directory.display()))
    }
}

/// The beginning of a hash, as file names contain it.
fn short(hash: &str) -> &str {
    hash.get(..SHORT).unwrap_or(hash)
}

/// The names of a directory's entries; empty if the directory does not exist.
fn entries(directory: &Path) -> Result<Vec<String>> {
    let what = || format!("reading {}", directory.display());
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.attempt(what())?,
    };
    let names = found.map(|entry| Ok(entry.attempt(what())?.file_name()));
    let names: Vec<std::ffi::OsString> = names.collect::<Result<_>>()?;
    Ok(names
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .collect())
}

const DEFAULT: &str = "/var/lib/carina/images";
const SHORT: usize = 16;
