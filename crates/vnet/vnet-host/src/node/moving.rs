//! Machines that continue in another QEMU: on the same host, or from a file.
//!
//! ```text
//!   begin --> prepare --> send --------------> settle
//!             a QEMU      the guest is         it runs in the new QEMU;
//!             awaits it   paused at both ends  the old QEMU has ended
//! ```
//!
//! A file in the directory of the new QEMU records which QEMU has the machine: `NODE.dest`, which
//! is renamed to `NODE.moved` when the machine runs in the new QEMU. An agent that starts and finds
//! one of these files continues from there ([`recover`]).

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLockWriteGuard};
use std::time::{Duration, Instant};

use carina_vm::{DiskCopy, DiskSocket, Hardware, Migration, Record, Running, SavedGuest};
use carina_vnet::host_part::{HostPart, NodePart};

use super::Site;
use super::bare::{CONNECT, Cards, bare, nics};
use super::machine::{Access, MachineNode, Started};
use super::resuming::go_on;
use crate::confinement::Confinement;
use crate::console::Console;
use crate::directory::VnetDir;
use crate::error::{Attempt, Error, Result};
use crate::making::{make_taps, remove_named};
use crate::names::{end_of, ports_namespace};
use crate::namespace;
use crate::port_selection::both_ports;
use crate::removal::{remove_directory, remove_file};
use carina_vnet::host_part::LinkEnd;

/// A machine that is about to leave its QEMU. No command is executed in it meanwhile.
#[derive(Debug)]
pub(crate) struct Move<'a> {
    node: &'a MachineNode,
    access: RwLockWriteGuard<'a, Access>,
    record: Record,
    hardware: Hardware,
    cards: Cards,
    /// The new QEMU; `None` until it has started.
    destination: Option<Box<Running>>,
    /// The confinement of the new QEMU.
    confinement: Option<Confinement>,
}

impl MachineNode {
    /// Waits until no command is being executed in the machine, and reads its hardware.
    ///
    /// # Errors
    /// A command does not end in time, or the machine has unknown cards.
    pub(crate) fn begin_move(&self, part: &NodePart) -> Result<Move<'_>> {
        let deadline = Instant::now() + COMMANDS;
        let access = loop {
            match self.access.try_write() {
                Ok(access) => break access,
                Err(std::sync::TryLockError::Poisoned(it)) => break it.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK);
                }
                Err(std::sync::TryLockError::WouldBlock) => {
                    let what = format!("commands in {} did not end", part.name);
                    let limit = COMMANDS;
                    return Err(Error::Timeout { what, limit });
                }
            }
        };
        let what = || format!("looking at VM {}", part.name);
        let all = carina_vm::list(&self.machines).attempt(what())?;
        let record = all
            .into_iter()
            .find(|candidate| candidate.name == part.name);
        let record = record.ok_or(Error::Ended("the machine"))?;
        let hardware = Hardware::read(&record).attempt(what())?;
        let cards = match &*access {
            Access::Started(Started { cards, .. }) => {
                cards.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
            Access::Found(_) | Access::Foreign(_) => hardware
                .cards
                .iter()
                .map(|card| (card.mac, card.nic()))
                .collect(),
        };
        let is_known = |mac: &[u8; 6]| cards.contains_key(mac);
        if !part
            .interfaces
            .iter()
            .all(|interface| is_known(&interface.mac.0))
        {
            return Err(Error::Unsupported {
                what: format!("moving VM {}", part.name),
                instead: "it belongs to the pool of an earlier agent, and its cards cannot be \
                     told apart",
            });
        }
        Ok(Move {
            node: self,
            access,
            record,
            hardware,
            cards,
            destination: None,
            confinement: None,
        })
    }
}

