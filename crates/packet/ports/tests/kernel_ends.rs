//! Tunnels and ESP, with Linux at the other end. Linux runs in a stock guest with its
//! distribution's kernel, so the test does not depend on the host's kernel. The guest's card is a
//! port of the graph.

use std::path::{Path, PathBuf};
use std::time::Instant;

use carina_vm::{Backend, Boot, Image, Machine, Model, Nic, Running as Vm};

use crate::guest::cache;
use crate::room::Room;
use crate::running::Running;
use crate::traffic::PATIENCE;

/// The two ends of a tunnel: the app in the graph, and the guest's commands for its own end.
struct Ends {
    name: &'static str,
    /// The table of the app, without the keys that all tunnels have.
    app: &'static str,
    /// What the host's kernel sends into the tunnel.
    north: North,
    /// Whether the ends of the tunnel have IPv6 addresses.
    is_over_ipv6: bool,
    guest: &'static str,
    /// The address that the guest pings.
    target: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum North {
    Frames,
    Packets,
}

const TUNNELS: [Ends; 10] = [
    Ends {
        name: "gre of frames",
        app: "kind = \"gre\"\nkey = 5",
        north: North::Frames,
        is_over_ipv6: false,
        guest: "IP link add t0 type gretap local 10.8.0.2 remote 10.8.0.1 key 5 nopmtudisc",
        target: "10.9.0.1",
    },
    Ends {
        name: "gre of packets",
        app: "kind = \"gre\"\npayload = \"ip\"",
        north: North::Packets,
        is_over_ipv6: false,
        guest: "IP link add t0 type gre local 10.8.0.2 remote 10.8.0.1",
        target: "10.9.0.1",
    },
    Ends {
        name: "gre with checksums",
        app: "kind = \"gre\"",
        north: North::Frames,
        is_over_ipv6: false,
        guest: "IP link add t0 type gretap local 10.8.0.2 remote 10.8.0.1 ocsum nopmtudisc",
        target: "10.9.0.1",
    },
    Ends {
        name: "ipip",
        app: "kind = \"ipip\"",
        north: North::Packets,
        is_over_ipv6: false,
        guest: "IP link add t0 type ipip local 10.8.0.2 remote 10.8.0.1",
        target: "10.9.0.1",
    },
    Ends {
        name: "vxlan",
        app: "kind = \"vxlan\"\nvni = 70000",
        north: North::Frames,
        is_over_ipv6: true,
        guest: "IP link add t0 type vxlan id 70000 local fd08::2 remote fd08::1 dstport 4789 dev eth0",
        target: "10.9.0.1",
    },
    Ends {
        name: "l2tpv3",
        app: "kind = \"l2tpv3\"\nsession = 7\npeer_session = 8\n\
              local_cookie = \"0011223344556677\"\nremote_cookie = \"8899aabbccddeeff\"",
        north: North::Frames,
        is_over_ipv6: true,
        // The guest's own session is 8; it sends the cookie that the app expects.
        guest: "IP l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap ip local fd08::2 \
                remote fd08::1 && IP l2tp add session name t0 tunnel_id 1 session_id 8 \
                peer_session_id 7 cookie 8899aabbccddeeff peer_cookie 0011223344556677 \
                l2spec_type none",
        target: "10.9.0.1",
    },
    Ends {
        name: "esp in tunnel mode",
        app: "kind = \"esp_tunnel\"\ntransmit_spi = 257\nreceive_spi = 256\n\
              transmit_key = \"000102030405060708090a0b0c0d0e0f\"\ntransmit_salt = \"00010203\"\n\
              receive_key = \"0f0e0d0c0b0a09080706050403020100\"\nreceive_salt = \"03020100\"",
        north: North::Packets,
        is_over_ipv6: false,
        guest: "IP xfrm state add src 10.8.0.2 dst 10.8.0.1 proto esp spi 256 reqid 1 mode tunnel \
                flag esn replay-window 128 aead RFC4106 \
                0x0f0e0d0c0b0a0908070605040302010003020100 128 && \
                IP xfrm state add src 10.8.0.1 dst 10.8.0.2 proto esp spi 257 reqid 1 mode tunnel \
                flag esn replay-window 128 aead RFC4106 \
                0x000102030405060708090a0b0c0d0e0f00010203 128 && \
                IP xfrm policy add src 10.9.0.2 dst 10.9.0.1 dir out tmpl src 10.8.0.2 \
                dst 10.8.0.1 proto esp reqid 1 mode tunnel && \
                IP xfrm policy add src 10.9.0.1 dst 10.9.0.2 dir in tmpl src 10.8.0.1 \
                dst 10.8.0.2 proto esp reqid 1 mode tunnel && \
                IP address add 10.9.0.2/32 dev lo && \
                IP route add 10.9.0.1 via 10.8.0.1 dev eth0 src 10.9.0.2",
        target: "10.9.0.1",
    },
    Ends {
        name: "esp in transport mode",
        app: ESP,
        north: North::Frames,
        is_over_ipv6: true,
        guest: "IP xfrm state add src fd08::2 dst fd08::1 proto esp spi 256 reqid 1 mode transport \
                flag esn replay-window 128 aead RFC4106 \
                0x0f0e0d0c0b0a0908070605040302010003020100 128 && \
                IP xfrm state add src fd08::1 dst fd08::2 proto esp spi 256 reqid 1 mode transport \
                flag esn replay-window 128 aead RFC4106 \
                0x000102030405060708090a0b0c0d0e0f00010203 128 && \
                IP xfrm policy add src fd08::2 dst fd08::1 dir out tmpl proto esp reqid 1 \
                mode transport && \
                IP xfrm policy add src fd08::1 dst fd08::2 dir in tmpl proto esp reqid 1 \
                mode transport",
        target: "fd08::1",
    },
    Ends {
        name: "esp in transport mode over IPv4",
        app: ESP,
        north: North::Frames,
        is_over_ipv6: false,
        guest: TRANSPORT4,
        target: "10.8.0.1",
    },
    Ends {
        name: "gre, protected over IPv4",
        app: ESP,
        north: North::Frames,
        is_over_ipv6: false,
        guest: "IP link add t0 type gretap local 10.8.0.2 remote 10.8.0.1 key 5 nopmtudisc",
        target: "10.9.0.1",
    },
];

/// The app `esp`; the guest's kernel has the same keys.
const ESP: &str = "kind = \"esp\"\nspi = 256\n\
    transmit_key = \"000102030405060708090a0b0c0d0e0f\"\ntransmit_salt = \"00010203\"\n\
    receive_key = \"0f0e0d0c0b0a09080706050403020100\"\nreceive_salt = \"03020100\"";

/// The guest's commands to protect all IPv4 packets between the ends, in transport mode.
const TRANSPORT4: &str = "IP xfrm state add src 10.8.0.2 dst 10.8.0.1 proto esp spi 256 reqid 1 \
     mode transport flag esn replay-window 128 aead RFC4106 \
     0x0f0e0d0c0b0a0908070605040302010003020100 128 && \
     IP xfrm state add src 10.8.0.1 dst 10.8.0.2 proto esp spi 256 reqid 1 \
     mode transport flag esn replay-window 128 aead RFC4106 \
     0x000102030405060708090a0b0c0d0e0f00010203 128 && \
     IP xfrm policy add src 10.8.0.2 dst 10.8.0.1 dir out tmpl proto esp reqid 1 \
     mode transport && \
     IP xfrm policy add src 10.8.0.1 dst 10.8.0.2 dir in tmpl proto esp reqid 1 \
     mode transport";

/// Kernel modules that the guest loads.
const MODULES: [&str; 15] = [
    "ip_gre",
    "ipip",
    "vxlan",
    "l2tp_ip6",
    "l2tp_eth",
    "esp4",
    "esp6",
    "xfrm_user",
    "ctr",
    "gcm",
    "ghash_generic",
    "seqiv",
    "drbg",
    "jitterentropy_rng",
    "sha512_generic",
];

impl Ends {
    fn graph(&self, socket: &Path) -> String {
        let kind = match self.north {
            North::Frames => "tap",
            North::Packets => "tun",
        };
        let app = self.app;
        let (first, within) = if self.is_protected_tunnel() {
            (
                "carried",
                "\"carried.south -> tunnel.north\", \"tunnel.north -> carried.south\", ",
            )
        } else {
            ("tunnel", "")
        };
        let mut graph = format!(
            "links = [\"inside.output -> {first}.north\", \"{first}.north -> inside.input\", {within}\
             \"card.output -> tunnel.south\", \"tunnel.south -> card.input\"]\n\
             [apps.inside]\nkind = \"{kind}\"\nname = \"inside\"\nmtu = 1500\n\
             [apps.card]\nkind = \"vhost_user\"\nsocket = {socket:?}\n[apps.tunnel]\n{app}\n"
        );
        if self.is_protected_tunnel() {
            graph += "[apps.carried]\nkind = \"gre\"\nkey = 5\n";
        }
        if !self.is_transport() {
            let net = if self.is_over_ipv6 {
                "fd08::"
            } else {
                "10.8.0."
            };
            graph += &format!(
                "local = \"{net}1\"\nremote = \"{net}2\"\n\
                 mac = \"02:00:00:00:00:01\"\nnext_mac = \"02:00:00:00:00:02\"\n"
            );
        }
        graph
    }

