//! A machine that goes on in another QEMU: of this host, or from a file.
//!
//! ```text
//!   begin --> prepare --> send --------------> settle
//!             a QEMU      the guest stands     it runs there; the QEMU
//!             awaits it   still at both ends   that it had has ended
//! ```
//!
//! What says who has it is a file in the directory of the destination, `NODE.dest`, which becomes
//! `NODE.moved` once it runs there. An agent that finds one of them goes on from there
//! ([`recover`]).

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLockWriteGuard};
use std::time::{Duration, Instant};

use carina_vm::{Hardware, Migration, Nic, NicId, Record, Running, SavedGuest};
use carina_vnet::host_part::{HostPart, NodePart};

use super::Site;
use super::machine::{Access, BOOT, CONNECT, Cards, MachineNode, Started, bare, card};
use crate::confinement::Confinement;
use crate::console::Console;
use crate::directory::VnetDir;
use crate::error::{Attempt, Error, Result};
use crate::making::{make_taps, remove_named};
use crate::names::{end_of, ports_namespace};
use crate::namespace;
use crate::removal::{remove_directory, remove_file};
use crate::saved::SavedNode;
use crate::second_ports::both_ports;
use carina_vnet::host_part::LinkEnd;

/// A machine that is about to leave its QEMU. No command runs in it meanwhile.
#[derive(Debug)]
pub struct Move<'a> {
    node: &'a MachineNode,
    access: RwLockWriteGuard<'a, Access>,
    record: Record,
    hardware: Hardware,
    cards: Cards,
    /// Where it goes, once there is one.
    destination: Option<Box<Running>>,
    /// How it is confined there.
    confinement: Option<Confinement>,
}

