//! Network cards that a guest drives from user space: QEMU's 82574 (e1000e) and virtio-net, over
//! real descriptor rings.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carina_vm::{Machine, Model, NicId};
use carina_wire::inet::checksum;
use serde_json::Value;

use self::cable::{Cable, FLOOD, Station, cross, cross_long, frame};
use self::site::Site;
use crate::house::{SOON, flatten, until};

mod cable;
mod site;

fn packets(counts: &Value, port: usize, direction: &str) -> u64 {
    let count = counts["ports"][port][direction].as_u64();
    count.unwrap_or_else(|| panic!("{counts}"))
}

#[test]
fn cards_are_driven_from_user_space_and_go_back_to_the_kernel() {
    let site = Site::boot(
        &[Model::E1000e, Model::E1000e, Model::VirtioNet],
        |machine| machine,
    );
    let [a, b, c] = &site.cards[..] else {
        panic!("three cards")
    };
    for (card, kernel, own) in [(0, "e1000e", "e1000e"), (2, "virtio-pci", "virtio-net")] {
        let nic = site.nic(card);
        assert_eq!(
            (&nic["kernel_driver"], &nic["driver"]),
            (&kernel.into(), &own.into())
        );
        site.kernel_pings(card);
    }

    // What a station sends back arrives, and both sides count the same.
    for (card, extra) in [(0, ""), (0, ",queues=2,ring=64"), (2, "")] {
        let address = &site.cards[card];
        let (printed, sent_back) = sends_and_gets_back(
            &site,
            card,
            &format!(
                "pci:{address}{extra} --rate 500pps --count 600 --for 20s --size 64x5,1500 \
                 --flows 50"
            ),
        );
        let number = |name: &str| printed[name].as_u64().unwrap();
        assert_eq!(
            (number("sent"), number("received"), number("lost")),
            (600, 600, 0),
            "{printed}"
        );
        assert_eq!(sent_back, 600);
        site.until_kernel_has(card, if card == 0 { "e1000e" } else { "virtio-pci" });
        site.kernel_pings(card);
    }
    forwards_counts_and_recovers(&site, a, b);
    let process = site.forwards(a, c);
    cross(&site.cables[0], &site.cables[2], 200);
    cross(&site.cables[2], &site.cables[0], 200);
    killed_cards_go_back(&site, &process);
}

/// What `carina blast` in the guest says when a station has sent all back, and how many packets
/// that were. A busy machine may take its processor for longer than queues outside of the guest
/// hold: it tries again then, with a station of its own each time.
fn sends_and_gets_back(site: &Site, card: usize, words: &str) -> (Value, u64) {
    let mut tries = 0..20;
    loop {
        let station = Station::at(&site.cables[card]);
        let printed = site.json(&format!("carina --json blast {words}"));
        if printed["received"] == printed["sent"] || tries.next().is_none() {
            return (printed, station.sent_back());
        }
        drop(station);
        site.cables[card].drain();
    }
}

/// Frames cross between two cards; then the reader stops, cables are pulled, and the kernel resets
/// a card, all of it under load.
fn forwards_counts_and_recovers(site: &Site, a: &str, b: &str) {
    let cables = &site.cables;
    let process = site.forwards(a, b);
    let nic = site.nic(0);
    assert_eq!(
        (&nic["is_taken"], &nic["process"]),
        (&true.into(), &process.parse::<u32>().unwrap().into())
    );
    let refusal = site.vm.run(&format!("carina blast {a} --for 1s")).unwrap();
    assert!(
        refusal
            .error_text()
            .contains(&format!("process {process} uses the card")),
        "{refusal:?}"
    );
    cross(&cables[0], &cables[1], 600);
    cross(&cables[1], &cables[0], 600);

    // The ring is overrun while the process stands still, and nothing is wrong afterwards.
    site.does(&format!("kill -STOP {process}"));
    for number in FLOOD..FLOOD + 4000 {
        cables[0].send(&frame(number));
    }
    site.does(&format!("kill -CONT {process}"));
    assert!(until(SOON, || cables[1].receive()).is_some());
    let came = 1 + cables[1].drain_for(Duration::from_secs(5));
    assert!(
        (100..3500).contains(&came),
        "{came} frames of a ring of 512 and of queues outside"
    );
    cross(&cables[0], &cables[1], 200);

    // A cable is pulled, and put back.
    site.vm.set_link(NicId(1), false).unwrap();
    site.until_counter(b, "is_up", |value| value == 0);
    (0..20).for_each(|number| cables[0].send(&frame(number)));
    site.until_counter(b, "drop_down", |value| value >= 20);
    site.vm.set_link(NicId(1), true).unwrap();
    site.until_counter(b, "is_up", |value| value == 1);
    cables[1].drain();
    cross(&cables[0], &cables[1], 200);

    is_reset_under_load(site, b);
    cables[1].drain();
    cross(&cables[0], &cables[1], 200);
    cross(&cables[1], &cables[0], 200);
    assert_eq!(site.counter(a, "bad_descriptors"), Some(0));
    assert_eq!(site.counter(b, "bad_descriptors"), Some(0));

    // Both sides count the same: what the second cable sent left at the first.
    let counts = site.ends(&process);
    assert_eq!(packets(&counts, 1, "in_packets"), 800, "{counts}");
    assert_eq!(packets(&counts, 0, "out_packets"), 800, "{counts}");
    for card in [0, 1] {
        site.until_kernel_has(card, "e1000e");
    }
    site.kernel_pings(0);
}

