//! Starts a command under a filter.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::{fmt, io};

use carina_sys::{recv_with_fds, socketpair_seqpacket};
use libc::{c_int, c_ulong, sock_fprog};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::filter::{Filter, PASSES};
use crate::listener::{Listener, Response, Room, outcome};
use crate::signals::unblock;

/// Why a command could not be started under a filter.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The kernel has no seccomp notifications that can pass descriptors: Linux 5.14 or later with
    /// `CONFIG_SECCOMP_FILTER` is needed.
    Kernel(String),
    /// This process already runs under a filter with notifications; the kernel allows only one.
    Supervised,
    /// The kernel refuses the filter.
    Filter(io::Error),
    /// The command could not be started.
    Command(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Kernel(release) => write!(
                f,
                "Linux {release} has no seccomp notifications that pass descriptors; Linux 5.14 \
                 or later with CONFIG_SECCOMP_FILTER is needed"
            ),
            StartError::Supervised => {
                f.write_str("this process runs under another seccomp supervisor; Linux allows one")
            }
            StartError::Filter(error) => write!(f, "supervising: {error}"),
            StartError::Command(error) => write!(f, "starting: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Starts a command under the filter, which also holds for all descendants of the command. Returns
/// the child process, and the listener for its calls.
///
/// Without `CAP_SYS_ADMIN` the command gets `no_new_privs`: set-user-ID programs that it starts run
/// as their caller.
///
/// # Errors
/// [`StartError`]
pub fn spawn(mut command: Command, filter: Filter) -> Result<(Child, Listener), StartError> {
    check_kernel()?;
    let (ours, theirs) = socketpair_seqpacket().map_err(StartError::Filter)?;
    let prepare = move || {
        unblock();
        let listener = install(&filter)?;
        Ok(pass(theirs.as_fd(), listener.as_fd())?)
    };
    // SAFETY: between fork and exec the closure makes system calls only; it allocates nothing and
    // takes no lock unless a call fails.
    unsafe { command.pre_exec(prepare) };
    let started = command.spawn();
    drop(command);
    let received = recv_with_fds(&ours, &mut [0; 8]);
    let listener = received.ok().and_then(|mut received| received.fds.pop());
    match (started, listener) {
        (Ok(child), Some(listener)) => Ok((child, Listener::new(listener))),
        (Ok(_), None) => Err(StartError::Filter(io::ErrorKind::UnexpectedEof.into())),
        (Err(error), Some(_)) => Err(StartError::Command(error)),
        (Err(error), None) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(StartError::Supervised)
        }
        (Err(error), None) => Err(StartError::Filter(error)),
    }
}

/// Sends the listener to the supervisor. The filter holds already, and nothing receives its
/// notifications yet: the flag [`PASSES`] is what lets this call through.
fn pass(socket: BorrowedFd<'_>, listener: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let listener = [listener];
    if !control.push(SendAncillaryMessage::ScmRights(&listener)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::from_bits_retain(PASSES);
    sendmsg(socket, &[IoSlice::new(b"l")], &mut control, flags)?;
    Ok(())
}

fn check_kernel() -> Result<(), StartError> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let version: (u32, u32) = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (0, 0),
    };
    let missing = || StartError::Kernel(release.clone().into_owned());
    if version < VERSION_MIN {
        return Err(missing());
    }
    let action = libc::SECCOMP_RET_USER_NOTIF;
    let mut sizes = [0u16; 3];
    let (of_action, of_sizes) = (
        libc::SECCOMP_GET_ACTION_AVAIL,
        libc::SECCOMP_GET_NOTIF_SIZES,
    );
    // SAFETY: the kernel reads a number of 32 bits, and writes three numbers of 16.
    let answers = unsafe {
        [
            libc::syscall(libc::SYS_seccomp, of_action, 0, &raw const action),
            libc::syscall(libc::SYS_seccomp, of_sizes, 0, &raw mut sizes),
        ]
    };
    let [notification, response, _] = sizes.map(usize::from);
    let has_room = notification <= size_of::<Room>() && response == size_of::<Response>();
    if answers == [0, 0] && has_room {
        Ok(())
    } else {
        Err(missing())
    }
}

/// Installs the filter in the calling thread. Returns the descriptor for notifications.
fn install(filter: &Filter) -> Result<OwnedFd, Errno> {
    match install_once(filter) {
        Err(Errno::ACCESS) => {
            let (on, unused): (c_ulong, c_ulong) = (1, 0);
            // SAFETY: the kernel takes numbers.
            outcome(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) })?;
            install_once(filter)
        }
        installed => installed,
    }
}

