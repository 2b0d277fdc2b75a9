//! The thread that waits in a call: access to its descriptors, its memory and its rights.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use carina_seccomp::{Listener, Notification};
use rustix::io::Errno;

use crate::calls::{Descriptors, Wrap};
use crate::mark::Mark;
use crate::relay;
use crate::settings::Settings;
use crate::socket_address;

/// A place in the program's memory: address and length in bytes.
pub(super) type Part = (u64, usize);

/// A thread of a program that waits in a call.
pub(super) struct Caller<'a> {
    listener: &'a Listener,
    notification: &'a Notification,
    /// The socket that the call has put in the place of the program's socket.
    put: RefCell<Option<OwnedFd>>,
}

impl<'a> Caller<'a> {
    pub(super) fn new(listener: &'a Listener, notification: &'a Notification) -> Caller<'a> {
        Caller {
            listener,
            notification,
            put: RefCell::new(None),
        }
    }

    /// Returns the descriptor number of the socket that the call is about.
    fn number(&self) -> i32 {
        self.notification.arguments[0] as i32
    }

    /// Returns a copy of the socket that the call is about.
    pub(super) fn socket(&self) -> Result<OwnedFd, Errno> {
        self.listener.descriptor(self.notification, self.number())
    }

    /// Opens the memory of the calling thread; the file refers to this thread even if its number is
    /// reused later.
    fn memory(&self) -> Result<File, Errno> {
        let path = format!("/proc/{}/mem", self.notification.thread);
        let memory = OpenOptions::new().read(true).write(true).open(path);
        let memory = memory.map_err(|_| Errno::FAULT)?;
        // The file is of the thread that has the number now: the caller, if the call still waits.
        if !self.listener.is_valid(self.notification.id) {
            return Err(Errno::NOENT);
        }
        Ok(memory)
    }

    /// Reads `N` bytes at address `at` of the program's memory.
    pub(super) fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        self.read_into(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Fills `bytes` from address `at` of the program's memory.
    pub(super) fn read_into(&self, bytes: &mut [u8], at: u64) -> Result<(), Errno> {
        let memory = self.memory()?;
        memory.read_exact_at(bytes, at).map_err(|_| Errno::FAULT)
    }

    /// Appends parts of the program's memory to `bytes`. The caller has checked their lengths.
    pub(super) fn read_parts(&self, parts: &[Part], bytes: &mut Vec<u8>) -> Result<(), Errno> {
        let memory = self.memory()?;
        for (at, length) in parts.iter().filter(|(_, length)| *length > 0) {
            let from = bytes.len();
            bytes.resize(from + length, 0);
            let read = memory.read_exact_at(&mut bytes[from..], *at);
            read.map_err(|_| Errno::FAULT)?;
        }
        Ok(())
    }

    /// Writes bytes at address `at` of the program's memory.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        let memory = self.memory()?;
        memory.write_all_at(bytes, at).map_err(|_| Errno::FAULT)
    }

    /// Writes `data` into parts of the program's memory, as much as fits. Returns how many bytes
    /// all parts have together.
    pub(super) fn write_parts(&self, parts: &[Part], data: &[u8]) -> Result<usize, Errno> {
        let memory = self.memory()?;
        let mut rest = data;
        for (at, length) in parts {
            let (now, later) = rest.split_at(rest.len().min(*length));
            memory.write_all_at(now, *at).map_err(|_| Errno::FAULT)?;
            rest = later;
        }
        Ok(parts.iter().map(|(_, length)| length).sum())
    }

    /// Returns the socket that this call has put in the place of the program's socket.
    pub(super) fn put(&self) -> Option<OwnedFd> {
        self.put.borrow().as_ref()?.try_clone().ok()
    }

    /// Reads a socket address from the program's memory, as bytes.
    pub(super) fn read_address(&self, at: u64, length: u64) -> Result<Vec<u8>, Errno> {
        let length = length as u32 as usize;
        if length > socket_address::BYTES_MAX {
            return Err(Errno::INVAL);
        }
        let mut bytes = vec![0; length];
        let memory = self.memory()?;
        memory
            .read_exact_at(&mut bytes, at)
            .map_err(|_| Errno::FAULT)?;
        Ok(bytes)
    }

    /// Writes bytes to the program's memory as the kernel writes an address or an option: as many
    /// as the program has room for. The length at `length_at` becomes the number of written bytes,
    /// or with `tells_all` the number of all bytes.
    pub(super) fn write_sized(
        &self,
        bytes: &[u8],
        at: u64,
        length_at: u64,
        tells_all: bool,
    ) -> Result<(), Errno> {
        let memory = self.memory()?;
        let mut room = [0; 4];
        let fault = |_| Errno::FAULT;
        memory.read_exact_at(&mut room, length_at).map_err(fault)?;
        let room = usize::try_from(i32::from_ne_bytes(room)).map_err(|_| Errno::INVAL)?;
        let written = bytes.len().min(room);
        memory.write_all_at(&bytes[..written], at).map_err(fault)?;
        let length = if tells_all { bytes.len() } else { written };
        let length = (length as u32).to_ne_bytes();
        memory.write_all_at(&length, length_at).map_err(fault)
    }

    /// Returns the rights of the calling thread.
    pub(super) fn rights(&self) -> Result<Rights, Errno> {
        let rights = Rights::of(&self.notification.thread.to_string());
        if !self.listener.is_valid(self.notification.id) {
            return Err(Errno::NOENT);
        }
        rights.ok_or(Errno::ACCESS)
    }

    /// Ends the call with a result. If the call succeeded but no longer waits, notes in the mark
    /// that the program has not got the result.
    pub(super) fn answer(&self, result: Result<i64, Errno>) {
        let answered = self.listener.answer(self.notification.id, result);
        let has_worked = matches!(result, Ok(_) | Err(Errno::INPROGRESS));
        if answered == Err(Errno::NOENT)
            && has_worked
            && let Some(put) = self.put.take()
            && let Some(mark) = Mark::of(put.as_fd())
        {
            // The kernel restarts the call after the signal, when the socket is already in place.
            let _ = mark.with(Mark::UNTOLD).set(put.as_fd());
        }
    }
}

