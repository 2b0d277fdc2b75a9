//! `carina vm`: runs virtual machines attached to the running node.

mod boot;
mod boot_attempt;
mod cards;
mod ip_link;
mod own_guest;
mod vsock;
pub(crate) mod xen;

use std::path::PathBuf;
use std::time::Duration;

use carina_api::LocalName;
use carina_api::control::{Client, ClientError, LinkState, VmCreate, VmInfo, VmpiKind};
use carina_text::duration::parse_ns;
use carina_text::table::Table;
use carina_vm::{Guest, Stopped};
use carina_wrap::rule::Destinations;
use clap::Subcommand;

use self::boot::boot;
use self::cards::NicArg;
use self::vsock::ServeArgs;
use super::command_output::exec_in_guest;
use super::terminal;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::report::{print_json, print_line, progress};

/// Run virtual machines that are attached to this system's node by shared memory
#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// Boot a VM with a Carina node inside, attached to the running node of this system
    #[command(
        after_help = "Examples:\n  carina vm run a\n  carina vm run a --console\n  carina vm run \
          a --vmpi virtqueue\n  carina vm run a --ssh --program /usr/bin/curl --internet \
          www.example.com:80\n  carina vm run a --ip 10.9.1.2/24 --nat\n  carina vm run a \
          --command \"carina ping --listen --wait 10s &\"\n  carina vm run web --disk \
          debian.qcow2 --memory 2048 --ssh\n  carina vm run b --hypervisor xen\n\nThe VM keeps \
          running when the command ends; `carina vm stop` ends the VM. SIGINT and SIGTERM \
          before\nthe VM runs remove the VM and its new port (exit code 130)."
    )]
    Run(RunArgs),
    /// Connect this terminal to the serial console of a VM
    #[command(after_help = "Example:\n  carina vm console a\n\nCtrl-] leaves the console.")]
    Console {
        /// Name of the VM, as `carina vm list` shows it
        name: LocalName,
    },
    /// Run a command in a VM that Carina has booted, and exit with the command's exit code
    #[command(
        after_help = "Examples:\n  carina vm exec a carina ping echo.host\n  carina vm \
        exec a sh -c 'carina ping --listen >/tmp/echo.log 2>&1 &'\n\nThe command has no \
        standard input. Its output is printed as it is produced. SIGINT, SIGTERM and a limit of \
        one hour\nkill it. The guest must answer within 180 s (a guest from --disk within 30 \
        s); --wait sets another limit."
    )]
    Exec {
        /// Name of the VM in which to run the command
        name: LocalName,
        /// Command to run in the guest, with its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// List the node's VM ports, each with the QEMU process of its VM if the node has found one
    #[command(after_help = "Example:\n  carina vm list --json")]
    List,
    /// Stop a VM, and remove its port from the node
    #[command(after_help = "Example:\n  carina vm stop a --grace 10s")]
    Stop {
        /// Name of the VM to stop
        name: LocalName,
        /// Longest time to wait until the guest has powered itself off, such as 10s; then the
        /// command ends QEMU. 0s: end QEMU without waiting
        #[arg(long, default_value = "0s", value_parser = parse_ns)]
        grace: u64,
        /// Keep the VM's port and its DIF in the node [default: remove them]
        #[arg(long)]
        keep_port: bool,
    },
    /// Print the QEMU arguments that attach a VM, which you start yourself, to this system's node
    #[command(
        after_help = "Examples:\n  qemu-system-x86_64 ... $(carina vm args a)\n  carina vm args \
        a --libvirt\n  carina vm args c --socket /run/c/vmpi\n\nThe command creates the VM's \
        port in the node if it does not exist. With --socket, it prints the command for the \
        node in the other process or container, which needs no device."
    )]
    Args {
        /// Name of the VM; its port in the node has the same name
        name: LocalName,
        /// Print XML elements for a libvirt domain [default: print QEMU arguments]
        #[arg(long)]
        libvirt: bool,
        #[command(flatten)]
        process: ProcessArgs,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Serve the vsock device of a VM until its QEMU ends; `carina vm run --vmpi vsock` starts this
    /// command
    #[command(
        after_help = "Example:\n  carina vm args a --vmpi vsock\n  carina vm serve-vsock a\n\nPrograms \
        of this host reach port 22 of the VM through the Unix socket NAME.vsock in the node's \
        directory of VMs\nwhen they send \"CONNECT 22\" first. What the VM connects to port 52 of \
        its host arrives at NAME.vsock_52."
    )]
    ServeVsock(ServeArgs),
}

