//! Tests links between namespaces that use the kernel's own path.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_namespaces::{NamespaceAccess, namespace_file};
use carina_sys::NetworkNamespace;
use carina_vnet::document::{Document, Form};
use carina_vnet::impairment::{Impairment, LinkImpairment};
use carina_vnet::report::{LinkPath, VnetReport, VnetState};
use carina_vnet::trace::TraceQuery;
use carina_vnet_host::client::{Client, socket_of};
use carina_vnet_host::names::{node_namespace, ports_namespace};
use carina_vnet_host::{Agent, server};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::network::TestNetwork;
use crate::streams::{connect, listen, stream};
use crate::waiting::{LIMIT, TestDirectory, is_root, run, wait_until_settled};

const NAME: &str = "fast";

/// Nodes a, b and c in a chain. The first link has a limit on the kernel's path; the second is
/// faster than any limit.
fn text(rates: [&str; 2]) -> String {
    let mut text = format!("[vnet]\nname = \"{NAME}\"\n[defaults]\nkind = \"namespace\"\n");
    for node in ["a", "b", "c"] {
        text.push_str(&format!("[node.{node}]\n"));
    }
    for (ends, rate) in [["a", "b"], ["b", "c"]].iter().zip(rates) {
        text.push_str(&format!("[[link]]\nends = {ends:?}\nrate = \"{rate}\"\n"));
    }
    text.push_str("[[test]]\nping = [\"a\", \"c\"]\n");
    text
}

fn document(rates: [&str; 2]) -> Document {
    Document::read(&text(rates), Form::Toml).expect("the text is a document")
}

const FAST: [&str; 2] = ["10Gbps", "1000Gbps"];

