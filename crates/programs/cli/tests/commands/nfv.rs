//! `carina nfv`: guests that are systems of their own, and a network behind an uplink.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::commands::node::CARINA;
use crate::processor_time::least_used;
use crate::room::Room;
use crate::traffic::{FAR, OWN, PATIENCE, tcp_goes_through, udp_goes_both_ways};

/// Guests `a` and `b`, a network `far`, and the system between them that runs the ports.
struct Site {
    a: Room,
    b: Room,
    far: Room,
    host: Room,
    run: tempfile::TempDir,
    /// Gives `far` its VLAN.
    tags: Option<Child>,
}

/// Frames of the interface `far5` have the tag of VLAN 5 on `far0`, and it gets no others. (The
/// kernel's own VLANs are a module that not every kernel has.)
const TAGS: &str = r#"
links = [
    "far5.output -> tag.input", "tag.output -> wire.input",
    "wire.output -> untag.input", "untag.output -> far5.input",
]
[apps.far5]
kind = "tap"
name = "far5"
mtu = 1500
[apps.wire]
kind = "af_packet"
interface = "far0"
[apps.tag]
kind = "vlan_tag"
vlan = 5
[apps.untag]
kind = "vlan_untag"
vlan = 5
"#;

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(tags) = &mut self.tags {
            let _ = tags.kill();
            let _ = tags.wait();
        }
    }
}

const MAC: &str = "02:00:00:00:00:0a";
const OTHER_MAC: &str = "02:00:00:00:00:0b";
const B: &str = "10.9.0.3";

/// A port of an interface of the host.
fn port(name: &str, more: &str) -> String {
    format!(
        "[[ports]]\nname = \"{name}\"\napp = {{ kind = \"af_packet\", interface = \"port-{name}\" \
         }}\n{more}\n"
    )
}

const UPLINK: &str = "[uplink]\nkind = \"af_packet\"\ninterface = \"wire\"\n\n";

