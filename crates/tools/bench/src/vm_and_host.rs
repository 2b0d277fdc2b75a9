//! A VM with VMPI devices and two emulated network cards, and its host.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use carina_api::AppName;
use carina_api::control::VmpiKind;
use carina_api::paths::RunDir;
use carina_lab::{GuestCpu, GuestSpec, Network, TestGuest, TestNode};
use carina_measure::results::OURS;
use carina_measure::transport::bare::BarePlace;
use carina_vm::{Backend, Cache, GuestImage, Kernel};

use crate::Progress;
use crate::booted::{BOOT, boot, explain};
use crate::cards::{Addresses, CARDS, Card};
use crate::client::Client;
use crate::comparison::{System, TransportSpec, goodput_note};
use crate::error::{Attempt, Error, Result};
use crate::vsock_peer::{self, VsockPeer};

/// Names of all systems in the order of the tables.
pub const SYSTEMS: [&str; 9] = [
    OURS,
    PLAIN,
    QUEUES,
    VSOCK,
    OTHER_VSOCK,
    VSOCK_WITH_SOCAT,
    LIMIT,
    "virtio-net",
    "e1000",
];

/// Name of the system that is Carina over the queues of a virtio device; [`OURS`] is Carina over
/// shared memory.
pub const QUEUES: &str = "virtqueue";

/// Name of the system that is Carina over shared memory without doorbells, where both sides poll.
pub const PLAIN: &str = "ivshmem-plain";

/// Name of the system that is Carina over the guest's vsock device.
pub const VSOCK: &str = "vsock";

/// Name of the system that is a stream through the vsock device of another project, in a VM of its
/// own.
pub const OTHER_VSOCK: &str = vsock_peer::PROGRAM;

/// Name of the system that is the same stream for an application that does not know AF_VSOCK: socat
/// relays it in the VM.
pub const VSOCK_WITH_SOCAT: &str = vsock_peer::WITH_SOCAT;

/// Name of the system that is bare rings in the same shared memory.
pub const LIMIT: &str = "limit";

/// The network to which the emulated cards are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardNetwork {
    /// Taps in one bridge, in a private network namespace.
    Bridge,
    /// The user-mode network of QEMU, for users who may not make taps.
    User,
}

/// Replaces this process by the same command with `--in-network-namespace`, in a network namespace
/// of its own; see [`carina_namespaces::enter_private`]. Returns [`CardNetwork::Bridge`] if the
/// process `is_inside` already, and [`CardNetwork::User`] if the system does not allow the
/// namespace.
///
/// # Errors
/// The guest's kernel cannot be obtained, or the process cannot be replaced.
pub fn enter_network(is_inside: bool, progress: Progress) -> Result<CardNetwork> {
    if is_inside {
        return Ok(CardNetwork::Bridge);
    }
    if !carina_namespaces::can_enter_private() {
        progress.step(
            "no network namespace with taps can be made here: virtio-net and e1000 are plugged \
             into QEMU's own network",
        );
        return Ok(CardNetwork::User);
    }
    // The kernel is downloaded now, because the namespace has no route to an archive.
    progress.step("looking for the guest's kernel");
    let cache = Cache::default_location().attempt("opening the cache")?;
    Kernel::obtain(&cache).attempt("obtaining the guest's kernel")?;
    Err(run_inside())
}

/// Like [`enter_network`], for benchmarks without guests.
///
/// # Errors
/// Namespaces are not allowed.
pub fn require_namespaces(is_inside: bool) -> Result<()> {
    if is_inside {
        Ok(())
    } else if carina_namespaces::can_enter_private() {
        Err(run_inside())
    } else {
        Err(carina_namespaces::Error::PrivateForbidden.into())
    }
}

/// Replaces this process by the command in a namespace. Returns only if that fails.
fn run_inside() -> Error {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    arguments.push("--in-network-namespace".into());
    carina_namespaces::enter_private(&arguments).into()
}

