//! Test of Ctrl-C while a VM boots.

use std::io::Read;

use rustix::process::{Pid, Signal, kill_process};

use crate::house::{Host, SOON};

#[test]
fn interrupted_boot_leaves_no_machine_and_no_port() {
    let host = Host::start();
    let machines = || {
        let list = host.json(&["vm", "list"]);
        list["machines"].as_array().map_or(0, Vec::len)
    };
    let mut boot = host.in_background(&["vm", "run", "cut", "--memory", "256"]);
    host.until("QEMU runs", SOON, || (machines() == 1).then_some(()));
    kill_process(Pid::from_child(&boot.0), Signal::INT).unwrap();
    assert_eq!(boot.0.wait().unwrap().code(), Some(130));
    let mut printed = String::new();
    let errors = boot.0.stderr.take().unwrap();
    errors.take(1 << 20).read_to_string(&mut printed).unwrap();
    assert!(
        printed.contains("the VM and its port are removed"),
        "{printed}"
    );
    assert_eq!(machines(), 0);
    let ipcps = host.json(&["ipcp", "list"]).to_string();
    assert!(!ipcps.contains("cut"), "{ipcps}");
}