/// Options of a VM's port in the node: the DIF, the shared memory, and the device between VM and
/// host.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PortArgs {
    /// Name of the DIF between host and VM [default: hv.NAME]
    #[arg(long)]
    dif: Option<carina_api::DifName>,
    /// Size of the memory that VM and host share, in bytes, a power of two such as 16777216
    /// [default: 16 MiB]
    #[arg(long)]
    region_bytes: Option<u64>,
    /// Device through which the nodes of VM and host exchange messages [default: ivshmem; with
    /// --socket of `carina vm args`, virtqueue]
    #[arg(long)]
    vmpi: Option<VmpiName>,
}

/// Option that connects a process, container or other hypervisor in place of QEMU.
#[derive(Debug, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Unix socket at which this node awaits the Carina node of a process or container, such as
    /// /run/c/vmpi; with --vmpi vsock, that of Firecracker or Cloud Hypervisor [default: for QEMU]
    #[arg(long, value_name = "PATH", conflicts_with = "libvirt")]
    socket: Option<PathBuf>,
}

/// Device through which the node in a VM and the node of its host exchange messages (VMPI).
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum VmpiName {
    /// Memory that VM and host share, with wake-ups: QEMU's ivshmem-doorbell
    Ivshmem,
    /// Memory that VM and host share, and that both poll: QEMU's ivshmem-plain, or --ivshmem of
    /// Cloud Hypervisor
    IvshmemPlain,
    /// Virtqueues of QEMU's virtio-net-pci; the node in the VM is the driver of the device
    Virtqueue,
    /// A stream of AF_VSOCK between VM and host, without shared memory
    Vsock,
    /// Memory that the node in a Xen domain shares with Dom0 by grants
    Xen,
}

impl From<VmpiName> for VmpiKind {
    fn from(name: VmpiName) -> VmpiKind {
        match name {
            VmpiName::Ivshmem => VmpiKind::Ivshmem,
            VmpiName::IvshmemPlain => VmpiKind::IvshmemPlain,
            VmpiName::Virtqueue => VmpiKind::Virtqueue,
            VmpiName::Vsock => VmpiKind::Vsock,
            VmpiName::Xen => VmpiKind::Xen,
        }
    }
}

