//! Tests the messages of `ipfix` with independent collectors: tshark, and nfcapd of nfdump.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::judged::{file_of, read_by};
use crate::notation::frame;
use crate::scripts::over_time;

const CONFIG: &str = "kind = \"ipfix\"\nlocal = \"10.9.0.1\"\ncollector = \"10.9.0.2\"\n\
    mac = \"02:00:00:00:00:01\"\nnext_mac = \"02:00:00:00:00:02\"\ndomain = 77\nflows = 5\n\
    idle_timeout = 10\nactive_timeout = 25\ntemplate_refresh = 60\n";
const CONFIG6: &str = "kind = \"ipfix\"\nlocal = \"fd09::1\"\ncollector = \"fd09::2\"\n\
    idle_timeout = 10\n";

/// Packets of all kinds of flows, each group with its time in milliseconds.
fn traffic() -> Vec<(u64, Vec<Vec<u8>>)> {
    let http = frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5000 > 9999 | \"request\"");
    let syn = frame(":1 > :2 | vlan 7 | ip6 fd00::1 > fd00::2 | tcp 4000 > 99 flags 02");
    let fin = frame(":1 > :2 | vlan 7 | ip6 fd00::1 > fd00::2 | tcp 4000 > 99 flags 11");
    let ping = frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | echo request 1 1");
    // A fragment other than the first has no ports.
    let part = frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 proto 17 fragment 8 | \"later part\"");
    let mut steps = vec![
        (0, vec![]),
        (1000, vec![http.clone(), syn, ping, part]),
        (3000, vec![http, fin]),
    ];
    steps.extend((4..15).map(|second| (second * 1000, vec![])));
    steps
}

#[test]
fn tshark_reads_flows_with_their_times_and_reasons() {
    let sent = over_time(CONFIG, &traffic(), "export");
    let (_directory, file) = file_of(&sent);
    let fields = [
        "frame.protocols",
        "udp.checksum.status",
        "cflow.version",
        "cflow.od_id",
        "cflow.sequence",
        "cflow.srcaddr",
        "cflow.srcaddrv6",
        "cflow.srcport",
        "cflow.dstport",
        "cflow.protocol",
        "cflow.packets",
        "cflow.octets",
        "cflow.flow_end_reason",
        "cflow.vlanid",
        "cflow.icmp_type_code_ipv4",
        "cflow.tcpflags.syn",
        "cflow.tcpflags.fin",
        "cflow.tcpflags.ack",
        "_ws.malformed",
    ];
    let mut arguments = vec!["-n", "-o", "udp.check_checksum:TRUE", "-T", "fields"];
    arguments.extend(["-E", "separator=|", "-E", "aggregator=,"]);
    for field in &fields {
        arguments.extend(["-e", field]);
    }
    let Some(text) = read_by("tshark", &arguments, &file) else {
        return;
    };
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').collect()).collect();
    // Templates, the flows that ended by 11 s, and those that ended by 13 s.
    assert_eq!(lines.len(), 3, "{text}");
    for line in &lines {
        assert_eq!(line[0], "eth:ethertype:ip:udp:cflow", "{line:?}");
        assert_eq!(line[1..4], ["1", "10", "77"], "{line:?}");
        assert_eq!(line[18], "", "{line:?}");
    }
    let [_, first, second] = &lines[..] else {
        unreachable!("three lines were counted")
    };
    // A field has the values of all records with this field, in the order of the sets.
    let wanted = ["0", "10.0.0.1,10.0.0.1", "", "0", "0", "1,17", "1,1"];
    assert_eq!(first[4..11], wanted, "{first:?}");
    let wanted = ["28,30", "1,1", "0,0", "0x0800", "0", "0", "0"];
    assert_eq!(first[11..18], wanted, "{first:?}");
    let wanted = [
        "2",
        "10.0.0.1",
        "fd00::1",
        "5000,4000",
        "9999,99",
        "17,6",
        "2,2",
    ];
    assert_eq!(second[4..11], wanted, "{second:?}");
    let wanted = ["70,120", "1,1", "0,7", "", "0,1", "0,1", "0,1"];
    assert_eq!(second[11..18], wanted, "{second:?}");
}