/// Like [`enter_network`], for benchmarks that need namespaces.
///
/// # Errors
/// Namespaces are not allowed.
pub fn require_network(is_inside: bool, progress: Progress) -> Result<()> {
    match enter_network(is_inside, progress)? {
        CardNetwork::Bridge => Ok(()),
        CardNetwork::User => Err(carina_namespaces::Error::PrivateForbidden.into()),
    }
}

/// A VM, the node of its host, and a client of the application in the VM. Dropping the value ends
/// all of them.
#[derive(Debug)]
pub struct VmAndHost {
    /// A client of the application in the VM.
    pub client: Client,
    /// The transport of each system.
    pub systems: Vec<System>,
    /// Notes about the machine that a reader needs to judge the figures.
    pub notes: Vec<String>,
    // The guests are dropped before their host.
    _vsock_peer: Option<VsockPeer>,
    guest: TestGuest,
    node: TestNode,
}

impl VmAndHost {
    /// Starts everything that `systems`, which are some of [`SYSTEMS`], need.
    ///
    /// # Errors
    /// Something is missing or does not start; the error contains logs.
    pub fn start(
        network: CardNetwork,
        systems: &[&'static str],
        guest_program: Option<PathBuf>,
        progress: Progress,
    ) -> Result<Self> {
        let vmpi = devices(systems);
        let program = program_of_guest(guest_program.as_deref())?;
        let reached = reach("hv", Some(&program), progress, |node| {
            if network == CardNetwork::Bridge {
                add_bridge(node)?;
            }
            Ok(spec(network, vmpi))
        })?;
        let Reached {
            mut client,
            guest,
            mut node,
            cpu,
        } = reached;
        ADDRESSES.set(&guest, GUEST)?;
        let mut all = all_systems(&guest, &node, network)?;
        let mut notes = notes(&guest, network);
        notes.extend(cpu.map(GuestCpu::note));
        let mut vsock_peer = None;
        if [OTHER_VSOCK, VSOCK_WITH_SOCAT]
            .iter()
            .any(|name| systems.contains(name))
        {
            match VsockPeer::start(&program, &mut node, cpu, progress)? {
                Some((peer, stream_client)) => {
                    let (others, other_notes) = others(&peer, systems);
                    client.add(
                        others.iter().map(|other| other.name).collect(),
                        stream_client,
                    );
                    // Behind Carina over vsock, as in `SYSTEMS`.
                    let after = all.iter().position(|system| system.name == VSOCK);
                    let at = after.map_or(0, |at| at + 1);
                    all.splice(at..at, others);
                    notes.extend(other_notes);
                    vsock_peer = Some(peer);
                }
                None => notes.push(vsock_peer::MISSING.to_owned()),
            }
        }
        all.retain(|system| systems.contains(&system.name));
        Ok(Self {
            client,
            systems: all,
            notes,
            _vsock_peer: vsock_peer,
            guest,
            node,
        })
    }

    /// Adds the last lines of logs to an error.
    pub fn explain(&self, error: Error) -> Error {
        explain(error, &self.guest, &self.node)
    }

    /// The run directory of the host's node.
    pub fn path(&self) -> &Path {
        self.node.path()
    }

    /// Runs a shell command in the guest, and waits until it has ended.
    ///
    /// # Errors
    /// The guest has ended, or the command fails.
    pub fn run_in_guest(&self, command: &str) -> Result<()> {
        self.guest.run(command)?;
        Ok(())
    }

    /// Waits until an application of the guest has registered a name.
    ///
    /// # Errors
    /// The name is not registered in time.
    pub fn wait_for_name(&mut self, name: &AppName) -> Result<()> {
        let known = self.node.wait_for_name(name, BOOT);
        known.map_err(|error| explain(error.into(), &self.guest, &self.node))
    }
}

/// The image of guests, with the given program or this one as `carina`.
///
/// # Errors
/// Something is missing.
pub(crate) fn guest_image(program: Option<&Path>) -> Result<GuestImage> {
    prepared(program.unwrap_or(&own()?))
}

fn prepared(program: &Path) -> Result<GuestImage> {
    GuestImage::prepare(program).attempt("preparing the guest's image")
}

/// The program that a guest gets as `carina`: the given one, or this program's own for guests.
///
/// # Errors
/// This program does not know its path.
pub(crate) fn program_of_guest(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(program) => Ok(program.to_owned()),
        None => Ok(carina_vm::guest_program(&own()?)),
    }
}

