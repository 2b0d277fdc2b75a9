//! The guests of labs: their start, and the node inside.

use std::time::Instant;

use carina_api::control::{Client, IpcpInfo, LinkState};
use carina_vm::{BOOT, Guest, GuestImage, Record};

use crate::error::{Attempt, Error, Result};
use crate::record::LabDir;
use carina_topology::Vm;

/// Starts a machine for which the node of its host has a port. The machine keeps running when this
/// process ends.
///
/// # Errors
/// QEMU does not start.
pub(crate) fn start(
    image: &GuestImage,
    dir: &LabDir,
    name: &str,
    vm: &Vm,
    config: &str,
) -> Result<Record> {
    let host = dir.run_dir(&vm.host);
    let port = Client::new(host.control_sock())
        .vm(name)
        .attempt(format!("asking {} for the port of VM {name}", vm.host))?;
    let machine = image.machine(name, host.vm_dir());
    let running = machine
        .attempt("naming the VM")?
        .memory_mib(vm.memory_mib)
        .cpus(vm.cpus)
        .vmpi(port.vmpi, &port.qemu_socket)
        .node_config(config)
        .start(image.cache())
        .attempt(format!("starting QEMU for {name}"))?;
    Ok(running.detach())
}

/// Connects to a guest of a running lab, once it has booted.
///
/// # Errors
/// The machine does not run, or does not answer.
pub fn reach_guest(dir: &LabDir, name: &str, vm: &Vm) -> Result<Guest> {
    let machines = dir.run_dir(&vm.host).vm_dir();
    Ok(Guest::reach(&machines, name, None)?)
}

/// Applies a configuration to the node in a guest.
///
/// # Errors
/// The node refuses.
pub(crate) fn apply(guest: &Guest, config: &str) -> Result<()> {
    guest.put("/etc/carina.toml", config)?;
    guest.must_run("carina apply /etc/carina.toml")?;
    Ok(())
}

/// The IPCPs of the node in a guest.
///
/// # Errors
/// The node does not answer.
pub(crate) fn ipcps(guest: &Guest, name: &str) -> Result<Vec<IpcpInfo>> {
    let output = guest.must_run("carina ipcp list --json")?;
    serde_json::from_slice(&output.stdout)
        .attempt(format!("reading what the node in VM {name} says"))
}

/// Waits until the node in a guest is attached to the node of its host. Calls `pause` between two
/// checks.
///
/// # Errors
/// The node is not attached in time, or `pause` fails.
pub(crate) fn wait_for_link(
    dir: &LabDir,
    name: &str,
    vm: &Vm,
    pause: impl Fn() -> Result<()>,
) -> Result<()> {
    let host = Client::new(dir.run_dir(&vm.host).control_sock());
    let deadline = Instant::now() + BOOT;
    while Instant::now() < deadline {
        let port = host
            .vm(name)
            .attempt(format!("asking {} for {name}", vm.host))?;
        if port.state == LinkState::Up {
            return Ok(());
        }
        pause()?;
    }
    Err(Error::GuestNotAttached(name.to_owned()))
}
