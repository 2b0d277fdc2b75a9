//! Tests of SDUs between a guest and its host.

use std::time::Duration;

use crate::house::{Guest, Host, SOON, told};
use crate::processor_time::least_used;

#[test]
fn host_and_guest_reach_applications_of_each_other() {
    let host = Host::start();
    let guest = host.boot("a");

    guest.serves_echo(&host, "echo.in.guest");
    for (size, count) in [
        ("0", 20),
        ("1", 20),
        ("64", 200),
        ("4000", 100),
        ("65537", 20),
    ] {
        host.pings("echo.in.guest", size, count);
    }
    host.pings("echo.in.guest", "1M", 3);

    let _server = host.serves_echo("echo.on.host");
    for size in ["0", "64", "4000", "1M"] {
        guest.does(&format!(
            "carina ping echo.on.host -s {size} -c 5 -i 1ms -q -W 60s"
        ));
    }
}

#[test]
fn guest_with_an_iommu_is_woken_by_doorbells() {
    let host = Host::start();
    let guest = host.boot_with("a", |machine| machine.iommu());
    is_woken(&host, &guest, "0x1110");
}

/// Sends SDUs of several sizes from the host to the guest and back.
pub(crate) fn applications_reach_each_other(host: &Host, guest: &Guest) {
    guest.serves_echo(host, "echo.guest");
    for (size, count) in [("0", 3), ("64", 50), ("1400", 50), ("64K", 10), ("1M", 3)] {
        host.pings("echo.guest", size, count);
    }
    let _server = host.serves_echo("echo.host");
    guest.until_reachable("echo.host");
    guest.does("carina ping echo.host -c 20 -i 1ms -q -s 1400 -W 60s");
    guest.does("carina ping echo.host -c 3 -i 1ms -q -s 1M -W 60s");
}

