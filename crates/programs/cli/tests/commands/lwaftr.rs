//! `carina lwaftr`: a customer behind IPv6 and a host of the Internet, both with real stacks; files
//! through `check`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;

use self::site::{Site, configuration};
use crate::commands::node::CARINA;
use crate::traffic::{FAR, OWN, PATIENCE, tcp_goes_through, udp_goes_both_ways};

pub(super) mod site;

#[test]
fn customer_and_internet_talk_through_the_aftr() {
    let Some(mut site) = Site::new() else { return };
    site.start(&configuration(1540, "fd00:1::b4"));
    udp_goes_both_ways(&site.customer, &site.far);
    tcp_goes_through(&site.customer, &site.far);
    let counters = site.counters(|counters| {
        counters["out-ipv4-packets"].as_u64() > Some(100)
            && counters["in-ipv4-packets"].is_u64()
            && counters["next-hop-ipv4-resolved"] == 1
            && counters["next-hop-ipv6-resolved"] == 1
    });
    assert!(
        counters["in-ipv4-frag-reassembled"].as_u64() > Some(0),
        "{counters}"
    );
    assert_eq!(counters.get("drop-no-source-softwire-ipv6-packets"), None);
}

#[test]
fn tunnel_of_the_kernel_is_a_b4() {
    let Some(mut site) = Site::of_kernel() else {
        return;
    };
    site.start(&configuration(1540, "fd00:1::b4"));
    udp_goes_both_ways(&site.customer, &site.far);
    tcp_goes_through(&site.customer, &site.far);
    let counters = site.counters(|counters| counters["in-ipv6-packets"].as_u64() > Some(100));
    assert_eq!(counters.get("drop-no-source-softwire-ipv6-packets"), None);
}

#[test]
fn three_workers_serve_one_customer_and_change_together() {
    let Some(mut site) = Site::new() else { return };
    let text = configuration(1540, "fd00:1::77");
    site.start_with(&text, &["--workers", "3"]);
    let path = format!("/softwire-config/binding-table/softwire[ipv4={OWN}][psid=0]/b4-ipv6");
    let id = site.children.last().unwrap().id().to_string();
    site.counters(|_| true);
    let set = say(&site, &["config", "set", &id, &path, "fd00:1::b4"]);
    assert!(set.status.success(), "{set:?}");
    // Datagrams longer than the MTU are fragments, which meet in a worker.
    udp_goes_both_ways(&site.customer, &site.far);
    tcp_goes_through(&site.customer, &site.far);
    let counters = site.counters(|counters| {
        counters["out-ipv4-packets"].as_u64() > Some(100) && counters["in-ipv4-packets"].is_u64()
    });
    assert!(
        counters["in-ipv4-frag-reassembled"].as_u64() > Some(0),
        "{counters}"
    );
    assert_eq!(counters["next-hop-ipv4-resolved"], 1);
    assert_eq!(counters["next-hop-ipv6-resolved"], 1);
    // All of them are made anew.
    site.write(&configuration(1280, "fd00:1::b4"));
    site.reload();
    tcp_goes_through(&site.customer, &site.far);
}

#[test]
fn second_aftr_on_an_interface_needs_a_vlan_of_its_own() {
    let Some(mut site) = Site::new() else { return };
    let text = configuration(1540, "fd00:1::b4");
    site.start(&text);
    site.counters(|_| true);
    let first = site.children.last().unwrap().id();
    let second = |text: &str, ports: &[&str]| {
        let file = site.run.path().join("second.conf");
        fs::write(&file, text).unwrap();
        let mut command = site.command(&["lwaftr", "run", "--for", "100ms", "--conf"]);
        command.arg(file).args(ports);
        site.aftr.run(move || command.output().unwrap())
    };
    let sides = ["--v4", "outside", "--v6", "inside"];
    let refused = second(&text, &sides);
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    let expected = format!(
        "outside, frames without VLAN tag: process {first} already runs an AFTR on these frames"
    );
    assert!(printed.contains(&expected), "{printed}");
    assert_eq!(refused.status.code(), Some(1));
    let tagged = text.replace("mac 02", "vlan-tag 7; mac 02");
    let beside = second(&tagged, &sides);
    assert!(beside.status.success(), "{beside:?}");
    let one = second(&tagged, &["--v4", "inside", "--v6", "inside"]);
    let printed = String::from_utf8_lossy(&one.stderr).into_owned();
    assert!(printed.contains("--on-a-stick inside"), "{printed}");
    let stick = second(&tagged, &["--on-a-stick", "inside"]);
    assert!(stick.status.success(), "{stick:?}");
}

