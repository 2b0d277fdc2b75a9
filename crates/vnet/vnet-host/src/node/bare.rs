//! The machine of a node before it starts: its files, its cards, and what confines it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use carina_namespaces::namespace_file;
use carina_vm::{Backend, Cache, Machine, Model, Nic, NicId, Running};
use carina_vnet::host_part::{InterfacePart, NodePart};
use carina_vnet_images::{ImageStore, NodeDisk, OWN};

use crate::confinement::{Confinement, confined, user_of};
use crate::error::{Attempt, Result};
use crate::names::{end_of, ports_namespace};
use crate::node::Site;

/// Numbers of a machine's cards, by MAC address of the interface.
pub(super) type Cards = BTreeMap<[u8; 6], NicId>;

/// What a machine needs when it starts, in addition to its description.
pub(super) struct Bare {
    pub(super) cache: Cache,
    pub(super) confinement: Confinement,
    /// The node's disk, if the machine boots an image of the store.
    pub(super) disk: Option<NodeDisk>,
}

impl Bare {
    /// Moves a machine that has started into its control groups.
    pub(super) fn hold(
        mut self,
        site: &Site<'_>,
        part: &NodePart,
        running: Running,
    ) -> (Running, Confinement) {
        let groups = site.dir.groups();
        self.confinement
            .hold(site.whole.vnet, part, running.pid(), &groups);
        (running, self.confinement)
    }
}

/// The machine of a node without cards, with its files in `machines`, and what it needs to start.
pub(super) fn bare(site: &Site<'_>, part: &NodePart, machines: &Path) -> Result<(Machine, Bare)> {
    let store = ImageStore::of_this_host();
    let disk = (part.image != OWN).then(|| store.node_disk(site.whole.vnet, part));
    let disk = disk.transpose()?;
    let (cache, boot) = match &disk {
        None => site.images.obtain(part.founder.is_some())?,
        Some(disk) => {
            let cache = Cache::default_location().attempt("opening the cache")?;
            (cache, disk.boot())
        }
    };
    let memory = u32::try_from(part.memory_mib).unwrap_or(u32::MAX);
    let machine = Machine::new(&part.name, machines)
        .attempt(format!("describing VM {}", part.name))?
        .boot(boot)
        .memory_mib(memory)
        .cpus(part.cpus)
        // The taps are in the namespace of the ports.
        .network_namespace(namespace_file(&ports_namespace(site.whole.vnet)));
    let (machine, confinement) = confined(machine, user_of(site.whole.vnet, &part.name));
    let machine = machine.extra_args(disk.iter().flat_map(|disk| disk.args.clone()));
    let bare = Bare {
        cache,
        confinement,
        disk,
    };
    Ok((machine, bare))
}

/// The card for an interface of a node.
pub(super) fn card(site: &Site<'_>, part: &NodePart, interface: &InterfacePart) -> Nic {
    let end = end_of(site.whole, &part.name, interface);
    Nic {
        model: Model::VirtioNet,
        backend: Backend::Tap(site.ports.port(end)),
        mac: Some(interface.mac.0),
    }
}

pub(super) fn nics(site: &Site<'_>, part: &NodePart, cards: &Cards) -> BTreeMap<NicId, Nic> {
    let nic = |interface| {
        let interface: &carina_vnet::host_part::InterfacePart = interface;
        Some((*cards.get(&interface.mac.0)?, card(site, part, interface)))
    };
    part.interfaces.iter().filter_map(nic).collect()
}

/// Longest time for a guest to boot; emulation is slow.
pub(super) const BOOT: Duration = Duration::from_secs(180);
/// Number of a machine's cards that are left for links to come.
pub(super) const PORTS_FREE: usize = 4;
/// Longest time for connecting to a port of a guest.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
