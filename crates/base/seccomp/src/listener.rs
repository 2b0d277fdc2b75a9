//! Notifications of stopped calls: receives, checks and answers them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_ulong};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{ForeignRawFd, Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::filter::Call;

/// A system call of a supervised program that waits until the supervisor answers it.
#[derive(Debug, Clone, Copy)]
pub struct Notification {
    /// Number of the notification, which answers repeat. No other notification of this listener has
    /// it, before or after.
    pub id: u64,
    /// Thread id of the thread that waits in the call; 0 if the thread is outside of this process's
    /// PID namespace.
    pub thread: u32,
    /// Which system call it is; `None` for a call that the filter does not stop.
    pub call: Option<Call>,
    /// The arguments of the call, as they were in registers. The memory to which they point may
    /// change at any time.
    pub arguments: [u64; 6],
}

/// The supervisor's end of a filter, on which notifications arrive. When it is closed, calls that
/// the filter stops fail with `ENOSYS`.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Takes ownership of the descriptor that the kernel returned for the filter.
    pub(crate) fn new(descriptor: OwnedFd) -> Listener {
        // Linux before 6.6 has no such flag, and wakes as for any other event.
        // SAFETY: the kernel takes a number.
        let _ = unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
        Listener(descriptor)
    }

    /// Waits for the next notification; `None` when every process with the filter has ended.
    ///
    /// Only one thread may wait at a time. If another thread took the notification, this call would
    /// wait forever.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn next(&self) -> Result<Option<Notification>, Errno> {
        loop {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[0].revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            match self.receive() {
                // A signal; or the caller was interrupted between the two calls.
                Err(Errno::INTR | Errno::NOENT) => {}
                received => return received.map(Some),
            }
        }
    }

    fn receive(&self) -> Result<Notification, Errno> {
        let mut room = Room {
            notification: RawNotification::default(),
            _of_later_kernels: [0; 32],
        };
        // SAFETY: the kernel writes its `struct seccomp_notif`, for which there is room, as
        // `start` has asked it; every pattern of bits is a value.
        outcome(unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, &raw mut room) })?;
        let RawNotification {
            id,
            pid,
            number,
            arguments,
            ..
        } = room.notification;
        Ok(Notification {
            id,
            thread: pid,
            call: Call::of(number),
            arguments,
        })
    }

    /// Whether the call still waits for its answer. If so, files that the supervisor opened before
    /// by the thread's number belong to the calling thread, because the number was not reused.
    pub fn is_valid(&self, id: u64) -> bool {
        // SAFETY: the kernel reads the number behind the pointer.
        unsafe { libc::ioctl(self.0.as_raw_fd(), ID_VALID, &raw const id) == 0 }
    }

    /// Returns a copy of descriptor `number` of the calling thread's process.
    ///
    /// # Errors
    /// `EBADF`: the program has no such descriptor. `EPERM`: this process may not look into it.
    /// `ENOENT`: the call no longer waits.
    pub fn descriptor(&self, notification: &Notification, number: i32) -> Result<OwnedFd, Errno> {
        let thread = i32::try_from(notification.thread).ok();
        let thread = thread.and_then(Pid::from_raw).ok_or(Errno::PERM)?;
        // Threads may have descriptors of their own. Linux before 6.9 opens processes only.
        let opened = match pidfd_open(thread, OF_THREAD) {
            Err(Errno::INVAL) => pidfd_open(process_of(thread)?, PidfdFlags::empty()),
            opened => opened,
        };
        let process = match opened {
            Err(Errno::SRCH) => return Err(Errno::NOENT),
            opened => opened?,
        };
        if !self.is_valid(notification.id) {
            return Err(Errno::NOENT);
        }
        let number = ForeignRawFd::from(number);
        match pidfd_getfd(process, number, PidfdGetfdFlags::empty()) {
            Err(Errno::SRCH) => Err(Errno::NOENT),
            copy => copy,
        }
    }

    /// Ends the call: it returns `result` to the program.
    ///
    /// # Errors
    /// `ENOENT`: the call no longer waits: a signal has interrupted it, or the program has ended.
    pub fn answer(&self, id: u64, result: Result<i64, Errno>) -> Result<(), Errno> {
        let (value, error) = match result {
            Ok(value) => (value, 0),
            Err(error) => (0, -error.raw_os_error()),
        };
        self.respond(Response {
            id,
            value,
            error,
            flags: 0,
        })
    }

    /// Lets the kernel carry out the call. The kernel reads the arguments again: the memory to
    /// which they point may have changed since the supervisor read it.
    ///
    /// # Errors
    /// As [`Listener::answer`].
    pub fn let_pass(&self, id: u64) -> Result<(), Errno> {
        self.respond(Response {
            id,
            value: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        })
    }

    fn respond(&self, response: Response) -> Result<(), Errno> {
        // SAFETY: the kernel reads a structure of the size that the request names.
        outcome(unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw const response) })
    }

    /// Puts the descriptor `new` at descriptor number `number` of the program, in place of the
    /// descriptor that is there. The call still waits for its answer.
    ///
    /// # Errors
    /// `ENOENT`: the call no longer waits. `EBADF`: the number is beyond the program's limit.
    pub fn replace(
        &self,
        id: u64,
        number: u32,
        new: BorrowedFd<'_>,
        cloexec: bool,
    ) -> Result<(), Errno> {
        self.add(Addition {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
            source: new.as_raw_fd() as u32,
            number,
            new_flags: open_flags(cloexec),
        })
    }

    /// Gives the program the descriptor `new` and ends the call, which returns the new descriptor's
    /// number. Either both happen or neither.
    ///
    /// # Errors
    /// As [`Listener::replace`]; `EMFILE`.
    pub fn answer_with(&self, id: u64, new: BorrowedFd<'_>, cloexec: bool) -> Result<(), Errno> {
        self.add(Addition {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            source: new.as_raw_fd() as u32,
            number: 0,
            new_flags: open_flags(cloexec),
        })
    }

    fn add(&self, addition: Addition) -> Result<(), Errno> {
        loop {
            // SAFETY: the kernel reads a structure of the size that the request names.
            let added = unsafe { libc::ioctl(self.0.as_raw_fd(), ADD, &raw const addition) };
            return match outcome(added) {
                Err(Errno::INTR) => continue,
                // The kernel's word for a program that was interrupted while it waited.
                Err(Errno::SRCH) => Err(Errno::NOENT),
                outcome => outcome,
            };
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the process to which a thread belongs.
fn process_of(thread: Pid) -> Result<Pid, Errno> {
    let path = format!("/proc/{}/status", thread.as_raw_nonzero());
    let status = std::fs::read_to_string(path).map_err(|_| Errno::NOENT)?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let number = line.and_then(|number| number.trim().parse().ok());
    number.and_then(Pid::from_raw).ok_or(Errno::NOENT)
}

fn open_flags(cloexec: bool) -> u32 {
    if cloexec { libc::O_CLOEXEC as u32 } else { 0 }
}

/// Converts the result of a C function that returns -1 and sets `errno`.
pub(crate) fn outcome(result: c_int) -> Result<(), Errno> {
    if result >= 0 {
        return Ok(());
    }
    // SAFETY: the C library gives a pointer to this thread's `errno`.
    Err(Errno::from_raw_os_error(unsafe {
        *libc::__errno_location()
    }))
}

/// `struct seccomp_notif` with its `struct seccomp_data`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct RawNotification {
    id: u64,
    pid: u32,
    flags: u32,
    number: c_int,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

#[repr(C)]
pub(crate) struct Room {
    notification: RawNotification,
    _of_later_kernels: [u64; 32],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
pub(crate) struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct Addition {
    id: u64,
    flags: u32,
    source: u32,
    number: u32,
    new_flags: u32,
}

/// Composes the number of an ioctl request of `SECCOMP_IOC_MAGIC`, as `_IOC` of
/// `asm-generic/ioctl.h` does.
const fn request(direction: u32, number: u32, bytes: usize) -> c_ulong {
    (direction << 30 | (bytes as u32) << 16 | (b'!' as u32) << 8 | number) as c_ulong
}

const WRITE: u32 = 1;
const READ_WRITE: u32 = 3;
const RECEIVE: c_ulong = request(READ_WRITE, 0, size_of::<RawNotification>());
const SEND: c_ulong = request(READ_WRITE, 1, size_of::<Response>());
const ID_VALID: c_ulong = request(WRITE, 2, size_of::<u64>());
const ADD: c_ulong = request(WRITE, 3, size_of::<Addition>());
const SET_FLAGS: c_ulong = request(WRITE, 4, size_of::<u64>());

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the kernel runs the supervisor on the processor of the
/// program, which waits for the answer anyway.
const SYNC_WAKE_UP: c_ulong = 1;

/// `PIDFD_THREAD`.
const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