/// Options of `carina vm run`: what the VM consists of, and when the command returns.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Name of the new VM, such as web
    name: LocalName,
    #[command(flatten)]
    port: PortArgs,
    /// Hypervisor that runs the VM: qemu, or xen on a Dom0
    #[arg(long, value_enum, default_value = "qemu")]
    hypervisor: xen::Hypervisor,
    /// Disk image to boot, such as debian.qcow2 [default: Carina's own small guest]
    #[arg(long)]
    disk: Option<PathBuf>,
    /// Memory of the VM in MiB, such as 512
    #[arg(long, default_value_t = 256)]
    memory: u32,
    /// Number of processors of the VM
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    cpus: u32,
    /// Give the VM an IOMMU, which its node needs to receive doorbell interrupts [default: the node
    /// in the VM polls]
    #[arg(long)]
    iommu: bool,
    /// Add a network card to the VM, by the vhost-user socket of a port of nfv run or of a graph;
    /// may be repeated [default: no card]
    ///
    /// The card has the MAC address behind ",mac=", else the address of the port in its file.
    #[arg(long, value_name = "SOCKET[,mac=MAC]")]
    nic: Vec<NicArg>,
    /// Shell command that the guest runs at boot, such as 'carina ping --listen &' (not with
    /// --disk)
    #[arg(long)]
    command: Option<String>,
    /// Add a program of this host to Carina's own guest, with its shared libraries, at the same
    /// path, such as /usr/bin/curl; may be repeated
    ///
    /// The guest also gets the library that `carina wrap` needs to run the program there.
    #[arg(long, value_name = "PATH", conflicts_with = "disk")]
    program: Vec<PathBuf>,
    /// Start sshd in the guest and make keys for it: `carina ssh NAME` logs in as root
    ///
    /// The sshd is the one of this host (package openssh-server). The keys are files of the VM in
    /// the run directory, which their owner alone can read; `carina vm stop` removes them. With
    /// --disk, cloud-init in the image takes the keys and a node from a volume (genisoimage); the
    /// image must have cloud-init and an sshd.
    #[arg(long)]
    ssh: bool,
    /// Let programs in the guest reach hosts through the network of this host: HOST[:PORTS], such
    /// as www.example.com:80, '*.example.com', 10.9.0.0/16 or '*'; may be repeated [default:
    /// nothing]
    ///
    /// The guest's http_proxy and https_proxy lead to this host's node, which looks names up and
    /// connects. Loopback, link-local and multicast addresses need a rule with a network such as
    /// 127.0.0.0/8; addresses of the host's interfaces need one with exactly this address.
    #[arg(long, value_name = "RULE")]
    internet: Vec<Destinations>,
    /// Give the VM this IP address, such as 10.9.1.2/24, with a default route through this host;
    /// may be repeated
    ///
    /// The node of this host makes an interface ip-NAME, with the first address of the prefix that
    /// is not the VM's (10.9.1.1), and needs root or CAP_NET_ADMIN. In the VM, the guest's node
    /// (with --disk: `carina node --guest`) gets the address from this host.
    #[arg(long, value_name = "ADDRESS/BITS")]
    ip: Vec<carina_ip::Address>,
    /// Give packets from the VM this host's address (NAT, by nftables), and turn on
    /// net.ipv4.ip_forward [default: other systems need a route to the VM]
    #[arg(long, requires = "ip")]
    nat: bool,
    /// Name server that the VM asks; may be repeated [default: those in /etc/resolv.conf of this
    /// host which the VM can reach]
    #[arg(long, value_name = "ADDRESS", requires = "ip")]
    dns: Vec<std::net::IpAddr>,
    /// Connect this terminal to the VM's console as soon as QEMU runs, without waiting for the boot
    #[arg(long)]
    console: bool,
    /// Return when QEMU runs the guest [default: wait until Carina's own guest has booted; with
    /// --disk, wait only if --ssh is given, until the sshd of the guest is reachable]
    #[arg(long)]
    no_wait: bool,
    /// Further arguments for QEMU, separated by spaces, such as '-kernel vmlinuz'; quotes keep
    /// spaces within an argument; may be repeated
    #[arg(long, allow_hyphen_values = true)]
    qemu_args: Vec<String>,
}

/// How long a guest may take to boot. Without KVM, QEMU's TCG is slow.
const BOOT: Duration = Duration::from_secs(180);

/// How long QEMU may take until it runs the guest; until then the node must connect to QEMU.
const START: Duration = Duration::from_secs(60);

/// Runs a command of `carina vm`.
///
/// # Errors
/// The node refuses or does not run, or QEMU does not start.
pub(crate) fn run(shared: &Shared, command: VmCommand) -> Outcome {
    match command {
        VmCommand::Run(args) if args.hypervisor == xen::Hypervisor::Xen => xen::boot(shared, args),
        VmCommand::Run(args) => boot(shared, args),
        VmCommand::Console { name } => console(shared, &name),
        VmCommand::Exec { name, command } => {
            let limit = shared.wait.map(|_| shared.wait_limit());
            let directory = shared.run_dir().vm_dir();
            let reach = || -> Result<Guest, Failure> {
                Ok(Guest::reach(&directory, name.as_str(), limit)?)
            };
            exec_in_guest(shared, reach, &command)
        }
        VmCommand::List => list(shared),
        VmCommand::Stop {
            name,
            grace,
            keep_port,
        } => stop(shared, &name, grace, keep_port),
        VmCommand::Args {
            name,
            libvirt,
            process,
            port,
        } => args(shared, name, libvirt, process.socket, port),
        VmCommand::ServeVsock(args) => vsock::serve(shared, &args),
    }
}

