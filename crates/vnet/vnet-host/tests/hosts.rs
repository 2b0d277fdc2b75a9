//! Tests networks with parts on several hosts, which get them as from a provider.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_frame_engine::counter_file;
use carina_namespaces::namespace_file;
use carina_sys::NetworkNamespace;
use carina_vnet::division::{Placement, divide};
use carina_vnet::document::{Carrier, Document, Form};
use carina_vnet::host_part::{HostPart, NodeState, VnetId};
use carina_vnet::layout::Layout;
use carina_vnet::message::ToAgent;
use carina_vnet_host::{Agent, Error, Vnets};

use crate::segment::{Host, Segment, ip};
use crate::streams::{connect, listen, stream};
use crate::waiting::{LIMIT, TestDirectory, is_root, left_of, run};

/// The parts of a network with nodes `a`, `b`, …, each on the host of its number, and links such as
/// `a b gre`.
fn parts(uid: u64, generation: u64, nodes: usize, links: &[&str], first_tag: u32) -> Vec<HostPart> {
    let hosts: Vec<usize> = (1..=nodes).collect();
    parts_at(&hosts, (uid, generation), links, first_tag)
}

/// Like [`parts`], with the nodes on hosts of these numbers.
fn parts_at(
    hosts: &[usize],
    (uid, generation): (u64, u64),
    links: &[&str],
    first_tag: u32,
) -> Vec<HostPart> {
    let names: Vec<String> = (b'a'..)
        .take(hosts.len())
        .map(|byte| char::from(byte).into())
        .collect();
    let mut text = "[vnet]\nname = \"far\"\n[defaults]\nkind = \"namespace\"\n".to_owned();
    for name in &names {
        text.push_str(&format!("[node.{name}]\n"));
    }
    for link in links {
        let words: Vec<&str> = link.split(' ').collect();
        let [one, other, carrier] = words[..] else {
            panic!("{link}");
        };
        text.push_str(&format!(
            "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"100Mbps\"\nas = \"{carrier}\"\n"
        ));
    }
    let document = Document::read(&text, Form::Toml).unwrap();
    let layout = Layout::of(&document, &Layout::default());
    let host_of = |node: &str| hosts[names.iter().position(|name| name == node).unwrap()];
    let mut placement = Placement::default();
    for name in &names {
        let host = format!("h{}", host_of(name));
        placement.hosts.insert(name.clone(), host);
    }
    for (number, laid) in layout.links() {
        let tag = first_tag + number;
        placement.tags.insert(number, tag);
        let outer = [0, 1].map(|side| {
            let host = host_of(&laid.ends[side].node) as u8;
            match document.link[laid.place].carrier {
                Carrier::Ipip => Ipv4Addr::new(192, 0, 2, 16 * host + tag as u8),
                _ => Ipv4Addr::new(192, 0, 2, host),
            }
        });
        placement.outer.insert(number, outer);
    }
    let made = divide(
        &document,
        (VnetId::new(uid), generation),
        &layout,
        &placement,
    );
    made.unwrap().into_values().collect()
}

fn hand_over(hosts: &[Host], parts: &[HostPart]) {
    for (host, part) in hosts.iter().zip(parts) {
        host.agent
            .tell(&ToAgent::Set(Box::new(part.clone())))
            .unwrap();
    }
}

/// Waits until the agent's report satisfies a condition.
fn wait_until(agent: &Agent, what: &str, is_so: impl Fn(&Agent) -> bool) {
    let deadline = Instant::now() + LIMIT;
    let mut seen = 0;
    while !is_so(agent) {
        assert!(Instant::now() < deadline, "{what}: {:?}", agent.say());
        seen = agent.changed(seen, Duration::from_millis(200));
    }
}

fn wait_until_ready(hosts: &[Host], part: &HostPart) {
    let (vnet, generation) = (part.vnet, part.generation);
    for host in hosts {
        wait_until(&host.agent, "ready", |agent| {
            let report = agent.say();
            let mut parts = report.parts.iter();
            parts.any(|part| part.vnet == vnet && part.generation == generation && part.is_ready())
        });
    }
}

/// The uid in the names of what a host has made of a network.
fn own_uid(host: &Host, name: &str) -> String {
    host.agent.report(name).unwrap().vnet.to_string()
}

fn remove(hosts: &[Host], vnet: VnetId) {
    for host in hosts {
        let order = ToAgent::Remove { vnet, through: 9 };
        host.agent.tell(&order).unwrap();
    }
    for host in hosts {
        wait_until(&host.agent, "removed", |agent| {
            let report = agent.say();
            let exists = report.parts.iter().any(|part| part.vnet == vnet);
            !exists && report.removed.get(&vnet) == Some(&9)
        });
    }
}