impl Site {
    /// `far` speaks in VLAN 5 only.
    fn new() -> Option<Site> {
        let mut site = Site {
            a: Room::new()?,
            b: Room::new()?,
            far: Room::new()?,
            host: Room::new()?,
            run: tempfile::tempdir().unwrap(),
            tags: None,
        };
        site.a.join("own0", &site.host, "port-a", 1500);
        site.b.join("own0", &site.host, "port-b", 1500);
        site.far.join("far0", &site.host, "wire", 1500);
        for (room, address, mac) in [(&site.a, OWN, MAC), (&site.b, B, OTHER_MAC)] {
            room.ip(&format!("link set own0 address {mac}"));
            room.ip(&format!("address add {address}/24 dev own0"));
        }
        let file = site.run.path().join("tags.toml");
        fs::write(&file, TAGS).unwrap();
        let mut command = site.command(&["graph", "run", file.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        site.tags = Some(site.far.run(move || command.spawn().unwrap()));
        let end = Instant::now() + PATIENCE;
        while !site.far.run(|| carina_netdev::interface_exists("far5")) {
            assert!(Instant::now() < end, "no interface far5");
            std::thread::sleep(Duration::from_millis(10));
        }
        site.far.ip(&format!("address add {FAR}/24 dev far5"));
        Some(site)
    }

    fn file(&self) -> PathBuf {
        self.run.path().join("ports.toml")
    }

    fn write(&self, text: &str) {
        // A file that is half written would be read so.
        let new = self.run.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.run.path()).args(words);
        command
    }

    /// Runs a command in the host's network.
    fn output(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        self.host.run(move || command.output().unwrap())
    }

    fn start(&self, text: &str) -> Ports {
        self.write(text);
        let file = self.file();
        let mut command = self.command(&["--json", "nfv", "run", file.to_str().unwrap()]);
        command.args(["--every", "0"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.host.run(move || command.spawn().unwrap());
        let printed = Arc::new(Mutex::new(Vec::new()));
        let (lines, output) = (Arc::clone(&printed), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Ports {
            child: Some(child),
            printed,
            heard: 0,
        }
    }
}

/// A process of `carina nfv run`, which ends with the test.
struct Ports {
    child: Option<Child>,
    printed: Arc<Mutex<Vec<String>>>,
    heard: usize,
}

impl Ports {
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Has it read its file.
    fn reload(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    /// Waits for a line with this in it, behind those that were waited for before.
    fn says(&mut self, part: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let printed = self.printed.lock().unwrap().clone();
            let new = printed.iter().enumerate().skip(self.heard);
            let mut found = new.filter(|(_, line)| line.contains(part));
            if let Some((at, line)) = found.next() {
                self.heard = at + 1;
                return line.clone();
            }
            assert!(Instant::now() < end, "no {part} in {printed:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it as Ctrl-C does; its counts.
    fn end(mut self) -> Value {
        self.signal(rustix::process::Signal::INT);
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{:?}",
            self.printed.lock().unwrap()
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A socket with a port of its own choice or a given one.
fn socket(room: &Room, address: &'static str, port: u16) -> UdpSocket {
    let socket = room.run(move || UdpSocket::bind((address, port)).unwrap());
    let time = Some(Duration::from_millis(300));
    socket.set_read_timeout(time).unwrap();
    socket
}

/// Whether one of some datagrams arrives. They have the number of this check: one that is late is
/// not taken for one of a later check.
fn arrives(from: &UdpSocket, to: &UdpSocket, tries: usize) -> bool {
    static CHECKS: AtomicU32 = AtomicU32::new(0);
    let number = CHECKS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut bytes = [0; 100];
    (0..tries).any(|_| {
        from.send_to(&number, to.local_addr().unwrap()).unwrap();
        while let Ok(length) = to.recv(&mut bytes) {
            if bytes[..length] == number {
                return true;
            }
        }
        false
    })
}

/// Sends so many datagrams as a socket holds, and returns how many arrive.
fn burst(from: &UdpSocket, to: &UdpSocket) -> usize {
    let mut bytes = [0; 100];
    for n in 0..BURST {
        from.send_to(&[n as u8; 100], to.local_addr().unwrap())
            .unwrap();
    }
    (0..BURST)
        .take_while(|_| to.recv(&mut bytes).is_ok())
        .count()
}

const BURST: usize = 64;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn guests_meet_the_network_as_filters_and_vlans_have_it() {
    let Some(site) = Site::new() else { return };
    let base = format!("mac = \"{MAC}\"\nvlan = 5\n");
    let mut ports = site.start(&(UPLINK.to_owned() + &port("a", &base)));
    ports.says("+ port a");
    // The network hears frames with the tag of VLAN 5 only, the guest those without a tag.
    udp_goes_both_ways(&site.a, &site.far);
    tcp_goes_through(&site.a, &site.far);
    // A filter blocks a port of UDP, and no other.
    let blocked = base.clone() + "egress_filter = \"not udp dst port 7777\"";
    site.write(&(UPLINK.to_owned() + &port("a", &blocked)));
    ports.reload();
    ports.says("~ port a: egress_filter");
    let from = socket(&site.a, OWN, 0);
    assert!(!arrives(&from, &socket(&site.far, FAR, 7777), 3));
    assert!(arrives(&from, &socket(&site.far, FAR, 7778), 50));
    let output = site.output(&["--json", "nfv", "show", "--over", "50ms"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let blocked = shown[0]["ports"][0]["drops"]["egress_filter"].as_u64();
    assert!(blocked >= Some(3), "{shown}");
    // The guest may ask, and gets answers; it is not asked.
    let stateful = base + "ingress_filter = \"arp\"\nstateful = true";
    site.write(&(UPLINK.to_owned() + &port("a", &stateful)));
    ports.reload();
    ports.says("~ port a: ingress_filter, egress_filter, stateful");
    let (own, far) = (socket(&site.a, OWN, 0), socket(&site.far, FAR, 0));
    assert!(!arrives(&far, &own, 3));
    assert!(arrives(&own, &far, 50));
    assert!(arrives(&far, &own, 50));
    assert!(!arrives(&socket(&site.far, FAR, 0), &own, 3));
    // What is wrong changes nothing.
    site.write("[[ports]]\nname = \"a\"\nvlan = 5000\n");
    ports.reload();
    let printed = ports.says("the ports were not changed");
    assert!(
        printed.contains("ports.toml:3: vlan = \"5000\": must be 1 to 4094"),
        "{printed}"
    );
    assert!(arrives(&own, &far, 50));
    let report = ports.end();
    let drops = &report["ports"][0]["drops"];
    assert!(drops["ingress_filter"].as_u64().unwrap() >= 6, "{report}");
    assert!(
        report["uplink"]["to_bytes"].as_u64() > Some(1_000_000),
        "{report}"
    );
}

#[test]
fn port_that_changes_costs_no_other_port_a_frame() {
    let Some(site) = Site::new() else { return };
    let steady = UPLINK.to_owned() + &port("a", &format!("mac = \"{MAC}\"\nvlan = 5\n"));
    let versions = [
        format!("mac = \"{OTHER_MAC}\"\nvlan = 5\nstateful = true\n"),
        format!("mac = \"{OTHER_MAC}\"\nvlan = 6\negress_mbps = 5\n"),
        "vlan = 6\ningress_filter = \"icmp\"\negress_filter = \"not tcp\"\n".to_owned(),
    ];
    let mut ports = site.start(&steady);
    ports.says("+ port a");
    udp_goes_both_ways(&site.a, &site.far);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = Arc::clone(&stop);
    let (from, to) = (socket(&site.a, OWN, 0), socket(&site.far, FAR, 0));
    to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut sent, mut arrived) = (0, 0);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut count = 0;
            while count < 12 {
                let file = match count % 4 {
                    3 => steady.clone(),
                    version => steady.clone() + &port("b", &versions[version]),
                };
                site.write(&file);
                ports.reload();
                ports.says("port b");
                count += 1;
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            count
        });
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            sent += BURST;
            arrived += burst(&from, &to);
        }
        assert_eq!(changes.join().unwrap(), 12);
    });
    assert_eq!(arrived, sent);
    // And the port that changed works: it comes back into the VLAN of the others.
    site.write(&(steady + &port("b", &versions[0])));
    ports.reload();
    ports.says("+ port b");
    let (a, b) = (socket(&site.a, OWN, 0), socket(&site.b, B, 0));
    assert!(arrives(&a, &b, 50));
    let report = ports.end();
    assert!(report["ports"][0]["from_packets"].as_u64().unwrap() > sent as u64);
}

#[test]
fn running_ports_are_shown_until_their_process_ends() {
    let Some(site) = Site::new() else { return };
    let mut ports = site.start(&(UPLINK.to_owned() + &port("a", "vlan = 5\n")));
    ports.says("+ port a");
    udp_goes_both_ways(&site.a, &site.far);
    let output = site.output(&["--json", "nfv", "show", "--over", "100ms"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown[0]["ports"][0]["port"], "a");
    assert!(
        shown[0]["ports"][0]["to_packets"].as_u64().unwrap() > 4,
        "{shown}"
    );
    let output = site.output(&["nfv", "show", "--over", "10ms"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("ports.toml (process "), "{shown}");
    assert!(shown.contains("uplink"), "{shown}");
    let output = site.output(&["nfv", "args", "a"]);
    assert_eq!(output.status.code(), Some(3));
    let printed = text(&output.stderr);
    assert!(printed.contains("port a is of kind af_packet"), "{printed}");
    ports.end();
    let output = site.output(&["--json", "nfv", "show"]);
    assert_eq!(text(&output.stdout), "[]\n");
}

#[test]
fn idle_ports_take_under_one_percent_of_a_processor() {
    let Some(site) = Site::new() else { return };
    let full = format!(
        "mac = \"{MAC}\"\nvlan = 5\ningress_filter = \"not udp dst port 7777\"\n\
         stateful = true\negress_mbps = 100\ningress_mbps = 100\n"
    );
    // And the card of a guest that has not been started.
    let card = "[[ports]]\nname = \"card\"\n";
    let mut ports = site.start(&(UPLINK.to_owned() + &port("a", &full) + card));
    ports.says("+ port card");
    udp_goes_both_ways(&site.a, &site.far);
    let pid = ports.child.as_ref().unwrap().id();
    let look = Duration::from_secs(2);
    let used = least_used(pid, look, look / 100);
    println!("idle ports: {used:?} of processor time in {look:?}");
    assert!(used < look / 100, "{used:?} in {look:?}");
    udp_goes_both_ways(&site.a, &site.far);
    ports.end();
}

/// A run directory and a file, for what needs no network.
fn carina(text: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("ports");
    fs::write(&file, text).unwrap();
    let words = words.iter().map(|word| match *word {
        "FILE" => file.to_str().unwrap().to_owned(),
        word => word.to_owned(),
    });
    let mut command = Command::new(CARINA);
    let output = command.arg("--run").arg(place.path()).args(words).output();
    let output = output.unwrap();
    let own = place.path().to_str().unwrap();
    let plain = |bytes: &[u8]| self::text(bytes).replace(own, "RUN");
    (
        output.status.code(),
        plain(&output.stdout),
        plain(&output.stderr),
    )
}

#[test]
fn wrong_files_have_exit_code_3_and_a_place() {
    let check = |file: &str| carina(file, &["nfv", "check", "FILE"]);
    let right = UPLINK.to_owned() + &port("a", "vlan = 5\n");
    let (code, printed, _) = check(&right);
    assert_eq!(
        (code, printed.as_str()),
        (Some(0), "ports: 1, with an uplink\n")
    );
    let (code, _, printed) = check(&right.replace("vlan", "vlans"));
    assert_eq!(code, Some(3));
    assert!(
        printed.starts_with("carina: RUN/ports:8: unknown field `vlans`"),
        "{printed}"
    );
    let (code, _, printed) = check("return {\n { port_id = 'a', speed = 5 } }");
    assert_eq!(code, Some(3));
    assert!(
        printed.starts_with("carina: RUN/ports:2: speed: unknown field"),
        "{printed}"
    );
    let (code, ..) = carina("", &["nfv", "check", "/nonexistent"]);
    assert_eq!(code, Some(1));
    let (code, _, printed) = carina("", &["nfv", "args", "a"]);
    assert_eq!(code, Some(2));
    assert!(printed.contains("--file FILE"), "{printed}");
    let (code, _, printed) = carina(&right, &["nfv", "args", "b", "--file", "FILE"]);
    assert_eq!(code, Some(3));
    assert!(printed.contains("no port \"b\": there are a"), "{printed}");
}

#[test]
fn cards_of_guests_have_arguments_for_qemu_and_libvirt() {
    let file = "[[ports]]\nname = \"web\"\nmac = \"52:54:00:00:00:01\"\n";
    let words = ["nfv", "args", "web", "--file", "FILE", "--memory", "1G"];
    let (code, printed, _) = carina(file, &words);
    assert_eq!(code, Some(0));
    assert!(
        printed.starts_with("-object memory-backend-memfd,"),
        "{printed}"
    );
    assert!(
        printed.contains(",path=RUN/nfv/web.sock,reconnect=1\n"),
        "{printed}"
    );
    let (_, printed, _) = carina(file, &["nfv", "args", "web", "--file", "FILE", "--libvirt"]);
    assert!(
        printed.contains("<mac address='52:54:00:00:00:01'/>"),
        "{printed}"
    );
    // With snabbnfv QEMU makes the socket.
    let file = "return { { port_id = 'web' } }";
    let words = ["nfv", "args", "web", "--file", "FILE", "--socket", "/vm/%s"];
    let (_, printed, _) = carina(file, &words);
    assert!(
        printed.contains(",path=/vm/web,server=on,wait=off\n"),
        "{printed}"
    );
}

#[test]
fn ports_of_guests_wait_for_them() {
    let file = "[[ports]]\nname = \"web\"\n[[ports]]\nname = \"db\"\nvlan = 5\n";
    let words = ["--json", "nfv", "run", "FILE", "--for", "300ms"];
    let (code, printed, progress) = carina(file, &words);
    assert_eq!(code, Some(0), "{progress}");
    assert_eq!(progress, "+ port web\n+ port db\n");
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["ports"][1]["port"], "db");
    assert_eq!(report["uplink"], Value::Null);
}
