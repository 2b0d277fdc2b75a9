//! A stock guest whose virtio-net card is a port of a graph.

use std::path::Path;
use std::time::Instant;

use carina_vm::{Backend, Boot, Cache, Image, Machine, Model, Nic, Running as Vm};

use crate::room::Room;
use crate::running::Running;
use crate::traffic::PATIENCE;

fn graph(directory: &Path, more: &str) -> String {
    let socket = directory.join("card");
    format!(
        "links = [\"card.output -> arp.south\", \"arp.south -> card.input\", \
         \"arp.north -> echo.south\", \"echo.south -> arp.north\"]\n\
         [apps.card]\nkind = \"vhost_user\"\nsocket = {socket:?}\n{more}\n\
         [apps.arp]\nkind = \"arp\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:00:01\"\n\
         next = \"10.0.0.2\"\n[apps.echo]\nkind = \"icmp_echo\"\naddress = \"10.0.0.1\"\n"
    )
}

/// A virtual machine with a card at a socket in `directory`.
pub(crate) fn machine(
    directory: &Path,
    name: &str,
    card: &str,
    queues: u16,
    packed: bool,
) -> Machine {
    let boot = Boot::prepare(&cache(), &Image::new()).unwrap();
    let nic = Nic {
        model: Model::VirtioNet,
        backend: Backend::VhostUser {
            socket: directory.join(card),
            queues,
            packed,
        },
        mac: None,
    };
    let machine = Machine::new(name, directory.join("vm")).unwrap();
    let machine = machine.boot(boot).cpus(queues.into()).nic(nic);
    machine.dies_with_parent()
}

pub(crate) fn cache() -> Cache {
    Cache::default_location().unwrap()
}

fn guest(directory: &Path, queues: u16, packed: bool) -> Vm {
    let machine = machine(directory, "g", "card", queues, packed);
    let vm = machine.start(&cache()).unwrap();
    vm.wait_ready(PATIENCE).unwrap();
    vm
}

pub(crate) fn raise(vm: &Vm) {
    let up = "ip address add 10.0.0.2/24 dev eth0 && ip link set eth0 up";
    let done = vm.run(up).unwrap();
    assert!(done.is_success(), "{}", done.error_text());
}

/// Pings until the first answer comes; then 20 pings of each size must all be answered.
fn pings(vm: &Vm) {
    let begin = Instant::now();
    let once = "ping -c 1 -W 1 10.0.0.1";
    while !vm.run(once).is_ok_and(|done| done.is_success()) {
        assert!(begin.elapsed() < PATIENCE, "no answer");
    }
    for size in [0, 56, 1400] {
        // With several pings in one command, busybox waits for the last answer only twice as long
        // as the slowest one took.
        let one = format!("ping -q -c 1 -W 30 -s {size} 10.0.0.1 >/dev/null");
        let all = format!("for n in $(seq 20); do {one} || exit 1; done");
        let done = vm.run_within(&all, PATIENCE).unwrap();
        assert!(done.is_success(), "{size}: a ping was not answered");
    }
}

#[test]
fn guest_pings_a_graph_and_again_after_reboot_and_restart() {
    let directory = tempfile::tempdir().unwrap();
    let Some(room) = Room::new() else { return };
    let text = graph(directory.path(), "");
    let running = Running::new(&room, &text);
    let vm = guest(directory.path(), 1, false);
    raise(&vm);
    pings(&vm);

    vm.reboot(PATIENCE).unwrap();
    raise(&vm);
    pings(&vm);

    drop(running);
    let _running = Running::new(&room, &text);
    pings(&vm);
}

#[test]
fn guest_with_packed_rings_goes_on_after_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let Some(room) = Room::new() else { return };
    let text = graph(directory.path(), "queues = 2");
    let mut running = Running::new(&room, &text);
    let vm = guest(directory.path(), 2, true);
    raise(&vm);
    let bits = vm.run("cat /sys/bus/virtio/devices/virtio*/features");
    let bits = bits.unwrap().text();
    assert_eq!(bits.trim().as_bytes().get(34), Some(&b'1'), "{bits}");
    pings(&vm);

    for _ in 0..3 {
        drop(running);
        running = Running::new(&room, &text);
        pings(&vm);
    }

    // The guest reboots while no back end is running.
    drop(running);
    vm.reboot(PATIENCE).unwrap();
    raise(&vm);
    let _running = Running::new(&room, &text);
    pings(&vm);
}