impl Move<'_> {
    /// Creates the node's ports as in `site`, and starts a new QEMU whose cards are connected to
    /// them.
    pub(crate) fn prepare(&mut self, site: &Site<'_>, part: &NodePart) -> Result<()> {
        let what = || format!("starting a QEMU for VM {}", part.name);
        let directory = site.dir.destination();
        // If the guest does not arrive, the ports are removed by the names in the file.
        let ends = part.interfaces.iter();
        let ends = ends.map(|end| end_of(site.whole, &part.name, end));
        let taps: Vec<(LinkEnd, String)> = ends.map(|end| (end, site.ports.port(end))).collect();
        let ports: Vec<String> = taps.iter().map(|(_, tap)| tap.clone()).collect();
        fs::create_dir_all(&directory).attempt(what())?;
        write_note(&directory.join(format!("{}.{TO}", part.name)), &ports)?;
        // Leftovers of an earlier move that was not completed.
        remove_file(&directory.join(format!("{}.{MOVED}", part.name)))?;
        remove_named(site.whole, &ports)?;
        make_taps(site.whole, &taps)?;
        let (machine, bare) = bare(site, part, &directory)?;
        let nics = nics(site, part, &self.cards);
        let new_qemu = machine.await_guest(&bare.cache, &self.hardware, &nics);
        let (new_qemu, confinement) = bare.hold(site, part, new_qemu.attempt(what())?);
        self.destination = Some(Box::new(new_qemu));
        self.confinement = Some(confinement);
        Ok(())
    }

    /// Sends the guest over a connection to another agent, whose QEMU waits for it. Afterwards the
    /// guest is paused. Calls `at_stop` when it pauses. First sends the disk by way of `disk`, if
    /// the machine has one.
    pub(crate) fn send_into(
        &self,
        connection: UnixStream,
        disk: Option<&DiskSocket>,
        limit: Duration,
        at_stop: impl FnOnce(),
    ) -> Result<Migration> {
        let what = || format!("sending VM {}", self.record.name);
        let began = Instant::now();
        let copy = disk.map(|disk| DiskCopy::begin(&self.record, disk, limit));
        let copy = copy.transpose().attempt(what())?;
        let left = limit.saturating_sub(began.elapsed());
        carina_vm::send_guest(&self.record, connection, copy.as_ref(), left, at_stop)
            .attempt(what())
    }

    /// Whether the machine has a disk of its own.
    pub(crate) fn has_disk(&self) -> bool {
        self.record.from_disk
    }

    /// A socket to which the machine's QEMU connects, to send its disk in the move of this number.
    pub(crate) fn disk_socket(&self, part: &HostPart, number: u64) -> Result<DiskSocket> {
        let what = || format!("sending the disk of VM {}", self.record.name);
        let name = format!("carina-disk-{number:016x}");
        namespace::within(&ports_namespace(part.vnet), || {
            DiskSocket::create(&self.record, &name).attempt(what())
        })
    }

    /// Sends the guest to the new QEMU. Calls `at_stop` when the guest is paused.
    pub(crate) fn send(&self, at_stop: impl FnOnce()) -> Result<Migration> {
        let what = || format!("moving VM {}", self.record.name);
        let new_qemu = self.destination()?;
        let (near, far) = UnixStream::pair().attempt(what())?;
        new_qemu.arrive_over(far.as_fd()).attempt(what())?;
        drop(far);
        let sent = carina_vm::send_guest(&self.record, near, None, SEND, at_stop).attempt(what())?;
        new_qemu.has_arrived(ARRIVE).attempt(what())?;
        Ok(sent)
    }

    /// Resumes the guest in the new QEMU, and records that it runs there.
    pub(crate) fn resume(&self, dir: &VnetDir) -> Result<()> {
        let name = &self.record.name;
        let what = || format!("moving VM {name}");
        self.destination()?.resume().attempt(what())?;
        note_moved(&dir.destination(), name)
    }

    /// Ends the old QEMU and gives its name to the new one. Viewers of the console stay connected;
    /// the inner result says if that fails. The move ends with [`forget_move`], after the old ports
    /// are removed.
    pub(crate) fn finish(mut self, site: &Site<'_>, console: &Console) -> Result<Result<()>> {
        let name = self.record.name.clone();
        let what = || format!("settling VM {name}");
        let new_qemu = self
            .destination
            .take()
            .ok_or(Error::Ended("the new QEMU"))?;
        let stream = carina_sys::connect_stream(&new_qemu.record().console, CONNECT);
        // A console that cannot be reconnected is no reason to end the guest.
        let rejoined = stream
            .attempt(what())
            .and_then(|attempt| console.rejoin(attempt));
        let confinement = self.confinement.take().unwrap_or_default();
        let cards = std::mem::take(&mut self.cards);
        let is_foreign = matches!(*self.access, Access::Foreign(_));
        let started = Started {
            running: new_qemu,
            cards: Mutex::new(cards),
            confinement: confinement.clone(),
        };
        let before = std::mem::replace(&mut *self.access, Access::Started(started));
        let machines = &self.node.machines;
        match before {
            // Dropping it ends the QEMU and removes its files.
            Access::Started(before) => drop(before),
            Access::Found(_) | Access::Foreign(_) => {
                carina_vm::kill(machines, &name).attempt(what())?;
            }
        }
        if let Access::Started(Started {
            running: new_qemu, ..
        }) = &mut *self.access
        {
            let network = carina_namespaces::namespace_file(&ports_namespace(site.whole.vnet));
            new_qemu
                .adopt(machines, &name, Some(&network))
                .attempt(what())?;
        }
        if is_foreign {
            let after = Access::Foreign(Some(confinement));
            if let Access::Started(started) = std::mem::replace(&mut *self.access, after) {
                started.running.detach();
            }
        }
        Ok(rejoined)
    }

    /// Resumes the guest in the old QEMU, and ends the new one. The move ends with [`forget_move`],
    /// after the new ports are removed.
    pub(crate) fn give_up(mut self) -> Result<()> {
        // Dropping it ends the new QEMU.
        self.destination = None;
        go_on(&self.record)
    }

    /// Pauses the guest in its current QEMU.
    pub(crate) fn pause(&self) -> Result<()> {
        let what = format!("stopping VM {}", self.record.name);
        carina_vm::pause_guest(&self.record).attempt(what)
    }

    /// Resumes the guest in its current QEMU.
    pub(crate) fn go_on(&self) -> Result<()> {
        go_on(&self.record)
    }

    /// Saves the guest to a file. Afterwards it is paused.
    pub(crate) fn save(&self, file: &Path) -> Result<SavedGuest> {
        let what = format!("saving VM {}", self.record.name);
        carina_vm::save_guest(&self.record, file, SEND).attempt(what)
    }

    /// The hardware that the machine's guest sees, read when the move began.
    pub(crate) fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    /// Numbers of the cards of a node's interfaces, by interface name.
    pub(crate) fn cards_of(&self, part: &NodePart) -> BTreeMap<String, u32> {
        let cards = part.interfaces.iter();
        let cards =
            cards.filter_map(|card| Some((card.name.clone(), self.cards.get(&card.mac.0)?.0)));
        cards.collect()
    }

    fn destination(&self) -> Result<&Running> {
        let new_qemu = self.destination.as_deref();
        new_qemu.ok_or(Error::Ended("the new QEMU"))
    }
}

