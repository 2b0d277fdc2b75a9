//! A guest with two cards, and the back ends of the cards.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use carina_api::control::VmpiKind;
use carina_lab::{GuestCpu, GuestSpec, TestGuest, TestNode};
use carina_measure::results::OURS;
use carina_vm::{Backend, Model};

use super::{PEER, Protocol};
use crate::Progress;
use crate::booted::explain;
use crate::cards::{Addresses, Card};
use crate::client::Client;
use crate::comparison::{System, TransportSpec};
use crate::cpu_time;
use crate::error::{Attempt, Error, Result};
use crate::program::Program;
use crate::vm_and_host::reach;

/// A guest whose application can be reached, and its host. Dropping the value ends all of it.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) client: Client,
    // Dropped in this order: the guest before its back end and its host.
    guest: TestGuest,
    back_end: Program,
    node: TestNode,
    /// Thread ids of the guest's processors.
    processors: Vec<i32>,
    cpu: Option<GuestCpu>,
}

/// CPU times in ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTimes {
    /// CPU time of QEMU without the guest's processors, and of the graph.
    pub(super) host_ns: u64,
    /// CPU time of the guest's processors.
    pub(super) guest_ns: u64,
}

impl Site {
    /// Starts the guest, the back end and the host.
    ///
    /// # Errors
    /// Something is missing or does not start.
    pub(super) fn start(guest_program: Option<&Path>, progress: Progress) -> Result<Site> {
        let mut back_end = None;
        let reached = reach("guest", guest_program, progress, |node| {
            set_up_network(node)?;
            progress.step("starting the back end: carina graph run graph.toml");
            back_end = Some(start_back_end(node)?);
            Ok(spec(node))
        })?;
        ADDRESSES.set(&reached.guest, GUEST)?;
        let back_end = back_end.expect("the guest was described");
        let processors = reached.guest.processor_threads();
        Ok(Site {
            client: reached.client,
            guest: reached.guest,
            back_end,
            node: reached.node,
            processors,
            cpu: reached.cpu,
        })
    }

    pub(super) fn cpu_times(&self) -> Result<CpuTimes> {
        let qemu = self.guest.machine().pid().cast_unsigned();
        let (others, guest_ns) = cpu_time::of_process(qemu, &self.processors)?;
        let (graph, _) = cpu_time::of_process(self.back_end.id(), &[])?;
        Ok(CpuTimes {
            host_ns: others + graph,
            guest_ns,
        })
    }

    /// Adds the last lines of logs to an error.
    pub(super) fn explain(&self, error: Error) -> Error {
        explain(error, &self.guest, &self.node)
    }

    /// Whether KVM runs the guest on a real processor.
    pub(super) fn has_kvm(&self) -> bool {
        self.guest.accelerator() == "kvm"
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            format!(
                "one boot of one VM under QEMU with {}, 1 CPU, 512 MiB, Linux with its own driver \
                 (virtio_net.napi_tx=0) and two virtio-net cards with split rings, one for each \
                 system",
                self.guest.accelerator()
            ),
            "carina: apps vhost_user and tap of `carina graph run`; tap: QEMU's own tap; each tap \
             is in a bridge of its own, MTU 1500, with checksums and segmentation offloaded"
                .to_owned(),
        ];
        notes.extend(self.cpu.map(GuestCpu::note));
        notes
    }
}

/// The transport of a protocol over each card.
pub(super) fn systems(protocol: Protocol) -> [System; 2] {
    CARDS.map(|card| {
        let server = IpAddr::V4(ADDRESSES.of(&card, GUEST));
        let transport = match protocol {
            Protocol::Tcp => TransportSpec::Tcp(server),
            Protocol::Udp => TransportSpec::Udp {
                server,
                client: IpAddr::V4(ADDRESSES.of(&card, HOST)),
                through: None,
            },
        };
        System {
            name: card.system,
            transport,
        }
    })
}

/// Makes a bridge for each card, and gives the host an address in it.
fn set_up_network(node: &TestNode) -> Result<()> {
    node.ip(&["link", "set", "dev", "lo", "up"])?;
    for card in &CARDS {
        let bridge = bridge_of(card.system);
        node.add_bridge(&bridge)?;
        let address = format!("{}/24", ADDRESSES.of(card, HOST));
        node.ip(&["addr", "add", &address, "dev", &bridge])?;
    }
    Ok(node.add_tap(TAP, &bridge_of(OURS))?)
}

fn bridge_of(system: &str) -> String {
    format!("br-{system}")
}

fn start_back_end(node: &TestNode) -> Result<Program> {
    let file = node.path().join("graph.toml");
    let graph = format!(
        "links = [\"card.output -> tap.input\", \"tap.output -> card.input\"]\n\
         [apps.card]\nkind = \"vhost_user\"\nsocket = {:?}\npacked = false\noffload = true\n\
         [apps.tap]\nkind = \"tap\"\nname = \"{TAP}\"\noffload = true\n",
        socket(node)
    );
    std::fs::write(&file, graph).attempt(format!("writing {}", file.display()))?;
    let file = file.to_string_lossy();
    let pool = ["--frames", FRAMES, "--frame-bytes", FRAME_BYTES];
    let words = [&["graph", "run", &*file], &pool[..]].concat();
    Program::start(node.path(), &words)
}

fn socket(node: &TestNode) -> PathBuf {
    node.path().join("card")
}

fn spec(node: &TestNode) -> GuestSpec {
    let ours = |card: &Card| {
        (card.system == OURS).then(|| Backend::VhostUser {
            socket: socket(node),
            queues: 1,
            packed: false,
        })
    };
    GuestSpec {
        name: "bench".to_owned(),
        vmpi: vec![VmpiKind::Ivshmem],
        memory_mib: 512,
        nics: ADDRESSES.nics("bench", GUEST, ours),
        bridge: Some(bridge_of(PEER)),
        node_config: String::new(),
        // Otherwise each sent frame would be followed by an interrupt.
        parameters: vec!["virtio_net.napi_tx=0".to_owned()],
        vsock_socket: None,
    }
}

const CARDS: [Card; 2] = [
    Card {
        system: OURS,
        model: Model::VirtioNet,
        subnet: 1,
    },
    Card {
        system: PEER,
        model: Model::VirtioNet,
        subnet: 2,
    },
];
const ADDRESSES: Addresses = Addresses {
    network: 78,
    cards: &CARDS,
};
/// Last byte of the host's addresses.
const HOST: u8 = 1;
const GUEST: u8 = 2;
/// Name of the tap of the graph.
const TAP: &str = "tap-carina";
/// Pool of the graph: TCP may leave frames of this length unsegmented.
const FRAMES: &str = "2048";
const FRAME_BYTES: &str = "65554";
