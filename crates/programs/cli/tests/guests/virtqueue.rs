//! Tests of VMPI over the queues of a virtio device, which the guest's node drives from user space.

use carina_api::control::VmpiKind;

use crate::house::{BOOT, Guest, Host};
use crate::journeys::{applications_reach_each_other, is_woken, nodes_are_killed};

fn boot(host: &Host, name: &str) -> Guest {
    host.boot_over(VmpiKind::Virtqueue, name, |machine| machine)
}

#[test]
fn applications_reach_each_other_over_virtqueues() {
    let host = Host::start();
    let guest = boot(&host, "q");
    applications_reach_each_other(&host, &guest);
}

#[test]
fn both_nodes_may_be_killed_over_virtqueues() {
    let mut host = Host::start();
    let guest = boot(&host, "q");
    nodes_are_killed(&mut host, &guest);
}

#[test]
fn guest_with_an_iommu_is_woken_over_virtqueues() {
    let mut host = Host::start();
    let guest = host.boot_over(VmpiKind::Virtqueue, "q", |machine| machine.iommu());
    is_woken(&host, &guest, "0x1041");
    nodes_are_killed(&mut host, &guest);
    is_woken(&host, &guest, "0x1041");
    guest.vm.reboot(BOOT).unwrap();
    host.until_link(&guest, "up");
    is_woken(&host, &guest, "0x1041");
}

#[test]
fn a_guest_reboots_and_attaches_again_over_virtqueues() {
    let host = Host::start();
    let guest = boot(&host, "q");
    guest.vm.reboot(BOOT).unwrap();
    host.until_link(&guest, "up");
    guest.serves_echo(&host, "echo");
    host.pings("echo", "64", 20);
}