/// Completes or undoes the moves of an agent that was killed: a machine that runs in the new QEMU
/// stays there, any other continues in its old one. Removes the other QEMU and its ports.
///
/// # Errors
/// A QEMU cannot be ended, or a port cannot be removed.
pub(crate) fn recover(dir: &VnetDir, part: &HostPart) -> Result<()> {
    let directory = dir.destination();
    for (name, has_moved, ports) in notes(&directory)? {
        let in_new = carina_vm::list(&directory).attempt("listing machines")?;
        let in_new = in_new.into_iter().find(|candidate| candidate.name == name);
        let runs_in_new = has_moved
            || in_new.as_ref().is_some_and(|record| {
                carina_vm::guest_state(record).is_ok_and(|state| state.running)
            });
        let machines = dir.machines();
        let in_old = carina_vm::list(&machines).attempt("listing machines")?;
        let in_old = in_old.into_iter().find(|candidate| candidate.name == name);
        if runs_in_new {
            if !has_moved {
                note_moved(&directory, &name)?;
            }
            if let Some(record) = in_new {
                // A machine that was being given its final name has a record at both places.
                if in_old.is_some_and(|in_old| in_old.pid != record.pid) {
                    carina_vm::kill(&machines, &name).attempt(format!("stopping VM {name}"))?;
                }
                let mut moved = Running::of_record(record, &directory, None);
                moved
                    .adopt(&machines, &name, None)
                    .attempt(format!("settling VM {name}"))?;
            }
            let existing = namespace::interfaces(&ports_namespace(part.vnet))?;
            // A link that was made later may use the name of a port that the machine has lost
            // since.
            if ports.iter().all(|port| existing.contains(port)) {
                remove_named(part, &other_ports(part, &name, &ports))?;
            }
        } else {
            if in_new.is_some() {
                carina_vm::kill(&directory, &name).attempt(format!("stopping VM {name}"))?;
            }
            if let Some(record) = in_old {
                go_on(&record)?;
            }
            remove_named(part, &ports)?;
        }
        forget_move(dir, &name)?;
    }
    Ok(())
}