#[test]
fn flows_end_by_age_and_for_want_of_room() {
    let packet = |port: u16| {
        frame(&format!(
            ":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5000 > {port} | \"x\""
        ))
    };
    let mut steps: Vec<_> = (0..27)
        .map(|second| (second * 1000, vec![packet(9999)]))
        .collect();
    // The sixth flow replaces the one that has been silent longest.
    let others = (1000..1005).map(packet).collect();
    steps.push((26_500, others));
    steps.push((27_000, vec![]));
    let sent = over_time(CONFIG, &steps, "export");
    let (_directory, file) = file_of(&sent);
    let arguments = [
        "-n",
        "-T",
        "fields",
        "-e",
        "cflow.dstport",
        "-e",
        "cflow.packets",
        "-e",
        "cflow.flow_end_reason",
    ];
    let Some(text) = read_by("tshark", &arguments, &file) else {
        return;
    };
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(lines, ["9999\t26\t2", "9999\t1\t5"], "{text}");
}

/// A collector, which stores what it receives in a directory.
struct Collector(Child);

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Collector {
    /// Ends the collector by a signal, so that it writes what it has received.
    fn end(mut self) {
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(asked.unwrap().success());
        self.0.wait().unwrap();
    }
}

/// Sends the messages in frames to a collector, and returns what it shows of them.
fn collected(directory: &Path, sent: &[Vec<u8>], headers: usize) -> Option<String> {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut command = Command::new("nfcapd");
    command.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-w"]);
    let started = command
        .arg(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let collector = match started {
        Ok(child) => Collector(child),
        Err(error) => {
            println!("SKIP: the program nfcapd (package nfdump): {error}");
            return None;
        }
    };
    // Binding the port to test whether it is in use could take it from the collector, so look it
    // up.
    let bound = format!(" 0100007F:{port:04X} ");
    let end = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string("/proc/net/udp")
        .unwrap()
        .contains(&bound)
    {
        assert!(Instant::now() < end, "nfcapd does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    for frame in sent {
        socket.send(&frame[headers..]).unwrap();
    }
    // The messages are in the collector's socket buffer; it reads them before it handles the
    // signal.
    std::thread::sleep(Duration::from_millis(500));
    collector.end();
    let output = Command::new("nfdump")
        .arg("-R")
        .arg(directory)
        .args(["-q", "-N", "-O", "tstart", "-o"])
        .arg("fmt:%pr %sa %sp %da %dp %pkt %byt %flg %tsr %td")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn nfcapd_collects_flows_over_both_versions_of_ip() {
    for (config, headers) in [(CONFIG, 42), (CONFIG6, 62)] {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let sent = over_time(config, &traffic(), "export");
        let directory = tempfile::tempdir().unwrap();
        let Some(text) = collected(directory.path(), &sent, headers) else {
            return;
        };
        let mut lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| !words.is_empty())
            .collect();
        lines.sort();
        assert_eq!(lines.len(), 4, "{text}");
        let of = |protocol: &str, bytes: &str| {
            let found = lines
                .iter()
                .find(|line| line[0] == protocol && line[6] == bytes);
            found.unwrap_or_else(|| panic!("no {protocol} of {bytes}: {text}"))
        };
        let udp = of("17", "70");
        assert_eq!(udp[1..6], ["10.0.0.1", "5000", "10.0.0.2", "9999", "2"]);
        let tcp = of("6", "120");
        assert_eq!(tcp[1..6], ["fd00::1", "4000", "fd00::2", "99", "2"]);
        assert_eq!(tcp[7], "...A..SF", "{text}");
        assert_eq!(of("1", "28")[5], "1");
        assert_eq!(of("17", "30")[5], "1");
        // The flow lasted two seconds, and began a second after the app was made.
        let [start, lasted] = [udp[8], udp[9]].map(|text| text.parse::<f64>().unwrap());
        assert!((lasted - 2.0).abs() < 0.01, "{text}");
        let made = before.as_secs_f64();
        assert!((0.9..60.0).contains(&(start - made)), "{start} {made}");
    }
}
