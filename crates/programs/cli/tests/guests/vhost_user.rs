//! Tests of unmodified guests whose virtio-net cards are ports of a graph.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carina_vm::{Backend, Boot, Cache, Image, Machine, Model, Nic, Running};

use crate::house::{BOOT, CARINA, Host, SOON, told};
use crate::processor_time::least_used;

/// A command of carina that runs until it is killed, or the test ends.
struct Program {
    directory: PathBuf,
    words: Vec<String>,
    process: Option<Child>,
}

/// A graph that answers pings at 10.0.0.1.
fn responder(directory: &Path, more: &str) -> Program {
    let file = directory.join("graph.toml");
    let socket = directory.join("card");
    let graph = format!(
        "links = [\"card.output -> arp.south\", \"arp.south -> card.input\", \
         \"arp.north -> echo.south\", \"echo.south -> arp.north\"]\n\
         [apps.card]\nkind = \"vhost_user\"\nsocket = {socket:?}\n{more}\n\
         [apps.arp]\nkind = \"arp\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:00:01\"\n\
         next = \"10.0.0.2\"\n[apps.echo]\nkind = \"icmp_echo\"\naddress = \"10.0.0.1\"\n"
    );
    fs::write(&file, graph).unwrap();
    Program::new(directory, &["graph", "run", file.to_str().unwrap()])
}

impl Program {
    fn new(directory: &Path, words: &[&str]) -> Program {
        let mut program = Program {
            directory: directory.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            process: None,
        };
        program.start();
        program
    }

