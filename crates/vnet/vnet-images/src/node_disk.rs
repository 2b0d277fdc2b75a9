//! Disks of nodes: overlays that hold what a node writes, based on the image's disk.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use carina_vm::Boot;
use carina_vnet::host_part::{NodePart, VnetId};

use crate::adding::qemu_img;
use crate::error::{Attempt, Result};
use crate::seed::Seed;
use crate::{ImageStore, StoredImage, entries, short};

/// The files and arguments with which a machine boots an image of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDisk {
    /// Path of the node's own disk.
    pub disk: PathBuf,
    /// Path of the volume for cloud-init.
    pub seed: PathBuf,
    /// QEMU arguments for the seed volume, and for a kernel that replaces the one on the disk.
    pub args: Vec<String>,
}

impl NodeDisk {
    /// What the machine boots.
    #[must_use]
    pub fn boot(&self) -> Boot {
        Boot::Disk(self.disk.clone())
    }
}

impl ImageStore {
    /// Creates the disk and the seed of a node. A disk that already exists for the same image is
    /// kept; one for another image is removed.
    ///
    /// # Errors
    /// There is no such image, or a program is missing or fails.
    pub fn node_disk(&self, vnet: VnetId, node: &NodePart) -> Result<NodeDisk> {
        let image = self.find(&node.image)?;
        let disk = self.disk_of(vnet, &node.name, &image);
        let kept = if disk.exists() {
            vec![disk.clone(), self.instance_file(vnet, &node.name)]
        } else {
            Vec::new()
        };
        self.remove_disks(vnet, &node.name, &kept)?;
        if kept.is_empty() {
            self.make_disk(vnet, &node.name, &image)?;
        }
        let seed = self.of_network(vnet).join(format!("{}.iso", node.name));
        let instance = self.instance_of(vnet, &node.name);
        Seed::of(instance, node, image.user_data.as_deref()).write(&seed)?;
        let args = self.args(&image, &seed);
        Ok(NodeDisk { disk, seed, args })
    }

    /// Path of the disk of a node, based on this image.
    pub(crate) fn disk_of(&self, vnet: VnetId, node: &str, image: &StoredImage) -> PathBuf {
        let name = format!("{node}.{}.qcow2", short(&image.disk));
        self.of_network(vnet).join(name)
    }

    /// Creates an empty disk of a node, based on this image.
    pub(crate) fn make_disk(&self, vnet: VnetId, node: &str, image: &StoredImage) -> Result<()> {
        let directory = self.of_network(vnet);
        let what = || format!("making {}", directory.display());
        fs::create_dir_all(&directory).attempt(what())?;
        let base = self.blob(&image.disk);
        let base = base.to_string_lossy();
        let words = [
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            &image.format,
            "-b",
            &base,
        ];
        // If this process is killed meanwhile, no incomplete disk has the final name.
        let new = directory.join(format!("{node}.new"));
        qemu_img(&words, &[&new])?;
        let disk = self.disk_of(vnet, node, image);
        fs::rename(&new, &disk).attempt(format!("making {}", disk.display()))
    }

    /// Removes the disks of all nodes of a network except those with these names.
    ///
    /// # Errors
    /// A disk cannot be removed.
    pub fn keep_only(&self, vnet: VnetId, nodes: &BTreeSet<String>) -> Result<()> {
        for file in entries(&self.of_network(vnet))? {
            let node = file.split('.').next().unwrap_or_default();
            if !nodes.contains(node) {
                self.remove_disks(vnet, node, &[])?;
            }
        }
        Ok(())
    }

    /// With what the instance ID of a node begins: the UID of the network on the host where the
    /// node was created.
    pub(crate) fn instance_of(&self, vnet: VnetId, node: &str) -> VnetId {
        let written = fs::read_to_string(self.instance_file(vnet, node));
        let written = written.ok().and_then(|text| text.parse().ok());
        written.unwrap_or(vnet)
    }

    pub(crate) fn set_instance(&self, vnet: VnetId, node: &str, instance: VnetId) -> Result<()> {
        let path = self.instance_file(vnet, node);
        fs::write(&path, instance.to_string()).attempt(format!("writing {}", path.display()))
    }

    fn instance_file(&self, vnet: VnetId, node: &str) -> PathBuf {
        self.of_network(vnet).join(format!("{node}.instance"))
    }

    /// Removes the disks of a node and the files beside them, except the files `kept`.
    ///
    /// # Errors
    /// A disk cannot be removed.
    pub fn remove_disks(&self, vnet: VnetId, node: &str, kept: &[PathBuf]) -> Result<()> {
        let directory = self.of_network(vnet);
        for file in entries(&directory)? {
            // Names of nodes contain no dots.
            let is_of = file.split('.').next() == Some(node);
            let path = directory.join(file);
            if is_of && !kept.contains(&path) {
                // A directory is an unfinished seed.
                let removed = if path.is_dir() {
                    fs::remove_dir_all(&path)
                } else {
                    fs::remove_file(&path)
                };
                removed.attempt(format!("removing {}", path.display()))?;
            }
        }
        Ok(())
    }

    fn args(&self, image: &StoredImage, seed: &Path) -> Vec<String> {
        let seed = seed.to_string_lossy().replace(',', ",,");
        let mut args = vec![
            "-drive".to_owned(),
            format!("file={seed},if=virtio,format=raw,readonly=on"),
        ];
        if let Some(kernel) = &image.kernel {
            let path = |hash: &str| self.blob(hash).to_string_lossy().into_owned();
            args.extend(["-kernel".to_owned(), path(&kernel.image)]);
            if let Some(initramfs) = &kernel.initramfs {
                args.extend(["-initrd".to_owned(), path(initramfs)]);
            }
            args.extend(["-append".to_owned(), kernel.command_line.clone()]);
        }
        args
    }
}