fn install_once(filter: &Filter) -> Result<OwnedFd, Errno> {
    let program = sock_fprog {
        len: filter.0.len() as u16,
        // The kernel reads it only.
        filter: filter.0.as_ptr().cast_mut(),
    };
    let (mode, flags) = (
        libc::SECCOMP_SET_MODE_FILTER,
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
    );
    // SAFETY: the structure and the instructions outlive the call, and the kernel copies them.
    let listener = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    outcome(listener as c_int)?;
    // SAFETY: the kernel has just made this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as c_int) })
}

/// The first version of Linux in which `SECCOMP_IOCTL_NOTIF_ADDFD` can also answer the call
/// (`SECCOMP_ADDFD_FLAG_SEND`).
const VERSION_MIN: (u32, u32) = (5, 14);

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use rustix::net::AddressFamily;

    use super::*;

    fn start(words: &[&str]) -> Result<(Child, Listener), StartError> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdout(Stdio::null());
        command.env_remove("HOME").env_remove("SHELL");
        spawn(command, Filter::of_socket_calls())
    }

    #[test]
    fn listener_sees_the_end_of_all_processes() {
        let (mut child, listener) = start(&["sh", "-c", "(sleep 0.1) & exit 3"]).unwrap();
        assert!(listener.next().unwrap().is_none());
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn signals_of_the_supervisor_reach_the_command() {
        let _signals = crate::Signals::new().unwrap();
        let (mut child, listener) = start(&["sh", "-c", "kill -TERM $$; sleep 60"]).unwrap();
        assert!(listener.next().unwrap().is_none());
        let status = child.wait().unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGTERM));
    }

    #[test]
    fn missing_command_is_not_blamed_on_the_filter() {
        let missing = start(&["/no/such/program"]);
        assert!(
            matches!(missing, Err(StartError::Command(_))),
            "{missing:?}"
        );
    }

    /// Under a supervisor, as the next test starts it: starts another one.
    #[test]
    fn inner() {
        if std::env::var_os("CARINA_TEST_INNER").is_some() {
            let second = start(&["true"]);
            assert!(matches!(second, Err(StartError::Supervised)), "{second:?}");
        }
    }

    #[test]
    fn second_supervisor_is_refused() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "start::tests::inner"]);
        command.env("CARINA_TEST_INNER", "1").stdout(Stdio::null());
        let (mut child, listener) = spawn(command, Filter::of_socket_calls()).unwrap();
        while let Some(notification) = listener.next().unwrap() {
            let _ = listener.let_pass(notification.id);
        }
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn answers_reach_the_program() {
        // The shell's redirection connects: bash has sockets of its own.
        let script = "exec 3<>/dev/tcp/127.0.0.1/9";
        let Ok((mut child, listener)) = start(&["bash", "-c", script]) else {
            println!("SKIP: no bash here");
            return;
        };
        let (mut connects, mut file) = (0, None);
        while let Some(notification) = listener.next().unwrap() {
            if notification.call != Some(crate::filter::Call::Connect) {
                let _ = listener.let_pass(notification.id);
                continue;
            }
            let number = notification.arguments[0] as i32;
            let socket = listener.descriptor(&notification, number).unwrap();
            if rustix::net::sockopt::socket_domain(&socket) != Ok(AddressFamily::INET) {
                // Without HOME, bash looks its user up, and glibc asks nscd by a Unix socket.
                let _ = listener.let_pass(notification.id);
                continue;
            }
            connects += 1;
            let absent = listener.descriptor(&notification, 999);
            assert_eq!(absent.unwrap_err(), Errno::BADF);
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            listener
                .replace(notification.id, number as u32, theirs.as_fd(), true)
                .unwrap();
            listener.answer(notification.id, Ok(0)).unwrap();
            let again = listener.answer(notification.id, Ok(0));
            assert!(again.is_err() && !listener.is_valid(notification.id));
            drop(theirs);
            file = Some(ours);
        }
        assert!(child.wait().unwrap().success());
        assert_eq!(connects, 1);
        // The program had the only other end, and has ended.
        let mut byte = [0];
        assert_eq!(io::Read::read(&mut file.unwrap(), &mut byte).unwrap(), 0);
    }
}
