//! Adds images to the store.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use carina_namespaces::run_within;
use carina_vnet::document::is_name;
use serde::Deserialize;

use crate::error::{Attempt, ImageError, Result};
use crate::{ImageStore, OWN, StoredImage, StoredKernel};

/// Files from which to make an image.
#[derive(Clone, Debug, Default)]
pub struct NewImage {
    /// Name that the new image gets in the store.
    pub name: String,
    /// Path of the disk, in qcow2 or raw format.
    pub disk: PathBuf,
    /// Path of the kernel to boot instead of the one on the disk; `None` to boot from the disk.
    pub kernel: Option<PathBuf>,
    /// Path of the initramfs for `kernel`; `None` for no initramfs.
    pub initramfs: Option<PathBuf>,
    /// Command line for `kernel`.
    pub command_line: String,
    /// Path of a file with `user-data` for cloud-init; `None` for no such file.
    pub user_data: Option<PathBuf>,
}

/// Output of `qemu-img info --output=json`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    format: String,
    virtual_size: u64,
    #[serde(default)]
    backing_filename: Option<String>,
    #[serde(default)]
    encrypted: bool,
    #[serde(default)]
    format_specific: Option<FormatSpecific>,
}

#[derive(Deserialize)]
struct FormatSpecific {
    #[serde(default)]
    data: serde_json::Value,
}

impl ImageStore {
    /// Copies the files into the store and names the image.
    ///
    /// # Errors
    /// The name is invalid or belongs to another image, a file cannot be read, or the disk refers
    /// to a backing file or data file, which could be any file of this host.
    pub fn add(&self, new: &NewImage) -> Result<StoredImage> {
        let _lock = self.lock()?;
        let added = self.add_locked(new);
        // Files already copied of an image that was then refused.
        let swept = self.remove_unnamed();
        let image = added?;
        swept?;
        Ok(image)
    }