/// Sends a UDP datagram from one node to another, and returns whether it arrives. The kernel sets
/// "do not fragment" on datagrams that fit the interface.
fn datagram_comes(from: (&Host, &str, &str), to: (&Host, &str, &str), bytes: usize) -> bool {
    let inside = |(host, vnet, node): (&Host, &str, &str)| {
        let namespace = format!("cv-{}-{node}", own_uid(host, vnet));
        NetworkNamespace::open(&namespace_file(&namespace)).unwrap()
    };
    let address = to.0.agent.report(to.1).unwrap().nodes[0].interfaces[0]
        .address
        .clone();
    let address: Ipv4Addr = address.split('/').next().unwrap().parse().unwrap();
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let receiver = inside(to).within(bind).unwrap();
    let sender = inside(from).within(bind).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let port = receiver.local_addr().unwrap().port();
    sender.send_to(&vec![7; bytes], (address, port)).unwrap();
    let mut buffer = [0; 4096];
    receiver
        .recv(&mut buffer)
        .is_ok_and(|received| received == bytes)
}

/// Like [`datagram_comes`], but one of several attempts suffices, because a busy machine may lose a
/// frame.
fn datagrams_come(from: (&Host, &str, &str), to: (&Host, &str, &str), bytes: usize) -> bool {
    (0..5).any(|_| datagram_comes(from, to, bytes))
}

fn mux_counter(host: &Host, vnet: &str, name: &str) -> u64 {
    let run_dir = RunDir::new(host.directory.path());
    let path = Vnets::of(&run_dir).vnet(vnet).counters();
    let all = counter_file::read(&path).unwrap();
    let name = format!("underlay-mux/{name}");
    let found = all.iter().find(|candidate| candidate.name == name);
    found.unwrap_or_else(|| panic!("no {name}")).value
}

#[test]
fn links_between_hosts_carry_by_gre_vxlan_and_ipip() {
    if !is_root() {
        return;
    }
    let segment = Segment::new("car", 3);
    let hosts = [1, 2, 3].map(|host| segment.agent(host));
    let parts = parts(0xa1, 1, 3, &["a b gre", "b c vxlan", "a c ipip"], 70);
    hand_over(&hosts, &parts);
    wait_until_ready(&hosts, &parts[0]);
    let name = "@00000000000000a1";
    let report = hosts[0].agent.report(name).unwrap();
    assert_eq!(report.links.len(), 2);
    assert!(
        report.links.iter().all(|link| link.rtt_ns.is_some()),
        "{report:?}"
    );
    assert!(
        report
            .links
            .iter()
            .all(|link| link.ends[1].starts_with("host h"))
    );
    let passed = |report: &carina_vnet::report::VnetReport| report.links[0].passed;
    assert!(
        passed(&report)
            .iter()
            .all(|candidate| candidate.frames > 1 && candidate.dropped == 0),
        "{report:?}"
    );
    // A packet of the link's full MTU passes: 1458 bytes from `a` to `b` over GRE, including IP and
    // UDP headers.
    let (a, b, c) = (&hosts[0], &hosts[1], &hosts[2]);
    assert!(datagrams_come((a, name, "a"), (b, name, "b"), 1458 - 28));
    // The first interface of `c` is on the link to `b`, and so is that of `a`.
    assert!(datagrams_come((b, name, "b"), (c, name, "c"), 1450 - 28));
    assert!(datagrams_come((c, name, "c"), (a, name, "a"), 1458 - 28));
    // IPv4 in IPv4 carries 1480 bytes, and the host answers ARP requests for the far end.
    let neighbours = run(&a.agent, name, "a", "ip neighbour show dev eth1");
    assert!(neighbours.contains("10.0.0.10"), "{neighbours}");
    let links = run(&a.agent, name, "a", "ip -o link show");
    for (interface, mtu) in [("eth0", 1458), ("eth1", 1480)] {
        let mut lines = links.lines().filter(|line| line.contains(interface));
        let words = format!("mtu {mtu} ");
        assert!(lines.any(|line| line.contains(&words)), "{links}");
    }
    assert!(
        run(
            &a.agent,
            name,
            "a",
            "busybox ping -c 1 -W 30 -s 1452 10.0.0.10"
        )
        .contains("1 packets received")
    );
    let uids: Vec<String> = hosts.iter().map(|host| own_uid(host, name)).collect();
    // A TCP stream gets the rate of each link, 100 Mbit/s.
    for (from, to, last) in [(0, 1, 2), (1, 2, 6), (0, 2, 10)] {
        let [from, to] = [from, to].map(|at| format!("cv-{}-{}", uids[at], ["a", "b", "c"][at]));
        let listener = listen(&to, Ipv4Addr::new(10, 0, 0, last).into());
        let [near, far] = connect(&from, &listener);
        let got = stream(&near, &far);
        assert!((60e6..102e6).contains(&got), "10.0.0.{last}: {got}");
    }
    assert!(uids.iter().all(|uid| left_of(uid).len() == 2));
    assert!(matches!(
        hosts[0].agent.remove(name),
        Err(Error::OfProvider(_))
    ));
    remove(&hosts, parts[0].vnet);
    assert!(uids.iter().all(|uid| left_of(uid).is_empty()));
}

