//! Tests of `carina vm run --vmpi vsock`: a guest without shared memory, whose node attaches over
//! AF_VSOCK to the device that `carina vm serve-vsock` serves.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::house::{Host, SOON, told};

/// A server of echo in the guest that starts again when its node does.
const ECHO: &str = "(while :; do carina ping --listen echo.v --wait 60s; sleep 0.2; done) &";

#[test]
fn guest_over_vsock_is_reached_and_either_node_may_die() {
    let mut host = Host::start();
    let vm = host.carina(&["vm", "run", "v", "--vmpi", "vsock", "--command", ECHO]);
    assert!(vm.status.success(), "{}", told(&vm));
    host.until_reachable("echo.v");
    for (size, count) in [("0", 3), ("64", 50), ("1400", 50), ("64K", 10), ("1M", 3)] {
        host.pings("echo.v", size, count);
    }

    // The guest's init restarts the node, and flows end with the old one.
    let killing = "kill -9 $(pidof carina | tr ' ' '\\n' | sort -n | head -n 1)";
    let killed = host.carina(&["vm", "exec", "v", "sh", "-c", killing]);
    assert!(killed.status.success(), "{}", told(&killed));
    host.until("the name is gone", SOON, || {
        (!host.knows("echo.v")).then_some(())
    });
    host.until_reachable("echo.v");
    host.pings("echo.v", "1400", 20);

    host.kill_node();
    host.start_node();
    host.until_reachable("echo.v");
    host.pings("echo.v", "1400", 20);
    assert!(!host.log().contains("panicked"), "{}", host.log());

    let listed = host.json(&["vm", "list"]).to_string();
    let server = format!("\"qemu_pid\":{}", server_of(&host));
    assert!(listed.contains(&server), "{listed}");
    let stopped = host.carina(&["vm", "stop", "v"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    host.until("the process of the device has ended", SOON, || {
        (!host.run_dir().join("vm/v.vsock").exists()).then_some(())
    });
    assert!(!host.run_dir().join("vm/v.vsock.log").exists());
}

#[test]
fn guest_over_vsock_has_ssh_and_the_dialect_of_firecracker() {
    let host = Host::start();
    let vm = host.vm_run("v", &["--vmpi", "vsock", "--ssh"]);
    let greeting = host.carina(&["connect", "ssh.v", "--stdio"]);
    assert!(
        told(&greeting).starts_with("SSH-2.0-"),
        "{}",
        told(&greeting)
    );

    // A program of the host that asks for a port without a listener sees the end.
    let path = host.run_dir().join("vm/v.vsock");
    assert_eq!(answer(&path, "CONNECT 4242\n"), "");
    assert_eq!(answer(&path, "GET / HTTP/1.1\n"), "");
    vm.stop();
}

/// What the device answers to the first line of a program.
fn answer(path: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    let mut text = String::new();
    // A device that closes the connection may reset it.
    let _ = stream.read_to_string(&mut text);
    text
}

/// Process id of the VM's `carina vm serve-vsock`.
fn server_of(host: &Host) -> i32 {
    let directory = host.run_dir();
    let is_ours = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.contains("serve-vsock") && words.contains(&*directory.to_string_lossy())
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let mut pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(is_ours).expect("the process runs")
}