    fn add_locked(&self, new: &NewImage) -> Result<StoredImage> {
        let refuse = |reason: String| ImageError::Refused {
            name: new.name.clone(),
            reason,
        };
        if !is_name(&new.name) || new.name == OWN {
            let words = "a name must have 1 to 32 letters, digits and '-' (not at the ends), and \
                 must not be `carina`";
            return Err(refuse(words.to_owned()));
        }
        for directory in ["blobs", "names", "nodes"] {
            let path = self.0.join(directory);
            fs::create_dir_all(&path).attempt(format!("making {}", path.display()))?;
        }
        let info = image_info(&new.disk)?;
        if let Some(reason) = info.unfit() {
            return Err(refuse(format!("{}: {reason}", new.disk.display())));
        }
        let user_data = new.user_data.as_deref().map(|path| {
            let text = fs::read_to_string(path).attempt(format!("reading {}", path.display()))?;
            if text.len() > USER_DATA_MAX {
                Err(refuse(format!(
                    "{} has {} bytes; user-data must have at most {USER_DATA_MAX}",
                    path.display(),
                    text.len()
                )))
            } else {
                Ok(text)
            }
        });
        let kernel = match &new.kernel {
            None if new.initramfs.is_some() || !new.command_line.is_empty() => {
                return Err(refuse("an initramfs needs a kernel: give both".to_owned()));
            }
            None => None,
            Some(kernel) => Some(StoredKernel {
                image: self.take(kernel)?.0,
                initramfs: match &new.initramfs {
                    Some(path) => Some(self.take(path)?.0),
                    None => None,
                },
                command_line: new.command_line.clone(),
            }),
        };
        let (disk, bytes) = self.take(&new.disk)?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let image = StoredImage {
            name: new.name.clone(),
            disk,
            format: info.format,
            bytes,
            virtual_bytes: info.virtual_size,
            kernel,
            user_data: user_data.transpose()?,
            added_s: since_1970.unwrap_or_default().as_secs(),
        };
        if let Ok(known) = self.find(&new.name)
            && known.disk != image.disk
        {
            let words = "an image with this name already exists; remove it first";
            return Err(refuse(words.to_owned()));
        }
        let text = serde_json::to_vec_pretty(&image).attempt("writing an image's entry")?;
        let entry = self.entry(&new.name);
        let part = entry.with_extension("part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &entry))
            .attempt(format!("writing {}", entry.display()))?;
        Ok(image)
    }

    /// Copies a file into the store under its hash. Returns the hash and the size in bytes.
    fn take(&self, from: &Path) -> Result<(String, u64)> {
        let what = || format!("copying {} into the store", from.display());
        let mut file = File::open(from).attempt(what())?;
        let part = self.blob(&format!("{}.part", std::process::id()));
        let mut out = File::create(&part).attempt(what())?;
        let mut context = digest::Context::new(&digest::SHA256);
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        let copied = loop {
            match file.read(&mut buffer) {
                Ok(0) => break out.sync_all(),
                Ok(length) => {
                    let read = &buffer[..length];
                    context.update(read);
                    bytes += length as u64;
                    if let Err(error) = out.write_all(read) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let hash: String = context
            .finish()
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let kept = copied
            .and_then(|()| fs::set_permissions(&part, fs::Permissions::from_mode(0o444)))
            .and_then(|()| fs::rename(&part, self.blob(&hash)));
        if kept.is_err() {
            // The first error is reported.
            let _ = fs::remove_file(&part);
        }
        kept.attempt(what())?;
        Ok((hash, bytes))
    }
}

impl Info {
    /// Why a disk cannot be used for an image; `None` if it can.
    fn unfit(&self) -> Option<String> {
        if !["qcow2", "raw"].contains(&self.format.as_str()) {
            return Some(format!(
                "the file is {}; `qemu-img convert -O qcow2` converts it to a supported format",
                self.format
            ));
        }
        if let Some(file) = &self.backing_filename {
            return Some(format!(
                "the file is an overlay of {file:?}; `qemu-img convert -O qcow2` makes a whole \
                 image of it"
            ));
        }
        let data = self.format_specific.as_ref().map(|specific| &specific.data);
        if data.is_some_and(|data| data.get("data-file").is_some()) {
            return Some("the data of the image are in another file".to_owned());
        }
        self.encrypted.then(|| "the image is encrypted".to_owned())
    }
}

/// Examines a disk with `qemu-img`, without opening files that the disk refers to.
fn image_info(disk: &Path) -> Result<Info> {
    let what = format!("looking at {}", disk.display());
    let output = qemu_img(&["info", "--output=json", "-U"], &[disk])?;
    serde_json::from_slice(&output).attempt(what)
}

/// Runs `qemu-img` and returns its standard output.
pub(crate) fn qemu_img(words: &[&str], paths: &[&Path]) -> Result<Vec<u8>> {
    let mut command = Command::new("qemu-img");
    command.args(words).args(paths);
    let what = format!("`qemu-img {}` (package qemu-utils)", words.join(" "));
    let output = run_within(&mut command, &what, LIMIT)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(ImageError::Tool {
        what,
        reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Largest `user-data`, bytes. NoCloud is meant for small data; more belongs into the image.
const USER_DATA_MAX: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    fn info(json: &str) -> Info {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn disks_that_lead_to_other_files_are_unfit() {
        let fit = info(r#"{"format": "qcow2", "virtual-size": 10, "filename": "x"}"#);
        assert_eq!(fit.unfit(), None);
        for (json, word) in [
            (r#"{"format": "vmdk", "virtual-size": 1}"#, "vmdk"),
            (
                r#"{"format": "qcow2", "virtual-size": 1, "backing-filename": "/etc/shadow"}"#,
                "/etc/shadow",
            ),
            (
                r#"{"format": "qcow2", "virtual-size": 1,
                    "format-specific": {"type": "qcow2", "data": {"data-file": "/dev/sda"}}}"#,
                "another file",
            ),
            (
                r#"{"format": "qcow2", "virtual-size": 1, "encrypted": true}"#,
                "encrypted",
            ),
        ] {
            let reason = info(json).unfit().unwrap();
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn same_content_is_kept_once_under_each_name() {
        let directory = tempfile::tempdir().unwrap();
        let store = ImageStore::at(&directory.path().join("store"));
        let disk = directory.path().join("disk");
        fs::write(&disk, vec![7; 1 << 20]).unwrap();
        let new = |name: &str| NewImage {
            name: name.to_owned(),
            disk: disk.clone(),
            ..NewImage::default()
        };
        if let Err(ImageError::Process(error)) = store.add(&new("one")) {
            // Without `qemu-img` the test ends here; continuous integration has it.
            assert!(error.to_string().contains("qemu-utils"), "{error}");
            return;
        }
        let two = store.add(&new("two")).unwrap();
        assert_eq!((two.format.as_str(), two.virtual_bytes), ("raw", 1 << 20));
        assert_eq!(store.list().unwrap().len(), 2);
        assert_eq!(fs::read_dir(store.0.join("blobs")).unwrap().count(), 1);
        fs::write(&disk, vec![8; 1 << 20]).unwrap();
        let error = store.add(&new("two")).unwrap_err().to_string();
        assert!(error.contains("remove it first"), "{error}");
        store.remove("one").unwrap();
        assert!(store.blob(&two.disk).exists());
        store.remove("two").unwrap();
        assert!(!store.blob(&two.disk).exists());
        let error = store.find("two").unwrap_err().to_string();
        assert!(error.contains("two") && error.contains("carina"), "{error}");
        assert!(store.add(&new("carina")).is_err() && store.find("../x").is_err());
    }
}