/// Kills the guest's node, then the host's: each time the names and flows of the link come back.
pub(crate) fn nodes_are_killed(host: &mut Host, guest: &Guest) {
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

/// Checks that the guest's node receives interrupts of the device with this PCI id.
pub(crate) fn is_woken(host: &Host, guest: &Guest, pci_id: &str) {
    let server = guest.serves_echo(host, "echo");
    is_rung(host, guest);
    let driver =
        guest.does("for link in /sys/bus/pci/drivers/vfio-pci/0000*; do basename $link; done");
    let find = format!("grep -lx {pci_id} /sys/bus/pci/devices/*/device | cut -d/ -f6");
    let device = guest.does(&find);
    assert_eq!(driver, device, "the device is not driven by vfio-pci");
    guest.does(&format!("kill {server}"));
    host.until("the name is gone", SOON, || {
        (!host.knows("echo")).then_some(())
    });
}

/// Pings so slowly that the guest's node is asleep, and checks that its doorbell rings.
fn is_rung(host: &Host, guest: &Guest) {
    let rung = guest.interrupts();
    // The pings are slow, so that the guest's node goes to sleep in between. On a busy machine,
    // where the guest is slow too, they must be slower.
    let is_rung = ["50ms", "200ms", "500ms"].iter().any(|pause| {
        let slow = host.pings_every(pause, "echo", "64", 20);
        eprintln!("every {pause}: {slow}");
        guest.interrupts() > rung
    });
    assert!(
        is_rung,
        "the guest was never interrupted\n{}",
        guest.node_log()
    );
}

#[test]
fn guest_with_iommu_is_woken_after_restarts_of_hosts_node() {
    let mut host = Host::start();
    let guest = host.boot_with("a", |machine| machine.iommu());
    for restart in 0..3 {
        let server = guest.serves_echo(&host, "echo");
        // Traffic is flowing when the node is killed. Afterwards it is slow, so that the guest's
        // node sleeps.
        let mut client = host.in_background(&["ping", "echo", "-c", "0", "-i", "1ms", "-q"]);
        std::thread::sleep(Duration::from_millis(500));
        host.kill_node();
        assert!(!client.ends_within(SOON).success());
        host.start_node();
        host.until_link(&guest, "up");
        host.until_reachable("echo");
        host.pings("echo", "1M", 3);
        // QEMU keeps the doorbell of the dead node, but accepts one more for each new node.
        eprintln!("after restart {}", restart + 1);
        is_rung(&host, &guest);
        guest.does(&format!("kill {server}"));
        host.until("the name is gone", SOON, || {
            (!host.knows("echo")).then_some(())
        });
    }
}

#[test]
fn name_that_is_not_registered_is_refused_with_its_name() {
    let host = Host::start();
    let guest = host.boot("a");
    let output = host.ping("nobody.here", "64", 1);
    assert!(!output.status.success());
    assert!(
        crate::house::told(&output).contains("nobody.here"),
        "{output:?}"
    );
    let output = guest.vm.run("carina ping nobody.there -c 1").unwrap();
    assert!(!output.is_success());
    assert!(
        output.error_text().contains("nobody.there"),
        "{}",
        output.error_text()
    );
}

#[test]
fn application_of_one_guest_is_not_reached_from_another() {
    let host = Host::start();
    let (a, b) = (host.boot("a"), host.boot("b"));
    a.serves_echo(&host, "echo.a");
    b.serves_echo(&host, "echo.b");
    host.pings("echo.a", "64", 20);
    host.pings("echo.b", "64", 20);
    // A shim DIF spans one VM and its host, and no further.
    assert!(!b.vm.run("carina ping echo.a -c 1").unwrap().is_success());
}

#[test]
fn random_sdus_cross_unharmed_both_ways_for_a_minute() {
    let host = Host::start();
    let guest = host.boot_with("a", |machine| machine.cpus(2));
    guest.starts("carina perf --listen perf");
    host.until_reachable("perf");
    let trial = |more: &[&str]| {
        let mut args = vec!["perf", "perf", "--verify", "-t", "60s"];
        args.extend(more);
        host.in_background(&args)
    };
    let trials = [
        trial(&["-s", "uniform:0..1M", "--seed", "1"]),
        trial(&["-s", "uniform:0..1M", "--seed", "2", "--reverse"]),
        trial(&["-s", "uniform:0..200", "--seed", "3"]),
        trial(&["-s", "uniform:0..200", "--seed", "4", "--reverse"]),
    ];
    for trial in trials {
        let output = trial.output();
        assert!(
            output.status.success(),
            "{}{}",
            told(&output),
            guest.node_log()
        );
        assert!(told(&output).lines().count() > 0);
    }
}

#[test]
fn idle_node_with_idle_vm_uses_under_a_hundredth_of_a_core() {
    let host = Host::start();
    let _guest = host.boot("a");
    // The first seconds of a link do not count as idle.
    std::thread::sleep(Duration::from_secs(2));
    let watched = Duration::from_secs(10);
    let used = least_used(host.node_pid(), watched, watched / 100);
    assert!(
        used < watched / 100,
        "{used:?} of processor time in {watched:?}"
    );
}

#[test]
fn all_input_of_cat_arrives_though_it_closes_at_once() {
    let host = Host::start();
    let guest = host.boot("a");
    let inbox = host.in_background(&["cat", "--listen", "inbox"]);
    guest.until_reachable("inbox");
    guest.does("seq 1 20000 | carina cat inbox");
    let wanted: String = (1..=20000).map(|number| format!("{number}\n")).collect();
    let received = inbox.output().stdout;
    assert!(received == wanted.as_bytes(), "{} bytes", received.len());

    guest.starts("sh -c 'carina cat --listen tray --recv-only > /tmp/tray'");
    host.until_reachable("tray");
    host.gives("tray", wanted.as_bytes());
    let arrived = || guest.does("wc -c < /tmp/tray").parse() == Ok(wanted.len());
    host.until("all is in the tray", SOON, || arrived().then_some(()));
    assert_eq!(guest.does("sort -nu /tmp/tray | wc -l"), "20000");
}