impl Descriptors for Caller<'_> {
    fn replace(&self, _old: BorrowedFd<'_>, new: OwnedFd) -> Result<(), Errno> {
        let Notification { id, thread, .. } = *self.notification;
        let number = self.number();
        let path = format!("/proc/{thread}/fdinfo/{number}");
        let info = std::fs::read_to_string(path).map_err(|_| Errno::BADF)?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        let cloexec = flags.is_some_and(|flags| flags & libc::O_CLOEXEC != 0);
        self.listener
            .replace(id, number as u32, new.as_fd(), cloexec)?;
        self.put.replace(Some(new));
        Ok(())
    }

    /// Starts the relay in a thread of the supervisor, which runs as long as any of its programs.
    fn relay(&self, end: OwnedFd, settings: &Settings) -> Result<(), Errno> {
        let relays = RELAYS.fetch_add(1, Ordering::SeqCst);
        let wrap = Wrap::new(settings.clone());
        let serve = move || {
            // The program gets the relay's error from its first message.
            let _ = relay::serve(end, wrap);
            RELAYS.fetch_sub(1, Ordering::SeqCst);
        };
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        if relays < RELAYS_MAX && builder.spawn(serve).is_ok() {
            return Ok(());
        }
        RELAYS.fetch_sub(1, Ordering::SeqCst);
        Err(Errno::NOBUFS)
    }
}

/// The identity, port rights and network namespace of a thread, which decide what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rights {
    /// The thread's users and groups, and the user namespace in which these numbers are valid.
    pub identity: (String, Namespace),
    /// Whether the thread may bind to any port (`CAP_NET_BIND_SERVICE`).
    pub binds_low_ports: bool,
    /// The network namespace in which new sockets of the thread are.
    pub network: Namespace,
}

/// A namespace, identified by device and inode number of its file.
pub(super) type Namespace = (u64, u64);

impl Rights {
    /// Reads the rights of a thread from its directory in `/proc`; `None` when they cannot be read.
    pub(super) fn of(thread: &str) -> Option<Rights> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let capabilities = u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?;
        let namespace = |name: &str| {
            let metadata = std::fs::metadata(format!("/proc/{thread}/ns/{name}")).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        let numbers = ["Uid:", "Gid:", "Groups:"].map(|name| line(name).unwrap_or_default());
        Some(Rights {
            identity: (numbers.join(";"), namespace("user")?),
            binds_low_ports: capabilities & CAP_NET_BIND_SERVICE != 0,
            network: namespace("net")?,
        })
    }
}

/// `CAP_NET_BIND_SERVICE` (capabilities(7)), as a bit.
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;

/// Number of relays that run in this process.
static RELAYS: AtomicUsize = AtomicUsize::new(0);

/// Largest number of relays in one supervisor.
const RELAYS_MAX: usize = 1024;

/// Stack size of a relay's thread in bytes; its buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;
