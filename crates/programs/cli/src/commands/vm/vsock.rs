//! `carina vm serve-vsock`: the vsock device of a VM, served by a process beside QEMU.
//!
//! The process outlives the node, so that a node that restarts finds the VM's device as it was.
//! QEMU 7.2 cannot take a second process for the device.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use carina_api::LocalName;
use carina_api::control::{VmInfo, VmpiKind};
use carina_text::duration::parse_ns;
use carina_vsock::{Device, DeviceConfig};

use crate::Shared;
use crate::failure::{Attempt, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, flag_of_signal};
use crate::report::{print_json, print_line, progress};

/// Options of `carina vm serve-vsock`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Name of the VM, whose port in the node has VMPI over vsock
    name: LocalName,
    /// Context id of the VM, 3 or more, such as 42
    #[arg(long, default_value_t = CID, value_parser = clap::value_parser!(u64).range(3..CID_END))]
    cid: u64,
    /// End if QEMU does not connect within this time, such as 60s [default: wait without limit]
    #[arg(long, value_parser = parse_ns)]
    attach_within: Option<u64>,
}

/// Serves the device until QEMU has come and gone, or a signal arrives.
pub(super) fn serve(shared: &Shared, args: &ServeArgs) -> Outcome {
    let name = &args.name;
    let interrupted = flag_of_signal().attempt(TAKING_SIGNALS)?;
    let dir = shared.run_dir().vm_dir();
    let device = Device::start(&DeviceConfig {
        vhost_socket: dir.join(format!("{name}.qemu")),
        path: dir.join(format!("{name}.vsock")),
        guest_cid: args.cid,
    });
    let device = device.attempt(format!("serving the vsock device of VM {name}"))?;
    progress(format!(
        "waiting for QEMU at {}",
        dir.join(format!("{name}.qemu")).display()
    ));
    let deadline = args
        .attach_within
        .map(|ns| Instant::now() + Duration::from_nanos(ns));
    loop {
        let counts = device.counts();
        if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        if counts.attached > 0 && counts.is_attached == 0 {
            progress(format!("the QEMU of VM {name} has ended"));
            return Ok(());
        }
        if counts.attached == 0 && deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(failed(format!(
                "QEMU of VM {name} did not connect to the vsock device in time"
            )));
        }
        sleep(LOOK);
    }
}

/// Starts the process that serves the device of a VM that is about to boot, if the VM has one. The
/// process ends with QEMU, or if QEMU does not come.
pub(super) fn start_server(shared: &Shared, info: &VmInfo) -> Outcome {
    if info.vmpi != VmpiKind::Vsock {
        return Ok(());
    }
    let program = std::env::current_exe().attempt("finding this program")?;
    let log = log_path(&shared.run_dir().vm_dir(), &info.name);
    let log = std::fs::File::create(&log).attempt("writing the log of the vsock device")?;
    let mut command = Command::new(program);
    command
        .arg("--run")
        .arg(shared.run_dir().path())
        .args(["vm", "serve-vsock", info.name.as_str()])
        .args(["--attach-within", "60s"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // An interrupt that is typed at the terminal does not reach the process.
        .process_group(0);
    let spawned = command.spawn();
    spawned.attempt("starting carina vm serve-vsock").map(drop)
}

/// The log of the process that [`start_server`] starts, in the node's directory of VMs.
pub(super) fn log_path(vm_dir: &Path, name: &LocalName) -> PathBuf {
    vm_dir.join(format!("{name}.vsock.log"))
}

/// Prints the command for the node in a VM of Firecracker or Cloud Hypervisor.
pub(super) fn print_guest_command(shared: &Shared, info: &VmInfo) -> Outcome {
    let command = guest_command(info);
    if shared.json {
        print_json(&serde_json::json!({ "command": command }))
    } else {
        print_line(command)
    }
}

/// The command by which the node in a VM attaches.
pub(super) fn guest_command(info: &VmInfo) -> String {
    let (name, dif) = (&info.name, &info.dif);
    format!("carina ipcp create {name} --type hv --side guest --dif {dif} --vsock {HOST_PORT}")
}

/// The port of the host at which the node of a VM attaches.
pub(super) const HOST_PORT: u32 = 1110;

/// Default context id of a VM. Several VMs may have the same, because each has its own device.
const CID: u64 = 3;

/// The first number that is no context id of a VM. (vsock(7))
const CID_END: u64 = u32::MAX as u64;

/// Interval at which the command checks whether QEMU has disconnected.
const LOOK: Duration = Duration::from_millis(100);
