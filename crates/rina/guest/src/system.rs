//! System calls that the standard library lacks. All unsafe code of the guest is here.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong, c_void};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

unsafe extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn sethostname(name: *const c_char, length: usize) -> c_int;
    fn setsid() -> c_int;
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn ioctl(descriptor: c_int, request: c_ulong, ...) -> c_int;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(descriptor: c_int, address: *const c_void, length: u32) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn tcgetattr(descriptor: c_int, modes: *mut Modes) -> c_int;
    fn tcsetattr(descriptor: c_int, actions: c_int, modes: *const Modes) -> c_int;
    fn cfmakeraw(modes: *mut Modes);
    fn clock_settime(clock: c_int, time: *const [i64; 2]) -> c_int;
    fn reboot(command: c_int) -> c_int;
    fn sync();
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn poll(files: *mut PollFile, count: c_ulong, timeout_ms: c_int) -> c_int;
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn sigwait(set: *const SignalSet, signal: *mut c_int) -> c_int;
}

/// Memory for a `sigset_t`, which has 128 bytes with glibc and with musl.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

/// Blocked signals, to be fetched with [`Signals::wait`].
pub(crate) struct Signals(SignalSet);

/// What a signal requests of the first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Reap a child that has ended.
    Reap,
    /// Power off (`poweroff` or `halt`).
    PowerOff,
    /// Restart (`reboot`).
    Reboot,
}