/// Another program resets a card under load, by its registers, as a driver would.
fn is_reset_under_load(site: &Site, b: &str) {
    let cables = &site.cables;
    let bar = site.does(&format!(
        "head -n 1 /sys/bus/pci/devices/{b}/resource | cut -d ' ' -f 1"
    ));
    let load = Arc::<AtomicBool>::default();
    let (is_over, loader) = (
        Arc::clone(&load),
        Cable {
            socket: cables[0].socket.try_clone().unwrap(),
            card: cables[0].card,
        },
    );
    let loader = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            (0..8).for_each(|number| loader.send(&frame(number)));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    for _ in 0..2 {
        let before = site.counter(b, "resets").unwrap();
        // By the bit for it QEMU 7.2 resets no more than the address. What a device has after a
        // reset is written one by one: no rings, neither sending nor receiving.
        site.does(&format!(
            "devmem {bar} 32 0x04000000; for at in 0x2808 0x3808 0x400 0x100; do \
             devmem $(printf 0x%x $(({bar} + at))) 32 0; done"
        ));
        site.until_counter(b, "resets", |value| value > before);
    }
    load.store(true, Ordering::Relaxed);
    loader.join().unwrap();
}

/// The forwarder between the first and the third card is killed: its guardians give them back;
/// guardians that are killed too leave it to a command.
fn killed_cards_go_back(site: &Site, process: &str) {
    let kernel = [(0, "e1000e"), (2, "virtio-pci")];
    site.does(&format!("kill -9 {process}"));
    for (card, driver) in kernel {
        site.until_kernel_has(card, driver);
        site.kernel_pings(card);
    }
    let (a, c) = (&site.cards[0], &site.cards[2]);
    let process = site.forwards(a, c);
    site.kills_with_guardians(&process);
    let nic = site.nic(0);
    assert_eq!(
        (&nic["kernel_driver"], &nic["is_taken"]),
        (&Value::Null, &true.into())
    );
    // The next process takes what is left, and gives it back.
    let process = site.forwards(a, c);
    for cable in &site.cables {
        cable.drain();
    }
    cross(&site.cables[0], &site.cables[2], 100);
    site.kills_with_guardians(&process);
    let restored = site.json("carina nic restore --json");
    let drivers = flatten(&restored);
    let drivers = drivers
        .iter()
        .filter(|value| value["restore_driver"].is_string());
    assert_eq!(drivers.count(), 2, "{restored}");
    for (card, driver) in kernel {
        site.until_kernel_has(card, driver);
        site.kernel_pings(card);
    }
    // One that is kept stays away from the kernel when a process ends.
    site.does(&format!("carina nic bind {a}"));
    let process = site.forwards(a, c);
    cross(&site.cables[0], &site.cables[2], 100);
    site.ends(&process);
    assert_eq!(site.nic(0)["kernel_driver"], Value::Null);
    site.until_kernel_has(2, "virtio-pci");
    site.does(&format!("carina nic restore {a}"));
    site.until_kernel_has(0, "e1000e");
}

#[test]
fn card_behind_an_iommu_is_driven_through_vfio() {
    let site = Site::boot(&[Model::E1000e], Machine::iommu);
    let nic = site.nic(0);
    assert_eq!(
        (&nic["has_iommu"], &nic["kernel_driver"]),
        (&true.into(), &"e1000e".into())
    );
    for access in ["", ",access=vfio"] {
        let address = &site.cards[0];
        let words = format!("{address}{access} --rate 500pps --count 500 --for 20s");
        let (printed, sent_back) = sends_and_gets_back(&site, 0, &words);
        assert_eq!(
            (&printed["sent"], &printed["received"]),
            (&500.into(), &500.into()),
            "{printed}"
        );
        assert_eq!(sent_back, 500);
    }
    site.until_kernel_has(0, "e1000e");
    site.kernel_pings(0);
    let process = site.does(&format!(
        "carina forward {} --hops 1 --every 0 >/tmp/forward 2>&1 </dev/null & echo $!",
        site.cards[0]
    ));
    site.until_counter(&site.cards[0], "is_up", |value| value == 1);
    site.does(&format!("kill -9 {process}"));
    site.until_kernel_has(0, "e1000e");
    site.kernel_pings(0);
}

