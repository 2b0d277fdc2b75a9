//! Processes of the host.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use carina_lab::TestNode;
use carina_namespaces::ChildProcess;
use carina_sys::end_with_parent;

use crate::error::{Attempt, Result};

/// How long a process may take until it serves.
pub(super) const START: Duration = Duration::from_secs(30);

/// Starts a process, with its output in a file of the run directory.
pub(super) fn spawn(command: &mut Command, node: &TestNode, what: &str) -> Result<ChildProcess> {
    let path = node.path().join(format!("{what}.log"));
    let log = File::options().create(true).append(true).open(path);
    let log = log.attempt("making a log")?;
    let output = log.try_clone().attempt("making a log")?;
    end_with_parent(command).stdin(Stdio::null());
    command.stdout(output).stderr(log);
    Ok(ChildProcess::start(command, what)?)
}
