//! The prefixes that other members have registered, read from the node in a thread of its own: an
//! answer of the node may take a second, and packets must not wait for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::control::{Client, ClientError, IpcpType};
use carina_api::{DifName, ErrorCode};
use carina_sys::EventFd;
use serde_json::Value;

use crate::error::IpError;
use crate::prefix::IpPrefix;

/// The registered prefixes of a DIF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixes {
    pub all: BTreeSet<IpPrefix>,
    /// Whether the list has all prefixes of the DIF: true if every member of the DIF knows all
    /// registrations.
    pub is_complete: bool,
}

/// What a DIF carries in one PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    /// MTU of the interface, in bytes, if the settings have none.
    pub mtu: usize,
    /// Longest SDU that the DIF carries without fragmenting it, in bytes.
    pub whole_max: usize,
}

/// Reads what the DIF carries.
///
/// # Errors
/// This system is not in the DIF, or the node does not answer.
pub(crate) fn carried(node: &Client, dif: &DifName) -> Result<Carried, IpError> {
    let failed = |source| IpError::Directory {
        dif: dif.clone(),
        source,
    };
    let difs = node.difs().map_err(failed)?;
    let Some(found) = difs.iter().find(|found| found.name == *dif) else {
        let have: Vec<&str> = difs.iter().map(|dif| dif.name.as_str()).collect();
        return Err(IpError::NoDif {
            dif: dif.clone(),
            have: have.join(", "),
        });
    };
    let whole = match found.kind {
        IpcpType::Normal => {
            let read = node.rib(Some(dif.as_str()), None, "/dif", 0);
            let objects = match read {
                Err(ClientError::Refused { .. }) => Vec::new(),
                read => read.map_err(failed)?,
            };
            let pdu = objects
                .iter()
                .find_map(|object| object.fields.get("max_pdu")?.as_u64());
            let pdu = pdu.map_or(MTU_DEFAULT + PCI_BYTES_MAX, |pdu| pdu as usize);
            pdu.saturating_sub(PCI_BYTES_MAX)
        }
        // Shared memory carries SDUs of any length.
        IpcpType::Hv | IpcpType::Loopback => SDU_BYTES_MAX,
        _ => MTU_DEFAULT,
    };
    Ok(Carried {
        mtu: whole.clamp(MTU_MIN, MTU_LONGEST_DEFAULT),
        whole_max: whole.clamp(MTU_MIN, SDU_BYTES_MAX),
    })
}

/// Reads the prefixes that are registered in the DIF.
fn read(node: &Client, dif: &DifName) -> Result<Prefixes, ClientError> {
    let mut prefixes = Prefixes::default();
    for app in node.apps()? {
        if app.difs.contains(dif) {
            prefixes.all.extend(IpPrefix::of_name(&app.name));
        }
    }
    for found in node.difs()?.into_iter().filter(|found| found.name == *dif) {
        let names = found.names.iter().filter_map(IpPrefix::of_name);
        prefixes.all.extend(names);
        match found.kind {
            IpcpType::Normal => read_directory(node, dif, &mut prefixes)?,
            // The other end of shared memory announces all of its names.
            kind => prefixes.is_complete = matches!(kind, IpcpType::Hv | IpcpType::Loopback),
        }
    }
    Ok(prefixes)
}

fn read_directory(
    node: &Client,
    dif: &DifName,
    prefixes: &mut Prefixes,
) -> Result<(), ClientError> {
    let read = |path: &str| match node.rib(Some(dif.as_str()), None, path, 1) {
        Err(ClientError::Refused { body, .. }) if body.code == ErrorCode::NotFound => {
            Ok(Vec::new())
        }
        read => read,
    };
    for object in read("/directory")? {
        let name = object.name_below("/directory/");
        let name = name.and_then(|name| carina_api::AppName::new(name).ok());
        prefixes
            .all
            .extend(name.as_ref().and_then(IpPrefix::of_name));
    }
    prefixes.is_complete = read("/policies")?.iter().any(|object| {
        let policy = object.fields.get("name").and_then(Value::as_str);
        object.path == "/policies/directory" && policy == Some("replicated")
    });
    Ok(())
}