#[test]
fn ping_and_traceroute_pass_the_aftr() {
    let Some(mut site) = Site::new() else { return };
    site.start(&configuration(1540, "fd00:1::b4"));
    // All know their next hops then.
    udp_goes_both_ways(&site.customer, &site.far);
    let busybox = |words: &'static [&'static str]| {
        let run = move || Command::new("busybox").args(words).output();
        site.customer
            .run(run)
            .expect("busybox, as scripts/packages has it")
    };
    let ping = busybox(&["ping", "-c", "3", "-W", "30", FAR]);
    let printed = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert!(printed.contains("3 packets received"), "{ping:?}");
    let trace = busybox(&["traceroute", "-n", "-q", "1", "-w", "30", "-m", "5", FAR]);
    let printed = String::from_utf8_lossy(&trace.stdout).into_owned();
    // The AFTR is a hop of packets that it takes out of tunnels.
    let hops: Vec<&str> = printed
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(hops, ["10.9.9.1", FAR], "{trace:?}");
}

#[test]
fn table_and_mtu_change_while_the_aftr_runs() {
    let Some(mut site) = Site::new() else { return };
    site.start(&configuration(1540, "fd00:1::77"));
    let knock = || {
        let socket = site
            .customer
            .run(|| std::net::UdpSocket::bind((OWN, 0)).unwrap());
        let _ = socket.send_to(b"knock", (FAR, 9));
    };
    // The packet is of another B4 than the table's.
    let end = Instant::now() + PATIENCE;
    loop {
        knock();
        let dropped = "drop-no-source-softwire-ipv6-packets";
        let counters = site.counters(|_| true);
        if counters[dropped].as_u64() > Some(0) {
            break;
        }
        assert!(Instant::now() < end, "{counters}");
    }
    site.write("softwire-config { nonsense 1; }");
    site.reload();
    site.write(&configuration(1540, "fd00:1::b4"));
    site.reload();
    tcp_goes_through(&site.customer, &site.far);
    // Shorter ones: the kernel learns of it by ICMP.
    site.write(&configuration(1280, "fd00:1::b4"));
    site.reload();
    tcp_goes_through(&site.customer, &site.far);
}

/// Words after `carina lwaftr`, to a process that runs, and what it prints.
fn say(site: &Site, words: &[&str]) -> Output {
    site.command(&[&["lwaftr"], words].concat())
        .output()
        .unwrap()
}

