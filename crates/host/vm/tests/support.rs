//! Machines for the tests.

use std::path::Path;
use std::time::Duration;

use carina_vm::{Backend, Boot, Cache, Image, Machine, Model, Nic, Running};

/// How long a slow machine may take to boot a guest.
pub(crate) const BOOT: Duration = Duration::from_secs(600);

/// A machine with the stock image, which ends with the test.
pub(crate) fn machine(name: &str, run_dir: &Path) -> (Machine, Cache) {
    let cache = Cache::default_location().unwrap();
    let boot = Boot::prepare(&cache, &Image::new()).unwrap();
    (
        Machine::new(name, run_dir)
            .unwrap()
            .boot(boot)
            .dies_with_parent(),
        cache,
    )
}

/// Starts a machine and waits until it accepts commands.
pub(crate) fn up(machine: Machine, cache: &Cache) -> Running {
    let running = machine.start(cache).unwrap();
    running.wait_ready(BOOT).unwrap();
    running
}

/// A card behind QEMU's own NAT, whose gateway answers pings.
pub(crate) fn nat_card(mac: [u8; 6]) -> Nic {
    Nic {
        model: Model::VirtioNet,
        backend: Backend::User(vec![]),
        mac: Some(mac),
    }
}

/// Configures an interface and pings the NAT's gateway. Returns the command's output.
pub(crate) fn ping_gateway(vm: &Running, interface: &str) -> String {
    let command = format!(
        "ip link set {interface} up; ip addr replace 10.0.2.15/24 dev {interface}; \
         ping -c 1 -W 30 -I {interface} 10.0.2.2 2>&1; ip addr flush dev {interface}"
    );
    vm.run(&command).unwrap().text()
}
