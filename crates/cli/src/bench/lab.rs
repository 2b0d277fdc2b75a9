//! One VM with the shared-memory device and two emulated network cards, for measuring.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use carina_api::control::VmCreate;
use carina_api::{AppName, DifName, LocalName};
use carina_client::FlowSpec;
use carina_measure::results::OURS;
use carina_measure::trial::client::TrialClient;
use carina_measure::trial::job::Message;
use carina_measure::trial::target::Target;
use carina_vm::{Backend, Boot, Cache, Image, Kernel, Machine, Model, Nic, Running};

use super::guest_network::ip;
use super::household::Household;
use super::placement::Aside;
use super::plan::{Means, System};
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::report::progress;

/// Name of the VM.
const VM: &str = "bench";
/// The DIF between host and VM.
const DIF: &str = "hv.bench";
/// How long the guest may take from power on to its application being registered; TCG is slow.
const BOOT: Duration = Duration::from_secs(180);

/// One emulated network card and its subnet.
struct Card {
    system: &'static str,
    model: Model,
    driver: &'static str,
    tap: &'static str,
    subnet: u8,
}

const CARDS: [Card; 2] = [
    Card {
        system: "virtio-net",
        model: Model::VirtioNet,
        driver: "virtio_net",
        tap: "tap-virtio",
        subnet: 1,
    },
    Card {
        system: "e1000",
        model: Model::E1000,
        driver: "e1000",
        tap: "tap-e1000",
        subnet: 2,
    },
];

impl Card {
    fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.subnet, 1)
    }

    fn guest(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.subnet, 2)
    }
}

/// Names of the systems in the order of the tables.
pub const SYSTEMS: [&str; 3] = [OURS, "virtio-net", "e1000"];

/// The network that the emulated cards are plugged into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Taps in one bridge in a private network namespace.
    Bridge,
    /// QEMU's own translator, for who may not make taps.
    User,
}

/// Moves this very command into a network namespace of its own, where it may make taps and
/// bridges; returns only where the system does not allow that. The namespace and all in it end with
/// the command.
///
/// # Errors
/// Never for want of permission: the answer then is `Network::User`.
pub fn enter_network(inside: bool) -> Result<Network, Failure> {
    if inside {
        return Ok(Network::Bridge);
    }
    let root = rustix::process::geteuid().is_root();
    // Without root a user namespace gives the right to a network namespace.
    let namespaces: &[&str] = if root {
        &["--net"]
    } else {
        &["--user", "--map-root-user", "--net"]
    };
    let allowed = Command::new("unshare")
        .args(namespaces)
        .args(["ip", "tuntap", "add", "dev", "tap-try", "mode", "tap"])
        .output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        progress(
            "no network namespace with taps can be made here: virtio-net and e1000 are plugged \
             into QEMU's own network",
        );
        return Ok(Network::User);
    }
    // There is no way to an archive from inside.
    progress("looking for the guest's kernel");
    let cache = Cache::default_location().attempt("opening the cache")?;
    Kernel::obtain(&cache).attempt("obtaining the guest's kernel")?;
    let program = std::env::current_exe().attempt("finding this program")?;
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let error = Command::new("unshare")
        .args(namespaces)
        .arg("--")
        .arg(program)
        .args(arguments)
        .arg("--in-network-namespace")
        .exec();
    Err(failed(format!("entering a network namespace: {error}")))
}

/// As [`enter_network`], for who has no use for another network.
///
/// # Errors
/// No namespace can be made.
pub fn require_network(inside: bool) -> Outcome {
    match enter_network(inside)? {
        Network::Bridge => Ok(()),
        Network::User => Err(failed(
            "no network namespaces with taps can be made here: run as root, or allow user \
             namespaces",
        )),
    }
}

/// The VM, its host's node and a client of the application in it. All end when dropped.
#[derive(Debug)]
pub struct Lab {
    /// Speaks to the application in the VM.
    pub client: TrialClient,
    /// What carries the SDUs of each system.
    pub systems: Vec<System>,
    /// What a reader must know of the machine.
    pub notes: Vec<String>,
    vm: Running,
    household: Household,
}