#[test]
fn configuration_alarms_and_mirror_change_while_the_aftr_runs() {
    let Some(mut site) = Site::new() else { return };
    site.aftr
        .ip("link add name mirrored type veth peer name mirror");
    site.aftr.ip("link set mirrored up");
    site.aftr.ip("link set mirror up");
    let text = configuration(1540, "fd00:1::77")
        .replace("softwire-config {", "softwire-config { name aftr1;");
    site.start_with(&text, &["--mirror", "mirror"]);
    site.counters(|_| true);
    let softwires = "/softwire-config/binding-table/softwire";
    let ours = format!("{softwires}[ipv4={OWN}][psid=0]");
    let b4 = format!("{ours}/b4-ipv6");
    let wrong = say(&site, &["config", "set", "aftr1", &b4, "no address"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    let printed = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        printed.contains("b4-ipv6 is \"no address\": an IPv6 address"),
        "{printed}"
    );
    for words in [
        &["config", "set", "aftr1", &b4, "fd00:1::b4"][..],
        &["monitor", FAR],
        &[
            "config",
            "remove",
            "aftr1",
            "/softwire-config/external-interface/mtu",
        ],
        &[
            "config",
            "set",
            "aftr1",
            "/softwire-config/external-interface/mtu",
            "1500",
        ],
    ] {
        let done = say(&site, words);
        assert!(done.status.success(), "{words:?}: {done:?}");
    }
    tcp_goes_through(&site.customer, &site.far);
    let got = say(&site, &["config", "get", "aftr1", &b4]);
    assert_eq!(String::from_utf8_lossy(&got.stdout), "fd00:1::b4\n");
    let end = Instant::now() + PATIENCE;
    loop {
        let path = "/softwire-state/in-ipv4-packets";
        let state = say(&site, &["config", "get-state", "aftr1", path]);
        let count = String::from_utf8_lossy(&state.stdout).trim().parse::<u64>();
        if count.is_ok_and(|count| count > 100) {
            break;
        }
        assert!(Instant::now() < end, "{state:?}");
    }
    let devices = site
        .aftr
        .run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = devices
        .lines()
        .find_map(|line| line.trim().strip_prefix("mirrored:"));
    // Bytes, then packets that came.
    let frames = line.unwrap().split_whitespace().nth(1).unwrap();
    assert!(frames.parse::<u64>().unwrap() > 100, "{devices}");
    let alarms = say(&site, &["--json", "alarms", "get-state"]);
    let alarms: Value = serde_json::from_slice(&alarms.stdout).unwrap();
    assert!(alarms.is_array(), "{alarms}");
    let ended = say(&site, &["config", "shutdown", "aftr1"]);
    assert!(ended.status.success(), "{ended:?}");
    let status = site.children.last_mut().unwrap().wait().unwrap();
    assert!(status.success());
    let gone = say(&site, &["config", "get", "aftr1"]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
}

/// A frame as `carina lwaftr check` reads it.
fn pcap(frames: &[&[u8]]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    for frame in frames {
        file.extend([0; 8]);
        let length = (frame.len() as u32).to_le_bytes();
        file.extend(length);
        file.extend(length);
        file.extend(*frame);
    }
    file
}

/// A datagram of the Internet to the customer: 20 and 8 bytes, and one more.
const DATAGRAM: &[u8] = b"\x02\0\0\0\0\xe4\x02\0\0\0\0\x09\x08\0\
    \x45\0\0\x1d\0\0\0\0\x40\x11\x66\xbc\x0a\x09\0\x02\x0a\x09\0\x01\0\x35\x10\0\0\x09\0\0!";

fn check(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(CARINA);
    command
        .args(["lwaftr", "check"])
        .args(words)
        .current_dir(directory);
    command.output().unwrap()
}

#[test]
fn check_compares_what_leaves_and_what_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    let text = configuration(1500, "fd00:1::b4")
        .replace(
            &format!("next-hop {{ ip {FAR}; }}"),
            "next-hop { mac 02:00:00:00:00:09; }",
        )
        .replace(
            "next-hop { ip fd00:1::b4; }",
            "next-hop { mac 02:00:00:00:00:09; }",
        );
    write("conf", text.as_bytes());
    let alone = check(directory.path(), &["conf"]);
    assert!(alone.status.success(), "{alone:?}");
    write(
        "wrong",
        text.replace("mtu 1500", "ingress-filter \"ip and\"")
            .as_bytes(),
    );
    let wrong = check(directory.path(), &["wrong"]);
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    write("in4", &pcap(&[DATAGRAM]));
    write("in6", &pcap(&[]));
    let files = ["conf", "in4", "in6", "out4", "out6", "counters"];
    let written = check(directory.path(), &[&["--write"], &files[..]].concat());
    assert!(written.status.success(), "{written:?}");
    let counters = fs::read_to_string(directory.path().join("counters")).unwrap();
    assert!(counters.contains("out-ipv6-packets 1\n"), "{counters}");
    assert!(counters.contains("out-ipv6-bytes 83\n"), "{counters}");
    for variant in [&[][..], &["--on-a-stick"]] {
        let same = check(directory.path(), &[variant, &files[..]].concat());
        assert!(same.status.success(), "{same:?}");
        let printed = String::from_utf8_lossy(&same.stdout).into_owned();
        assert_eq!(printed, "0 frames towards IPv4, 1 towards IPv6\n");
    }
    write("counters", b"return {\n  [\"out-ipv6-packets\"] = 2,\n}\n");
    write("out4", &pcap(&[DATAGRAM]));
    let other = check(directory.path(), &files);
    assert_eq!(other.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&other.stdout).into_owned();
    assert_eq!(
        printed,
        "out4: the AFTR sent 0 frames, 1 are expected\ncounters: out-ipv6-packets is 1, 2 is \
         expected\n"
    );
    // Compiled, and with a fault in the text.
    let mut compile = Command::new(CARINA);
    compile
        .args(["lwaftr", "compile", "conf", "conf"])
        .current_dir(directory.path());
    assert!(compile.output().unwrap().status.success());
    let compiled = check(directory.path(), &files[..5]);
    assert_eq!(compiled.status.code(), Some(1), "out4 is still another one");
    write("conf", text.replace("psid 0;", "psid x;").as_bytes());
    let refused = check(directory.path(), &files);
    assert_eq!(refused.status.code(), Some(3));
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        printed.contains("conf:6: psid is \"x\": a number"),
        "{printed}"
    );
}

