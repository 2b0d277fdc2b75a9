//! Tests of VMPI over QEMU's `ivshmem-plain`: memory without doorbells, in which both nodes poll.

use carina_api::control::VmpiKind;

use crate::house::{BOOT, Guest, Host};
use crate::journeys::{applications_reach_each_other, nodes_are_killed};

fn boot(host: &Host, name: &str) -> Guest {
    host.boot_over(VmpiKind::IvshmemPlain, name, |machine| machine)
}

#[test]
fn applications_reach_each_other_over_ivshmem_plain() {
    let host = Host::start();
    let guest = boot(&host, "p");
    applications_reach_each_other(&host, &guest);
}

#[test]
fn nodes_are_killed_and_the_guest_reboots_over_ivshmem_plain() {
    let mut host = Host::start();
    let guest = boot(&host, "p");
    // The next node of the host finds the QEMU by its mapping of the region.
    nodes_are_killed(&mut host, &guest);

    guest.vm.reboot(BOOT).unwrap();
    host.until_link(&guest, "up");
    guest.serves_echo(&host, "echo.rebooted");
    host.pings("echo.rebooted", "64", 20);
    assert!(!host.log().contains("panicked"), "{}", host.log());
}
