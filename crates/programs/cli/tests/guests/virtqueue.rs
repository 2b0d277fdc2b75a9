//! Tests of VMPI over the queues of a virtio device, which the guest's node drives from user space.

use carina_api::control::VmpiKind;

use crate::house::{BOOT, Guest, Host, SOON};
use crate::journeys::is_woken;

fn boot(host: &Host, name: &str) -> Guest {
    host.boot_over(VmpiKind::Virtqueue, name, |machine| machine)
}

#[test]
fn applications_reach_each_other_over_virtqueues() {
    let host = Host::start();
    let guest = boot(&host, "q");
    guest.serves_echo(&host, "echo.guest");
    for (size, count) in [("0", 3), ("64", 50), ("1400", 50), ("64K", 10), ("1M", 3)] {
        host.pings("echo.guest", size, count);
    }
    let _server = host.serves_echo("echo.host");
    guest.until_reachable("echo.host");
    guest.does("carina ping echo.host -c 20 -i 1ms -q -s 1400 -W 60s");
    guest.does("carina ping echo.host -c 3 -i 1ms -q -s 1M -W 60s");
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

fn nodes_are_killed(host: &mut Host, guest: &Guest) {
    guest.serves_echo(host, "echo");
    host.pings("echo", "64", 5);

    // The guest's init restarts the node.
    guest.does("kill -9 $(pidof carina | tr ' ' '\\n' | sort -n | head -n 1)");
    host.until("the name is gone", SOON, || {
        (!host.knows("echo")).then_some(())
    });
    host.until_link(guest, "up");
    guest.does("until carina app list; do sleep 0.1; done");
    guest.serves_echo(host, "echo.again");
    host.pings("echo.again", "1400", 20);

    host.kill_node();
    host.start_node();
    host.until_link(guest, "up");
    host.until_reachable("echo.again");
    host.pings("echo.again", "1400", 20);
    assert!(!host.log().contains("panicked"), "{}", host.log());
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
