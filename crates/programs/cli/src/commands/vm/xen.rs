//! `carina vm` on Dom0 of Xen: domains are started and ended by `xl`.

use std::time::{Duration, Instant};

use carina_api::LocalName;
use carina_api::control::{LinkState, VmInfo, VmpiKind};
use carina_vm::{Cache, Image, Kernel, XenDomain, XenKind};

use super::{BOOT, Doors, PortArgs, RunArgs, VmpiName, own_guest, port_of};
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::report::{print_json, print_line, progress};

/// The program that runs a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Hypervisor {
    /// QEMU, with KVM if the processor allows
    Qemu,
    /// Xen: `xl` starts a PVH domain, or a PV domain if virt_caps of `xl info` has neither hap nor
    /// shadow
    Xen,
}

/// Starts a domain with Carina's own guest, and waits until its node has attached.
///
/// # Errors
/// An option is for QEMU only; this system is not Dom0; `xl` refuses; the node does not attach.
pub(super) fn boot(shared: &Shared, args: RunArgs) -> Outcome {
    refuse_options_of_qemu(&args)?;
    let name = &args.name;
    let pvh = carina_vm::xen_has_pvh().attempt("asking xl for the abilities of this host")?;
    let cache = Cache::default_location().attempt("opening the cache")?;
    let kernel = Kernel::obtain(&cache).attempt("obtaining the guest's kernel")?;
    let port = PortArgs {
        vmpi: Some(VmpiName::Xen),
        ..args.port.clone()
    };
    let node = shared.control();
    let (info, is_new) = port_of(&node, name, None, port, Doors::of(&args))?;
    let started = start(shared, &args, &info, &cache, &kernel, pvh);
    if started.is_err() {
        // The domain may not run, and the port may have gone.
        let _ = carina_vm::destroy_xen_domain(name);
        if is_new {
            let _ = node.destroy_vm(name.as_str());
        }
    }
    started?;
    if shared.json {
        print_json(&serde_json::json!({ "name": name, "hypervisor": "xen", "dif": info.dif }))
    } else {
        print_line(format!("VM {name} runs (xen), DIF {}", info.dif))
    }
}

fn start(
    shared: &Shared,
    args: &RunArgs,
    info: &VmInfo,
    cache: &Cache,
    kernel: &Kernel,
    has_pvh: bool,
) -> Outcome {
    progress("building the guest's image");
    let program = std::env::current_exe().attempt("finding this program")?;
    let image = Image::new().node(&program).attempt("packing carina")?;
    let config = own_guest::guest_config(info, false)?;
    let image = own_guest::with_programs(image, args)?
        .module("xen_evtchn")
        .module("xen_gntalloc")
        .file("/etc/carina.toml", 0o644, config);
    let initramfs = image
        .build(cache, kernel)
        .attempt("building the guest's image")?;
    let kind = if has_pvh { XenKind::Pvh } else { XenKind::Pv };
    let mut domain = XenDomain::new(args.name.clone(), kind, &kernel.image, &initramfs)
        .memory_mib(args.memory)
        .cpus(args.cpus);
    if let Some(command) = &args.command {
        domain = domain.command(command);
    }
    let file = shared.run_dir().vm_dir().join(format!("{}.xl", args.name));
    progress("booting");
    domain.create(&file).attempt("starting the domain by xl")?;
    if args.no_wait {
        return Ok(());
    }
    wait_for_link(shared, &args.name)
}

fn wait_for_link(shared: &Shared, name: &LocalName) -> Outcome {
    let node = shared.control();
    let deadline = Instant::now() + BOOT;
    while Instant::now() < deadline {
        let info = node.vm(name.as_str());
        let info = info.attempt(format!("asking the node for VM {name}"))?;
        if info.state == LinkState::Up {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(failed(format!(
        "the domain {name} runs, but its node has not attached within {} s; `xl console {name}` \
         shows its console",
        BOOT.as_secs()
    )))
}

fn refuse_options_of_qemu(args: &RunArgs) -> Outcome {
    let refused = [
        (args.disk.is_some(), "--disk"),
        (args.iommu, "--iommu"),
        (args.ssh, "--ssh"),
        (args.console, "--console"),
        (!args.nic.is_empty(), "--nic"),
        (!args.internet.is_empty(), "--internet"),
        (!args.ip.is_empty(), "--ip"),
        (!args.qemu_args.is_empty(), "--qemu-args"),
        (
            matches!(
                args.port.vmpi,
                Some(VmpiName::Ivshmem | VmpiName::Virtqueue)
            ),
            "--vmpi of QEMU",
        ),
    ];
    match refused.iter().find(|(is_set, _)| *is_set) {
        Some((_, option)) => Err(usage(format!(
            "{option} is not possible with --hypervisor xen; for a domain of your own see `carina \
             vm args NAME --vmpi xen`"
        ))),
        None => Ok(()),
    }
}

/// Whether the port of this VM is for a domain of Xen.
pub(super) fn is_domain(shared: &Shared, name: &LocalName) -> bool {
    let info = shared.control().vm(name.as_str());
    info.is_ok_and(|info| info.vmpi == VmpiKind::Xen)
}

/// Ends a domain, and removes its port.
///
/// # Errors
/// Neither domain nor port could be removed.
pub(super) fn stop(shared: &Shared, name: &LocalName, grace: u64, keep_port: bool) -> Outcome {
    let asked = grace > 0 && carina_vm::shut_down_xen_domain(name).is_ok();
    let ended = asked || carina_vm::destroy_xen_domain(name).is_ok();
    if !keep_port {
        let removed = shared.control().destroy_vm(name.as_str());
        removed.attempt(format!("removing the port of VM {name}"))?;
    }
    let (word, means) = match (asked, ended) {
        (true, _) => ("powered-off", "the guest powered itself off"),
        (false, true) => ("quit", "xl destroyed the domain"),
        (false, false) => ("no-machine", "no domain ran"),
    };
    if shared.json {
        print_json(&serde_json::json!({ "stopped": name, "by": word }))
    } else {
        print_line(format!("VM {name} is stopped: {means}"))
    }
}

/// Prints the lines of `xl.cfg` that attach a user's own domain.
///
/// # Errors
/// Standard output is closed.
pub(super) fn print_lines(shared: &Shared, name: &LocalName) -> Result<(), Failure> {
    let lines = carina_vm::xen_domain_lines(name);
    if shared.json {
        print_json(&serde_json::json!({ "xl": lines }))
    } else {
        print_line(lines.trim_end())
    }
}
