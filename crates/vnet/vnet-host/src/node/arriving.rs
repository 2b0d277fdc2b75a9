//! A machine that arrives from another host.
//!
//! ```text
//!   prepare ---------> take -----------> resume, settle
//!   a QEMU awaits it   it is paused       it runs here, like one that was started here
//! ```
//!
//! Until it runs, the machine has files and ports apart from those of other machines. The file
//! `NODE.arrival` in the directory of moves records them, for an agent that restarts meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use carina_namespaces::namespace_file;
use carina_vm::{Hardware, NicId, Running};
use carina_vnet::host_part::{HostPart, NodePart};
use carina_vnet_images::{ImageStore, OWN};
use serde::{Deserialize, Serialize};

use super::Site;
use super::bare::{CONNECT, Cards, bare, nics};
use super::machine::{Access, MachineNode, Started};
use super::moving::ARRIVE;
use crate::confinement::Confinement;
use crate::directory::VnetDir;
use crate::error::{Attempt, Error, Result};
use crate::guest_wire::Offer;
use crate::making::{make_taps, remove_named};
use crate::names::{end_of, ports_namespace};
use crate::removal::remove_file;
use carina_vnet::host_part::LinkEnd;

/// A machine that arrives. Dropping this value ends its QEMU, unless the machine has settled.
#[derive(Debug)]
pub(crate) struct Arrival {
    running: Box<Running>,
    confinement: Confinement,
    note: ArrivalNote,
    network: PathBuf,
}

/// The content of the file that describes an arriving machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArrivalNote {
    /// Name of the node whose machine arrives.
    pub node: String,
    /// Number of the move by which the machine arrives.
    pub number: u64,
    /// Generation of this host's part of the network before the node runs on this host.
    pub generation: u64,
    /// Names of the new ports (taps) that this host has made for the links of the node.
    pub ports: Vec<String>,
    /// Numbers of the machine's cards, by interface name.
    pub cards: BTreeMap<String, u32>,
    /// Whether this host has received the complete state of the guest.
    pub has_all: bool,
    /// Whether the node has a disk, which is made for the arrival.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_disk: bool,
}

impl ArrivalNote {
    /// Removes the disk that was made for the arrival.
    ///
    /// # Errors
    /// The disk cannot be removed.
    pub(crate) fn remove_disk(&self, part: &HostPart) -> Result<()> {
        if self.has_disk {
            ImageStore::of_this_host().remove_disks(part.vnet, &self.node, &[])?;
        }
        Ok(())
    }

    /// The known cards of a node's interfaces, by MAC address.
    fn cards_of(&self, part: &NodePart) -> Cards {
        let cards = part.interfaces.iter();
        let cards =
            cards.filter_map(|card| Some((card.mac.0, NicId(*self.cards.get(&card.name)?))));
        cards.collect()
    }
}

impl Arrival {
    /// Creates the node's ports as in `site`, and starts a QEMU that waits for the guest.
    ///
    /// # Errors
    /// Something cannot be made; nothing is left in that case.
    pub(crate) fn prepare(
        site: &Site<'_>,
        part: &NodePart,
        offer: &Offer,
        note: ArrivalNote,
    ) -> Result<Arrival> {
        check_disk(part, offer)?;
        let made = Arrival::try_prepare(site, part, offer, note.clone());
        made.inspect_err(|_| {
            // The first error is reported.
            let _ = remove_named(site.whole, &note.ports);
            let _ = note.remove_disk(site.whole);
            let _ = forget_arrival(site.dir, &note.node);
        })
    }