    /// Whether the pinged address is itself an end (transport mode).
    fn is_transport(&self) -> bool {
        ["fd08::1", "10.8.0.1"].contains(&self.target)
    }

    /// Whether a tunnel app is in front of `esp`.
    fn is_protected_tunnel(&self) -> bool {
        self.app.starts_with("kind = \"esp\"") && !self.is_transport()
    }
}

/// A guest with the tools and kernel modules, and a card at a socket.
fn guest(directory: &Path) -> Option<Vm> {
    let places = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].map(PathBuf::from);
    let Some(ip) = places.into_iter().find(|place| place.exists()) else {
        println!("SKIP: the program ip (package iproute2)");
        return None;
    };
    let mut image = Image::new().program("/opt/ip", &ip).unwrap();
    for module in MODULES {
        image = image.module(module);
    }
    let boot = Boot::prepare(&cache(), &image).unwrap();
    let nic = Nic {
        model: Model::VirtioNet,
        backend: Backend::VhostUser {
            socket: directory.join("card"),
            queues: 1,
            packed: true,
        },
        mac: Some([2, 0, 0, 0, 0, 2]),
    };
    let machine = Machine::new("k", directory.join("vm")).unwrap();
    let mut machine = machine.boot(boot).nic(nic).dies_with_parent();
    for module in MODULES {
        machine = machine.module(module);
    }
    let vm = machine.start(&cache()).unwrap();
    vm.wait_ready(PATIENCE).unwrap();
    Some(vm)
}