fn own() -> Result<PathBuf> {
    std::env::current_exe().attempt("finding this program")
}

/// A guest whose measuring application can be reached, and its host.
#[derive(Debug)]
pub(crate) struct Reached {
    // The guest is dropped before its host.
    pub(crate) client: Client,
    pub(crate) guest: TestGuest,
    pub(crate) node: TestNode,
    /// The processor that is reserved for the guest's processor.
    pub(crate) cpu: Option<GuestCpu>,
}

/// Starts a node, and boots the guest that `describe` returns after preparing the host for it. Then
/// connects to the application in the guest.
///
/// # Errors
/// Something is missing or does not start; the error contains logs.
pub(crate) fn reach(
    name: &str,
    guest_program: Option<&Path>,
    progress: Progress,
    describe: impl FnOnce(&TestNode) -> Result<GuestSpec>,
) -> Result<Reached> {
    let cpu = GuestCpu::reserve();
    progress.step("building the guest's image (kernel, busybox, carina)");
    let image = prepared(&program_of_guest(guest_program)?)?;
    progress.step("starting the host's node");
    let mut node = TestNode::start(name, Network::Shared, None)?;
    let spec = describe(&node)?;
    progress.step("booting a VM with the shared-memory device");
    let (guest, client) = boot(&image, &mut node, spec, "carina.bench.guest", progress)?;
    let cpu = cpu.filter(|cpu| cpu.pin(&guest));
    Ok(Reached {
        client,
        guest,
        node,
        cpu,
    })
}

/// The wanted systems of another vsock device, and their notes.
fn others(peer: &VsockPeer, wanted: &[&str]) -> (Vec<System>, Vec<String>) {
    let of_peer = peer.systems();
    let mut notes = Vec::new();
    let is_missing = |name| of_peer.iter().all(|(system, _)| system.name != name);
    if wanted.contains(&VSOCK_WITH_SOCAT) && is_missing(VSOCK_WITH_SOCAT) {
        notes.push(vsock_peer::SOCAT_MISSING.to_owned());
    }
    let mut systems = Vec::new();
    for (system, note) in of_peer {
        if wanted.contains(&system.name) {
            systems.push(system);
            notes.push(note.to_owned());
        }
    }
    (systems, notes)
}

/// The devices that the systems need. The first carries the measurements' control messages.
fn devices(systems: &[&str]) -> Vec<VmpiKind> {
    let optional = [
        (PLAIN, VmpiKind::IvshmemPlain),
        (QUEUES, VmpiKind::Virtqueue),
        (VSOCK, VmpiKind::Vsock),
    ];
    let wanted = optional
        .into_iter()
        .filter(|(name, _)| systems.contains(name));
    [VmpiKind::Ivshmem]
        .into_iter()
        .chain(wanted.map(|(_, kind)| kind))
        .collect()
}

fn spec(network: CardNetwork, vmpi: Vec<VmpiKind>) -> GuestSpec {
    let backend = |card: &Card| {
        let (host, subnet) = (ADDRESSES.of(card, HOST), ADDRESSES.of(card, 0));
        (network == CardNetwork::User)
            .then(|| Backend::Other(format!("user,net={subnet}/24,host={host}")))
    };
    GuestSpec {
        name: NAME.to_owned(),
        vmpi,
        memory_mib: 512,
        nics: ADDRESSES.nics(NAME, GUEST, backend),
        bridge: (network == CardNetwork::Bridge).then(|| BRIDGE.to_owned()),
        node_config: String::new(),
        parameters: Vec::new(),
        vsock_socket: None,
    }
}

