//! A VM of a bench: the shared-memory device, two emulated network cards, a node that joins a DIF.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::LocalName;
use carina_api::control::VmCreate;
use carina_vm::{Backend, Boot, Cache, Image, Machine, Model, Nic, Running};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::order::{Finding, Means, Order, System};
use super::place::{Place, dif_name, findings};
use crate::failure::{Attempt, Failure, Outcome, failed};

/// How long a guest may take from power on to its application being registered.
const BOOT: Duration = Duration::from_secs(240);
/// How long an order may take in a guest.
const ORDER: Duration = Duration::from_secs(1800);
/// Longest datagram that UDP over IPv4 carries, in bytes.
const UDP_SDU_MAX: u64 = 65_507;

/// An emulated network card.
struct Card {
    system: &'static str,
    model: Model,
    driver: &'static str,
    subnet: u8,
}

const CARDS: [Card; 2] = [
    Card {
        system: "virtio-net",
        model: Model::VirtioNet,
        driver: "virtio_net",
        subnet: 1,
    },
    Card {
        system: "e1000",
        model: Model::E1000,
        driver: "e1000",
        subnet: 2,
    },
];

/// A running VM. It ends when this is dropped.
#[derive(Debug)]
pub struct Guest {
    name: String,
    vm: Running,
}

/// What all guests boot.
#[derive(Debug)]
pub struct Kit {
    cache: Cache,
    boot: Boot,
}

impl Kit {
    /// Obtains the kernel and packs the image with this program or another.
    ///
    /// # Errors
    /// Something is missing.
    pub fn prepare(program: Option<&Path>) -> Result<Self, Failure> {
        let own = std::env::current_exe().attempt("finding this program")?;
        let cache = Cache::default_location().attempt("opening the cache")?;
        let image = Image::new()
            .program("/bin/carina", program.unwrap_or(&own))
            .attempt("packing carina")?;
        let boot = Boot::prepare(&cache, &image).attempt("preparing the guest")?;
        Ok(Self { cache, boot })
    }

    /// Gives the place a port for a VM, and taps in its bridge, and boots the VM. `number` tells
    /// the guests of a bench apart.
    ///
    /// # Errors
    /// Taps cannot be made or QEMU does not start.
    pub fn start(&self, place: &Place, name: &str, number: u8) -> Result<Guest, Failure> {
        let create = VmCreate {
            name: LocalName::new(name).attempt("naming the VM")?,
            region_bytes: None,
            dif: Some(dif_name(&format!("hv.{name}"))?),
        };
        let port = place.control().create_vm(&create);
        let port = port.attempt("making the VM's port")?;
        let config = format!(
            "[[ipcp]]\nname = \"hv0\"\ntype = \"hv\"\nside = \"guest\"\ndif = \"hv.{name}\"\n\
             [[dif]]\nname = \"net\"\nrole = \"join\"\nover = [\"hv.{name}\"]\nipcp = \"net.{name}\"\n"
        );
        let mut machine = Machine::new(name, place.path().join(format!("qemu.{name}")))
            .attempt("naming the VM")?
            .boot(self.boot.clone())
            .ivshmem(&port.qemu_socket)
            .node_config(&config)
            .memory_mib(256);
        for card in &CARDS {
            let tap = format!("tap{}-{name}", card.subnet);
            place.ip(&["tuntap", "add", "dev", &tap, "mode", "tap"])?;
            place.ip(&["link", "set", "dev", &tap, "master", "br0"])?;
            place.ip(&["link", "set", "dev", &tap, "up"])?;
            machine = machine.nic(Nic {
                model: card.model,
                backend: Backend::Tap(tap),
                mac: Some([0x52, 0x54, 0, 0x78, card.subnet, number]),
            });
        }
        let vm = start_in(place, || {
            machine.start(&self.cache).attempt("starting QEMU")
        })?;
        Ok(Guest {
            name: name.to_owned(),
            vm,
        })
    }
}

/// Starts something in the network namespace of a place, from a thread that goes there and ends.
fn start_in<T: Send>(
    place: &Place,
    start: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let namespace = format!("/proc/{}/ns/net", place.pid());
    let namespace = std::fs::File::open(&namespace).attempt(format!("opening {namespace}"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .attempt("entering a network namespace")?;
            start()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(failed("the thread that starts QEMU panicked")))
    })
}