fn ready(agent: &Agent) -> VnetReport {
    let report = wait_until_settled(agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    report
}

fn paths(agent: &Agent) -> Vec<LinkPath> {
    let links = agent.report(NAME).unwrap().links;
    links.iter().map(|link| link.path.unwrap()).collect()
}

/// Waits until links use these paths; the agent looks every few seconds.
fn await_paths(agent: &Agent, wanted: [LinkPath; 2]) {
    let deadline = Instant::now() + LIMIT;
    while paths(agent) != wanted {
        assert!(Instant::now() < deadline, "{:?}", paths(agent));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The ports to which filters redirect frames, and those that have a limit.
fn in_kernel(report: &VnetReport) -> (Vec<String>, Vec<String>) {
    let (access, namespace) = (NamespaceAccess::of_root(), ports_namespace(report.vnet));
    let ports = ["l0.0", "l0.1", "l1.0", "l1.1"];
    let lines = ports.map(|port| format!("filter show dev {port} ingress"));
    let shown = access.tc_lines(&namespace, &lines).unwrap();
    let redirected = |port: &&str| shown.contains(&format!("Redirect to device {port})"));
    let limits = access.tc(&["-n", &namespace, "qdisc", "show"]).unwrap();
    let limited = |port: &&str| {
        let mut lines = limits.lines();
        lines.any(|line| line.contains("tbf") && line.contains(&format!("dev {port} ")))
    };
    let names = |is: &dyn Fn(&&str) -> bool| {
        let found = ports.iter().filter(|port| is(port));
        found.map(|port| (*port).to_owned()).collect()
    };
    (names(&redirected), names(&limited))
}

/// Rate of a stream from node a to another node, whose address ends with `last`, or back.
fn rate_of_stream(report: &VnetReport, to: &str, last: u8, is_back: bool) -> f64 {
    let [near, far] = ["a", to].map(|node| node_namespace(report.vnet, node));
    let listener = listen(&far, IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
    let [near, far] = connect(&near, &listener);
    if is_back {
        stream(&far, &near)
    } else {
        stream(&near, &far)
    }
}

/// Frames that each end of the first link has sent.
fn frames(agent: &Agent) -> [u64; 2] {
    let report = agent.report(NAME).unwrap();
    report.links[0].passed.map(|passed| passed.frames)
}

#[test]
fn fast_links_between_namespaces_use_the_kernels_path() {
    if !is_root() {
        return;
    }
    let network = TestNetwork::ready(&text(FAST));
    let (agent, report) = (network.agent(), network.report());
    assert_eq!(paths(agent), [LinkPath::Kernel; 2]);
    let all = ["l0.0", "l0.1", "l1.0", "l1.1"].map(str::to_owned);
    assert_eq!(in_kernel(&report), (all.to_vec(), all[..2].to_vec()));
    assert!(agent.test(NAME).unwrap().iter().all(|test| test.holds));
    assert!(rate_of_stream(&report, "b", 2, false) < 10.3e9);
    assert!(rate_of_stream(&report, "b", 2, true) < 10.3e9);
    let passed = agent.report(NAME).unwrap().links[0].passed;
    assert!(
        passed.iter().all(|candidate| candidate.bytes > 1_000_000),
        "{passed:?}"
    );

    // A change of rates moves links between the paths, and back.
    network.apply(&text(["1Gbps", "100Mbps"]));
    assert_eq!(paths(agent), [LinkPath::Kernel, LinkPath::Engine]);
    assert_eq!(in_kernel(&report), (all[..2].to_vec(), all[..2].to_vec()));
    let rate = rate_of_stream(&report, "b", 2, false);
    assert!((0.5e9..1.05e9).contains(&rate), "{rate}");
    network.apply(&text(["1000Gbps", "2Gbps"]));
    // A limit stays while its port exists, with the largest rate.
    assert_eq!(in_kernel(&report), (all.to_vec(), all.to_vec()));
    let limits = NamespaceAccess::of_root()
        .tc(&[
            "-n",
            &ports_namespace(report.vnet),
            "qdisc",
            "show",
            "dev",
            "l0.0",
        ])
        .unwrap();
    assert!(limits.contains("rate 100Gbit"), "{limits}");
    assert!(agent.test(NAME).unwrap().iter().all(|test| test.holds));
    network.remove();
}

#[test]
fn impaired_link_uses_the_engine_and_then_the_kernel_again() {
    if !is_root() {
        return;
    }
    let network = TestNetwork::ready(&text(FAST));
    let (agent, report) = (network.agent(), network.report());
    network.run("a", "ping -c 3 -i 0.01 10.0.0.2 >/dev/null 2>&1 || true");
    let first = frames(agent);
    assert!(first.iter().all(|count| *count > 0), "{first:?}");
    let delay = Some(Impairment {
        delay: "20ms".parse().ok(),
        ..Impairment::default()
    });
    let (there, back) = (delay, None);
    agent
        .impair(NAME, 0, LinkImpairment { there, back })
        .unwrap();
    assert_eq!(paths(agent), [LinkPath::Engine, LinkPath::Kernel]);
    assert_eq!(in_kernel(&report).0, ["l1.0", "l1.1"]);
    let to = Ipv4Addr::new(10, 0, 0, 2);
    let slow = agent.echo(NAME, "a", to, LIMIT).unwrap();
    assert!(slow >= Duration::from_millis(20), "{slow:?}");
    let second = frames(agent);
    assert!(second[0] > first[0] && second[1] > first[1]);
    agent.impair(NAME, 0, LinkImpairment::default()).unwrap();
    assert_eq!(paths(agent), [LinkPath::Kernel; 2]);
    assert_eq!(in_kernel(&report).0.len(), 4);
    agent.echo(NAME, "a", to, LIMIT).unwrap();
    let third = frames(agent);
    assert!(third[0] > second[0] && third[1] > second[1]);

    // Down is down on the kernel's path, too.
    agent.switch_link(NAME, 0, false).unwrap();
    let silent = agent.echo(NAME, "a", to, Duration::from_millis(300));
    assert!(silent.is_err(), "{silent:?}");
    agent.switch_link(NAME, 0, true).unwrap();
    network.wait_until_ready();
    agent.echo(NAME, "a", to, LIMIT).unwrap();
    assert_eq!(paths(agent), [LinkPath::Kernel; 2]);
    network.remove();
}

#[test]
fn captured_link_uses_the_engine_until_the_capture_ends() {
    if !is_root() {
        return;
    }
    let network = TestNetwork::ready(&text(FAST));
    let (agent, report) = (network.agent(), network.report());
    let mut frames = agent.copy_end(NAME, ["a", "eth0"], "b:eth0", None).unwrap();
    assert_eq!(paths(agent), [LinkPath::Engine, LinkPath::Kernel]);
    let to = Ipv4Addr::new(10, 0, 0, 2);
    agent.echo(NAME, "a", to, LIMIT).unwrap();
    let (mut bytes, mut captured) = (vec![0; 1 << 16], Vec::new());
    let deadline = Instant::now() + LIMIT;
    // The address of the echo request, in its IPv4 header.
    while !captured
        .windows(8)
        .any(|pair| pair == [10, 0, 0, 1, 10, 0, 0, 2])
    {
        assert!(Instant::now() < deadline, "{} bytes", captured.len());
        let read = frames.read(&mut bytes, Duration::from_millis(20)).unwrap();
        captured.extend_from_slice(&bytes[..read.expect("the capture goes on")]);
    }
    drop(frames);
    await_paths(agent, [LinkPath::Kernel; 2]);
    assert_eq!(in_kernel(&report).0.len(), 4);
    agent.echo(NAME, "a", to, LIMIT).unwrap();
    let query = TraceQuery {
        from: "a".into(),
        to: "c".into(),
        echoes: 2,
    };
    let trace = agent.trace(NAME, &query).unwrap();
    assert_eq!((trace.answered, trace.places.len()), (2, 8), "{trace:?}");
    await_paths(agent, [LinkPath::Kernel; 2]);
    assert!(agent.hold(NAME, &[9]).is_err());
    network.remove();
}

#[test]
fn link_is_held_on_the_engine_over_the_socket() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let listener = UnixListener::bind(socket_of(&run_dir)).unwrap();
    let agent = Arc::new(Agent::new(&run_dir).unwrap());
    agent.create(&document(FAST)).unwrap();
    ready(&agent);
    let (stop, stopped) = server::stop_handle();
    let served = Arc::clone(&agent);
    let serving = std::thread::spawn(move || server::serve(listener, served, false, stopped));
    let client = Client::new(&run_dir, LIMIT);
    let first = client.hold_link(NAME, 1).unwrap();
    let second = client.hold_link(NAME, 1).unwrap();
    assert_eq!(paths(&agent), [LinkPath::Kernel, LinkPath::Engine]);
    drop(first);
    assert!(client.hold_link(NAME, 9).is_err());
    assert_eq!(paths(&agent), [LinkPath::Kernel, LinkPath::Engine]);
    drop(second);
    await_paths(&agent, [LinkPath::Kernel; 2]);
    agent.remove(NAME).unwrap();
    drop(stop);
    serving.join().unwrap().unwrap();
}

#[test]
fn no_frame_is_lost_while_a_link_changes_its_path() {
    if !is_root() {
        return;
    }
    let network = TestNetwork::ready(&text(FAST));
    let (agent, report) = (network.agent(), network.report());
    let [near, far] = ["a", "b"].map(|node| {
        let file = namespace_file(&node_namespace(report.vnet, node));
        NetworkNamespace::open(&file).unwrap()
    });
    let receiver = far
        .within(|| UdpSocket::bind("10.0.0.2:0").unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    // Frames that arrive twice come in a burst, for which the receiver needs room.
    set_socket_recv_buffer_size_force(&receiver, 16 << 20).unwrap();
    let sender = near
        .within(|| UdpSocket::bind("10.0.0.1:0").unwrap())
        .unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    agent
        .echo(NAME, "a", Ipv4Addr::new(10, 0, 0, 2), LIMIT)
        .unwrap();
    let is_over = AtomicBool::new(false);
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut number = 0_u32;
            while !is_over.load(Ordering::Acquire) {
                sender.send(&number.to_be_bytes()).unwrap();
                number += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            number
        });
        let receiving = scope.spawn(|| {
            let (mut seen, mut buffer) = (BTreeSet::new(), [0; 64]);
            while let Ok(4) = receiver.recv(&mut buffer) {
                seen.insert(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
            }
            seen
        });
        for _ in 0..3 {
            let hold = agent.hold(NAME, &[0]).unwrap();
            assert_eq!(paths(agent)[0], LinkPath::Engine);
            std::thread::sleep(Duration::from_millis(300));
            drop(hold);
            await_paths(agent, [LinkPath::Kernel; 2]);
            std::thread::sleep(Duration::from_millis(300));
        }
        is_over.store(true, Ordering::Release);
        (sending.join().unwrap(), receiving.join().unwrap())
    });
    let lost: Vec<u32> = (0..sent)
        .filter(|candidate| !received.contains(candidate))
        .collect();
    assert!(sent > 100 && lost.is_empty(), "of {sent}: {lost:?}");
    assert!(frames(agent)[0] >= u64::from(sent));
    network.remove();
}

#[test]
fn fast_networks_with_the_same_addresses_never_meet() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    agent.create(&document(FAST)).unwrap();
    let mut other = document(FAST);
    other.vnet.name = "other".to_owned();
    agent.create(&other).unwrap();
    ready(&agent);
    assert_eq!(wait_until_settled(&agent, "other").state, VnetState::Ready);
    let asked = || -> u64 {
        let text = run(&agent, "other", "b", "grep ^Icmp: /proc/net/snmp");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let place = lines[0].iter().position(|word| *word == "InEchos");
        lines[1][place.unwrap()].parse().unwrap()
    };
    let before = asked();
    for _ in 0..30 {
        agent
            .echo(NAME, "a", Ipv4Addr::new(10, 0, 0, 2), LIMIT)
            .unwrap();
    }
    // The agent probes links now and then.
    assert!(asked() < before + 10);
    for name in [NAME, "other"] {
        agent.remove(name).unwrap();
    }
}

#[test]
fn next_agent_leaves_the_kernels_path_as_it_is() {
    if !is_root() {
        return;
    }
    let mut network = TestNetwork::ready(&text(FAST));
    let report = network.report();
    network.drop_agent();
    // Without any agent, the links still carry a stream.
    assert!(rate_of_stream(&report, "c", 6, false) > 1e6);
    let before = in_kernel(&report);
    assert_eq!(before.0.len(), 4);
    network.restart_agent();
    assert_eq!(paths(network.agent()), [LinkPath::Kernel; 2]);
    assert_eq!(in_kernel(&report), before);
    assert!(network.report().links[0].passed[0].bytes > 1_000_000);
    assert!(rate_of_stream(&report, "c", 6, true) > 1e6);
    network.remove();
}