/// The node's other port for each end that has one of these ports.
fn other_ports(part: &HostPart, node: &str, ports: &[String]) -> Vec<String> {
    let interfaces = part
        .node(node)
        .into_iter()
        .flat_map(|node| &node.interfaces);
    let both = interfaces.map(|interface| both_ports(end_of(part, node, interface)));
    let moved = both.filter(|both| both.iter().any(|port| ports.contains(port)));
    moved
        .flatten()
        .filter(|port| !ports.contains(port))
        .collect()
}

/// The moves that were begun: the node, whether it runs in the new QEMU, and its ports there.
fn notes(directory: &Path) -> Result<Vec<(String, bool, Vec<String>)>> {
    let what = || format!("reading {}", directory.display());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.attempt(what())?,
    };
    let mut notes = Vec::new();
    for entry in entries {
        let path = entry.attempt(what())?.path();
        let ending = path.extension().and_then(|extension| extension.to_str());
        let name = path.file_stem().and_then(|stem| stem.to_str());
        if let (Some(name), Some(ending @ (TO | MOVED))) = (name, ending) {
            let text = fs::read(&path).attempt(what())?;
            // An incomplete file belongs to a move that had not begun.
            let ports = serde_json::from_slice(&text).unwrap_or_default();
            notes.push((name.to_owned(), ending == MOVED, ports));
        }
    }
    Ok(notes)
}

fn write_note(path: &PathBuf, ports: &[String]) -> Result<()> {
    let text = serde_json::to_vec(ports).attempt("writing where a VM moves")?;
    fs::write(path, text).attempt(format!("writing {}", path.display()))
}

/// Records that a machine runs in its new QEMU.
fn note_moved(directory: &Path, name: &str) -> Result<()> {
    let to = directory.join(format!("{name}.{TO}"));
    let moved = fs::rename(to, directory.join(format!("{name}.{MOVED}")));
    moved.attempt(format!("noting where VM {name} runs"))
}

/// Removes all records of moves of a network. All its QEMUs must have ended.
///
/// # Errors
/// The directory cannot be removed.
pub(crate) fn forget_moves(dir: &VnetDir) -> Result<()> {
    remove_directory(&dir.destination())
}

/// Removes the record of a machine's move. To be called after the other QEMU and its ports are
/// removed, so that an agent killed earlier leaves the rest to the next one.
///
/// # Errors
/// The record cannot be removed.
pub(crate) fn forget_move(dir: &VnetDir, name: &str) -> Result<()> {
    let directory = dir.destination();
    for ending in [TO, MOVED] {
        remove_file(&directory.join(format!("{name}.{ending}")))?;
    }
    // The directory may be in use by another node's move.
    let _ = fs::remove_dir(directory);
    Ok(())
}

/// Extensions of the files that record a move: begun, and running in the new QEMU.
const TO: &str = "dest";
const MOVED: &str = "moved";
/// How long commands in a machine may delay its move.
const COMMANDS: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);
/// Longest time for sending a guest that writes much memory.
const SEND: Duration = Duration::from_secs(120);
/// Longest time for the end of a guest's state to arrive.
pub(super) const ARRIVE: Duration = Duration::from_secs(20);