impl Guest {
    /// Waits until it is up, and gives its network cards addresses that end in `host`.
    ///
    /// # Errors
    /// It does not come up.
    pub fn prepare(&self, host: u8) -> Outcome {
        self.vm.wait_ready(BOOT).attempt("waiting for the guest")?;
        // Two cards share one bridge: each must answer only for its own address.
        self.run(
            "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore; \
             echo 2 >/proc/sys/net/ipv4/conf/all/arp_announce; ip link set dev lo up",
        )?;
        for Card { driver, subnet, .. } in &CARDS {
            self.run(&format!(
                "for i in /sys/class/net/*; do d=$(readlink $i/device/driver || true); \
                 if [ \"${{d##*/}}\" = {driver} ]; then n=${{i##*/}}; \
                 ip addr add 10.79.{subnet}.{host}/24 dev $n; ip link set dev $n up; exit 0; fi; \
                 done; echo no interface has the driver {driver} >&2; exit 1"
            ))?;
        }
        Ok(())
    }

    /// Starts the server of measurements inside, again and again.
    ///
    /// # Errors
    /// The guest does not answer.
    pub fn start_peer(&self, name: &str) -> Outcome {
        self.run(&format!(
            "(while :; do carina bench-peer {name} --stay --wait 20s; sleep 0.2; done) </dev/null \
             >/tmp/peer.log 2>&1 &"
        ))
        .map(drop)
    }

    /// Waits until a name is known in a DIF inside.
    ///
    /// # Errors
    /// It is not in time.
    pub fn reaches(&self, dif: &str, name: &str) -> Outcome {
        let deadline = Instant::now() + BOOT;
        loop {
            let said = self.run("carina dif list --json || carina ipcp list --json")?;
            let known = serde_json::from_str::<serde_json::Value>(&said).is_ok_and(|difs| {
                let difs = difs.as_array().cloned().unwrap_or_default();
                difs.iter().any(|d| {
                    d["name"] == dif
                        && d["names"]
                            .as_array()
                            .is_some_and(|n| n.iter().any(|n| n == name))
                })
            });
            if known {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.explain(&failed(format!("{name} is not known in {dif}: {said}"))));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Has a client inside carry out an order.
    ///
    /// # Errors
    /// The client cannot reach the server.
    pub fn carry_out(&self, order: &Order) -> Result<Vec<Finding>, Failure> {
        let order = serde_json::to_string(order).attempt("writing an order")?;
        let command = format!("carina bench client '{order}'");
        let output = self.vm.run_within(&command, ORDER);
        let output = output.attempt("running a client in the guest")?;
        if !output.is_success() {
            return Err(self.explain(&failed(output.error_text())));
        }
        findings(&output.text())
    }

    /// How its processor is emulated.
    pub fn accelerator(&self) -> String {
        self.vm.record().accel.to_string()
    }

    fn run(&self, command: &str) -> Result<String, Failure> {
        let output = self
            .vm
            .run(command)
            .attempt("running a command in the guest")?;
        if output.is_success() {
            return Ok(output.text());
        }
        let words = output.error_text();
        Err(failed(format!(
            "in guest {}, `{command}`: {words}",
            self.name
        )))
    }

    /// Adds what the guest's logs say to a failure.
    pub fn explain(&self, failure: &Failure) -> Failure {
        let logs = self.vm.run_within(
            "tail -n 25 /var/log/carina.log /tmp/peer.log; carina ipcp list",
            Duration::from_secs(20),
        );
        let logs = logs.map_or_else(|error| error.to_string(), |output| output.text());
        failed(format!("{failure}\n--- guest {}\n{logs}", self.name))
    }
}

/// UDP through each card, and TCP through virtio-net, from the guest that has been prepared with
/// address `client` to the one with `server`.
pub fn cards(client: u8, server: u8) -> Vec<System> {
    let address = |subnet, host| IpAddr::V4(Ipv4Addr::new(10, 79, subnet, host));
    let udp = CARDS.iter().map(|card| System {
        name: card.system.to_owned(),
        means: Means::Udp {
            server: address(card.subnet, server),
            client: address(card.subnet, client),
        },
        sdu_max: UDP_SDU_MAX,
    });
    let tcp = System {
        name: "virtio-net-tcp".to_owned(),
        means: Means::Tcp(address(CARDS[0].subnet, server)),
        sdu_max: 1 << 20,
    };
    udp.chain([tcp]).collect()
}
