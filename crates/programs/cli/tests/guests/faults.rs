//! Tests of the effects on others when a process dies or a guest misbehaves.

use std::time::{Duration, Instant};

use crate::clock::{Canary, Loss};
use crate::house::{Background, Host, SOON, told};

const SCRIBBLE: &str = "/bin/scribbler --ignored --exact scribbler::every_byte_of_the_region";
const CORRUPT: &str = "/bin/scribbler --ignored --exact scribbler::read_index_of_the_hosts_ring";

#[test]
fn scribbling_guest_is_cut_off_without_harm_to_another() {
    let mut host = Host::start();
    let (good, bad) = (host.boot("good"), host.boot("bad"));
    good.serves_echo(&host, "echo.good");
    bad.serves_echo(&host, "echo.bad");
    host.pings("echo.bad", "64", 5);
    let pid = host.node_pid();

    std::thread::scope(|scope| {
        let host = &host;
        let traffic = scope.spawn(move || {
            let until = Instant::now() + Duration::from_secs(8);
            let mut sent = 0;
            while Instant::now() < until {
                host.pings("echo.good", "1400", 100);
                sent += 100;
            }
            sent
        });
        for _ in 0..3 {
            bad.does(SCRIBBLE);
        }
        assert!(traffic.join().unwrap() > 0);
    });

    assert!(host.node_is_running());
    assert_eq!(host.node_pid(), pid);
    assert!(!host.log().contains("panicked"), "{}", host.log());
    host.pings("echo.good", "64", 50);
    let counted = host.log();
    assert!(
        counted.contains("LinkDown"),
        "no reason was given:\n{counted}"
    );
}

#[test]
fn guest_that_corrupts_its_read_index_has_to_reattach() {
    let host = Host::start();
    let guest = host.boot("a");
    guest.serves_echo(&host, "echo");
    host.pings("echo", "64", 5);
    // No traffic passes, so the guest's node does not overwrite the index.
    guest.does(CORRUPT);
    let is_reason =
        |line: &str| line.contains("kind=LinkDown") && line.contains("head 0xdead00000001");
    host.until("the host's node notes it", SOON, || {
        host.log().lines().any(is_reason).then_some(())
    });
    host.until_link(&guest, "up");
    guest.serves_echo(&host, "echo.again");
    host.pings("echo.again", "64", 20);
}

#[test]
fn flows_end_when_qemu_dies_and_the_vm_starts_again() {
    let host = Host::start();
    let mut guest = host.boot("a");
    guest.serves_echo(&host, "echo");
    let mut client = flowing(&host, "echo");
    let (canary, killed) = (Canary::start(), Instant::now());
    guest.vm.kill();
    fails(&mut client, killed);
    let loss = host.until("the host's node notes it", SOON, || Loss::last(&host.log()));
    // The kernel reports QEMU's end, so the node does not wait for a missing heartbeat, unless the
    // machine is delayed.
    let late = canary.late();
    assert!(
        loss.reason.contains("not running") || late > Duration::from_millis(100),
        "{loss:?}, late by {late:?}"
    );
    loss.kept_its_promise(&canary);
    host.until("the name is gone", SOON, || {
        (!host.knows("echo")).then_some(())
    });
    drop(guest);
    let again = host.boot("a");
    again.serves_echo(&host, "echo");
    host.pings("echo", "64", 20);
}

#[test]
fn flows_end_when_guests_node_dies_and_it_reattaches() {
    let host = Host::start();
    let guest = host.boot("a");
    guest.serves_echo(&host, "echo");
    let mut client = flowing(&host, "echo");
    let (canary, killed) = (Canary::start(), Instant::now());
    guest.does("kill -9 $(pidof carina | tr ' ' '\\n' | sort -n | head -n 1)");
    fails(&mut client, killed);
    let loss = host.until("the host's node notes it", SOON, || Loss::last(&host.log()));
    loss.kept_its_promise(&canary);
    drop(canary);
    // The guest's init restarts the node.
    host.until("the guest serves again", SOON, || {
        guest
            .vm
            .run("carina app list")
            .unwrap()
            .is_success()
            .then_some(())
    });
    host.until_link(&guest, "up");
    guest.serves_echo(&host, "echo.again");
    host.pings("echo.again", "64", 20);
}

