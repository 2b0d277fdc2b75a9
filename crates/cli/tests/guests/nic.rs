//! Network cards that a guest drives from user space: QEMU's 82574 (e1000e) and virtio-net, over
//! real descriptor rings. Each card's cable is a UDP socket of this process, a frame a datagram.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_vm::{Backend, Machine, Model, Nic, NicId, Running};
use serde_json::Value;

use crate::house::{BOOT, SOON, boot, cache, flatten, until};

/// The end of a card's cable.
struct Cable {
    socket: UdpSocket,
    card: SocketAddr,
}

impl Cable {
    fn new() -> Cable {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let timeout = Some(Duration::from_millis(50));
        socket.set_read_timeout(timeout).unwrap();
        // QEMU binds what this one gives back.
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let card = other.local_addr().unwrap();
        Cable { socket, card }
    }

    fn backend(&self) -> Backend {
        let own = self.socket.local_addr().unwrap();
        Backend::Other(format!("socket,udp={own},localaddr={}", self.card))
    }

    fn send(&self, frame: &[u8]) {
        self.socket.send_to(frame, self.card).unwrap();
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = [0; 2048];
        let len = self.socket.recv(&mut frame).ok()?;
        Some(frame[..len].to_vec())
    }

    /// The next frame that a test has sent; the guest's kernel says things too.
    fn receive_own(&self) -> Option<Vec<u8>> {
        let begin = Instant::now();
        while begin.elapsed() < SOON {
            let frame = self.receive().filter(|frame| frame[12..14] == OWN_TYPE);
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    /// Takes what comes until nothing does for a while; returns how many frames it were.
    fn drain(&self) -> usize {
        let (mut came, mut quiet) = (0, Instant::now());
        while quiet.elapsed() < Duration::from_millis(500) {
            if self.receive().is_some() {
                came += 1;
                quiet = Instant::now();
            }
        }
        came
    }
}

/// Ethertype of local experiments. (IEEE 802)
const OWN_TYPE: [u8; 2] = [0x88, 0xb5];

fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![number as u8; 60 + number as usize * 37 % 1454];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8]);
    frame[12..14].copy_from_slice(&OWN_TYPE);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends frames into one cable and has each come out of another, whole and in order. At most a few
/// are on their way, so that no queue outside of the guest overflows.
fn cross(from: &Cable, to: &Cable, count: u32) {
    const WINDOW: u32 = 32;
    let mut sent = 0;
    for expected in 0..count {
        while sent < count && sent < expected + WINDOW {
            from.send(&frame(sent));
            sent += 1;
        }
        let came = to.receive_own();
        assert_eq!(
            came.as_ref(),
            Some(&frame(expected)),
            "frame {expected} of {count}"
        );
    }
}

