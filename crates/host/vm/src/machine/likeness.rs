//! The machine without its individual settings: what a template is made of.

use std::path::{Path, PathBuf};

use super::command_line::Life;
use super::confined::Confined;
use super::{Boot, Machine};
use crate::accel::Accel;
use crate::error::{Error, Result};
use crate::network::{Backend, Nic, NicId};

impl Machine {
    /// The machine that boots to become the template for this machine and all similar ones. Its
    /// cards have addresses of their own ([`template_mac`]) and are unplugged. It runs no commands
    /// and no node.
    ///
    /// # Errors
    ///
    /// The machine has something that cannot be saved or cloned: see [`Machine::start_clone`].
    pub(crate) fn likeness(&self, run_dir: PathBuf) -> Result<Machine> {
        self.check_clonable()?;
        let mut likeness = self.clone();
        likeness.name = "template".to_owned();
        likeness.run_dir = run_dir;
        for (id, nic) in (0..).map(NicId).zip(&mut likeness.nics) {
            *nic = Nic {
                model: nic.model,
                backend: Backend::Unplugged,
                mac: Some(template_mac(id)),
            };
        }
        likeness.commands.clear();
        likeness.when_cloned = None;
        likeness.files.clear();
        likeness.launcher.clear();
        likeness.network = None;
        likeness.runs_node = false;
        likeness.dies_with_parent = true;
        likeness.confined = Confined::default();
        Ok(likeness)
    }

    /// The machine as a pool keeps it: its name has a number, it has no network namespace of its
    /// own, and its cards are unplugged.
    pub(crate) fn standing(&self, number: u64) -> Machine {
        let mut standing = self.clone();
        standing.name = format!("{}-{number}", self.name);
        standing.network = None;
        standing.confined = self.confined.numbered(number);
        for nic in &mut standing.nics {
            nic.backend = Backend::Unplugged;
        }
        standing
    }

    /// QEMU's arguments for a likeness, without anything that depends on the place where it runs;
    /// and the kernel and the initramfs, whose contents also count.
    pub(crate) fn essence(&self, accel: Accel) -> Result<(Vec<Vec<u8>>, [PathBuf; 2])> {
        let mut likeness = self.likeness(PathBuf::from("/run"))?;
        let Some(Boot::Direct { kernel, initramfs }) = likeness.boot.take() else {
            return Err(self.refused("boots from a disk", "give it an image"));
        };
        likeness.boot = Some(Boot::Direct {
            kernel: "kernel".into(),
            initramfs: "initramfs".into(),
        });
        let args = likeness.args_of_life(accel, Life::Template(Path::new("memory")))?;
        let args = args.into_iter().map(std::ffi::OsString::into_encoded_bytes);
        Ok((args.collect(), [kernel, initramfs]))
    }

    fn check_clonable(&self) -> Result<()> {
        if !matches!(self.boot, Some(Boot::Direct { .. })) {
            return Err(self.refused("boots from a disk", "give it an image"));
        }
        if !self.vmpi.is_empty() {
            return Err(self.refused(
                "has a shared-memory device, which a template cannot hold",
                "give it a card",
            ));
        }
        for (id, nic) in (0..).map(NicId).zip(&self.nics) {
            nic.backend.object(id)?;
        }
        let bytes: usize = self.files.iter().map(|(_, _, data)| data.len()).sum();
        if bytes > FILES_BYTES_MAX {
            return Err(self.refused(
                &format!("has {bytes} bytes of files, and a clone takes {FILES_BYTES_MAX}"),
                "put them into its image",
            ));
        }
        Ok(())
    }

    fn refused(&self, why: &str, instead: &str) -> Error {
        Error::Invalid {
            what: format!("machine {} as a clone", self.name),
            reason: format!("{why}; start it cold, or {instead}"),
        }
    }
}

/// The MAC address of a template's card, by which a clone finds the card.
pub(crate) fn template_mac(card: NicId) -> [u8; 6] {
    let [a, b, c, d] = card.0.to_be_bytes();
    [0x02, 0xff, a, b, c, d]
}

/// Largest total size of a clone's files in bytes, because they pass through the guest's serial
/// port.
const FILES_BYTES_MAX: usize = 256 << 10;