/// What a VM may reach through its host, as the port of the VM has it.
#[derive(Debug, Default)]
struct Doors {
    /// Rules of `--internet`.
    internet: Vec<String>,
    /// Addresses of `--ip`.
    ip: Vec<String>,
    /// Whether `--nat` is given.
    nat: bool,
}

impl Doors {
    fn of(args: &RunArgs) -> Doors {
        Doors {
            internet: args.internet.iter().map(ToString::to_string).collect(),
            ip: args.ip.iter().map(ToString::to_string).collect(),
            nat: args.nat,
        }
    }
}

/// Whether the port has exactly this IP link.
fn has_link(info: &VmInfo, ip: &[String], nat: bool) -> bool {
    let link = info.ip.as_ref();
    link.is_some_and(|link| link.addresses == ip && link.nat == nat)
}

/// Returns the port of a VM, and whether it was created now.
fn port_of(
    node: &Client,
    name: &LocalName,
    socket: Option<PathBuf>,
    port: PortArgs,
    doors: Doors,
) -> Result<(VmInfo, bool), Failure> {
    let Doors {
        internet: rules,
        ip,
        nat,
    } = doors;
    let queues = socket.is_some().then_some(VmpiKind::Virtqueue);
    let vmpi = port.vmpi.map(VmpiKind::from).or(queues);
    match node.vm(name.as_str()) {
        Ok(info) if vmpi.is_some_and(|vmpi| vmpi != info.vmpi) => Err(failed(format!(
            "VM {name} has a port already, with VMPI over {:?}; carina vm stop {name} removes \
             the port",
            info.vmpi
        ))),
        Ok(info) if !ip.is_empty() && !has_link(&info, &ip, nat) => Err(failed(format!(
            "VM {name} has a port already, with other values of --ip and --nat; carina vm stop \
             {name} removes the port"
        ))),
        Ok(info) => match &info.internet {
            _ if rules.is_empty() => Ok((info, false)),
            Some(proxy) if proxy.rules == rules => Ok((info, false)),
            _ => Err(failed(format!(
                "VM {name} has a port already, with other rules of --internet; carina vm stop \
                 {name} removes it"
            ))),
        },
        Err(ClientError::Refused { status: 404, .. }) => {
            let create = VmCreate {
                name: name.clone(),
                region_bytes: port.region_bytes,
                dif: port.dif,
                vmpi,
                socket,
                internet: rules,
                ip,
                nat,
            };
            let created = node.create_vm(&create);
            let info = created.attempt(format!("making a port for VM {name}"))?;
            Ok((info, true))
        }
        Err(error) => Err(error).attempt(format!("asking the node for VM {name}")),
    }
}

fn list(shared: &Shared) -> Outcome {
    let ports = shared.control().vms().attempt("listing VMs")?;
    let records = carina_vm::list(&shared.run_dir().vm_dir()).attempt("listing machines")?;
    if shared.json {
        return print_json(&serde_json::json!({ "ports": ports, "machines": records }));
    }
    let mut table = Table::new(["NAME", "DIF", "QEMU", "LINK", "ACCEL", "MiB"]);
    for port in ports {
        let record = records
            .iter()
            .find(|record| record.name == port.name.as_str());
        let dash = || "-".to_owned();
        table.row([
            port.name.to_string(),
            port.dif.to_string(),
            port.qemu_pid.map_or_else(dash, |pid| pid.to_string()),
            if port.state == LinkState::Up {
                "up"
            } else {
                "down"
            }
            .to_owned(),
            record.map_or_else(dash, |record| record.accel.clone()),
            record.map_or_else(dash, |record| record.memory_mib.to_string()),
        ]);
    }
    print_line(table)
}

