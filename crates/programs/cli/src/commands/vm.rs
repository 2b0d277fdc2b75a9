//! `carina vm`: virtual machines attached to the running node.

mod boot_attempt;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use carina_api::LocalName;
use carina_api::control::{Client, ClientError, LinkState, VmCreate, VmInfo, VmpiKind};
use carina_text::duration::parse_ns;
use carina_text::table::Table;
use carina_vm::Guest;
use carina_vm::{Backend, Boot, Cache, Image, Machine, Model, Nic, Record};
use carina_wire::ether::Mac;
use clap::Subcommand;

use self::boot_attempt::BootAttempt;
use super::lab::exec_in_guest;
#[cfg(feature = "packet")]
use super::nfv;
use super::terminal;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::report::{print_json, print_line, progress};

/// Run virtual machines attached to this node
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Boot a VM attached to the running node, with a node of its own inside
    #[command(
        after_help = "Examples:\n  carina vm run a\n  carina vm run a --console\n  carina vm run a --vmpi virtqueue\n  carina vm run a --command \"carina ping --listen --wait 10s &\"\n  \
          \
        carina vm run web --disk debian.qcow2 --memory 2048 --qemu-args \"-vga std\"\n\nThe VM \
        runs on when the command ends; `carina vm stop` ends it. SIGINT and SIGTERM before the \
        VM runs\nremove it and its new port (exit code 130)."
    )]
    Run(RunArgs),
    /// Connect this terminal to the VM's serial console
    #[command(after_help = "Example:\n  carina vm console a\n\nCtrl-] leaves the console.")]
    Console {
        /// The VM
        name: LocalName,
    },
    /// Run a command in a VM that Carina has booted, and exit with its exit code
    #[command(after_help = "Examples:\n  carina vm exec a carina ping echo.host\n  \
        carina vm exec a sh -c 'carina ping --listen >/tmp/echo.log 2>&1 &'\n\nThe command has no \
        standard input, and its output comes when it has ended, for which it has an hour. The \
        guest has 180 s to answer, one from --disk 30 s; --wait sets another time.")]
    Exec {
        /// The VM
        name: LocalName,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// List VMs: those that run and those whose ports the node has
    #[command(after_help = "Example:\n  carina vm list --json")]
    List,
    /// Stop a VM and remove its port
    #[command(after_help = "Example:\n  carina vm stop a --grace 10s")]
    Stop {
        /// The VM
        name: LocalName,
        /// Have the guest power itself off first, and wait so long
        #[arg(long, default_value = "0s", value_parser = parse_ns)]
        grace: u64,
        /// Keep the VM's port and its DIF in the node
        #[arg(long)]
        keep_port: bool,
    },
    /// Print the arguments that attach a VM which Carina does not start
    #[command(
        after_help = "Examples:\n  qemu-system-x86_64 ... $(carina vm args a)\n  \
        carina vm args a --libvirt\n  carina vm args c --socket /run/c/vmpi\n\nMakes the VM's port \
        in the node when it is not there. With --socket it prints the command for the node of the \
        other process or container, which needs no device."
    )]
    Args {
        /// The VM
        name: LocalName,
        /// Print elements for a libvirt domain
        #[arg(long)]
        libvirt: bool,
        #[command(flatten)]
        process: ProcessArgs,
        #[command(flatten)]
        port: PortArgs,
    },
}

/// Options of the VM's port in the node.
#[derive(Debug, Clone, clap::Args)]
pub struct PortArgs {
    /// The DIF between host and VM [default: hv.NAME]
    #[arg(long)]
    dif: Option<carina_api::DifName>,
    /// Bytes of the shared region, a power of two [default: 16 MiB]
    #[arg(long)]
    region_bytes: Option<u64>,
    /// What carries the records between VM and host [default: ivshmem]
    #[arg(long)]
    vmpi: Option<VmpiName>,
}

/// The node's socket for a process or container of this host that is no VM.
#[derive(Debug, clap::Args)]
pub struct ProcessArgs {
    /// Without a VM: listen on this socket for the node of a process or container of this host
    #[arg(long, value_name = "PATH", conflicts_with = "libvirt")]
    socket: Option<PathBuf>,
}

/// What carries the VMPI.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum VmpiName {
    /// Memory that both map, by QEMU's ivshmem-doorbell
    Ivshmem,
    /// The virtqueues of QEMU's virtio-net-pci, driven by the VM's node
    Virtqueue,
}

impl From<VmpiName> for VmpiKind {
    fn from(name: VmpiName) -> VmpiKind {
        match name {
            VmpiName::Ivshmem => VmpiKind::Ivshmem,
            VmpiName::Virtqueue => VmpiKind::Virtqueue,
        }
    }
}

