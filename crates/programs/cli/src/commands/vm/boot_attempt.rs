//! A VM on its way up: what a boot that fails or is interrupted gives back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carina_api::LocalName;
use carina_api::control::{Client, VmInfo};
use carina_vm::{Cache, Machine, Record, Running};

use super::{PortArgs, port_of};
use crate::Shared;
use crate::failure::{Attempt, Failure};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal_after};
use crate::report::progress;

/// What `carina vm run` has made before the VM runs on its own.
pub struct BootAttempt {
    /// The port of the VM.
    pub info: VmInfo,
    /// Where the node keeps its VMs.
    pub vm_dir: PathBuf,
    made: Arc<Mutex<Made>>,
}

/// What a boot that fails or is interrupted gives back.
struct Made {
    /// The port is new: the node removes it.
    port: Option<Client>,
    /// QEMU runs: it ends.
    has_machine: bool,
    /// The VM runs on without this command.
    is_finished: bool,
}

impl BootAttempt {
    /// Makes the port, unless the VM has one. From here on SIGINT and SIGTERM end this process
    /// after everything is given back.
    ///
    /// # Errors
    /// The node refuses the port.
    pub fn begin(shared: &Shared, name: &LocalName, port: PortArgs) -> Result<Self, Failure> {
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
                // The thread that boots fails now. It waits for the lock, so that the exit code
                // says that the command was interrupted.
                std::mem::forget(made);
            }
            is_interrupted
        })
        .attempt(TAKING_SIGNALS)?;
        let mut locked = made.lock().unwrap_or_else(PoisonError::into_inner);
        let (info, is_new) = port_of(&control, name, None, port)?;
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
    /// It does not start.
    pub fn start(&self, machine: Machine, cache: &Cache) -> Result<Running, Failure> {
        let mut made = self.made();
        let running = machine.start(cache).attempt("starting QEMU")?;
        made.has_machine = true;
        Ok(running)
    }

    /// Lets the VM run on.
    pub fn finish(&self, running: Running) -> Record {
        self.made().is_finished = true;
        running.detach()
    }

    /// Removes the VM and its new port.
    pub fn take_back(&self) {
        self.made().take_back(&self.vm_dir, &self.info.name);
    }
}

impl Made {
    fn take_back(&mut self, vm_dir: &Path, name: &LocalName) {
        if self.is_finished {
            return;
        }
        if std::mem::take(&mut self.has_machine) {
            // A machine that has ended by itself is stopped already.
            let _ = carina_vm::stop(vm_dir, name.as_str(), Duration::ZERO);
        }
        if let Some(control) = self.port.take()
            && let Err(error) = control.destroy_vm(name.as_str())
        {
            progress(format!("removing the port of VM {name}: {error}"));
        }
    }
}