/// Waits until a node on the host answers an echo request of another node there.
fn passes(host: &Host, network: &str, from: &str, to: Ipv4Addr) {
    let answered = host.agent.echo(network, from, to, LIMIT);
    answered.expect("the path is open");
}

#[test]
fn end_of_a_link_stays_while_the_other_changes_its_host() {
    if !is_root() {
        return;
    }
    let segment = Segment::new("rep", 2);
    let hosts = [1, 2].map(|host| segment.agent(host));
    let (vnet, name) = (VnetId::new(0xd1), "@00000000000000d1");
    // Node b, which stays, has the second end of one link and the first end of the other.
    let links = ["a b gre", "b a vxlan"];
    let mut kept = None;
    for (generation, host_of_a) in [(1, 1), (2, 2), (3, 1)] {
        let parts = parts_at(&[host_of_a, 1], (0xd1, generation), &links, 90);
        hand_over(&hosts, &parts);
        wait_until_ready(&hosts[..parts.len()], &parts[0]);
        let a = parts.iter().find_map(|part| part.node("a")).unwrap();
        for interface in &a.interfaces {
            passes(&hosts[0], name, "b", interface.address.address());
        }
        let interfaces = "cat /sys/class/net/eth?/ifindex";
        let found = run(&hosts[0].agent, name, "b", interfaces);
        assert_eq!(*kept.get_or_insert(found.clone()), found);
    }
    let uid = own_uid(&hosts[0], name);
    remove(&hosts, vnet);
    assert_eq!(left_of(&uid), Vec::<String>::new());
}

#[test]
fn packets_too_long_for_a_far_link_are_answered_by_the_node() {
    if !is_root() {
        return;
    }
    let segment = Segment::new("mtu", 3);
    let hosts = [1, 2, 3].map(|host| segment.agent(host));
    // `a` sends 1480 bytes, but `b` can forward only 1450.
    let parts = parts(0xa2, 1, 3, &["a b ipip", "b c vxlan"], 10);
    hand_over(&hosts, &parts);
    wait_until_ready(&hosts, &parts[0]);
    let name = "@00000000000000a2";
    let (a, c) = (&hosts[0], &hosts[2]);
    assert!(datagrams_come((a, name, "a"), (c, name, "c"), 1450 - 28));
    assert!(!datagram_comes((a, name, "a"), (c, name, "c"), 1480 - 28));
    let route = run(&a.agent, name, "a", "ip route get 10.0.0.6");
    assert!(route.contains("mtu 1450"), "{route}");
    // Now the source fragments the packet.
    assert!(datagrams_come((a, name, "a"), (c, name, "c"), 1480 - 28));
    remove(&hosts, parts[0].vnet);
}

#[test]
fn networks_with_the_same_addresses_and_hosts_never_meet() {
    if !is_root() {
        return;
    }
    let segment = Segment::new("iso", 2);
    let hosts = [1, 2].map(|host| segment.agent(host));
    let red = parts(0xa3, 1, 2, &["a b gre"], 1);
    let blue = parts(0xa4, 1, 2, &["a b gre"], 2);
    for parts in [&red, &blue] {
        hand_over(&hosts, parts);
    }
    for parts in [&red, &blue] {
        wait_until_ready(&hosts, &parts[0]);
    }
    let echos = |name: &str| -> u64 {
        let text = run(&hosts[1].agent, name, "b", "grep ^Icmp: /proc/net/snmp");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let place = lines[0].iter().position(|word| *word == "InEchos");
        lines[1][place.unwrap()].parse().unwrap()
    };
    let names = ["@00000000000000a3", "@00000000000000a4"];
    let before = names.map(echos);
    let ping = "busybox ping -c 50 -i 0.02 -W 30 10.0.0.2";
    run(&hosts[0].agent, names[0], "a", ping);
    let after = names.map(echos);
    assert!(after[0] >= before[0] + 50);
    // The agents themselves probe links now and then.
    assert!(after[1] < before[1] + 25);
    remove(&hosts, red[0].vnet);
    remove(&hosts, blue[0].vnet);
}