impl Lab {
    /// Starts everything, with progress on standard error.
    ///
    /// # Errors
    /// Something is missing or does not start; logs are in the error.
    pub fn start(network: Network, guest_program: Option<PathBuf>) -> Result<Self, Failure> {
        let aside = Aside::set();
        let cache = Cache::default_location().attempt("opening the cache")?;
        progress("building the guest's image (kernel, busybox, carina)");
        let program = match guest_program {
            Some(program) => program,
            None => std::env::current_exe().attempt("finding this program")?,
        };
        let image = Image::new()
            .program("/bin/carina", &program)
            .attempt("packing carina")?;
        let boot = Boot::prepare(&cache, &image).attempt("preparing the guest")?;
        progress("starting the host's node");
        let mut household = Household::start("bench-hv")?;
        if network == Network::Bridge {
            make_bridge()?;
        }
        let name = LocalName::new(VM).attempt("naming the VM")?;
        let dif = DifName::new(DIF).attempt("naming the DIF")?;
        let create = VmCreate {
            name,
            region_bytes: None,
            dif: Some(dif),
        };
        let port = household
            .control()
            .create_vm(&create)
            .attempt("making the VM's port")?;
        progress("booting a VM with the shared-memory device");
        let vm = start_vm(&cache, boot, &port.qemu_socket, network, household.path())?;
        let peer = AppName::new("carina.bench.guest").attempt("naming the peer")?;
        let ready = prepare_guest(&vm, &mut household, &peer);
        let aside = aside.filter(|aside| aside.give(&vm));
        let target = Target {
            node: household.node()?,
            local: AppName::new("carina.bench").attempt("naming the bench")?,
            remote: peer.clone(),
            dif: None,
            spec: FlowSpec::reliable(),
            wait: Duration::ZERO,
        };
        let opened = ready.and_then(|()| Ok(TrialClient::open(target)?));
        let mut client = opened.map_err(|failure| explain(&failure, &vm, &household))?;
        progress(format!(
            "the VM's application {peer} is registered and reached"
        ));
        let mut systems = vec![System {
            name: OURS,
            means: Means::Flow,
        }];
        for card in &CARDS {
            systems.push(bring_up(&mut client, card, network)?);
        }
        let mut notes = notes(&vm, network);
        notes.extend(aside.map(Aside::note));
        Ok(Self {
            client,
            systems,
            notes,
            vm,
            household,
        })
    }

    /// Adds what the logs say to a failure.
    pub fn explain(&self, failure: &Failure) -> Failure {
        explain(failure, &self.vm, &self.household)
    }

    /// The directory of the lab's node.
    pub fn path(&self) -> &Path {
        self.household.path()
    }

    /// Runs a command in the guest.
    ///
    /// # Errors
    /// The guest has ended or the command fails.
    pub fn in_guest(&self, command: &str) -> Outcome {
        in_guest(&self.vm, command)
    }

    /// Waits until an application of the guest has registered a name.
    ///
    /// # Errors
    /// It has not after a while.
    pub fn wait_for_name(&mut self, name: &AppName) -> Outcome {
        self.household
            .wait_for_name(name, BOOT)
            .map_err(|failure| explain(&failure, &self.vm, &self.household))
    }
}

fn start_vm(
    cache: &Cache,
    boot: Boot,
    socket: &Path,
    network: Network,
    run_dir: &Path,
) -> Result<Running, Failure> {
    let config =
        format!("[[ipcp]]\nname = \"hv0\"\ntype = \"hv\"\nside = \"guest\"\ndif = \"{DIF}\"\n");
    let mut machine = Machine::new(VM, run_dir.join("qemu"))
        .attempt("naming the VM")?
        .boot(boot)
        .ivshmem(socket)
        .node_config(&config)
        .memory_mib(512)
        .dies_with_parent();
    for card in &CARDS {
        let mac = Some([0x52, 0x54, 0, 0x77, card.subnet, 2]);
        let backend = match network {
            Network::Bridge => Backend::Tap(card.tap.to_owned()),
            Network::User => {
                let (subnet, host) = (card.subnet, card.host());
                Backend::Other(format!("user,net=10.77.{subnet}.0/24,host={host}"))
            }
        };
        machine = machine.nic(Nic {
            model: card.model,
            backend,
            mac,
        });
    }
    machine.start(cache).attempt("starting QEMU")
}