/// A thread that reads the prefixes every second, and at once when asked.
#[derive(Debug)]
pub(crate) struct Directory {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// By which a thread asks for a reading of the prefixes.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryAsker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    asked: Condvar,
    /// Signalled when the prefixes have changed.
    changed: EventFd,
}

#[derive(Debug, Default)]
struct State {
    prefixes: Option<Prefixes>,
    /// Whether the member waits for a prefix that it does not know yet.
    is_asked: bool,
    is_stopped: bool,
}

impl Directory {
    pub(crate) fn start(node: Client, dif: DifName) -> std::io::Result<Directory> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            asked: Condvar::new(),
            changed: EventFd::new()?,
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("ip directory".to_owned());
        let thread = thread.spawn(move || of_thread.follow(&node, &dif))?;
        Ok(Directory {
            shared,
            thread: Some(thread),
        })
    }

    /// Becomes readable when the prefixes have changed.
    pub(crate) fn changed(&self) -> &EventFd {
        &self.shared.changed
    }

    /// Returns the prefixes if they have changed since the last call.
    pub(crate) fn take(&self) -> Option<Prefixes> {
        self.shared.changed.drain();
        self.shared.lock().prefixes.take()
    }

    /// Asks for a reading soon: a prefix is missing.
    pub(crate) fn ask(&self) {
        self.shared.ask();
    }

    /// Returns a handle by which a thread can ask for a reading.
    pub(crate) fn asker(&self) -> DirectoryAsker {
        DirectoryAsker(Arc::clone(&self.shared))
    }
}

impl DirectoryAsker {
    /// Asks for a reading soon: a prefix is missing.
    pub(crate) fn ask(&self) {
        self.0.ask();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.asked.notify_one();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!(target: "carina::ip", "the thread of the directory panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) {
        let mut state = self.lock();
        if !state.is_asked {
            state.is_asked = true;
            self.asked.notify_one();
        }
    }

    fn follow(&self, node: &Client, dif: &DifName) {
        let mut known = None;
        while !self.lock().is_stopped {
            let begun = Instant::now();
            match read(node, dif) {
                Ok(prefixes) if known.as_ref() != Some(&prefixes) => {
                    known = Some(prefixes.clone());
                    self.lock().prefixes = Some(prefixes);
                    self.changed.signal();
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(target: "carina::ip", "DIF {dif}: {error}"),
            }
            self.rest(begun);
        }
    }

    /// Waits until the next reading is due. Requests make it due sooner, but not before the pause.
    fn rest(&self, begun: Instant) {
        let mut state = self.lock();
        loop {
            let interval = if state.is_asked { PAUSE } else { INTERVAL };
            let left = (begun + interval).saturating_duration_since(Instant::now());
            if state.is_stopped || left.is_zero() {
                state.is_asked = false;
                return;
            }
            let waited = self.asked.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Time between two readings of the DIF's directory.
const INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two readings, also while a scan asks for many.
const PAUSE: Duration = Duration::from_millis(200);

/// MTU in DIFs that do not report the largest SDU that they carry.
const MTU_DEFAULT: usize = 1400;
/// Shortest MTU that is chosen: IPv6 needs it.
const MTU_MIN: usize = 1280;
/// Longest MTU that is chosen. TCP sends longer segments, which the receiver takes whole.
const MTU_LONGEST_DEFAULT: usize = 9000;
/// A packet of 64 KiB and its header.
const SDU_BYTES_MAX: usize = 65_535 + carina_netdev::VNET_HEADER_BYTES;
/// What a DIF adds to an SDU at most: the PCI, the lengths of delimiting, and what protection adds.
const PCI_BYTES_MAX: usize = 80;
