//! Disks of nodes: overlays that hold what a node writes, based on the image's disk.

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
        let directory = self.of_network(vnet);
        let what = || format!("making {}", directory.display());
        fs::create_dir_all(&directory).attempt(what())?;
        let name = format!("{}.{}.qcow2", node.name, short(&image.disk));
        self.remove_disks(vnet, &node.name, Some(&name))?;
        let disk = directory.join(name);
        if !disk.exists() {
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
            qemu_img(&words, &[&disk])?;
        }
        let seed = directory.join(format!("{}.iso", node.name));
        Seed::of(vnet, node, image.user_data.as_deref()).write(&seed)?;
        let args = self.args(&image, &seed);
        Ok(NodeDisk { disk, seed, args })
    }

    /// Removes the disks of a node, except the file `but`.
    ///
    /// # Errors
    /// A disk cannot be removed.
    pub fn remove_disks(&self, vnet: VnetId, node: &str, but: Option<&str>) -> Result<()> {
        let directory = self.of_network(vnet);
        for file in entries(&directory)? {
            // Names of nodes contain no dots.
            let is_of = file.split('.').next() == Some(node);
            if is_of && Some(file.as_str()) != but {
                let path = directory.join(file);
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