impl MachineNode {
    /// Waits until no command runs in it, and looks at its hardware.
    ///
    /// # Errors
    /// A command does not end in time, or it has cards that are not known.
    pub fn begin_move(&self, part: &NodePart) -> Result<Move<'_>> {
        let deadline = Instant::now() + COMMANDS;
        let access = loop {
            match self.access.try_write() {
                Ok(access) => break access,
                Err(std::sync::TryLockError::Poisoned(it)) => break it.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK);
                }
                Err(std::sync::TryLockError::WouldBlock) => {
                    let what = format!("commands in {} have not ended", part.name);
                    let limit = COMMANDS;
                    return Err(Error::Timeout { what, limit });
                }
            }
        };
        let what = || format!("looking at VM {}", part.name);
        let all = carina_vm::list(&self.machines).attempt(what())?;
        let record = all.into_iter().find(|it| it.name == part.name);
        let record = record.ok_or(Error::Ended("the machine"))?;
        let hardware = Hardware::read(&record).attempt(what())?;
        let cards = match &*access {
            Access::Started(Started { cards, .. }) => {
                cards.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
            Access::Found(_) => hardware.cards.iter().map(|it| (it.mac, it.nic())).collect(),
            Access::Foreign(_) => {
                return Err(Error::Unsupported {
                    what: format!("moving or saving VM {}", part.name),
                    instead: "it has a disk of its own, which stays where it is",
                });
            }
        };
        let is_known = |mac: &[u8; 6]| cards.contains_key(mac);
        if !part.interfaces.iter().all(|it| is_known(&it.mac.0)) {
            return Err(Error::Unsupported {
                what: format!("moving VM {}", part.name),
                instead: "it is of a pool of an earlier agent: which of its cards is which is not \
                          known",
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
    /// Makes the ports that `site` has for it, and starts the QEMU to which it goes, with its cards
    /// there.
    pub fn prepare(&mut self, site: &Site<'_>, part: &NodePart) -> Result<()> {
        let what = || format!("starting a QEMU for VM {}", part.name);
        let directory = site.dir.destination();
        // What it takes if it does not arrive is removed by their names.
        let ends = part.interfaces.iter();
        let ends = ends.map(|it| end_of(site.whole, &part.name, it));
        let taps: Vec<(LinkEnd, String)> = ends.map(|end| (end, site.ports.port(end))).collect();
        let ports: Vec<String> = taps.iter().map(|(_, tap)| tap.clone()).collect();
        fs::create_dir_all(&directory).attempt(what())?;
        write_note(&directory.join(format!("{}.{TO}", part.name)), &ports)?;
        // What is left of an earlier move whose end has failed.
        remove_file(&directory.join(format!("{}.{MOVED}", part.name)))?;
        remove_named(site.whole, &ports)?;
        make_taps(site.whole, &taps)?;
        let (machine, bare) = bare(site, part, &directory)?;
        let nics = nics(site, part, &self.cards);
        let there = machine.await_guest(&bare.cache, &self.hardware, &nics);
        let (there, confinement) = bare.hold(site, part, there.attempt(what())?);
        self.destination = Some(Box::new(there));
        self.confinement = Some(confinement);
        Ok(())
    }

    /// Sends the guest into a connection, at whose other end another agent has a QEMU await it. It
    /// stands still from then on.
    pub fn send_into(&self, connection: UnixStream, limit: Duration) -> Result<Migration> {
        let what = format!("sending VM {}", self.record.name);
        carina_vm::send_guest(&self.record, connection, limit, || {}).attempt(what)
    }

    /// Sends the guest there. `at_stop` is called when it stands still.
    pub fn send(&self, at_stop: impl FnOnce()) -> Result<Migration> {
        let what = || format!("moving VM {}", self.record.name);
        let there = self.destination()?;
        let (near, far) = UnixStream::pair().attempt(what())?;
        there.arrive_over(far.as_fd()).attempt(what())?;
        drop(far);
        let sent = carina_vm::send_guest(&self.record, near, SEND, at_stop).attempt(what())?;
        there.has_arrived(ARRIVE).attempt(what())?;
        Ok(sent)
    }

    /// Has it run where it was sent. From then on it is there.
    pub fn resume(&self, dir: &VnetDir) -> Result<()> {
        let name = &self.record.name;
        let what = || format!("moving VM {name}");
        self.destination()?.resume().attempt(what())?;
        note_moved(&dir.destination(), name)
    }

    /// Ends the QEMU that it had, and gives its name to the new one. Those who watch the console go
    /// on watching: if they cannot, the value inside says so. The move is over when its other ports
    /// are gone, see [`forget_move`].
    pub fn settle(mut self, site: &Site<'_>, console: &Console) -> Result<Result<()>> {
        let name = self.record.name.clone();
        let what = || format!("settling VM {name}");
        let there = self
            .destination
            .take()
            .ok_or(Error::Ended("the new QEMU"))?;
        let stream = carina_sys::connect_stream(&there.record().console, CONNECT);
        // Who watches the console is no reason to end the guest.
        let rejoined = stream.attempt(what()).and_then(|it| console.rejoin(it));
        let started = Started {
            running: there,
            cards: Mutex::new(std::mem::take(&mut self.cards)),
            confinement: self.confinement.take().unwrap_or_default(),
        };
        let before = std::mem::replace(&mut *self.access, Access::Started(started));
        let machines = &self.node.machines;
        match before {
            // It ends with its value, and its files with it.
            Access::Started(before) => drop(before),
            Access::Found(_) | Access::Foreign(_) => {
                carina_vm::kill(machines, &name).attempt(what())?;
            }
        }
        if let Access::Started(Started { running: there, .. }) = &mut *self.access {
            let network = carina_namespaces::namespace_file(&ports_namespace(site.whole.vnet));
            there
                .adopt(machines, &name, Some(&network))
                .attempt(what())?;
        }
        Ok(rejoined)
    }

    /// Lets it go on where it was; nothing of the other QEMU is left. The move is over when its
    /// other ports are gone, see [`forget_move`].
    pub fn give_up(mut self) -> Result<()> {
        // It ends with its value.
        self.destination = None;
        go_on(&self.record)
    }

    /// Has it stand still.
    pub fn pause(&self) -> Result<()> {
        let what = format!("stopping VM {}", self.record.name);
        carina_vm::pause_guest(&self.record).attempt(what)
    }

    /// Has it run on where it is.
    pub fn go_on(&self) -> Result<()> {
        go_on(&self.record)
    }

    /// Saves it to a file. It stands still from then on.
    pub fn save(&self, file: &Path) -> Result<SavedGuest> {
        let what = format!("saving VM {}", self.record.name);
        carina_vm::save_guest(&self.record, file, SEND).attempt(what)
    }

    /// Its hardware.
    pub fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    /// The cards of its interfaces, by their names.
    pub fn cards_of(&self, part: &NodePart) -> BTreeMap<String, u32> {
        let cards = part.interfaces.iter();
        let cards = cards.filter_map(|it| Some((it.name.clone(), self.cards.get(&it.mac.0)?.0)));
        cards.collect()
    }

    fn destination(&self) -> Result<&Running> {
        let there = self.destination.as_deref();
        there.ok_or(Error::Ended("the new QEMU"))
    }
}

/// A machine that goes on where it was saved, and its cards.
pub(super) fn restored(
    site: &Site<'_>,
    part: &NodePart,
    saved: &SavedNode,
    file: &Path,
) -> Result<((Running, Confinement), Cards)> {
    let what = || format!("restoring VM {}", part.name);
    let cards = part.interfaces.iter();
    let cards = cards.filter_map(|it| Some((it.mac.0, NicId(*saved.cards.get(&it.name)?))));
    let cards: Cards = cards.collect();
    let (machine, bare) = bare(site, part, &site.dir.machines())?;
    let nics = nics(site, part, &cards);
    let running = machine.await_guest(&bare.cache, &saved.hardware, &nics);
    let (running, confinement) = bare.hold(site, part, running.attempt(what())?);
    running.take_from(file).attempt(what())?;
    running.resume().attempt(what())?;
    // Its clock stood still.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let set = format!("date -s @{}", now.unwrap_or_default().as_secs());
    running.run_within(&set, BOOT).attempt(what())?;
    Ok(((running, confinement), cards))
}

pub(super) fn nics(site: &Site<'_>, part: &NodePart, cards: &Cards) -> BTreeMap<NicId, Nic> {
    let nic = |it| {
        let it: &carina_vnet::host_part::InterfacePart = it;
        Some((*cards.get(&it.mac.0)?, card(site, part, it)))
    };
    part.interfaces.iter().filter_map(nic).collect()
}

/// Has a guest run on, unless it runs.
pub(super) fn go_on(record: &Record) -> Result<()> {
    let what = || format!("resuming VM {}", record.name);
    let state = carina_vm::guest_state(record).attempt(what())?;
    if state.running {
        Ok(())
    } else {
        carina_vm::resume_guest(record).attempt(what())
    }
}

/// Puts an end to moves that an agent which was killed has begun: a machine that runs at its
/// destination stays there, another one goes on where it was. Of the other QEMU and its ports
/// nothing is left.
///
/// # Errors
/// A QEMU cannot be ended, or a port not be removed.
pub fn recover(dir: &VnetDir, part: &HostPart) -> Result<()> {
    let directory = dir.destination();
    for (name, has_moved, ports) in notes(&directory)? {
        let there = carina_vm::list(&directory).attempt("listing machines")?;
        let there = there.into_iter().find(|it| it.name == name);
        let runs_there = has_moved
            || there.as_ref().is_some_and(|record| {
                carina_vm::guest_state(record).is_ok_and(|state| state.running)
            });
        let machines = dir.machines();
        let here = carina_vm::list(&machines).attempt("listing machines")?;
        let here = here.into_iter().find(|it| it.name == name);
        if runs_there {
            if !has_moved {
                note_moved(&directory, &name)?;
            }
            if let Some(record) = there {
                // One that was being given its name has a record at both places.
                if here.is_some_and(|here| here.pid != record.pid) {
                    carina_vm::kill(&machines, &name).attempt(format!("stopping VM {name}"))?;
                }
                let mut moved = Running::of_record(record, &directory, None);
                moved
                    .adopt(&machines, &name, None)
                    .attempt(format!("settling VM {name}"))?;
            }
            let existing = namespace::interfaces(&ports_namespace(part.vnet))?;
            // Another link may have the name of one that it has lost since.
            if ports.iter().all(|port| existing.contains(port)) {
                remove_named(part, &other_ports(part, &name, &ports))?;
            }
        } else {
            if there.is_some() {
                carina_vm::kill(&directory, &name).attempt(format!("stopping VM {name}"))?;
            }
            if let Some(record) = here {
                go_on(&record)?;
            }
            remove_named(part, &ports)?;
        }
        forget_move(dir, &name)?;
    }
    Ok(())
}

/// The other ports of the ends of a node that are at these.
fn other_ports(part: &HostPart, node: &str, ports: &[String]) -> Vec<String> {
    let interfaces = part.node(node).into_iter().flat_map(|it| &it.interfaces);
    let both = interfaces.map(|it| both_ports(end_of(part, node, it)));
    let moved = both.filter(|both| both.iter().any(|port| ports.contains(port)));
    moved
        .flatten()
        .filter(|port| !ports.contains(port))
        .collect()
}

/// Moves that were begun: the node, whether it runs at the destination, and its ports there.
fn notes(directory: &Path) -> Result<Vec<(String, bool, Vec<String>)>> {
    let what = || format!("reading {}", directory.display());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.attempt(what())?,
    };
    let mut notes = Vec::new();
    for entry in entries {
        let path = entry.attempt(what())?.path();
        let ending = path.extension().and_then(|it| it.to_str());
        let name = path.file_stem().and_then(|it| it.to_str());
        if let (Some(name), Some(ending @ (TO | MOVED))) = (name, ending) {
            let text = fs::read(&path).attempt(what())?;
            // One that was being written is of a move that had not begun.
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

/// Notes that a node runs where it was to go.
fn note_moved(directory: &Path, name: &str) -> Result<()> {
    let to = directory.join(format!("{name}.{TO}"));
    let moved = fs::rename(to, directory.join(format!("{name}.{MOVED}")));
    moved.attempt(format!("noting where VM {name} runs"))
}

/// Removes what says that nodes move, of a network of which all QEMUs have ended.
///
/// # Errors
/// It cannot be removed.
pub fn forget_moves(dir: &VnetDir) -> Result<()> {
    remove_directory(&dir.destination())
}

/// Removes what says that a node moves, when nothing is left of the other QEMU and of its ports: an
/// agent that is killed before leaves to the next one what still has to be removed.
///
/// # Errors
/// It cannot be removed.
pub fn forget_move(dir: &VnetDir, name: &str) -> Result<()> {
    let directory = dir.destination();
    for ending in [TO, MOVED] {
        remove_file(&directory.join(format!("{name}.{ending}")))?;
    }
    // Another node may be moving.
    let _ = fs::remove_dir(directory);
    Ok(())
}

/// What says where a node is to go, and that it is there.
const TO: &str = "dest";
const MOVED: &str = "moved";
/// How long commands in a machine may take until it moves.
const COMMANDS: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);
/// How long a guest that writes much may take to be sent.
const SEND: Duration = Duration::from_secs(120);
/// How long the last of it may take until it is there.
pub(super) const ARRIVE: Duration = Duration::from_secs(20);