fn prepare_guest(vm: &Running, household: &mut Household, peer: &AppName) -> Outcome {
    vm.wait_ready(BOOT).attempt("waiting for the guest")?;
    progress("the guest is up; starting the application in it");
    // The node in the guest may not be ready yet, so the application is tried again.
    in_guest(
        vm,
        &format!(
            "(while :; do carina bench-peer {peer} --wait 20s; sleep 0.2; done) </dev/null \
             >/tmp/peer.log 2>&1 &"
        ),
    )?;
    household.wait_for_name(peer, BOOT)
}

fn in_guest(vm: &Running, command: &str) -> Outcome {
    let output = vm.run(command).attempt("running a command in the guest")?;
    if output.is_success() {
        return Ok(());
    }
    let words = output.error_text();
    Err(failed(format!(
        "in the guest, `{command}` ended with {}: {words}",
        output.status
    )))
}

fn bring_up(client: &mut TrialClient, card: &Card, network: Network) -> Result<System, Failure> {
    let address = format!("{}/24", card.guest());
    let message = Message::Network {
        driver: card.driver.to_owned(),
        address,
    };
    client.ask(&message)?;
    let host = IpAddr::V4(card.host());
    let (client, through) = match network {
        Network::Bridge => (host, None),
        Network::User => (IpAddr::V4(Ipv4Addr::LOCALHOST), Some(host)),
    };
    Ok(System {
        name: card.system,
        means: Means::Udp {
            server: IpAddr::V4(card.guest()),
            client,
            through,
        },
    })
}

/// Two taps in one bridge, with an address of the host in each card's subnet.
fn make_bridge() -> Result<(), Failure> {
    ip(&["link", "set", "dev", "lo", "up"])?;
    ip(&["link", "add", "name", "br-carina", "type", "bridge"])?;
    ip(&["link", "set", "dev", "br-carina", "up"])?;
    for card in &CARDS {
        ip(&["tuntap", "add", "dev", card.tap, "mode", "tap"])?;
        ip(&["link", "set", "dev", card.tap, "master", "br-carina"])?;
        ip(&["link", "set", "dev", card.tap, "up"])?;
        ip(&[
            "addr",
            "add",
            &format!("{}/24", card.host()),
            "dev",
            "br-carina",
        ])?;
    }
    Ok(())
}

fn notes(vm: &Running, network: Network) -> Vec<String> {
    let mut notes =
        vec![
        format!("one boot of one VM under QEMU with {}, 1 CPU, 512 MiB", vm.record().accel),
        "goodput is what the receiving application got; CPU time is that of the two applications"
            .to_owned(),
    ];
    notes.push(match network {
        Network::Bridge => {
            "virtio-net and e1000: UDP through taps in one Linux bridge, MTU 1500; no datagram \
             holds more than 65507 bytes, so larger SDUs are Carina's alone"
                .to_owned()
        }
        Network::User => {
            "virtio-net and e1000: UDP through QEMU's own network (no root, no taps): slower \
             than through taps and a bridge, so these ratios flatter Carina"
                .to_owned()
        }
    });
    notes
}

fn explain(failure: &Failure, vm: &Running, household: &Household) -> Failure {
    let guest = vm.run_within(
        "tail -n 20 /var/log/carina.log /tmp/peer.log; carina ipcp list",
        Duration::from_secs(10),
    );
    let guest = guest
        .map(|output| output.text())
        .unwrap_or_else(|error| error.to_string());
    let console = vm.console_text();
    let console: Vec<&str> = console.lines().rev().take(10).collect();
    let console: Vec<&str> = console.into_iter().rev().collect();
    failed(format!(
        "{failure}\n{}\n--- guest\n{guest}\n--- end of the console\n{}",
        household.logs(),
        console.join("\n")
    ))
}