/// All systems with their transports, in the order of the tables.
fn all_systems(guest: &TestGuest, node: &TestNode, network: CardNetwork) -> Result<Vec<System>> {
    let flow = |kind| {
        let dif = TestGuest::dif(NAME, kind)?;
        Ok::<TransportSpec, Error>(TransportSpec::Flow(Some(dif)))
    };
    let systems = [
        (OURS, flow(VmpiKind::Ivshmem)?),
        (PLAIN, flow(VmpiKind::IvshmemPlain)?),
        (QUEUES, flow(VmpiKind::Virtqueue)?),
        (VSOCK, flow(VmpiKind::Vsock)?),
        (LIMIT, bare_rings(guest, node)?),
    ];
    let systems = systems.map(|(name, transport)| System { name, transport });
    let cards = CARDS.iter().map(|card| through(card, network));
    Ok(systems.into_iter().chain(cards).collect())
}

/// Bare rings in the last quarter of the shared memory, which the VMPI does not use
/// (`docs/explanation/vmpi-protocol.md`, section 4).
fn bare_rings(guest: &TestGuest, node: &TestNode) -> Result<TransportSpec> {
    let name = TestGuest::port(NAME, VmpiKind::Ivshmem)?;
    let bytes = std::fs::metadata(RunDir::new(node.path()).vm_region(&name));
    let bytes = bytes.attempt("the size of the shared memory")?.len();
    let offset = bytes - bytes / 4;
    let found = guest.run(
        "for d in /sys/bus/pci/devices/*; do \
         [ $(cat $d/vendor)$(cat $d/device) = 0x1af40x1110 ] && echo $d/resource2 && break; \
         done; true",
    )?;
    let place = |path| BarePlace { path, offset };
    Ok(TransportSpec::Bare {
        client: place(RunDir::new(node.path()).vm_region(&name)),
        server: place(PathBuf::from(found.trim())),
    })
}

/// UDP through a card.
fn through(card: &Card, network: CardNetwork) -> System {
    let host = IpAddr::V4(ADDRESSES.of(card, HOST));
    let (client, through) = match network {
        CardNetwork::Bridge => (host, None),
        CardNetwork::User => (IpAddr::V4(Ipv4Addr::LOCALHOST), Some(host)),
    };
    System {
        name: card.system,
        transport: TransportSpec::Udp {
            server: IpAddr::V4(ADDRESSES.of(card, GUEST)),
            client,
            through,
        },
    }
}

/// Adds a bridge, with an address of the host in each card's subnet.
fn add_bridge(node: &TestNode) -> Result<()> {
    node.ip(&["link", "set", "dev", "lo", "up"])?;
    node.add_bridge(BRIDGE)?;
    for card in &CARDS {
        let address = format!("{}/24", ADDRESSES.of(card, HOST));
        node.ip(&["addr", "add", &address, "dev", BRIDGE])?;
    }
    Ok(())
}

fn notes(guest: &TestGuest, network: CardNetwork) -> Vec<String> {
    vec![
        format!(
            "one boot of one VM under QEMU with {}, 1 CPU, 512 MiB",
            guest.accelerator()
        ),
        goodput_note("CPU time is that of the two applications"),
        "ivshmem-plain: flows over shared memory without doorbells, both sides polling".to_owned(),
        "carina: flows over shared memory; virtqueue: flows over the queues of a virtio device of \
         the same VM; vsock: flows over the vsock device of the same VM"
            .to_owned(),
        "limit: bare rings in the same shared memory, one copy in and one out, both ends spinning, \
         nothing checked; an SDU is at most as long as a ring, 1 MiB less 8 bytes"
            .to_owned(),
        match network {
            CardNetwork::Bridge => {
                "virtio-net and e1000: UDP through taps in one Linux bridge, MTU 1500; no datagram \
                 holds more than 65507 bytes, so larger SDUs are Carina's alone"
                    .to_owned()
            }
            CardNetwork::User => {
                "virtio-net and e1000: UDP through QEMU's own network (no root, no taps): slower \
                 than through taps and a bridge, so these ratios flatter Carina"
                    .to_owned()
            }
        },
    ]
}

/// Name of the VM.
const NAME: &str = "bench";
const BRIDGE: &str = "br-carina";
const ADDRESSES: Addresses = Addresses {
    network: 77,
    cards: &CARDS,
};
/// Last byte of the host's and of the guest's addresses.
const HOST: u8 = 1;
const GUEST: u8 = 2;