fn does(vm: &Vm, command: &str) {
    let command = command.replace("IP ", "/opt/ip ");
    let command = command.replace("RFC4106", "'rfc4106(gcm(aes))'");
    let done = vm.run(&command).unwrap();
    assert!(done.is_success(), "{command}: {}", done.error_text());
}

/// Pings until the first answer comes; then 20 pings of each size must all be answered.
fn pings(vm: &Vm, ends: &Ends) {
    let (name, target) = (ends.name, ends.target);
    let version = if target.contains(':') { "-6" } else { "-4" };
    let begin = Instant::now();
    let once = format!("ping {version} -c 1 -W 1 {target}");
    while !vm.run(&once).is_ok_and(|done| done.is_success()) {
        let state = vm.run("/opt/ip -s link; cat /proc/net/xfrm_stat; dmesg | tail -n 5");
        assert!(
            begin.elapsed() < PATIENCE,
            "{name}: no answer: {}",
            state.unwrap().text()
        );
    }
    for size in [0, 56, 999, 1400] {
        // With several pings in one command, busybox waits for the last answer only twice as long
        // as the slowest one took.
        let one = format!("ping {version} -q -c 1 -W 30 -s {size} {target} >/dev/null");
        let all = format!("for n in $(seq 20); do {one} || exit 1; done");
        let done = vm.run_within(&all, PATIENCE).unwrap();
        assert!(done.is_success(), "{name}, {size}: a ping was not answered");
    }
}

#[test]
fn tunnels_and_esp_reach_the_ends_that_linux_has() {
    let directory = tempfile::tempdir().unwrap();
    let Some(room) = Room::new() else { return };
    let socket = directory.path().join("card");
    let mut running = Running::new(&room, &TUNNELS[0].graph(&socket));
    let Some(vm) = guest(directory.path()) else {
        return;
    };
    does(
        &vm,
        "IP link set eth0 mtu 1600 && IP link set eth0 up && IP address add 10.8.0.2/24 dev eth0 && \
         IP address add fd08::2/64 dev eth0 nodad && \
         IP neighbour replace 10.8.0.1 lladdr 02:00:00:00:00:01 dev eth0 && \
         IP neighbour replace fd08::1 lladdr 02:00:00:00:00:01 dev eth0",
    );
    for (at, ends) in TUNNELS.iter().enumerate() {
        if at > 0 {
            drop(running);
            running = Running::new(&room, &ends.graph(&socket));
        }
        if ends.is_transport() {
            let (own, other) = if ends.is_over_ipv6 {
                ("fd08::1/64 dev inside nodad", "fd08::2")
            } else {
                ("10.8.0.1/24 dev inside", "10.8.0.2")
            };
            room.ip("link set inside address 02:00:00:00:00:01");
            room.ip(&format!("address add {own}"));
            room.ip(&format!(
                "neighbour add {other} lladdr 02:00:00:00:00:02 dev inside"
            ));
        } else {
            room.ip("address add 10.9.0.1/24 dev inside");
        }
        if ends.is_protected_tunnel() {
            does(&vm, TRANSPORT4);
        }
        does(&vm, ends.guest);
        let has_interface = ends.guest.contains("t0");
        if has_interface {
            does(
                &vm,
                "IP link set t0 mtu 1500 up && IP address add 10.9.0.2/24 dev t0",
            );
        }
        pings(&vm, ends);
        for reason in [
            "length", "checksum", "key", "session", "cookie", "replay", "forged",
        ] {
            let name = format!("tunnel/drop_{reason}");
            let count = running.find(&name).unwrap_or(0);
            assert_eq!(count, 0, "{}: {reason}", ends.name);
        }
        match has_interface {
            true if ends.name == "l2tpv3" => does(&vm, "IP l2tp del tunnel tunnel_id 1"),
            true => does(&vm, "IP link delete t0"),
            false => does(
                &vm,
                "IP xfrm state flush && IP xfrm policy flush; IP route del 10.9.0.1; \
                 IP address del 10.9.0.2/32 dev lo; true",
            ),
        }
        if ends.is_protected_tunnel() {
            does(&vm, "IP xfrm policy flush && IP xfrm state flush");
        }
    }
}
