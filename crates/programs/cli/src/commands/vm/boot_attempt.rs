//! A VM that is booting, and the undoing of a boot that fails or is interrupted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carina_api::LocalName;
use carina_api::control::{Client, VmInfo};
use carina_vm::{Cache, Machine, Record, Running};

use super::{Doors, PortArgs, port_of};
use crate::Shared;
use crate::failure::{Attempt, Failure};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal_after};
use crate::report::progress;

/// What `carina vm run` has created so far; undone unless the boot finishes.
pub(super) struct BootAttempt {
    /// The node's description of the VM port.
    pub info: VmInfo,
    /// Directory in which the node keeps its VMs.
    pub vm_dir: PathBuf,
    made: Arc<Mutex<Made>>,
}

/// What has to be undone when a boot fails or is interrupted.
struct Made {
    /// The node's client, with which to remove the port, if the port is new.
    port: Option<Client>,
    /// Whether QEMU runs and has to be stopped.
    has_machine: bool,
    /// Whether the boot has finished: the VM then keeps running after this command.
    is_finished: bool,
}

impl BootAttempt {
    /// Creates the port, unless the VM has one. From here on SIGINT and SIGTERM undo everything and
    /// then end this process.
    ///
    /// # Errors
    /// The node refuses the port.
    pub(super) fn begin(
        shared: &Shared,
        name: &LocalName,
        port: PortArgs,
        doors: Doors,
    ) -> Result<Self, Failure> {
        let vm_dir = shared.run_dir().vm_dir();
        let control = shared.control();
        let made = Arc::new(Mutex::new(Made {
            port: None,
            has_machine: false,
            is_finished: false,
        }));
        let (of_signal, directory, of) = (made.clone(), vm_dir.clone(), name.clone());
        let words = "interrupted; the VM and its port are removed";
        end_with_signal_after(shared.json, words, move || {
            let mut made = of_signal.lock().unwrap_or_else(PoisonError::into_inner);
            made.take_back(&directory, &of);
            let is_interrupted = !made.is_finished;
            if is_interrupted {
                // The booting thread now fails too. It must wait for this lock forever, so that the
                // exit code says that the command was interrupted.
                std::mem::forget(made);
            }
            is_interrupted
        })
        .attempt(TAKING_SIGNALS)?;
        let mut locked = made.lock().unwrap_or_else(PoisonError::into_inner);
        let (info, is_new) = port_of(&control, name, None, port, doors)?;
        locked.port = is_new.then_some(control);
        drop(locked);
        Ok(Self { info, vm_dir, made })
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts QEMU.
    ///
    /// # Errors
    /// QEMU does not start.
    pub(super) fn start(&self, machine: Machine, cache: &Cache) -> Result<Running, Failure> {
        let mut made = self.made();
        let running = machine.start(cache).attempt("starting QEMU")?;
        made.has_machine = true;
        Ok(running)
    }

    /// Ends the attempt with success: the VM keeps running after this command.
    pub(super) fn finish(&self, running: Running) -> Record {
        self.made().is_finished = true;
        running.detach()
    }

    /// Stops the VM, and removes its port if the port is new.
    pub(super) fn take_back(&self) {
        self.made().take_back(&self.vm_dir, &self.info.name);
    }
}

impl Made {
    fn take_back(&mut self, vm_dir: &Path, name: &LocalName) {
        if self.is_finished {
            return;
        }
        if std::mem::take(&mut self.has_machine) {
            // Stopping fails when the machine has already ended.
            let _ = carina_vm::stop(vm_dir, name.as_str(), Duration::ZERO);
        }
        if let Some(control) = self.port.take()
            && let Err(error) = control.destroy_vm(name.as_str())
        {
            progress(format!("removing the port of VM {name}: {error}"));
        }
    }
}
