//! Runs a program under the supervisor, from its start to its exit code.

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use carina_seccomp::filter::Filter;
use carina_seccomp::{ForwardedSignal, Signals, StartError, spawn};
use carina_sys::{end_with_parent, raise_nofile_limit};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};

use crate::calls::Wrap;
use crate::supervisor::Supervisor;

/// Starts a program and carries out its calls and those of its descendants until all have ended.
/// Returns the exit code: the program's, or 128 plus the number of the signal that ended it.
///
/// Signals that other processes send to this process are forwarded to the program; the terminal
/// sends its signals to the program itself. When the program has ended and descendants still run, a
/// signal that ends programs ends this process. When the calling thread ends, also by `kill -9` of
/// this process, the kernel kills the program: nothing would carry out its calls any more.
///
/// # Errors
/// [`StartError`]
pub fn run(mut command: Command, wrap: Wrap) -> Result<u8, StartError> {
    let signals = Signals::new().map_err(StartError::Filter)?;
    // Processes whose parent has ended become children of this process, which may then look into
    // them where the system (Yama) lets a process look into its descendants only.
    set_child_subreaper(Some(getpid())).map_err(|error| StartError::Filter(error.into()))?;
    end_with_parent(&mut command);
    let (child, listener) = spawn(command, Filter::of_socket_calls())?;
    let program = Pid::from_child(&child);
    // Only after the start of the program, which keeps the limit of its caller.
    let _ = raise_nofile_limit();
    let supervisor = Supervisor::new(listener, wrap).map_err(StartError::Filter)?;
    let (ended, end) = channel();
    thread::Builder::new()
        .spawn(move || attend(&signals, program, &ended))
        .map_err(StartError::Filter)?;
    supervisor.serve().map_err(StartError::Filter)?;
    Ok(end.recv().map_or(FAILED, exit_code))
}

/// Receives and forwards signals, and reaps children.
fn attend(signals: &Signals, program: Pid, ended: &Sender<WaitStatus>) {
    let mut has_ended = false;
    loop {
        match signals.next() {
            Ok(ForwardedSignal::Child) => {
                while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
                    if process == program {
                        has_ended = true;
                        let _ = ended.send(status);
                    }
                }
            }
            Ok(ForwardedSignal::Sent(signal) | ForwardedSignal::OfTerminal(signal))
                if has_ended && ends(signal) =>
            {
                std::process::exit(128 + signal);
            }
            Ok(ForwardedSignal::Sent(signal)) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    let _ = kill_process(program, signal);
                }
            }
            Ok(ForwardedSignal::OfTerminal(_)) => {}
            Err(_) => return,
        }
    }
}

fn ends(signal: i32) -> bool {
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal)
}

fn exit_code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or_default(),
    };
    u8::try_from(code).unwrap_or(FAILED)
}

/// The exit code if it is unknown how the program ended.
const FAILED: u8 = 1;
