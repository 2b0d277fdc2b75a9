//! The guardian: a process that gives a device back after the process that used it was killed.
//!
//! It waits for the end of a pipe. Only the guarded process has the pipe's other end, and the
//! kernel closes that end however the process ends.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Path of the program that runs as guardian.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program that runs as guardian of the devices that this process takes. It is started
/// with the arguments `nic guard ADDRESS`, and must then call [`guard`](crate::binding::guard). If
/// no program is set, only [`restore`](crate::binding::restore) gives a device back whose process
/// was killed.
pub fn guard_with(program: PathBuf) {
    // The first call counts; later calls name the same program.
    let _ = PROGRAM.set(program);
}

/// A running guardian. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    /// Starts a guardian; `None` if no program was set.
    pub(crate) fn start(address: &str) -> io::Result<Option<Guardian>> {
        let Some(program) = PROGRAM.get() else {
            return Ok(None);
        };
        let child = Command::new(program)
            .args(["nic", "guard", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // In a process group of its own, so that an interrupt typed at the terminal does not
            // reach it.
            .process_group(0)
            .spawn();
        let named = |error: io::Error| {
            let text = format!("starting a guardian of the device: {error}");
            io::Error::new(error.kind(), text)
        };
        Ok(Some(Guardian(child.map_err(named)?)))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // The device was given back or cannot be given back, so the guardian has nothing more to
        // do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
