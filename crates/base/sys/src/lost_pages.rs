//! Lost pages of mapped files: the process survives SIGBUS.
//!
//! A page of a mapped file is lost when another process has truncated the file, or when the file
//! has a hole there and its file system has no room (tmpfs, huge pages). An access to a lost page
//! raises SIGBUS, which by default ends the process. [`Mapping`](crate::Mapping) therefore
//! registers each mapping of a file. The handler in this module maps a private page of zeros in
//! place of the lost page and marks the mapping; the access then continues. The owner of the
//! mapping checks the mark ([`Mapping::is_lost`](crate::Mapping::is_lost)) and gives up the
//! mapping, because its contents are no longer what the peer wrote.
//!
//! The handler runs on the thread that made the access, between any two instructions: it takes no
//! lock, allocates nothing, and makes one system call. It passes a SIGBUS at any other address to
//! the handler that the process had before.

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Returns the number of pages that were lost and replaced so far, in all mappings of the process.
/// While it is 0, no mapping is lost; this check costs one load.
#[must_use]
#[inline]
pub fn lost_pages() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The registration of one mapping; dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct Registered {
    slot: &'static Slot,
}

impl Registered {
    /// Registers `len` bytes from address `start`.
    pub(crate) fn new(start: usize, len: usize) -> Registered {
        install();
        let mut free = lock();
        if free.is_empty() {
            free.extend(&add_chunk().slots);
        }
        let slot = free.pop().expect("a chunk has slots");
        drop(free);
        slot.is_lost.store(false, Ordering::Relaxed);
        slot.set(start, start + len);
        Registered { slot }
    }

    /// Whether a page of the mapping was replaced.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.slot.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.slot.set(0, 0);
        lock().push(self.slot);
    }
}

/// An entry for a range of addresses. One thread at a time writes it; the handler reads it on any
/// thread.
#[derive(Debug)]
struct Slot {
    /// Odd while the range is being written.
    version: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            version: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    fn set(&self, start: usize, end: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// The range; `None` while it is being written. Such a range is not that of the failed access,
    /// because only registered mappings are accessed.
    fn range(&self) -> Option<(usize, usize)> {
        let before = self.version.load(Ordering::Acquire);
        let range = (
            self.start.load(Ordering::Relaxed),
            self.end.load(Ordering::Relaxed),
        );
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before;
        is_whole.then_some(range)
    }
}

/// A block of slots. It is never freed, so that the handler can walk all slots without a lock.
struct Chunk {
    slots: [Slot; SLOTS],
    next: Option<&'static Chunk>,
}

const SLOTS: usize = 64;

/// The newest chunk; it links to all others.
static CHUNKS: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());

/// Slots that belong to no mapping.
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

static LOST: AtomicU64 = AtomicU64::new(0);

fn lock() -> MutexGuard<'static, Vec<&'static Slot>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn newest() -> Option<&'static Chunk> {
    // SAFETY: what stands there is null or a chunk that is never freed.
    unsafe { CHUNKS.load(Ordering::Acquire).as_ref() }
}

/// Adds a chunk and returns one of its slots. The caller holds the lock of `FREE`.
fn add_chunk() -> &'static Chunk {
    let chunk = Box::leak(Box::new(Chunk {
        slots: [const { Slot::new() }; SLOTS],
        next: newest(),
    }));
    CHUNKS.store(chunk, Ordering::Release);
    chunk
}

/// The action that the process had for SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn install() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: zeros are a valid action, and both calls only read or fill in what they get.
        // `BEFORE` is set first, so that the handler finds it.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) != 0 {
                return;
            }
            let _ = BEFORE.set(before);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            // The handler runs on the stack that std gives each thread for signals of a stack
            // overflow.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // This does not fail, because SIGBUS can be handled.
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
}

/// The signal handler.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands over a record; for this code it has an address.
    let address = unsafe {
        match (*info).si_code {
            libc::BUS_ADRERR => Some((*info).si_addr() as usize),
            _ => None,
        }
    };
    if address.is_some_and(replace) {
        return;
    }
    // SAFETY: the arguments are those of this call.
    unsafe { hand_on(signal, info, context) };
}