    fn start(&mut self) {
        // The kernel ends the process with the test, however the test ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", CARINA]);
        command.args(&self.words).stdin(Stdio::null());
        command.env("CARINA_RUN", self.directory.join("run"));
        command.stdout(Stdio::piped());
        let mut options = fs::File::options();
        let log = options.create(true).append(true);
        let log = log.open(self.directory.join("log")).unwrap();
        command.stderr(log).env("CARINA_LOG", "info");
        self.process = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

fn card(directory: &Path, name: &str, queues: u16, packed: bool) -> Nic {
    Nic {
        model: Model::VirtioNet,
        backend: Backend::VhostUser {
            socket: directory.join(name),
            queues,
            packed,
        },
        mac: None,
    }
}

pub(crate) fn guest(directory: &Path, queues: u16, packed: bool) -> Running {
    guest_at(directory, "g", "card", queues, packed)
}

fn guest_at(directory: &Path, name: &str, socket: &str, queues: u16, packed: bool) -> Running {
    start(machine(directory, name, socket, queues, packed))
}

fn machine(directory: &Path, name: &str, socket: &str, queues: u16, packed: bool) -> Machine {
    let cache = Cache::default_location().unwrap();
    let boot = Boot::prepare(&cache, &Image::new()).unwrap();
    let nic = card(directory, socket, queues, packed);
    let machine = Machine::new(name, directory.join("vm")).unwrap();
    machine.boot(boot).cpus(queues.into()).nic(nic)
}

fn start(machine: Machine) -> Running {
    let cache = Cache::default_location().unwrap();
    let vm = machine.dies_with_parent().start(&cache).unwrap();
    vm.wait_ready(BOOT).unwrap();
    vm
}

fn raise(vm: &Running) {
    let up = "ip address add 10.0.0.2/24 dev eth0 && ip link set eth0 up";
    let done = vm.run(up).unwrap();
    assert!(done.is_success(), "{}", done.error_text());
}

/// Pings until an answer arrives; then all of a few pings must be answered.
fn pings(vm: &Running, graph: &Program) {
    let begin = Instant::now();
    while !vm
        .run("ping -c 1 -W 1 10.0.0.1")
        .is_ok_and(|done| done.is_success())
    {
        assert!(begin.elapsed() < SOON, "no answer; {}", graph.log());
    }
    for size in [0, 56, 1400] {
        // With several pings in one run, busybox waits for the last one only twice as long as the
        // slowest took; so each ping is a run.
        let one = format!("ping -q -c 1 -W 30 -s {size} 10.0.0.1 >/dev/null");
        let all = format!("for n in $(seq 20); do {one} || exit 1; done");
        let done = vm.run_within(&all, BOOT).unwrap();
        assert!(done.is_success(), "{size}: a ping was not answered");
    }
}

#[test]
fn guest_pings_a_graph_and_again_after_reboot_and_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut graph = responder(directory.path(), "");
    let vm = guest(directory.path(), 1, false);
    raise(&vm);
    pings(&vm, &graph);

    // While the guest is silent, the graph sleeps.
    let watched = Duration::from_secs(2);
    let spent = least_used(graph.pid(), watched, watched / 10);
    assert!(spent < watched / 10, "{spent:?} while idle");

    vm.reboot(BOOT).unwrap();
    raise(&vm);
    pings(&vm, &graph);

    // The guest notices only a pause.
    for _ in 0..2 {
        graph.kill();
        graph.start();
        pings(&vm, &graph);
    }
}

#[test]
fn guest_with_packed_rings_two_queues_and_an_mtu_pings_a_graph() {
    let directory = tempfile::tempdir().unwrap();
    let mut graph = responder(directory.path(), "queues = 2");
    // The longest ping has the length of the MTU.
    let mtu = ["-global", "virtio-net-pci.host_mtu=1428"];
    let vm = start(machine(directory.path(), "g", "card", 2, true).extra_args(mtu));
    raise(&vm);
    let mtu = vm.run("cat /sys/class/net/eth0/mtu").unwrap();
    assert_eq!(mtu.text().trim(), "1428");
    let features = vm
        .run("cat /sys/bus/virtio/devices/virtio*/features")
        .unwrap();
    let bits = features.text();
    assert_eq!(bits.trim().as_bytes().get(34), Some(&b'1'), "{bits}");
    pings(&vm, &graph);
    for _ in 0..2 {
        graph.kill();
        graph.start();
        pings(&vm, &graph);
    }
}

#[test]
fn forwarder_joins_two_guests() {
    let directory = tempfile::tempdir().unwrap();
    let ports = ["a", "b"].map(|card| {
        let path = directory.path().join(card);
        format!("vhost_user:{}", path.display())
    });
    let forwarder = Program::new(directory.path(), &["forward", &ports[0], &ports[1]]);
    let a = guest_at(directory.path(), "a", "a", 1, false);
    let b = guest_at(directory.path(), "b", "b", 1, true);
    raise(&a);
    let up = "ip address add 10.0.0.1/24 dev eth0 && ip link set eth0 up";
    assert!(b.run(up).unwrap().is_success());
    pings(&a, &forwarder);
}

#[test]
fn packets_of_blast_come_back_from_a_guest_that_routes() {
    let directory = tempfile::tempdir().unwrap();
    // QEMU waits for a back end before it starts, and reconnects to a new back end later.
    let graph = responder(directory.path(), "");
    let vm = guest(directory.path(), 1, false);
    drop(graph);
    // Packets for stations behind 10.0.0.1 return to the sender.
    let route = "ip link set eth0 address 02:00:00:00:00:02 && \
                 ip address add 10.0.0.2/24 dev eth0 && ip link set eth0 up && \
                 arp -s 10.0.0.1 02:00:00:00:00:01 && ip route add default via 10.0.0.1 && \
                 echo 1 > /proc/sys/net/ipv4/ip_forward && \
                 echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects && \
                 echo 0 > /proc/sys/net/ipv4/conf/eth0/send_redirects";
    let done = vm.run(route).unwrap();
    assert!(done.is_success(), "{}", done.error_text());
    let port = format!("vhost_user:{}", directory.path().join("card").display());
    let words = [
        "--json",
        "blast",
        port.as_str(),
        "--rate",
        "500pps",
        "--for",
        "3s",
        "--histogram",
    ];
    let begin = Instant::now();
    loop {
        let mut blast = Program::new(directory.path(), &words);
        let output = blast.process.take().unwrap().wait_with_output().unwrap();
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        // A packet that was sent before the guest reconnected was refused, so it does not count as
        // lost.
        let number = |name: &str| printed[name].as_u64().unwrap();
        assert_eq!(
            number("received") + number("lost"),
            number("sent"),
            "{printed}"
        );
        if number("received") > 100 {
            let buckets = printed["histogram_ns"].as_array().unwrap();
            let counts = buckets.iter().map(|bucket| bucket[1].as_u64().unwrap());
            assert_eq!(counts.sum::<u64>(), number("received"));
            return;
        }
        assert!(begin.elapsed() < BOOT, "{printed}; {}", blast.log());
    }
}

#[test]
fn a_dif_over_the_card_of_a_guest_is_joined_by_the_guest() {
    let host = Host::start();
    let directory = tempfile::tempdir().unwrap();
    let port = format!("kind=vhost_user,socket={}/card", directory.path().display());
    let does = |args: &[&str]| {
        let output = host.carina(args);
        assert!(output.status.success(), "{args:?}: {}", told(&output));
    };
    does(&[
        "ipcp", "create", "card", "--type", "eth", "--dif", "lan", "--port", &port,
    ]);
    does(&[
        "dif", "create", "net", "--over", "lan", "--ipcp", "net.host",
    ]);
    let guest = host.boot_with("a", |machine| {
        machine.nic(card(directory.path(), "card", 1, false))
    });
    // The kernel checks the carrier some time after the command.
    let is_up = "[ \"$(cat /sys/class/net/eth0/operstate)\" = up ]";
    guest.does(&format!(
        "ip link set eth0 up; for i in $(seq 200); do {is_up} && break; sleep 0.05; done; {is_up}"
    ));
    guest.does("carina ipcp create e --type eth --interface eth0 --dif lan");
    guest.does("carina dif join net --over lan --ipcp net.guest");
    let _server = host.in_background(&["ping", "--listen", "echo.net", "--dif", "net"]);
    guest.does("carina --wait 60s ping echo.net --dif net -c 50 -i 1ms -s 1400 -q -W 60s");
    guest.does("carina ping echo.net --dif net -c 3 -i 1ms -s 200000 -q -W 60s");
    // The port's links and counters are shown like those of a graph.
    let top = host.json(&["top", "--once"]).to_string();
    assert!(
        top.contains("ipcp-card: port.output -> ipcp.input"),
        "{top}"
    );
}
