//! Tests of Ctrl-C: while a VM boots, and while a command runs in a guest.

use std::io::Read;

use rustix::process::{Pid, Signal, kill_process};

use crate::house::{Host, SOON, told};

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

#[test]
fn interrupted_command_in_a_guest_ends_there_as_well() {
    let host = Host::start();
    let vm = host.vm_run("a", &[]);
    let runs = || {
        let list = host.carina(&["vm", "exec", "a", "pidof", "sleep"]);
        !told(&list).trim().is_empty()
    };
    for signal in [Signal::INT, Signal::TERM] {
        let mut exec = host.in_background(&["vm", "exec", "a", "sleep", "3000"]);
        host.until("the command runs", SOON, || runs().then_some(()));
        kill_process(Pid::from_child(&exec.0), signal).unwrap();
        // A process that the signal itself ends has no code.
        assert_eq!(exec.0.wait().unwrap().code(), Some(130), "{signal:?}");
        assert!(!runs(), "{signal:?}");
    }
    vm.stop();
}
