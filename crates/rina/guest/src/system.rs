//! The system calls that the standard library does not have. All unsafe code of a guest is here.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong, c_void};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn sigwait(set: *const SignalSet, signal: *mut c_int) -> c_int;
}

/// Room for a `sigset_t`, which has 128 bytes with glibc and with musl.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

/// Signals that wait until they are asked for.
pub struct Signals(SignalSet);

/// What a signal asks the first process for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A child has ended, and is to be taken leave of.
    Reap,
    /// `poweroff` or `halt`.
    PowerOff,
    /// `reboot`.
    Reboot,
}

impl Signals {
    /// Holds back the signals that busybox's `poweroff`, `halt` and `reboot` send to the first
    /// process, and those of children. For a process of one thread only.
    pub fn hold() -> Result<Signals> {
        let mut set = SignalSet([0; 128]);
        for signal in [SIGCHLD, SIGUSR1, SIGUSR2, SIGTERM, SIGINT] {
            // SAFETY: `SignalSet` has room for a `sigset_t`, of which zeros are an empty one.
            checked(unsafe { sigaddset(&raw mut set, signal) })?;
        }
        // SAFETY: a null pointer says that the former set is not wanted.
        checked(unsafe { sigprocmask(SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
        Ok(Signals(set))
    }

    /// Waits for the next of them.
    pub fn wait(&self) -> Asked {
        let mut signal = 0;
        // SAFETY: both live until the call returns; it fails for no set that the kernel has taken.
        unsafe { sigwait(&raw const self.0, &raw mut signal) };
        match signal {
            SIGUSR1 | SIGUSR2 => Asked::PowerOff,
            SIGTERM | SIGINT => Asked::Reboot,
            _ => Asked::Reap,
        }
    }
}

/// Has signals end a command's process as any other: it would inherit that they are held back.
pub fn with_signals(command: &mut Command) -> &mut Command {
    // SAFETY: the closure does nothing beyond system calls.
    unsafe { command.pre_exec(release_signals) }
}

fn release_signals() -> Result<()> {
    let mut none = SignalSet([0; 128]);
    // SAFETY: `SignalSet` has room for a `sigset_t`; a null pointer says that the former set is not
    // wanted. Both are allowed between fork and exec.
    let done = unsafe {
        sigemptyset(&raw mut none);
        sigprocmask(SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    checked(done).map(drop)
}

/// Asks all other processes to end: a service by SIGTERM, an interactive shell by SIGHUP.
pub fn ask_all_to_end() {
    for signal in [SIGTERM, SIGHUP, SIGCONT] {
        // SAFETY: has no pointers. That there is no other process is no harm.
        unsafe { kill(-1, signal) };
    }
}

/// Room for a `struct termios`, which has 60 bytes with glibc and as many with musl.
#[repr(C, align(8))]
struct Modes([u8; 256]);

/// Mounts a file system; a target that is not there is an error.
pub fn mount_at(kind: &str, target: &str, data: &str) -> Result<()> {
    let (kind, target, data) = (
        CString::new(kind)?,
        CString::new(target)?,
        CString::new(data)?,
    );
    // SAFETY: all are strings that end with NUL and live until the call returns.
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

/// Sets variables of the environment, for all that this process starts. For a process of one thread
/// only.
pub fn set_environment(variables: &[(&str, &str)]) {
    for (name, value) in variables {
        // SAFETY: this is the only thread, so that no other reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Sets the name of the guest.
pub fn set_host_name(name: &str) -> Result<()> {
    // SAFETY: the pointer is to as many bytes as the length says.
    checked(unsafe { sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Sets the clock to a time since 1970.
pub fn set_clock(seconds: i64) -> Result<()> {
    // SAFETY: `struct timespec` is two words of 64 bits, seconds and nanoseconds.
    checked(unsafe { clock_settime(CLOCK_REALTIME, &[seconds, 0]) }).map(drop)
}

/// Runs something in a process of its own, of a session of its own; its number. For a process of
/// one thread only.
pub fn in_child(act: impl FnOnce()) -> Result<c_int> {
    // SAFETY: this process has one thread, as the first process of a guest; the child has all of
    // its memory.
    let child = checked(unsafe { fork() })?;
    if child == 0 {
        let _ = release_signals();
        // SAFETY: has no arguments. It fails only for a leader of a group, and this is a child.
        unsafe { setsid() };
        act();
        std::process::exit(0);
    }
    Ok(child)
}

/// The number of a child that has ended, if one has.
///
/// # Errors
/// There are no children.
pub fn take_ended() -> Result<Option<c_int>> {
    // SAFETY: a null pointer says that the status is not wanted.
    let ended = checked(unsafe { waitpid(-1, std::ptr::null_mut(), WNOHANG) })?;
    Ok((ended != 0).then_some(ended))
}

/// Gives a command's process a session, and its standard input as the terminal of that.
pub fn with_terminal(command: &mut Command) -> &mut Command {
    let prepare = || {
        // SAFETY: both are system calls that allocate nothing and take no lock, as is asked of
        // what runs between fork and exec; TIOCSCTTY takes a number.
        unsafe {
            setsid();
            ioctl(0, TIOCSCTTY, 0);
        }
        release_signals()
    };
    // SAFETY: the closure does nothing beyond system calls.
    unsafe { command.pre_exec(prepare) }
}

/// A request of a socket about an interface, with a `struct ifreq` of 40 bytes.
pub fn interface_request(socket: &OwnedFd, request: u32, about: &mut [u8; 40]) -> Result<()> {
    let about: *mut [u8; 40] = about;
    // SAFETY: the kernel reads and writes no more than the 40 bytes of a `struct ifreq`
    // (netdevice(7)); requests whose argument holds a pointer are not made here.
    checked(unsafe { ioctl(socket.as_raw_fd(), request.into(), about) }).map(drop)
}

/// A socket for [`interface_request`].
pub fn socket_for_interfaces() -> Result<OwnedFd> {
    new_socket(AF_INET, SOCK_DGRAM, 0)
}

/// A socket that takes requests about routes (rtnetlink(7)), as a file: a write is a request, and a
/// read an answer.
pub fn route_socket() -> Result<File> {
    new_socket(AF_NETLINK, SOCK_RAW, 0).map(File::from)
}

/// A socket that sends messages of ICMP from an address, and receives all that comes for it.
pub fn icmp_socket(own: Ipv4Addr) -> Result<UdpSocket> {
    let socket = new_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)?;
    let mut address = [0_u8; 16];
    address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    address[4..8].copy_from_slice(&own.octets());
    // SAFETY: `struct sockaddr_in` has 16 bytes: family, port, address, and eight of nothing.
    checked(unsafe { bind(socket.as_raw_fd(), address.as_ptr().cast(), 16) })?;
    Ok(UdpSocket::from(socket))
}

/// Loads a module of the kernel. One that is loaded already is no error.
pub fn load_module(module: &File, parameters: &CStr) -> Result<()> {
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

/// Opens a terminal that does not become that of the session.
pub fn open_terminal(path: &str) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(O_NOCTTY);
    options.open(path)
}

/// Has a terminal hand over bytes as they are.
pub fn make_raw(terminal: &File) -> Result<()> {
    let mut modes = Modes([0; 256]);
    // SAFETY: `Modes` has room for a `struct termios`, and is aligned for it.
    checked(unsafe { tcgetattr(terminal.as_raw_fd(), &mut modes) })?;
    // SAFETY: tcgetattr has filled it.
    unsafe { cfmakeraw(&mut modes) };
    // SAFETY: as above.
    checked(unsafe { tcsetattr(terminal.as_raw_fd(), TCSANOW, &modes) }).map(drop)
}

/// Ends the machine, or begins it again. What the processes have not done by now, they never do.
pub fn end_machine(asked: Asked) -> Result<()> {
    let command = match asked {
        Asked::Reboot => RESTART,
        Asked::PowerOff | Asked::Reap => POWER_OFF,
    };
    // SAFETY: neither takes a pointer.
    let done = unsafe {
        sync();
        reboot(command)
    };
    checked(done).map(drop)
}

fn new_socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<OwnedFd> {
    // SAFETY: has no pointers.
    let descriptor = checked(unsafe { socket(domain, kind | SOCK_CLOEXEC, protocol) })?;
    // SAFETY: it is open, and no one else has it.
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
const SIG_BLOCK: c_int = 0;
const SIG_SETMASK: c_int = 2;
const SIGHUP: c_int = 1;
const SIGINT: c_int = 2;
const SIGUSR1: c_int = 10;
const SIGUSR2: c_int = 12;
const SIGTERM: c_int = 15;
const SIGCHLD: c_int = 17;
const SIGCONT: c_int = 18;
#[cfg(target_arch = "x86_64")]
const FINIT_MODULE: c_long = 313;
#[cfg(not(target_arch = "x86_64"))]
const FINIT_MODULE: c_long = 273;