    fn try_prepare(
        site: &Site<'_>,
        part: &NodePart,
        offer: &Offer,
        note: ArrivalNote,
    ) -> Result<Arrival> {
        let what = || format!("awaiting VM {}", part.name);
        let hardware = &offer.hardware;
        let directory = site.dir.destination();
        fs::create_dir_all(&directory).attempt(what())?;
        write(&directory, &note)?;
        let ends = part.interfaces.iter();
        let ends = ends.map(|end| end_of(site.whole, &part.name, end));
        let taps: Vec<(LinkEnd, String)> = ends.map(|end| (end, site.ports.port(end))).collect();
        make_taps(site.whole, &taps)?;
        let cards = note.cards_of(part);
        if cards.len() != part.interfaces.len() {
            return Err(Error::Unsupported {
                what: what(),
                instead: "the sending host names no card for one of its interfaces",
            });
        }
        if !is_within(hardware, part) {
            return Err(Error::Unsupported {
                what: what(),
                instead: "the sending host sends a machine with more memory or processors than \
                     the provider ordered here",
            });
        }
        if let Some(disk) = &offer.disk {
            ImageStore::of_this_host().await_disk(site.whole.vnet, part, disk)?;
        }
        let (machine, bare) = bare(site, part, &directory)?;
        let nics = nics(site, part, &cards);
        let running = machine.await_guest(&bare.cache, hardware, &nics);
        let (running, confinement) = bare.hold(site, part, running.attempt(what())?);
        Ok(Arrival {
            running: Box::new(running),
            confinement,
            note,
            network: namespace_file(&ports_namespace(site.whole.vnet)),
        })
    }

    /// An arriving machine whose QEMU an earlier agent has started; `None` if that QEMU has ended.
    pub(crate) fn found(
        dir: &VnetDir,
        part: &HostPart,
        note: ArrivalNote,
    ) -> Result<Option<Arrival>> {
        let directory = dir.destination();
        let all = carina_vm::list(&directory).attempt("listing machines")?;
        let Some(record) = all
            .into_iter()
            .find(|candidate| candidate.name == note.node)
        else {
            return Ok(None);
        };
        let network = namespace_file(&ports_namespace(part.vnet));
        let running = Running::of_record(record, &directory, Some(&network));
        Ok(Some(Arrival {
            running: Box::new(running),
            confinement: Confinement::default(),
            note,
            network,
        }))
    }

    /// The description in the file.
    pub(crate) fn note(&self) -> &ArrivalNote {
        &self.note
    }

    /// Gives QEMU a connection from which it reads the guest. Returns the other end.
    pub(crate) fn begin(&self) -> Result<UnixStream> {
        let what = || format!("receiving VM {}", self.note.node);
        let (near, far) = UnixStream::pair().attempt(what())?;
        self.running.arrive_over(far.as_fd()).attempt(what())?;
        Ok(near)
    }

    /// Makes QEMU receive the disk of the guest. Returns the connection over which it comes.
    pub(crate) fn begin_disk(&self) -> Result<UnixStream> {
        let what = format!("receiving the disk of VM {}", self.note.node);
        self.running.serve_disk().attempt(what)
    }

    /// Waits until QEMU has the complete guest. To be called after all was written.
    pub(crate) fn wait(&self) -> Result<()> {
        let what = || format!("receiving VM {}", self.note.node);
        self.running.has_arrived(ARRIVE).attempt(what())?;
        if self.note.has_disk {
            self.running.end_disk_service().attempt(what())?;
        }
        Ok(())
    }

    /// Records that the guest has arrived completely.
    pub(crate) fn complete(&mut self, dir: &VnetDir) -> Result<()> {
        self.note.has_all = true;
        write(&dir.destination(), &self.note)
    }

    /// Resumes the guest. QEMU does nothing if the guest runs.
    pub(crate) fn resume(&self) -> Result<()> {
        let what = format!("resuming VM {}", self.note.node);
        self.running.resume().attempt(what)
    }

    /// Moves the files to the place of a machine that was started here.
    pub(super) fn finish(
        mut self,
        dir: &VnetDir,
        part: &NodePart,
    ) -> Result<(MachineNode, UnixStream)> {
        let name = self.note.node.clone();
        let what = || format!("settling VM {name}");
        let machines = dir.machines();
        fs::create_dir_all(&machines).attempt(what())?;
        self.running
            .adopt(&machines, &name, Some(&self.network))
            .attempt(what())?;
        forget_arrival(dir, &name)?;
        let console = &self.running.record().console;
        let console = carina_sys::connect_stream(console, CONNECT).attempt(what())?;
        let access = if self.note.has_disk {
            self.running.detach();
            Access::Foreign(Some(self.confinement))
        } else {
            Access::Started(Started {
                running: self.running,
                cards: Mutex::new(self.note.cards_of(part)),
                confinement: self.confinement,
            })
        };
        Ok((MachineNode::arrived(&name, machines, access), console))
    }