impl Signals {
    /// Blocks the signals that busybox's `poweroff`, `halt` and `reboot` send to the first process,
    /// and the signal of ended children. The process must have one thread only.
    pub(crate) fn hold() -> Result<Signals> {
        let mut set = SignalSet([0; 128]);
        for signal in [SIGCHLD, SIGUSR1, SIGUSR2, SIGTERM, SIGINT] {
            // SAFETY: `SignalSet` has room for a `sigset_t`, and all zeros are an empty set.
            checked(unsafe { sigaddset(&raw mut set, signal) })?;
        }
        // SAFETY: a null pointer means that the old set is not wanted.
        checked(unsafe { sigprocmask(SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
        Ok(Signals(set))
    }

    /// Waits for the next blocked signal.
    pub(crate) fn wait(&self) -> Asked {
        let mut signal = 0;
        // SAFETY: both pointers are valid during the call. The call fails only for an invalid set.
        unsafe { sigwait(&raw const self.0, &raw mut signal) };
        match signal {
            SIGUSR1 | SIGUSR2 => Asked::PowerOff,
            SIGTERM | SIGINT => Asked::Reboot,
            _ => Asked::Reap,
        }
    }
}

/// Unblocks all signals in a command's process. The process would otherwise inherit the blocked
/// signals, and they would not end it.
pub(crate) fn with_signals(command: &mut Command) -> &mut Command {
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(release_signals) }
}

fn release_signals() -> Result<()> {
    let mut none = SignalSet([0; 128]);
    // SAFETY: `SignalSet` has room for a `sigset_t`; a null pointer means that the old set is not
    // wanted. Both calls are allowed between fork and exec.
    let done = unsafe {
        sigemptyset(&raw mut none);
        sigprocmask(SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    checked(done).map(drop)
}

/// Sends all other processes signals that ask them to end: SIGTERM for services, SIGHUP for
/// interactive shells.
pub(crate) fn ask_all_to_end() {
    for signal in [SIGTERM, SIGHUP, SIGCONT] {
        // SAFETY: the call has no pointers. It is harmless if there is no other process.
        unsafe { kill(-1, signal) };
    }
}

/// Kills a process group.
pub(crate) fn kill_group(leader: u32) {
    if let Some(leader) = c_int::try_from(leader).ok().filter(|leader| *leader > 1) {
        // SAFETY: has no pointers. That the group has ended is no harm.
        unsafe { kill(-leader, SIGKILL) };
    }
}

/// A `struct pollfd`.
#[repr(C)]
struct PollFile {
    descriptor: c_int,
    events: i16,
    returned: i16,
}

/// Waits until one of two files is readable or its other end is closed, at most `timeout_ms`.
/// Returns for each file whether that is so. A file that is `None` is not waited for.
pub(crate) fn readable(files: [Option<BorrowedFd<'_>>; 2], timeout_ms: c_int) -> Result<[bool; 2]> {
    // The kernel passes over negative descriptors.
    let mut polled = files.map(|file| PollFile {
        descriptor: file.map_or(-1, |file| file.as_raw_fd()),
        events: POLLIN,
        returned: 0,
    });
    // SAFETY: the pointer is to two of `struct pollfd`, which live until the call returns.
    match checked(unsafe { poll(polled.as_mut_ptr(), 2, timeout_ms) }) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        _ => Ok(polled.map(|file| file.returned != 0)),
    }
}

/// Returns the number of bytes that wait in a pipe.
pub(crate) fn unread(file: BorrowedFd<'_>) -> usize {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes an `int` (FIONREAD), which lives until the call returns.
    let done = checked(unsafe { ioctl(file.as_raw_fd(), FIONREAD, &raw mut bytes) });
    done.map_or(0, |_| usize::try_from(bytes).unwrap_or_default())
}

/// Memory for a `struct termios`, which has 60 bytes with glibc and with musl.
#[repr(C, align(8))]
struct Modes([u8; 256]);

/// Mounts a file system. A missing target is an error.
pub(crate) fn mount_at(kind: &str, target: &str, data: &str) -> Result<()> {
    let (kind, target, data) = (
        CString::new(kind)?,
        CString::new(target)?,
        CString::new(data)?,
    );
    // SAFETY: all arguments are NUL-terminated strings that live until the call returns.
    let done = unsafe {
        mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            data.as_ptr().cast(),
        )
    };
    checked(done).map(drop)
}

/// Sets environment variables for all processes that this one starts. The process must have one
/// thread only.
pub(crate) fn set_environment(variables: &[(&str, &str)]) {
    for (name, value) in variables {
        // SAFETY: this is the only thread, so no other thread reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Sets the host name of the guest.
pub(crate) fn set_host_name(name: &str) -> Result<()> {
    // SAFETY: the pointer is valid for the given length.
    checked(unsafe { sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Sets the clock, in seconds since 1970.
pub(crate) fn set_clock(seconds: i64) -> Result<()> {
    // SAFETY: `struct timespec` has two words of 64 bits, seconds and nanoseconds.
    checked(unsafe { clock_settime(CLOCK_REALTIME, &[seconds, 0]) }).map(drop)
}

/// Runs `act` in a child process with its own session, and returns the process id. The process must
/// have one thread only.
pub(crate) fn in_child(act: impl FnOnce()) -> Result<c_int> {
    // SAFETY: this is the first process of a guest, with one thread. The child has all of its
    // memory.
    let child = checked(unsafe { fork() })?;
    if child == 0 {
        let _ = release_signals();
        // SAFETY: the call has no arguments. It fails only for the leader of a process group, which
        // a new child is not.
        unsafe { setsid() };
        act();
        std::process::exit(0);
    }
    Ok(child)
}

/// Returns the process id of a child that has ended; `None` if all children run. Does not wait.
///
/// # Errors
/// There are no children.
pub(crate) fn take_ended() -> Result<Option<c_int>> {
    // SAFETY: a null pointer means that the status is not wanted.
    let ended = checked(unsafe { waitpid(-1, std::ptr::null_mut(), WNOHANG) })?;
    Ok((ended != 0).then_some(ended))
}

/// Gives a command's process its own session, whose terminal is the process's standard input.
pub(crate) fn with_terminal(command: &mut Command) -> &mut Command {
    let prepare = || {
        // SAFETY: the system calls neither allocate memory nor take locks, as code between fork and
        // exec must not. The argument of TIOCSCTTY is a number.
        unsafe {
            setsid();
            ioctl(0, TIOCSCTTY, 0);
        }
        release_signals()
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(prepare) }
}

/// Makes an ioctl request about an interface, with a `struct ifreq` of 40 bytes.
pub(crate) fn interface_request(
    socket: &OwnedFd,
    request: u32,
    about: &mut [u8; 40],
) -> Result<()> {
    let about: *mut [u8; 40] = about;
    // SAFETY: the kernel reads and writes at most the 40 bytes of a `struct ifreq` (netdevice(7)).
    // No caller makes a request whose argument contains a pointer.
    checked(unsafe { ioctl(socket.as_raw_fd(), request.into(), about) }).map(drop)
}

/// Creates a socket for [`interface_request`].
pub(crate) fn socket_for_interfaces() -> Result<OwnedFd> {
    new_socket(AF_INET, SOCK_DGRAM, 0)
}

/// Creates a socket for requests about addresses and routes (rtnetlink(7)), as a file: write a
/// request, then read the answer.
pub(crate) fn route_socket() -> Result<File> {
    new_socket(AF_NETLINK, SOCK_RAW, 0).map(File::from)
}

/// Creates a socket that sends ICMP messages from an address, and receives all ICMP messages to it.
pub(crate) fn icmp_socket(own: Ipv4Addr) -> Result<UdpSocket> {
    let socket = new_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)?;
    let mut address = [0_u8; 16];
    address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    address[4..8].copy_from_slice(&own.octets());
    // SAFETY: `struct sockaddr_in` has 16 bytes: family, port, address, and eight unused bytes.
    checked(unsafe { bind(socket.as_raw_fd(), address.as_ptr().cast(), 16) })?;
    Ok(UdpSocket::from(socket))
}

/// Loads a kernel module. A module that is already loaded is not an error.
pub(crate) fn load_module(module: &File, parameters: &CStr) -> Result<()> {
    // SAFETY: the arguments are those of finit_module(2): a descriptor, a string, no flags.
    let done = unsafe {
        syscall(
            FINIT_MODULE,
            c_long::from(module.as_raw_fd()),
            parameters.as_ptr(),
            0 as c_long,
        )
    };
    match checked(done as c_int) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        done => done.map(drop),
    }
}

/// Opens a terminal that does not become the terminal of the session.
pub(crate) fn open_terminal(path: &str) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(O_NOCTTY);
    options.open(path)
}

/// Sets a terminal to raw mode, in which it passes bytes unchanged.
pub(crate) fn make_raw(terminal: &File) -> Result<()> {
    let mut modes = Modes([0; 256]);
    // SAFETY: `Modes` has room for a `struct termios`, and its alignment.
    checked(unsafe { tcgetattr(terminal.as_raw_fd(), &mut modes) })?;
    // SAFETY: tcgetattr has filled `modes`.
    unsafe { cfmakeraw(&mut modes) };
    // SAFETY: as above.
    checked(unsafe { tcsetattr(terminal.as_raw_fd(), TCSANOW, &modes) }).map(drop)
}

/// Powers off or restarts the machine at once, after writing file systems. Processes do not run any
/// further.
pub(crate) fn end_machine(asked: Asked) -> Result<()> {
    let command = match asked {
        Asked::Reboot => RESTART,
        Asked::PowerOff | Asked::Reap => POWER_OFF,
    };
    // SAFETY: neither call has a pointer.
    let done = unsafe {
        sync();
        reboot(command)
    };
    checked(done).map(drop)
}

fn new_socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<OwnedFd> {
    // SAFETY: the call has no pointers.
    let descriptor = checked(unsafe { socket(domain, kind | SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor is open, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn checked(result: c_int) -> Result<c_int> {
    match result {
        -1 => Err(Error::last_os_error()),
        result => Ok(result),
    }
}

const CLOCK_REALTIME: c_int = 0;
const O_NOCTTY: c_int = 0o400;
const TIOCSCTTY: c_ulong = 0x540e;
const FIONREAD: c_ulong = 0x541b;
const TCSANOW: c_int = 0;
const AF_INET: c_int = 2;
const AF_NETLINK: c_int = 16;
const SOCK_DGRAM: c_int = 2;
const SOCK_RAW: c_int = 3;
const SOCK_CLOEXEC: c_int = 0o2_000_000;
const IPPROTO_ICMP: c_int = 1;
const POWER_OFF: c_int = 0x4321_fedc;
const RESTART: c_int = 0x0123_4567;
const WNOHANG: c_int = 1;
const POLLIN: i16 = 1;
const SIG_BLOCK: c_int = 0;
const SIG_SETMASK: c_int = 2;
const SIGHUP: c_int = 1;
const SIGINT: c_int = 2;
const SIGKILL: c_int = 9;
const SIGUSR1: c_int = 10;
const SIGUSR2: c_int = 12;
const SIGTERM: c_int = 15;
const SIGCHLD: c_int = 17;
const SIGCONT: c_int = 18;
#[cfg(target_arch = "x86_64")]
const FINIT_MODULE: c_long = 313;
#[cfg(not(target_arch = "x86_64"))]
const FINIT_MODULE: c_long = 273;
