//! Connects this terminal to a VM's serial console at a Unix socket.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use carina_sys::StopSignal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::failure::{Attempt, Failure, Outcome};
use crate::interrupt::TAKING_SIGNALS;
use crate::report::{print_bytes, progress};

/// The byte of Ctrl-], which leaves the console, as in telnet and virsh.
pub(super) const LEAVE: u8 = 0x1d;

/// Connects this terminal to the console at a socket, until either end closes or SIGTERM, SIGINT or
/// SIGHUP arrives. Then restores the terminal. `what` names the system in errors.
///
/// # Errors
/// Nothing listens on the socket within `limit`.
pub(super) fn connect(path: &Path, what: &str, limit: Duration) -> Outcome {
    let connected = carina_sys::connect_stream(path, limit);
    let socket = connected.attempt(format!("connecting the console of {what}"))?;
    let stop = StopSignal::or_hangup().attempt(TAKING_SIGNALS)?;
    progress("connected; Ctrl-] leaves the console");
    let raw = RawTerminal::enter();
    let outcome = relay(socket, &stop);
    drop(raw);
    outcome
}

/// Relays between the terminal and the console until either side closes, or a signal arrives.
fn relay(socket: UnixStream, stop: &StopSignal) -> Outcome {
    let mut to = socket.try_clone().attempt("sharing the console's socket")?;
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin();
        let mut buffer = [0; 256];
        while let Ok(len @ 1..) = stdin.read(&mut buffer) {
            let typed = &buffer[..len];
            let end = typed.iter().position(|byte| *byte == LEAVE);
            if to.write_all(&typed[..end.unwrap_or(len)]).is_err() || end.is_some() {
                break;
            }
        }
        // Shutting the socket wakes the loop that prints the console's output. The shutdown fails
        // when that loop has already ended.
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let mut from = socket;
    let mut buffer = [0; 4096];
    while !is_stopped(&from, stop)? {
        match from.read(&mut buffer) {
            Ok(len @ 1..) => print_bytes(&buffer[..len])?,
            _ => break,
        }
    }
    Ok(())
}

/// Waits until the console has output or closes (returns false), or a signal arrives (true).
fn is_stopped(console: &UnixStream, stop: &StopSignal) -> Result<bool, Failure> {
    let mut wanted = [
        PollFd::new(stop, PollFlags::IN),
        PollFd::new(console, PollFlags::IN),
    ];
    loop {
        match poll(&mut wanted, None) {
            Err(Errno::INTR) => {}
            polled => {
                polled.attempt("waiting for the console")?;
                return Ok(!wanted[0].revents().is_empty());
            }
        }
    }
}

/// Puts the terminal into raw mode: no echo, no line editing. Dropping the value restores it.
pub(super) struct RawTerminal {
    before: Option<rustix::termios::Termios>,
}

impl RawTerminal {
    /// Enters raw mode. Does nothing when standard input is not a terminal.
    pub(super) fn enter() -> Self {
        let stdin = std::io::stdin();
        let before = rustix::termios::tcgetattr(&stdin).ok();
        if let Some(mut raw) = before.clone() {
            raw.make_raw();
            // When this fails, the console is still usable, with line editing.
            let _ = rustix::termios::tcsetattr(&stdin, rustix::termios::OptionalActions::Now, &raw);
        }
        Self { before }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let now = rustix::termios::OptionalActions::Now;
            let _ = rustix::termios::tcsetattr(std::io::stdin(), now, before);
            // The shell's prompt begins a line, behind the prompt of the system that was left.
            if std::io::stderr().is_terminal() {
                progress("");
            }
        }
    }
}
