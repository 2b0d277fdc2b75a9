//! Tests of VMPI over QEMU's `ivshmem-plain`: memory without doorbells, in which both nodes poll.

use carina_api::control::VmpiKind;

use crate::house::{BOOT, Guest, Host, SOON};

fn boot(host: &Host, name: &str) -> Guest {
    host.boot_over(VmpiKind::IvshmemPlain, name, |machine| machine)
}

#[test]
fn applications_reach_each_other_over_ivshmem_plain() {
    let host = Host::start();
    let guest = boot(&host, "p");
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
fn nodes_are_killed_and_the_guest_reboots_over_ivshmem_plain() {
    let mut host = Host::start();
    let guest = boot(&host, "p");
    guest.serves_echo(&host, "echo");
    host.pings("echo", "64", 5);

    // The guest's init restarts the node.
    guest.does("kill -9 $(pidof carina | tr ' ' '\\n' | sort -n | head -n 1)");
    host.until("the name is gone", SOON, || {
        (!host.knows("echo")).then_some(())
    });
    host.until_link(&guest, "up");
    guest.does("until carina app list; do sleep 0.1; done");
    guest.serves_echo(&host, "echo.again");
    host.pings("echo.again", "1400", 20);

    // The next node finds the QEMU by its mapping of the region.
    host.kill_node();
    host.start_node();
    host.until_link(&guest, "up");
    host.until_reachable("echo.again");
    host.pings("echo.again", "1400", 20);

    guest.vm.reboot(BOOT).unwrap();
    host.until_link(&guest, "up");
    guest.serves_echo(&host, "echo.rebooted");
    host.pings("echo.rebooted", "64", 20);
    assert!(!host.log().contains("panicked"), "{}", host.log());
}