    /// Moves the files of a machine to the place of one that an earlier agent has started, and
    /// resumes the guest. The earlier agent may have been killed while it did the same.
    pub(crate) fn leave_settled(mut self, dir: &VnetDir) -> Result<()> {
        let name = self.note.node.clone();
        let (machines, what) = (dir.machines(), format!("settling VM {name}"));
        fs::create_dir_all(&machines).attempt(&*what)?;
        let adopted = self.running.adopt(&machines, &name, Some(&self.network));
        adopted.attempt(what)?;
        self.resume()?;
        forget_arrival(dir, &name)
    }

    /// Ends the QEMU and removes everything of the arrival. A disk that has arrived completely
    /// stays if `part` contains the node: its next QEMU boots from it.
    ///
    /// # Errors
    /// The QEMU cannot be ended, or something cannot be removed.
    pub(crate) fn give_up(self, dir: &VnetDir, part: &HostPart) -> Result<()> {
        let (note, directory) = (self.note, dir.destination());
        drop(self.running);
        // Dropping the value does not end a QEMU that an earlier agent has started.
        let all = carina_vm::list(&directory).attempt("listing machines")?;
        if all.iter().any(|candidate| candidate.name == note.node) {
            let killed = carina_vm::kill(&directory, &note.node);
            killed.attempt(format!("stopping VM {}", note.node))?;
        }
        remove_named(part, &note.ports)?;
        if !(note.has_all && part.node(&note.node).is_some()) {
            note.remove_disk(part)?;
        }
        forget_arrival(dir, &note.node)
    }
}

/// The machines that were arriving when an agent was killed.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn arrival_notes(dir: &VnetDir) -> Result<Vec<ArrivalNote>> {
    let directory = dir.destination();
    let what = || format!("reading {}", directory.display());
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.attempt(what())?,
    };
    let mut notes = Vec::new();
    for entry in entries {
        let path = entry.attempt(what())?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == ARRIVAL)
        {
            let text = fs::read(&path).attempt(what())?;
            notes.push(serde_json::from_slice(&text).attempt(what())?);
        }
    }
    Ok(notes)
}

/// Removes the file that describes an arriving machine.
///
/// # Errors
/// The file cannot be removed.
pub(crate) fn forget_arrival(dir: &VnetDir, node: &str) -> Result<()> {
    let path = path_of(&dir.destination(), node);
    remove_file(&path)?;
    remove_file(&dir.destination().join(format!("{node}.nbd")))?;
    // The directory may be in use by other moves.
    let _ = fs::remove_dir(dir.destination());
    Ok(())
}

/// Checks that the offer has a disk if the node has one, and that this host has its image.
fn check_disk(part: &NodePart, offer: &Offer) -> Result<()> {
    match &offer.disk {
        Some(disk) if part.image != OWN => Ok(ImageStore::of_this_host().check_moving(part, disk)?),
        None if part.image == OWN => Ok(()),
        _ => Err(Error::Unsupported {
            what: format!("awaiting VM {}", part.name),
            instead: "the sending host sends a node with a disk as one without, or the reverse",
        }),
    }
}

/// Whether the offered hardware stays within the part's limits; the source host is not trusted.
fn is_within(hardware: &Hardware, part: &NodePart) -> bool {
    u64::from(hardware.memory_mib) <= part.memory_mib && hardware.cpus <= part.cpus
}

/// Writes the file atomically.
fn write(directory: &Path, note: &ArrivalNote) -> Result<()> {
    let path = path_of(directory, &note.node);
    let part = directory.join(format!("{}.part", note.node));
    let text = serde_json::to_vec(note).attempt("writing that a VM comes")?;
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
    written.attempt(format!("writing {}", path.display()))
}

fn path_of(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.{ARRIVAL}"))
}

const ARRIVAL: &str = "arrival";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn machine_that_comes_has_no_more_than_was_ordered() {
        let node = &part(&["a b"]).nodes[0];
        let memory_mib = u32::try_from(node.memory_mib).unwrap();
        let hardware = |memory_mib, cpus| Hardware {
            machine: "pc-q35-7.2".to_owned(),
            accel: "tcg".to_owned(),
            memory_mib,
            cpus,
            template: None,
            ports: 1,
            cards: Vec::new(),
        };
        assert!(is_within(&hardware(memory_mib, node.cpus), node));
        assert!(!is_within(&hardware(memory_mib + 1, node.cpus), node));
        assert!(!is_within(&hardware(memory_mib, node.cpus + 1), node));
    }
}