fn stop(shared: &Shared, name: &LocalName, grace: u64, keep_port: bool) -> Outcome {
    if xen::is_domain(shared, name) {
        return xen::stop(shared, name, grace, keep_port);
    }
    let vm_dir = shared.run_dir().vm_dir();
    let stopped = carina_vm::stop(&vm_dir, name.as_str(), Duration::from_nanos(grace));
    if stopped.is_ok() {
        // Only a VM with VMPI over vsock has this file.
        let _ = std::fs::remove_file(vsock::log_path(&vm_dir, name));
    }
    // The port is removed even when no machine runs; a missing machine is then no error.
    let removed = if keep_port {
        Ok(())
    } else {
        shared.control().destroy_vm(name.as_str())
    };
    let stopped = match (stopped, removed) {
        (Err(error), Err(_)) => return Err(error).attempt(format!("stopping VM {name}")),
        (Err(error), Ok(())) if keep_port => {
            return Err(error).attempt(format!("stopping VM {name}"));
        }
        (stopped, _) => stopped.ok(),
    };
    let (word, means) = match stopped {
        Some(Stopped::PoweredOff) => ("powered-off", "the guest powered itself off"),
        Some(Stopped::Quit) => ("quit", "QEMU ended at once"),
        Some(Stopped::Killed) => ("killed", "QEMU did not answer and was killed"),
        None => ("no-machine", "no machine ran; its port is removed"),
    };
    if shared.json {
        print_json(&serde_json::json!({ "stopped": name, "by": word }))
    } else {
        print_line(format!("VM {name} is stopped: {means}"))
    }
}

fn args(
    shared: &Shared,
    name: LocalName,
    libvirt: bool,
    socket: Option<PathBuf>,
    port: PortArgs,
) -> Outcome {
    // The node has another working directory, so the path is made absolute.
    let socket = socket.map(std::path::absolute).transpose();
    let socket = socket.attempt("finding the absolute path of the socket")?;
    let doors = Doors::default();
    let (info, _) = port_of(&shared.control(), &name, socket.clone(), port, doors)?;
    if let Some(socket) = socket {
        if info.vmpi == VmpiKind::Vsock {
            return vsock::print_guest_command(shared, &info);
        }
        if info.listen_socket.as_ref() != Some(&socket) {
            return Err(failed(format!(
                "VM {name} has a port already, at another place than {}; carina vm stop {name} \
                 removes the port",
                socket.display()
            )));
        }
        let (dif, path) = (&info.dif, socket.display());
        let command =
            format!("carina ipcp create {name} --type hv --side guest --dif {dif} --socket {path}");
        return if shared.json {
            print_json(&serde_json::json!({ "command": command }))
        } else {
            print_line(command)
        };
    }
    if info.vmpi == VmpiKind::Xen {
        return xen::print_lines(shared, &name);
    }
    let arguments = &info.qemu_args;
    let xml = carina_vm::libvirt_xml(arguments);
    if info.vmpi == VmpiKind::Vsock {
        progress(format!(
            "beside QEMU runs: carina vm serve-vsock {name}; the node in the VM gets: {}",
            vsock::guest_command(&info)
        ));
    }
    if matches!(info.vmpi, VmpiKind::Virtqueue | VmpiKind::Vsock) {
        progress(
            "its memory must be shared: -object memory-backend-memfd,id=m,size=SIZE,share=on \
             -machine memory-backend=m",
        );
    }
    match (shared.json, libvirt) {
        (true, _) => print_json(&serde_json::json!({ "qemu": arguments, "libvirt": xml })),
        (false, true) => print_line(xml.trim_end()),
        (false, false) => print_line(arguments.join(" ")),
    }
}

fn console(shared: &Shared, name: &LocalName) -> Outcome {
    let records = carina_vm::list(&shared.run_dir().vm_dir()).attempt("listing machines")?;
    let record = records
        .into_iter()
        .find(|record| record.name == name.as_str())
        .ok_or_else(|| failed(format!("no VM {name} started by Carina runs here")))?;
    terminal::connect(
        &record.console,
        &format!("VM {name}"),
        shared.answer_limit(),
    )
}
