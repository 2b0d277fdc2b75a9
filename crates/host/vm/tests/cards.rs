//! Tests of cards that are plugged into a running machine, and removed again.

use std::time::Duration;

use carina_vm::{Backend, Model, Nic, NicId};

use crate::support::{machine, nat_card, ping_gateway, up};

const LIMIT: Duration = Duration::from_secs(120);
const FIRST: [u8; 6] = [0x02, 0xca, 0, 0, 0, 1];
const SECOND: [u8; 6] = [0x02, 0xca, 0, 0, 0, 2];

#[test]
fn cards_come_and_go_while_the_guest_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("f", directory.path());
    let vm = up(machine.nic(nat_card(FIRST)).ports(1), &cache);
    let boot_id = vm.run("cat /proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(vm.interface_of(FIRST, LIMIT).unwrap(), "eth0");

    let second = vm.add_nic(&nat_card(SECOND)).unwrap();
    assert_eq!(second, NicId(1));
    let interface = vm.interface_of(SECOND, LIMIT).unwrap();
    let output = ping_gateway(&vm, &interface);
    assert!(output.contains("1 packets received"), "{output}");

    let third = vm.add_nic(&nat_card([2, 0, 0, 0, 0, 3])).unwrap_err();
    let third = third.to_string();
    assert!(third.contains("none of its 2 ports is free"), "{third}");

    vm.remove_nic(NicId(0), LIMIT).unwrap();
    assert!(vm.interface_of(FIRST, Duration::ZERO).is_err());
    // The card's port and number are free again, for another back end.
    let unplugged = Nic {
        model: Model::VirtioNet,
        backend: Backend::Unplugged,
        mac: Some(FIRST),
    };
    assert_eq!(vm.add_nic(&unplugged).unwrap(), NicId(0));
    assert!(vm.interface_of(FIRST, LIMIT).is_ok());

    let error = vm.remove_nic(NicId(7), LIMIT).unwrap_err().to_string();
    assert!(error.contains("nic7"), "{error}");
    let same = vm.run("cat /proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(same.text(), boot_id.text(), "it was started anew");
}

#[test]
fn guest_sees_its_cable_pulled_and_plugged_in() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("g", directory.path());
    let vm = up(machine.nic(nat_card(FIRST)), &cache);
    let mut events = vm.events().unwrap();
    let carrier = |want: &str| {
        let wait =
            format!("until grep -q {want} /sys/class/net/eth0/carrier; do usleep 50000; done");
        vm.run_within(&wait, LIMIT).unwrap().is_success()
    };
    assert!(vm.run("ip link set eth0 up").unwrap().is_success());
    assert!(carrier("1"));
    vm.set_link(NicId(0), false).unwrap();
    assert!(carrier("0"));
    vm.set_link(NicId(0), true).unwrap();
    assert!(carrier("1"));
    assert!(vm.set_link(NicId(1), true).is_err());

    // The second monitor gets the events that requests on the first one cause.
    vm.qmp().unwrap().reset().unwrap();
    events.wait_event("RESET", |_| true, LIMIT).unwrap();
}

#[test]
fn machine_with_too_many_ports_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("h", directory.path());
    let error = machine.nic(nat_card(FIRST)).ports(16).start(&cache);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("17 ports") && error.contains("at most 16"),
        "{error}"
    );
}