/// Options of `carina vm run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Name of the VM
    name: LocalName,
    #[command(flatten)]
    port: PortArgs,
    /// Boot this disk image in place of Carina's own guest
    #[arg(long)]
    disk: Option<PathBuf>,
    /// Memory in MiB
    #[arg(long, default_value_t = 256)]
    memory: u32,
    /// Processors
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// Give the VM an IOMMU, so that its node can take doorbell interrupts
    #[arg(long)]
    iommu: bool,
    /// Give the VM a network card that is a port of nfv run or of a graph, by the socket of the
    /// port; may be repeated
    ///
    /// The card has the MAC address that the port has in its file, or the one behind ",mac=".
    #[arg(long, value_name = "SOCKET[,mac=MAC]")]
    nic: Vec<NicArg>,
    /// A shell command for the guest to run at boot
    #[arg(long)]
    command: Option<String>,
    /// Connect this terminal to the console
    #[arg(long)]
    console: bool,
    /// Do not wait until the guest is up
    #[arg(long)]
    no_wait: bool,
    /// More arguments for QEMU, separated by spaces; quotes hold one together; may be repeated
    #[arg(long, allow_hyphen_values = true)]
    qemu_args: Vec<String>,
}

/// How long a guest may take to boot; TCG is slow.
const BOOT: Duration = Duration::from_secs(180);

/// How long QEMU may take until it runs the guest, for which the node must connect to it.
const START: Duration = Duration::from_secs(60);