/// Maps a page of zeros at an address of a registered mapping. Returns false for any other address,
/// or if the kernel refuses.
fn replace(address: usize) -> bool {
    let mut chunk = newest();
    while let Some(slots) = chunk {
        for slot in &slots.slots {
            if let Some((start, end)) = slot.range()
                && (start..end).contains(&address)
            {
                // SAFETY: the range is that of a mapping that is in use by this very access.
                let is_replaced = unsafe { replace_within(address, start, end) };
                if is_replaced {
                    slot.is_lost.store(true, Ordering::Relaxed);
                    LOST.fetch_add(1, Ordering::Relaxed);
                }
                return is_replaced;
            }
        }
        chunk = slots.next;
    }
    false
}

/// # Safety
/// From `start` to `end` lies one mapping, whose users tolerate that its bytes change.
unsafe fn replace_within(address: usize, start: usize, end: usize) -> bool {
    // SAFETY: this is the errno of this thread, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    // In a file of huge pages, a whole huge page is replaced. The last attempt replaces the whole
    // mapping, because the process may have reached its limit of mappings.
    let whole = (start, end);
    let sizes = [1 << 12, 1 << 21, 1 << 30].map(|size: usize| {
        let first = address & !(size - 1);
        (first, first.saturating_add(size))
    });
    let mut is_replaced = false;
    for (first, behind) in sizes.into_iter().chain([whole]) {
        if first < start || behind > end {
            continue;
        }
        // SAFETY: the range lies within the mapping, which stays mapped, readable and writable.
        let base = unsafe {
            libc::mmap(
                first as *mut libc::c_void,
                behind - first,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base != libc::MAP_FAILED {
            is_replaced = true;
            break;
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    is_replaced
}

/// Handles the signal as the process would without this handler.
///
/// # Safety
/// Only a signal handler may call it, with its own arguments.
unsafe fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Plain = extern "C" fn(libc::c_int);
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let before = BEFORE.get();
    match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: zeros are the default action. The access is made again when this returns, and
            // then ends the process; a signal that someone sent is sent again.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            let has_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
            // SAFETY: the process had set this function as its handler, of the kind that the flag
            // says.
            unsafe {
                if has_info {
                    std::mem::transmute::<usize, WithInfo>(handler)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, Plain>(handler)(signal);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::{Mapping, PAGE_BYTES};

    /// Runs one of the tests below in a process of its own.
    fn run(test: &str) -> ExitStatus {
        let name = format!("lost_pages::tests::{test}");
        let arguments = ["--ignored", "--exact", &name, "--test-threads", "1"];
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program).args(arguments).output().unwrap();
        output.status
    }

    /// Installs the handler, then reads a lost page that is not registered.
    fn read_elsewhere() {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        setrlimit(Resource::Core, none).unwrap();
        let fd = memfd_create("elsewhere", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 2 * PAGE_BYTES as u64).unwrap();
        let entered = Mapping::shared(fd.as_fd(), 0, PAGE_BYTES).unwrap();
        // SAFETY: the kernel picks the address; the mapping is read and never unmapped.
        unsafe {
            use rustix::mm::{MapFlags, ProtFlags, mmap};
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
            let other = mmap(ptr::null_mut(), PAGE_BYTES, read, shared, &fd, 0).unwrap();
            ftruncate(&fd, 0).unwrap();
            entered.write(0, b"survives");
            other.cast::<u8>().read_volatile();
        }
    }

    #[test]
    #[ignore = "part of another test"]
    fn dies() {
        read_elsewhere();
    }

    #[test]
    #[ignore = "part of another test"]
    fn has_a_handler() {
        extern "C" fn handler(_: libc::c_int) {
            // SAFETY: it may be called from a handler.
            unsafe { libc::_exit(77) };
        }
        // SAFETY: zeros are a valid action, and the handler is one that takes the signal's number.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
        read_elsewhere();
    }

    #[test]
    fn bus_error_elsewhere_is_what_it_was_before() {
        assert_eq!(run("dies").signal(), Some(libc::SIGBUS));
        assert_eq!(run("has_a_handler").code(), Some(77));
    }
}