#[test]
fn generated_frames_pass_the_generated_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let mut generate = Command::new(CARINA);
    let words = [
        "lwaftr",
        "generate",
        "10.0.0.0",
        "2",
        "fd00::1",
        "2001:db8::",
        "3",
    ];
    generate.args(words).current_dir(directory.path());
    let files = ["--pcap-v4", "in4", "--pcap-v6", "in6", "--packets", "40"];
    let made = generate.args(files).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    fs::write(directory.path().join("conf"), &made.stdout).unwrap();
    let words = ["--write", "conf", "in4", "in6", "out4", "out6", "counters"];
    let ran = check(directory.path(), &words);
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(printed, "40 frames towards IPv4, 40 towards IPv6\n");
    let counters = fs::read_to_string(directory.path().join("counters")).unwrap();
    assert!(!counters.contains("drop"), "{counters}");
    // Both directions at once, for as long as is said.
    let bench = |more: &[&str]| {
        let mut command = Command::new(CARINA);
        let words = ["lwaftr", "bench", "conf", "in4", "in6", "--for", "300ms"];
        let command = command.args(words).args(more).current_dir(directory.path());
        command.output().unwrap()
    };
    let ran = bench(&["--json", "--bench-file", "rates.csv"]);
    assert!(ran.status.success(), "{ran:?}");
    let rates: Value = serde_json::from_slice(&ran.stdout).unwrap();
    for rate in ["decap_mpps", "decap_gbps", "encap_mpps", "encap_gbps"] {
        assert!(rates[rate].as_f64() > Some(0.0), "{rates}");
    }
    let lines = fs::read_to_string(directory.path().join("rates.csv")).unwrap();
    let header = "time_s,decap_mpps,decap_gbps,encap_mpps,encap_gbps";
    assert!(
        lines.starts_with(header) && lines.lines().count() == 2,
        "{lines}"
    );
    let in6 = fs::read(directory.path().join("in6")).unwrap();
    for (length, wanted) in [
        (24, "in6: has no frames"),
        (in6.len() - 1, "the file is cut"),
    ] {
        fs::write(directory.path().join("in6"), &in6[..length]).unwrap();
        let ran = bench(&[]);
        let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(3), "{printed}");
        assert!(printed.contains(wanted), "{printed}");
    }
}

#[test]
fn demo_fetches_a_page_and_draws_goodput() {
    if !carina_namespaces::can_enter_private() {
        eprintln!("SKIP: no namespaces can be made here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(CARINA);
    command
        .args([
            "--json", "lwaftr", "demo", "--runs", "1", "--time", "200ms", "--out", ".",
        ])
        .current_dir(directory.path());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["page_bytes"], 1 << 20);
    assert!(
        report["counters"]["out-ipv6-packets"].as_u64() > Some(500),
        "{report}"
    );
    let rows = report["rates"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    assert!(
        rows.iter().all(|row| row["median"].as_f64() > Some(0.0)),
        "{report}"
    );
    let figure = fs::read_to_string(directory.path().join("lwaftr.svg")).unwrap();
    assert!(figure.contains("to-customer"));
}