/// Runs the command.
///
/// # Errors
/// The node refuses or does not run, or QEMU does not start.
pub fn run(shared: &Shared, command: VmCommand) -> Outcome {
    match command {
        VmCommand::Run(args) => boot(shared, args),
        VmCommand::Console { name } => console(shared, &name),
        VmCommand::Exec { name, command } => {
            let limit = shared.wait.map(|_| shared.wait_limit());
            let guest = Guest::reach(&shared.run_dir().vm_dir(), name.as_str(), limit)?;
            exec_in_guest(&guest, &command)
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
    }
}

/// The port of a VM, and whether it is new.
fn port_of(
    node: &Client,
    name: &LocalName,
    socket: Option<PathBuf>,
    port: PortArgs,
) -> Result<(VmInfo, bool), Failure> {
    let queues = socket.is_some().then_some(VmpiKind::Virtqueue);
    let vmpi = port.vmpi.map(VmpiKind::from).or(queues);
    match node.vm(name.as_str()) {
        Ok(info) if vmpi.is_some_and(|vmpi| vmpi != info.vmpi) => Err(failed(format!(
            "VM {name} has a port already, with VMPI over {:?}; carina vm stop {name} removes it",
            info.vmpi
        ))),
        Ok(info) => Ok((info, false)),
        Err(ClientError::Refused { status: 404, .. }) => {
            let create = VmCreate {
                name: name.clone(),
                region_bytes: port.region_bytes,
                dif: port.dif,
                vmpi,
                socket,
            };
            let created = node.create_vm(&create);
            let info = created.attempt(format!("making a port for VM {name}"))?;
            Ok((info, true))
        }
        Err(error) => Err(error).attempt(format!("asking the node for VM {name}")),
    }
}

fn boot(shared: &Shared, args: RunArgs) -> Outcome {
    if args.disk.is_some() && (args.command.is_some() || args.iommu) {
        return Err(usage(
            "--command and --iommu are for Carina's own guest, not for --disk",
        ));
    }
    let mut qemu_args = Vec::new();
    for text in &args.qemu_args {
        qemu_args.extend(words(text)?);
    }
    let nics = args.nic.iter().enumerate();
    let nics = nics.map(|(number, nic)| card(shared, &args.name, number, nic));
    let nics: Vec<Nic> = nics.collect::<Result<_, _>>()?;
    let cache = Cache::default_location().attempt("opening the cache")?;
    let boot = match &args.disk {
        Some(disk) => {
            // Before anything is made for it.
            std::fs::File::open(disk).attempt(format!("opening the disk {}", disk.display()))?;
            Boot::Disk(disk.clone())
        }
        None => {
            progress("building the guest's image");
            let program = std::env::current_exe().attempt("finding this program")?;
            let image = Image::new().node(&program).attempt("packing carina")?;
            Boot::prepare(&cache, &image).attempt("preparing the guest")?
        }
    };
    boot.check_memory(args.memory).map_err(usage)?;
    let attempt = BootAttempt::begin(shared, &args.name, args.port.clone())?;
    let booted = start_guest(shared, &args, boot, (nics, qemu_args), &attempt);
    if booted.is_err() {
        attempt.take_back();
    }
    let record = booted?;
    if shared.json {
        print_json(&record)?
    } else {
        print_line(format!(
            "VM {} runs ({}, QEMU {}), DIF {}",
            record.name, record.accel, record.pid, attempt.info.dif
        ))?
    }
    if args.console {
        console(shared, &args.name)
    } else {
        Ok(())
    }
}

/// Starts QEMU and waits for the guest, as the command line says.
fn start_guest(
    shared: &Shared,
    args: &RunArgs,
    boot: Boot,
    (nics, qemu_args): (Vec<Nic>, Vec<String>),
    attempt: &BootAttempt,
) -> Result<Record, Failure> {
    let info = &attempt.info;
    let own_guest = args.disk.is_none();
    let cache = Cache::default_location().attempt("opening the cache")?;
    let mut machine = Machine::new(args.name.as_str(), &attempt.vm_dir)
        .attempt("naming the VM")?
        .boot(boot)
        .memory_mib(args.memory)
        .cpus(args.cpus)
        .vmpi(info.vmpi, &info.qemu_socket)
        .extra_args(qemu_args);
    if own_guest {
        machine = machine.node_config(&guest_config(info));
    }
    if args.iommu {
        machine = machine.iommu();
    }
    machine = nics.into_iter().fold(machine, Machine::nic);
    if let Some(command) = &args.command {
        machine = machine.command(command);
    }
    let running = attempt.start(machine, &cache)?;
    running.wait_started(START).attempt("starting QEMU")?;
    if own_guest && !args.no_wait && !args.console {
        progress("booting");
        running.wait_ready(BOOT).attempt("waiting for the guest")?;
        wait_for_link(&shared.control(), &args.name)?;
    }
    Ok(attempt.finish(running))
}

/// A card of a VM at a vhost-user socket: with the address and the rings of the port there.
fn card(shared: &Shared, vm: &LocalName, number: usize, nic: &NicArg) -> Result<Nic, Failure> {
    let socket = &nic.socket;
    let socket = std::path::absolute(socket).attempt(format!("finding {}", socket.display()))?;
    let port = port_at(shared, &socket)?;
    if let Some(port) = &port
        && port.is_client
    {
        return Err(refused(format!(
            "--nic {}: port {} has client = true, so that QEMU would have to make the socket; \
             without that key the port makes it",
            socket.display(),
            port.name
        )));
    }
    // QEMU would wait for it without a word.
    UnixStream::connect(&socket).map_err(|error| {
        failed(format!(
            "--nic {}: {error}; a port of carina nfv run, or a vhost_user app of carina graph run, \
             listens at such a socket: start it first",
            socket.display()
        ))
    })?;
    let of_port = port.as_ref().and_then(|port| port.mac);
    let mac = nic.mac.map(|mac| mac.0).or(of_port);
    Ok(Nic {
        model: Model::VirtioNet,
        backend: Backend::VhostUser {
            queues: port.and_then(|port| port.queues).unwrap_or(1),
            packed: false,
            socket,
        },
        mac: mac.or_else(|| Some(own_mac(vm, number))),
    })
}

/// What a card takes from the port of `carina nfv run` that it attaches to.
struct PortOfCard {
    name: String,
    mac: Option<[u8; 6]>,
    is_client: bool,
    queues: Option<u16>,
}

/// The port whose socket this is; `None` for other sockets, and in a build without `carina nfv`.
#[cfg(feature = "packet")]
fn port_at(shared: &Shared, socket: &Path) -> Result<Option<PortOfCard>, Failure> {
    let port = nfv::port_at(shared, socket)?;
    Ok(port.map(|port| {
        let is_client = port.app.get("client").and_then(|value| value.as_bool());
        let queues = port.app.get("queues").and_then(|value| value.as_integer());
        PortOfCard {
            is_client: is_client == Some(true),
            queues: queues.and_then(|queues| u16::try_from(queues).ok()),
            mac: port.mac.map(|mac| mac.0),
            name: port.name,
        }
    }))
}

#[cfg(not(feature = "packet"))]
fn port_at(_: &Shared, _: &Path) -> Result<Option<PortOfCard>, Failure> {
    Ok(None)
}

/// An address for a card of a port that has none. It comes from the card's number and the VM's
/// name, so that cards of several VMs on one bridge differ, and that it is the same at each start.
fn own_mac(vm: &LocalName, number: usize) -> [u8; 6] {
    let bytes = vm.as_str().bytes().chain([0, number as u8]);
    // FNV-1a, of 64 bits.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let [a, b, c, ..] = (hash >> 32 ^ hash).to_le_bytes();
    [0x52, 0x54, 0, a, b, c]
}

/// A card as it stands on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NicArg {
    socket: PathBuf,
    mac: Option<Mac>,
}

