//! The processes of the benchmark: servers, relays, and what they print.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carina_namespaces::ChildProcess;
use carina_sys::end_with_parent;

use crate::error::{Attempt, Error, Result};

/// Starts a process, with its output in the file `NAME.log` of a directory.
pub(super) fn spawn(mut command: Command, directory: &Path, name: &str) -> Result<ChildProcess> {
    let path = directory.join(format!("{name}.log"));
    let log = File::options().create(true).append(true).open(path);
    let log = log.attempt("making a log")?;
    let output = log.try_clone().attempt("making a log")?;
    end_with_parent(&mut command).stdin(Stdio::null());
    command.stdout(output).stderr(log);
    Ok(ChildProcess::start(&mut command, name)?)
}

/// Starts a process that listens on a port of the loopback interface, and waits until it does.
pub(super) fn listening(
    command: Command,
    directory: &Path,
    name: &str,
    port: u16,
) -> Result<ChildProcess> {
    let mut process = spawn(command, directory, name)?;
    let accepts = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    until(&mut process, directory, name, "it does not listen", accepts)?;
    Ok(process)
}

/// Waits until `holds`. If it does not hold in time, or the process has ended, the error contains
/// the process's log.
pub(super) fn until(
    process: &mut ChildProcess,
    directory: &Path,
    name: &str,
    complaint: &str,
    mut holds: impl FnMut() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + START;
    while !holds() {
        let ended = process.check_alive().err();
        if ended.is_some() || Instant::now() > deadline {
            let log = std::fs::read_to_string(directory.join(format!("{name}.log")));
            let log = log.unwrap_or_default();
            let last = log.lines().last().unwrap_or("it has printed nothing");
            let what = ended.map_or_else(|| complaint.to_owned(), |ended| ended.to_string());
            return Err(Error::NoAnswer(format!("{name}: {what}; {last}")));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// A port of the loopback interface that no socket has.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).attempt("finding a free port")?;
    Ok(listener.local_addr().attempt("finding a free port")?.port())
}

/// The command of a list of words.
pub(super) fn command(words: &[String]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    command.args(words);
    command
}

/// Texts as words of a command.
pub(super) fn words<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

/// Address of the loopback interface.
pub(super) const LOOPBACK: &str = "127.0.0.1";

/// How long a process may take until it serves.
pub(super) const START: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(10);
