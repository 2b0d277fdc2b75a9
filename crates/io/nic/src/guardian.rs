//! A process that gives a device back when the one that had it was killed.
//!
//! It waits for the end of a pipe whose other end only that process has, and which the kernel
//! closes however that process ends.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The program that becomes a guardian.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says which program becomes the guardian of devices that this process takes: with the arguments
/// `nic guard ADDRESS` it calls [`guard`](crate::binding::guard). Without one a device whose
/// process is killed is given back by [`restore`](crate::binding::restore) only.
pub fn guard_with(program: PathBuf) {
    // The first one stays: it is the same program.
    let _ = PROGRAM.set(program);
}

/// The process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    /// Starts one; `None` where no program was named.
    pub(crate) fn start(address: &str) -> io::Result<Option<Guardian>> {
        let Some(program) = PROGRAM.get() else {
            return Ok(None);
        };
        let child = Command::new(program)
            .args(["nic", "guard", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt typed at this terminal is not for it.
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
        // The device was given back, or cannot be; there is nothing left for it to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