/// What is wrong with a card.
#[derive(Debug, thiserror::Error)]
#[error("mac={0}: must be the address of one station, such as 52:54:00:00:00:01")]
struct NicError(String);

impl FromStr for NicArg {
    type Err = NicError;

    fn from_str(text: &str) -> Result<NicArg, NicError> {
        let (socket, mac) = match text.rsplit_once(",mac=") {
            None => (text, None),
            Some((socket, mac)) => {
                let read: Option<Mac> = mac.parse().ok();
                let read = read.filter(|mac| !mac.is_group());
                (socket, Some(read.ok_or_else(|| NicError(mac.to_owned()))?))
            }
        };
        Ok(NicArg {
            socket: socket.into(),
            mac,
        })
    }
}

/// Splits at white space as a shell does; single and double quotes hold words together.
fn words(text: &str) -> Result<Vec<String>, Failure> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        None => Ok(words),
        Some(open) => Err(usage(format!(
            "--qemu-args: {open} is not closed in {text}"
        ))),
    }
}

/// The configuration of the node in Carina's own guest.
fn guest_config(info: &VmInfo) -> String {
    let quoted = serde_json::to_string(info.dif.as_str()).unwrap_or_default();
    format!("[[ipcp]]\nname = \"hv0\"\ntype = \"hv\"\nside = \"guest\"\ndif = {quoted}\n")
}

fn wait_for_link(node: &Client, name: &LocalName) -> Outcome {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while std::time::Instant::now() < deadline {
        let info = node
            .vm(name.as_str())
            .attempt(format!("asking the node for VM {name}"))?;
        if info.state == LinkState::Up {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(failed(format!(
        "VM {name} is up but its node has not attached; see /var/log/carina.log in the guest"
    )))
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
    let stopped = carina_vm::stop(
        &shared.run_dir().vm_dir(),
        name.as_str(),
        Duration::from_nanos(grace),
    );
    // A port without a machine is removed all the same; then the machine is not missed.
    let removed = if keep_port {
        Ok(())
    } else {
        shared.control().destroy_vm(name.as_str())
    };
    match (stopped, removed) {
        (Err(error), Err(_)) => return Err(error).attempt(format!("stopping VM {name}")),
        (Err(error), Ok(())) if keep_port => {
            return Err(error).attempt(format!("stopping VM {name}"));
        }
        _ => {}
    }
    if shared.json {
        print_json(&serde_json::json!({ "stopped": name }))
    } else {
        print_line(format!("VM {name} is stopped"))
    }
}

fn args(
    shared: &Shared,
    name: LocalName,
    libvirt: bool,
    socket: Option<PathBuf>,
    port: PortArgs,
) -> Outcome {
    let socket = match socket {
        // The node has another working directory.
        Some(socket) => Some(std::path::absolute(socket).attempt("finding the socket's place")?),
        None => None,
    };
    let (info, _) = port_of(&shared.control(), &name, socket.clone(), port)?;
    if let Some(socket) = socket {
        if info.listen_socket.as_ref() != Some(&socket) {
            return Err(failed(format!(
                "VM {name} has a port already, and not at {}; carina vm stop {name} removes it",
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
    let arguments = info.qemu_args;
    let xml = carina_vm::libvirt_xml(&arguments);
    if info.vmpi == VmpiKind::Virtqueue {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_a_socket_and_perhaps_an_address() {
        let nic = |text: &str| text.parse::<NicArg>();
        let plain = nic("/run/a,b.sock").unwrap();
        assert_eq!((plain.socket, plain.mac), ("/run/a,b.sock".into(), None));
        let with = nic("/run/a,b.sock,mac=52:54:00:00:00:01").unwrap();
        assert_eq!(with.mac, Some(Mac([0x52, 0x54, 0, 0, 0, 1])));
        for wrong in ["/a,mac=", "/a,mac=x", "/a,mac=ff:ff:ff:ff:ff:ff"] {
            assert!(nic(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        let split = |text| words(text).ok();
        let want = |list: &[&str]| Some(list.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(split("  -vga std "), want(&["-vga", "std"]));
        assert_eq!(
            split(r#"-append "console=ttyS0 quiet" -x 'a"b'c """#),
            want(&["-append", "console=ttyS0 quiet", "-x", "a\"bc", ""])
        );
        assert_eq!(split("-append 'open"), None);
    }
}