/// A station at the end of a cable: answers ARP and pings at any address, and sends the packets of
/// `carina blast` back.
struct Station {
    is_over: Arc<AtomicBool>,
    sent_back: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Station {
    fn at(cable: &Cable) -> Station {
        let cable = Cable {
            socket: cable.socket.try_clone().unwrap(),
            card: cable.card,
        };
        let (is_over, sent_back) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, back) = (Arc::clone(&is_over), Arc::clone(&sent_back));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let Some(mut frame) = cable.receive() else {
                    continue;
                };
                if answer(&mut frame) {
                    cable.send(&frame);
                    back.fetch_add(u64::from(frame[23] == UDP), Ordering::Relaxed);
                }
            }
        });
        Station {
            is_over,
            sent_back,
            thread: Some(thread),
        }
    }

    fn sent_back(&self) -> u64 {
        self.sent_back.load(Ordering::Relaxed)
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

const UDP: u8 = 17;
const ICMP: u8 = 1;
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// Makes an answer of a frame, if it wants one.
fn answer(frame: &mut [u8]) -> bool {
    let asker: [u8; 6] = frame[6..12].try_into().unwrap();
    match (&frame[12..14], frame.get(20..24)) {
        // An ARP request.
        ([8, 6], Some([0, 1, ..])) => {
            let (sender, target): ([u8; 10], [u8; 4]) = (
                frame[22..32].try_into().unwrap(),
                frame[38..42].try_into().unwrap(),
            );
            frame[21] = 2;
            frame[22..28].copy_from_slice(&STATION);
            frame[28..32].copy_from_slice(&target);
            frame[32..42].copy_from_slice(&sender);
        }
        ([8, 0], Some([.., ICMP])) if frame[34] == 8 => {
            let (source, target): ([u8; 4], [u8; 4]) = (
                frame[26..30].try_into().unwrap(),
                frame[30..34].try_into().unwrap(),
            );
            frame[26..30].copy_from_slice(&target);
            frame[30..34].copy_from_slice(&source);
            frame[34] = 0;
            // What the type loses the checksum gains, in ones' complement.
            let (sum, carry) = u16::from_be_bytes([frame[36], frame[37]]).overflowing_add(0x800);
            frame[36..38].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
        ([8, 0], Some([.., UDP])) => return frame[26..28] == [198, 18],
        _ => return false,
    }
    frame[..6].copy_from_slice(&asker);
    frame[6..12].copy_from_slice(&STATION);
    true
}

/// A guest with cards, and the ends of their cables.
struct Site {
    vm: Running,
    cables: Vec<Cable>,
    /// Where the cards are on the guest's bus.
    cards: Vec<String>,
    _directory: tempfile::TempDir,
}

impl Site {
    fn boot(models: &[Model], shape: impl FnOnce(Machine) -> Machine) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let cables: Vec<Cable> = models.iter().map(|_| Cable::new()).collect();
        let mut machine = Machine::new("n", directory.path()).unwrap();
        machine = machine
            .boot(boot().clone())
            .memory_mib(256)
            .dies_with_parent();
        for (number, (model, cable)) in models.iter().zip(&cables).enumerate() {
            machine = machine.nic(Nic {
                model: *model,
                backend: cable.backend(),
                mac: Some([2, 0, 0, 0, 1, number as u8]),
            });
        }
        let vm = shape(machine).start(&cache()).unwrap();
        vm.wait_ready(BOOT).unwrap();
        let mut site = Site {
            vm,
            cables,
            cards: Vec::new(),
            _directory: directory,
        };
        // On QEMU's bus they are in the order of its command line.
        site.cards = site.nics().iter().map(|nic| text(nic, "address")).collect();
        assert_eq!(site.cards.len(), models.len());
        site
    }

    fn does(&self, command: &str) -> String {
        let output = self.vm.run_within(command, BOOT).unwrap();
        let (text, errors) = (output.text(), output.error_text());
        let status = output.status;
        assert!(
            output.is_success(),
            "{command}: status {status}: {text} {errors}"
        );
        text
    }

    fn json(&self, command: &str) -> Value {
        let text = self.does(command);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"))
    }

    fn nics(&self) -> Vec<Value> {
        self.json("carina nic list --json")["nics"]
            .as_array()
            .unwrap()
            .clone()
    }

    fn nic(&self, card: usize) -> Value {
        let all = self.nics();
        let mut all = all.into_iter();
        all.find(|nic| nic["address"] == self.cards[card].as_str())
            .unwrap()
    }

    /// Waits until the guest's kernel drives a card.
    fn until_kernel_has(&self, card: usize, driver: &str) {
        let has = || {
            let nic = self.nic(card);
            (nic["kernel_driver"] == driver && nic["interface"].is_string()).then_some(())
        };
        assert!(until(SOON, has).is_some(), "{}", self.nic(card));
    }

    /// Pings the station by the driver of the guest's kernel, and takes the address away again.
    fn kernel_pings(&self, card: usize) {
        let _station = Station::at(&self.cables[card]);
        let interface = text(&self.nic(card), "interface");
        self.does(&format!(
            "ip address add 10.0.{card}.2/24 dev {interface} && ip link set {interface} up"
        ));
        let ping = format!("ping -c 1 -W 1 10.0.{card}.1");
        let answered = || self.vm.run(&ping).unwrap().is_success().then_some(());
        assert!(until(SOON, answered).is_some(), "{interface}: no answer");
        self.does(&format!(
            "ip address flush dev {interface} && ip link set {interface} down"
        ));
    }

    /// Starts `carina forward` between two cards, and returns its process there.
    fn forwards(&self, a: &str, b: &str) -> String {
        self.does("rm -rf /run/carina/graphs");
        let command = format!(
            "carina --json forward {a} {b} --every 0 >/tmp/forward 2>/tmp/log </dev/null & echo $!"
        );
        let process = self.does(&command);
        let is_up = |port: &str| self.counter(port, "is_up") == Some(1);
        let up = || [a, b].iter().all(|port| is_up(port)).then_some(());
        if until(SOON, up).is_none() {
            panic!("{a}, {b}: {}", self.does("cat /tmp/forward /tmp/log"));
        }
        process
    }

    /// A counter of a port of the graph that runs; what is 0 is not shown.
    fn counter(&self, port: &str, name: &str) -> Option<u64> {
        let top = self
            .vm
            .run("carina --json top --once --interval 20ms")
            .unwrap();
        let top: Value = serde_json::from_str(&top.text()).ok()?;
        let app = port.split(',').next()?.replace([':', '.'], "-");
        let rows = top["rows"].as_array()?;
        let row = rows.iter().find(|row| {
            let name = row["name"].as_str().unwrap_or_default();
            name.ends_with(&format!(": {app}"))
        })?;
        Some(row["totals"][name].as_u64().unwrap_or(0))
    }

    fn until_counter(&self, port: &str, name: &str, is_right: impl Fn(u64) -> bool) {
        let look = || self.counter(port, name).filter(|value| is_right(*value));
        let seen = self.counter(port, name);
        assert!(until(SOON, look).is_some(), "{port}: {name} is {seen:?}");
    }

    /// Kills a process, after its guardians.
    fn kills_with_guardians(&self, process: &str) {
        // The pattern does not find the shell that says it.
        self.does(&format!(
            "for p in $(grep -l '[g]uard' /proc/[0-9]*/cmdline | cut -d / -f 3); do kill -9 $p; \
             done; kill -9 {process}; while test -d /proc/{process}; do sleep 0.05; done"
        ));
    }

    /// Ends the forwarder as Ctrl-C does; returns its counts of frames in and out at each port.
    fn ends(&self, process: &str) -> Value {
        self.does(&format!(
            "kill -INT {process}; while test -d /proc/{process}; do sleep 0.05; done"
        ));
        self.json("cat /tmp/forward")
    }
}

fn text(value: &Value, key: &str) -> String {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("no {key} in {value}"))
        .to_owned()
}

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
        let station = Station::at(&site.cables[card]);
        let address = &site.cards[card];
        let said = site.json(&format!(
            "carina --json blast pci:{address}{extra} --rate 500pps --count 600 --for 20s \
             --size 64x5,1500 --flows 50"
        ));
        let number = |name: &str| said[name].as_u64().unwrap();
        assert_eq!(
            (number("sent"), number("received"), number("lost")),
            (600, 600, 0),
            "{said}"
        );
        assert_eq!(station.sent_back(), 600);
        site.until_kernel_has(card, if card == 0 { "e1000e" } else { "virtio-pci" });
        drop(station);
        site.kernel_pings(card);
    }
    forwards_counts_and_recovers(&site, a, b);
    let process = site.forwards(a, c);
    cross(&site.cables[0], &site.cables[2], 200);
    cross(&site.cables[2], &site.cables[0], 200);
    killed_cards_go_back(&site, &process);
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
            .contains(&format!("process {process} has it")),
        "{refusal:?}"
    );
    cross(&cables[0], &cables[1], 600);
    cross(&cables[1], &cables[0], 600);

    // The ring is overrun while the process stands still, and nothing is wrong afterwards.
    site.does(&format!("kill -STOP {process}"));
    for number in 0..4000 {
        cables[0].send(&frame(number));
    }
    site.does(&format!("kill -CONT {process}"));
    let came = cables[1].drain();
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
        let station = Station::at(&site.cables[0]);
        let address = &site.cards[0];
        let said = site.json(&format!(
            "carina --json blast {address}{access} --rate 500pps --count 500 --for 20s"
        ));
        assert_eq!(
            (&said["sent"], &said["received"]),
            (&500.into(), &500.into()),
            "{said}"
        );
        assert_eq!(station.sent_back(), 500);
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