#[test]
fn guest_reattaches_after_restart_of_a_killed_host_node() {
    let mut host = Host::start();
    let guest = host.boot("a");
    let _server = host.serves_echo("echo.on.host");
    guest.starts("sh -c 'carina ping echo.on.host -c 0 -i 10ms -q; echo ended > /tmp/ended'");
    guest.does("until grep -q FlowAllocated /var/log/carina.log; do sleep 0.1; done");
    std::thread::sleep(Duration::from_millis(500));
    let (canary, killed) = (Canary::start(), Instant::now());
    host.kill_node();
    let ended = || guest.vm.run("test -e /tmp/ended").unwrap().is_success();
    host.until("the guest's flow ends", SOON, || ended().then_some(()));
    eprintln!("ended, as seen from outside, within {:?}", killed.elapsed());
    let log = || guest.does("cat /var/log/carina.log");
    let loss = host.until("the guest's node notes it", SOON, || Loss::last(&log()));
    loss.was_noticed_in_time(&canary);
    drop(canary);
    host.start_node();
    host.port("a");
    host.until_link(&guest, "up");
    guest.serves_echo(&host, "echo");
    host.pings("echo", "4000", 20);
    // The node is killed once more, because QEMU must survive any number of nodes.
    host.kill_node();
    host.start_node();
    host.port("a");
    host.until_link(&guest, "up");
    assert!(guest.vm.is_running());
}

#[test]
fn flow_ends_when_the_application_at_its_other_end_is_killed() {
    let host = Host::start();
    let guest = host.boot("a");
    let server = guest.serves_echo(&host, "echo");
    let mut client = flowing(&host, "echo");
    let (canary, killed) = (Canary::start(), Instant::now());
    guest.does(&format!("kill -9 {server}"));
    fails(&mut client, killed);
    // The link stays: only this flow has ended. On a delayed machine heartbeats may be missed.
    let (log, late) = (host.log(), canary.late());
    assert!(
        !log.contains("kind=LinkDown") || late > Duration::from_millis(300),
        "late by {late:?}: {log}"
    );
    drop(canary);
    host.until_link(&guest, "up");
    host.until("the name is gone", SOON, || {
        (!host.knows("echo")).then_some(())
    });
    // The name is free again.
    guest.serves_echo(&host, "echo");
    host.pings("echo", "64", 5);
}

#[test]
fn guest_reboots_and_attaches_again() {
    let host = Host::start();
    let guest = host.boot("a");
    guest.serves_echo(&host, "echo");
    guest.vm.reboot(crate::house::BOOT).unwrap();
    host.until_link(&guest, "up");
    guest.serves_echo(&host, "echo.after");
    host.pings("echo.after", "64", 10);
}

#[test]
fn nothing_stays_behind_after_an_orderly_end() {
    let mut host = Host::start();
    let guest = host.boot("a");
    let pid = guest.vm.pid();
    let stopped = host.carina(&["vm", "stop", "a"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    assert!(!guest.vm.is_running());
    drop(guest);
    assert!(host.terminate_node().success());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    left_only_what_may_stay(&host);
}

#[test]
fn node_cleans_up_after_a_killed_node_and_killed_qemu() {
    let mut host = Host::start();
    let mut guest = host.boot("a");
    host.kill_node();
    guest.vm.kill();
    drop(guest);
    host.start_node();
    assert!(host.terminate_node().success());
    left_only_what_may_stay(&host);
}

/// Starts a client in the background, whose SDUs go back and forth.
fn flowing(host: &Host, name: &str) -> Background {
    let client = host.in_background(&["ping", name, "-c", "0", "-i", "10ms", "-q"]);
    host.until("the flow is allocated", SOON, || {
        host.log().contains("kind=FlowAllocated").then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    client
}

/// Waits until a client in the background has ended with an error.
fn fails(client: &mut Background, killed: Instant) {
    assert!(!client.ends_within(SOON).success());
    eprintln!("ended, as seen from outside, within {:?}", killed.elapsed());
}

fn left_only_what_may_stay(host: &Host) {
    let left = files_below(&host.run_dir());
    let unexpected: Vec<_> = left.iter().filter(|path| !may_stay(path)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

/// Whether a file may remain. The lock file and the counters remain on purpose: removing a lock
/// file would break the lock, and counters can be read after a crash.
fn may_stay(path: &str) -> bool {
    path.ends_with("/lock") || path.ends_with("/counters")
}

fn files_below(directory: &std::path::Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path.display().to_string());
        }
    }
    files
}
