//! Disks of nodes that move to another host: both hosts must have the same image.

use aws_lc_rs::digest;
use carina_vnet::host_part::{NodePart, VnetId};
use serde::{Deserialize, Serialize};

use crate::error::{ImageError, Result};
use crate::{ImageStore, StoredImage, short};

/// What the source host says about a node's disk, so that the destination can make the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MovingDisk {
    /// Name of the image on which the disk is based.
    pub image: String,
    /// SHA-256 of the image's disk.
    pub disk: String,
    /// SHA-256 of the image's kernel, its command line, and the `user-data` for cloud-init.
    pub boot: String,
    /// Size of the disk as the machine sees it, bytes.
    pub virtual_bytes: u64,
    /// The instance ID for cloud-init begins with this, wherever the node runs.
    pub instance: VnetId,
}

impl StoredImage {
    /// SHA-256 of everything of the image but its disk.
    fn boot_hash(&self) -> String {
        let kernel = self.kernel.as_ref();
        let words = [
            kernel.map(|kernel| kernel.image.as_str()),
            kernel.and_then(|kernel| kernel.initramfs.as_deref()),
            kernel.map(|kernel| kernel.command_line.as_str()),
            self.user_data.as_deref(),
        ];
        let mut context = digest::Context::new(&digest::SHA256);
        for word in words {
            // The length separates the words.
            let length = word.map_or(u64::MAX, |word| word.len() as u64);
            context.update(&length.to_be_bytes());
            context.update(word.unwrap_or_default().as_bytes());
        }
        let hash = context.finish();
        hash.as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl ImageStore {
    /// Describes the disk of a node of this host, which is to move.
    ///
    /// # Errors
    /// There is no such image, or the image was replaced after the node's disk was made.
    pub fn moving_disk(&self, vnet: VnetId, node: &NodePart) -> Result<MovingDisk> {
        let image = self.find(&node.image)?;
        if !self.disk_of(vnet, &node.name, &image).exists() {
            return Err(ImageError::Refused {
                name: node.image.clone(),
                reason: format!(
                    "the image was replaced after the disk of node {} was made; restart the node",
                    node.name
                ),
            });
        }
        Ok(MovingDisk {
            instance: self.instance_of(vnet, &node.name),
            boot: image.boot_hash(),
            image: image.name,
            disk: image.disk,
            virtual_bytes: image.virtual_bytes,
        })
    }

    /// Checks that this host has the image of a disk that another host is to send. Makes nothing.
    ///
    /// # Errors
    /// This host has no such image, or a different one of that name.
    pub fn check_moving(&self, node: &NodePart, moving: &MovingDisk) -> Result<()> {
        let image = self.find(&node.image)?;
        let refuse = |reason: String| ImageError::Refused {
            name: node.image.clone(),
            reason,
        };
        let again = "remove one of them and add the same files with `carina vnet image add`";
        let is_same = moving.disk == image.disk && moving.virtual_bytes == image.virtual_bytes;
        if moving.image != image.name || !is_same {
            let (here, there) = (short(&image.disk), short(&moving.disk));
            return Err(refuse(format!(
                "the hosts have different disks under this name (SHA-256 {here}… here, {there}… \
                 there): {again}"
            )));
        }
        if moving.boot != image.boot_hash() {
            return Err(refuse(format!(
                "the image has another kernel, command line or user-data here: {again}"
            )));
        }
        Ok(())
    }

    /// Creates an empty disk for a node that another host is to send, after
    /// [`ImageStore::check_moving`]. Earlier disks of the node are removed. The next
    /// [`ImageStore::node_disk`] uses the new one.
    ///
    /// # Errors
    /// A file cannot be made or removed, or `qemu-img` fails.
    pub fn await_disk(&self, vnet: VnetId, node: &NodePart, moving: &MovingDisk) -> Result<()> {
        self.remove_disks(vnet, &node.name, &[])?;
        let image = self.find(&node.image)?;
        self.make_disk(vnet, &node.name, &image)?;
        self.set_instance(vnet, &node.name, moving.instance)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::seed::tests::part;
    use crate::{NewImage, StoredKernel};

    fn image() -> StoredImage {
        StoredImage {
            name: "x".to_owned(),
            disk: "0".repeat(64),
            format: "raw".to_owned(),
            bytes: 1,
            virtual_bytes: 1,
            kernel: None,
            user_data: None,
            added_s: 0,
        }
    }

    #[test]
    fn hash_tells_images_apart_by_what_they_boot() {
        let plain = image().boot_hash();
        assert_eq!(
            plain,
            StoredImage {
                added_s: 7,
                ..image()
            }
            .boot_hash()
        );
        let kernel = |image: &str, command_line: &str| StoredKernel {
            image: image.to_owned(),
            initramfs: None,
            command_line: command_line.to_owned(),
        };
        let with = |kernel, user_data: Option<&str>| {
            let user_data = user_data.map(ToOwned::to_owned);
            StoredImage {
                kernel,
                user_data,
                ..image()
            }
            .boot_hash()
        };
        let all = [
            plain,
            with(None, Some("")),
            with(None, Some("a")),
            with(Some(kernel("a", "")), None),
            with(Some(kernel("", "a")), None),
        ];
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
    }

    /// A store with the image `x`, whose disk has bytes of one value.
    fn store(directory: &Path, name: &str, value: u8) -> ImageStore {
        let disk = directory.join(format!("disk-{value}"));
        std::fs::write(&disk, vec![value; 1 << 20]).unwrap();
        let store = ImageStore::at(&directory.join(name));
        let new = NewImage {
            name: "x".to_owned(),
            disk,
            ..NewImage::default()
        };
        store.add(&new).unwrap();
        store
    }

    #[test]
    fn disk_is_awaited_over_the_same_image_alone() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let [here, there] = ["here", "there"].map(|name| store(directory, name, 7));
        let mut node = part(&[["a", "b"]]).nodes[0].clone();
        node.image = "x".to_owned();
        let [at_source, at_destination] = [5, 6].map(VnetId::new);
        let error = here.moving_disk(at_source, &node).unwrap_err().to_string();
        assert!(error.contains("restart the node"), "{error}");
        here.node_disk(at_source, &node).unwrap();
        let moving = here.moving_disk(at_source, &node).unwrap();
        assert_eq!(
            (moving.virtual_bytes, moving.instance),
            (1 << 20, at_source)
        );

        there.check_moving(&node, &moving).unwrap();
        let other = store(directory, "other", 8).check_moving(&node, &moving);
        let error = other.unwrap_err().to_string();
        assert!(error.contains("carina vnet image add"), "{error}");
        let none = ImageStore::at(&directory.join("none"));
        let error = none.check_moving(&node, &moving).unwrap_err().to_string();
        assert!(error.contains("no image \"x\""), "{error}");

        // What an earlier move has left is no part of the disk.
        let left = there.node_disk(at_destination, &node).unwrap().disk;
        std::fs::write(&left, "left").unwrap();
        there.await_disk(at_destination, &node, &moving).unwrap();
        assert_ne!(std::fs::read(&left).unwrap(), b"left");
        // The node keeps its instance when it starts here, and when it moves on.
        assert_eq!(there.node_disk(at_destination, &node).unwrap().disk, left);
        let moving = there.moving_disk(at_destination, &node).unwrap();
        assert_eq!(moving.instance, at_source);
        there.remove_disks(at_destination, &node.name, &[]).unwrap();
        assert!(!left.exists());
        there.node_disk(at_destination, &node).unwrap();
        let moving = there.moving_disk(at_destination, &node).unwrap();
        assert_eq!(moving.instance, at_destination);
    }
}