#[test]
fn nfv_lwaftr_and_long_frames_work_on_cards() {
    // Rings of long frames need many huge pages.
    let site = Site::boot(&[Model::E1000e, Model::E1000e], |vm| vm.memory_mib(512));
    let [a, b] = &site.cards[..] else {
        panic!("two cards")
    };
    let [first, second] = &site.cables[..] else {
        panic!("two cables")
    };
    let process = site.forwards(&format!("{a},mtu=9000"), &format!("pci:{b},mtu=9000"));
    cross_long(first, second, 100);
    cross_long(second, first, 100);
    for card in [a, b] {
        for counter in ["drop_too_long", "bad_descriptors", "drop_receive_errors"] {
            assert_eq!(site.counter(card, counter), Some(0), "{card}: {counter}");
        }
    }
    site.ends(&process);
    nfv_runs_on_cards(&site, a, b);
    lwaftr_runs_on_cards(&site, a, b);
    for card in [0, 1] {
        site.until_kernel_has(card, "e1000e");
        site.kernel_pings(card);
    }
}

/// One card is the uplink of `carina nfv`, as its command line has it, the other a port of the
/// file.
fn nfv_runs_on_cards(site: &Site, a: &str, b: &str) {
    let file = format!(
        "[[ports]]\nname = \"p\"\napp = {{ kind = \"pci\", address = \"{b}\" }}\n\
         egress_filter = \"not ip\"\n"
    );
    site.does(&format!("cat >/tmp/ports.toml <<'END'\n{file}END\n"));
    let run = format!("nfv run /tmp/ports.toml --uplink {a} --every 0");
    let process = site.starts(&run, ["uplink", "p_port"]);
    cross(&site.cables[0], &site.cables[1], 200);
    cross(&site.cables[1], &site.cables[0], 200);
    let counts = site.ends(&process);
    let port = &counts["ports"][0];
    let counted = [&port["to_packets"], &port["from_packets"]];
    for count in counted.map(Value::as_u64) {
        assert!(count.is_some_and(|count| count >= 200), "{counts}");
    }
}

/// An AFTR with one softwire, of 192.0.2.7 with all its ports.
const AFTR: &str = "softwire-config { instance { device a; queue { id 0;
    external-interface { ip 10.9.9.1; mac 02:00:00:00:00:e4; next-hop { mac 02:00:00:00:00:04; } }
    internal-interface { ip fd00:1::1; mac 02:00:00:00:00:e6; next-hop { mac 02:00:00:00:00:06; } }
    } }
    external-interface { mtu 1500; } internal-interface { mtu 1500; }
    binding-table { softwire { ipv4 192.0.2.7; psid 0; b4-ipv6 fd00:1::b4; br-address fd00:2::1;
    port-set { psid-length 0; } } } }
";

/// A packet of the Internet goes into its softwire at one card, and one of the customer comes out
/// of it at the other.
fn lwaftr_runs_on_cards(site: &Site, a: &str, b: &str) {
    site.does(&format!("cat >/tmp/lwaftr.conf <<'END'\n{AFTR}END\n"));
    let run = format!("lwaftr run --conf /tmp/lwaftr.conf --v4 {a} --v6 pci:{b}");
    let process = site.starts(&run, ["external", "internal"]);
    let (inside, outside) = ([192, 0, 2, 7], [198, 51, 100, 9]);
    let ether = |to: u8, from: u8, ethertype: [u8; 2]| {
        [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from], &ethertype[..]].concat()
    };
    let b4: Ipv6Addr = "fd00:1::b4".parse().unwrap();
    let br: Ipv6Addr = "fd00:2::1".parse().unwrap();
    for round in 0..20 {
        let out = udp(outside, inside);
        site.cables[0].send(&[ether(0xe4, 4, [8, 0]), out.clone()].concat());
        let came = site.cables[1].receive_of(0x86dd);
        let came = came.unwrap_or_else(|| panic!("round {round}: no packet for the customer"));
        assert_eq!(came[..6], [2, 0, 0, 0, 0, 6]);
        // IPv4 in IPv6 between the ends of the softwire; a hop fewer, and the same behind it.
        let ends = [br.octets(), b4.octets()].concat();
        assert_eq!((came[20], &came[22..54]), (4, &ends[..]));
        assert_eq!((came[54 + 8], &came[54 + 12..54 + 36]), (63, &out[12..]));
        let back = udp(inside, outside);
        let outer = [0x60, 0, 0, 0, 0, 36, 4, 64];
        let outer = [&outer[..], &b4.octets(), &br.octets()].concat();
        site.cables[1].send(&[ether(0xe6, 6, [0x86, 0xdd]), outer, back.clone()].concat());
        let came = site.cables[0].receive_of(0x0800);
        let came = came.unwrap_or_else(|| panic!("round {round}: no packet for the Internet"));
        assert_eq!(came[..6], [2, 0, 0, 0, 0, 4]);
        assert_eq!(came[14 + 12..14 + 36], back[12..]);
    }
    site.ends(&process);
}

/// A packet of IPv4 with 8 bytes over UDP.
fn udp(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend(from);
    packet.extend(to);
    let sum = checksum(&packet, 0).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    packet.extend([0x13, 0x88, 0, 53, 0, 16, 0, 0]);
    packet.extend(*b"contents");
    packet
}