#[test]
fn packets_from_other_addresses_are_counted_and_not_taken() {
    if !is_root() {
        return;
    }
    let segment = Segment::new("str", 3);
    let hosts = [1, 2].map(|host| segment.agent(host));
    let parts = parts(0xa5, 1, 2, &["a b vxlan"], 77);
    hand_over(&hosts, &parts);
    wait_until_ready(&hosts, &parts[0]);
    // A third system on the segment that knows the VNI.
    let third = segment.name(3);
    ip(&[
        "-n",
        &third,
        "address",
        "add",
        "192.0.2.9/24",
        "dev",
        "wire0",
    ]);
    let inside = NetworkNamespace::open(&segment.file(3)).unwrap();
    let socket = inside.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    let mut packet = vec![8, 0, 0, 0, 0, 0, 77, 0];
    packet.extend([0xff; 60]);
    socket.unwrap().send_to(&packet, "192.0.2.1:4789").unwrap();
    let name = "@00000000000000a5";
    let deadline = Instant::now() + LIMIT;
    while mux_counter(&hosts[0], name, "drop_stranger") == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(mux_counter(&hosts[1], name, "drop_stranger"), 0);
    remove(&hosts, parts[0].vnet);
}

#[test]
fn late_orders_make_nothing_and_parts_outlive_their_agent() {
    if !is_root() {
        return;
    }
    let segment = Segment::new("lat", 2);
    let [one, two] = [1, 2].map(|host| segment.agent(host));
    let (old, new) = (
        parts(0xa6, 4, 2, &["a b gre"], 5),
        parts(0xa6, 5, 2, &["a b gre", "a b ipip"], 5),
    );
    let hosts = [one, two];
    hand_over(&hosts, &new);
    hand_over(&hosts, &old);
    wait_until_ready(&hosts, &new[0]);
    // An order to remove earlier generations is also late.
    let vnet = new[0].vnet;
    let late = ToAgent::Remove { vnet, through: 4 };
    hosts[0].agent.tell(&late).unwrap();
    assert_eq!(hosts[0].agent.say().parts.len(), 1);
    // As after a kill: the nodes stay, and the next agent adopts them.
    let [one, two] = hosts;
    let name = "@00000000000000a6";
    let index = |host: &Host| run(&host.agent, name, "a", "cat /sys/class/net/eth0/ifindex");
    let before = index(&one);
    let Host { agent, directory } = one;
    drop(agent);
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::of_host(&run_dir, segment.settings(1)).unwrap();
    let one = Host { agent, directory };
    let hosts = [one, two];
    wait_until_ready(&hosts, &new[0]);
    assert_eq!(index(&hosts[0]), before);
    remove(&hosts, vnet);
    hand_over(&hosts, &new);
    assert!(hosts.iter().all(|host| host.agent.say().parts.is_empty()));
    // The next agent remembers the removal.
    let [one, _two] = hosts;
    let Host { agent, directory } = one;
    drop(agent);
    let agent = Agent::of_host(&RunDir::new(directory.path()), segment.settings(1)).unwrap();
    agent.tell(&ToAgent::Set(Box::new(new[0].clone()))).unwrap();
    assert_eq!(agent.say().removed, BTreeMap::from([(vnet, 9)]));
    assert!(agent.say().parts.is_empty());
}

#[test]
fn part_that_this_host_cannot_make_is_refused_with_the_reason() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let agent = Agent::new(&RunDir::new(directory.path())).unwrap();
    let reason = |part: &HostPart| {
        agent.tell(&ToAgent::Set(Box::new(part.clone()))).unwrap();
        let report = agent.say();
        let status = report
            .parts
            .iter()
            .find(|candidate| candidate.vnet == part.vnet)
            .unwrap();
        assert_eq!(status.generation, part.generation);
        match &status.nodes["a"].state {
            NodeState::Refused { reason, .. } => reason.clone(),
            state => panic!("{state:?}"),
        }
    };
    let of = |uid, links: &[&str]| parts(uid, 1, 2, links, 1).remove(0);
    let refusal = reason(&of(0xa7, &["a b gre"]));
    assert!(refusal.contains("--underlay"), "{refusal}");
    let refusal = reason(&of(0xa8, &["a b dif"]));
    assert!(refusal.contains("--underlay"), "{refusal}");
    let mut wrong = of(0xa9, &["a b gre"]);
    wrong.nodes[0].name = "../a".into();
    let status = agent.tell(&ToAgent::Set(Box::new(wrong)));
    assert!(status.is_ok() && agent.say().parts.len() == 3);
    let vnet = VnetId::new(0xa7);
    agent.tell(&ToAgent::Remove { vnet, through: 1 }).unwrap();
    assert_eq!(agent.say().parts.len(), 2);
    assert!(agent.is_empty());
}
