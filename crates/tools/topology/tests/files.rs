//! Tests of topology files, and of the node configurations that are made from them.

use carina_node::config::Config;

use carina_lab::CarinaNode;
use carina_topology::{Topology, node_config};

fn what(text: &str) -> String {
    Topology::parse(text, &CarinaNode)
        .expect_err("a node refuses it")
        .to_string()
}

const CHAIN: &str = "\
system a b c
vm v1 on a memory=128
eth ab 100Mbps a b delay=10ms loss=1% vlan=10 mtu=9000   # a comment
eth bc 0Mbps b c
netem ab a \"delay 20ms 1ms\"
dif top v1 low
dif top c low
dif low b ab bc
dif low a ab hv.v1
dif low c bc
dif low v1 hv.v1
policy low routing link-state
set low max_pdu=1400 widths.address=4
cube low only id=1 in_order=true window.credit_max=64
app c wait=echo: carina ping --listen echo
";

#[test]
fn difs_are_ordered_and_members_join_through_earlier_ones() {
    let topology = Topology::parse(CHAIN, &CarinaNode).unwrap();
    let names: Vec<&str> = topology.systems.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "v1"]);
    let difs: Vec<(&str, usize)> = topology
        .difs
        .iter()
        .map(|d| (d.name.as_str(), d.level))
        .collect();
    assert_eq!(difs, [("low", 1), ("top", 2)]);
    let order: Vec<&str> = topology.difs[0]
        .members
        .iter()
        .map(|m| m.system.as_str())
        .collect();
    assert_eq!(order, ["b", "a", "c", "v1"]);
    assert_eq!(topology.difs[0].members[1].beside, ["b", "v1"]);
    let ab = &topology.links[0];
    let delay = |end: usize| ab.ends[end].fault.unwrap().delay_ms;
    assert_eq!((delay(0), delay(1)), (20.0, 10.0));
    assert_eq!(ab.ends[0].fault.unwrap().loss, 0.01);
    assert!(topology.links[1].ends[0].fault.is_none());
    assert_eq!(topology.apps[0].wait.as_deref(), Some("echo"));
    assert_eq!(topology.apps[0].command, "carina ping --listen echo");
}

#[test]
fn configurations_of_nodes_are_understood_by_nodes() {
    let topology = Topology::parse(CHAIN, &CarinaNode).unwrap();
    let difs: Vec<_> = topology.difs.iter().collect();
    for system in &topology.systems {
        let text = node_config(&topology, &system.name, &difs, str::to_owned);
        Config::parse(&text, None).unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
    let text = node_config(&topology, "b", &difs, str::to_owned);
    let config = Config::parse(&text, None).unwrap();
    assert_eq!(config.ipcps.len(), 2);
    let made = config.difs[0].get_ref().dif_config(None).unwrap().unwrap();
    assert_eq!((made.max_pdu, made.widths.address), (1400, 4));
    assert_eq!(made.cubes[0].window.unwrap().credit_max, 64);
    assert_eq!(made.policies["routing"].name, "link-state");
    let guest = node_config(&topology, "v1", &difs[..1], str::to_owned);
    let guest = Config::parse(&guest, None).unwrap();
    assert_eq!((guest.ipcps.len(), guest.difs.len()), (1, 1));
}

#[test]
fn pdus_fit_the_narrowest_link() {
    let longest = |text: &str| {
        Topology::parse(text, &CarinaNode).unwrap().difs[0]
            .config
            .max_pdu
    };
    let links = "eth x 0Mbps a b mtu=9000\neth y 0Mbps b c\nvm v on c\n";
    assert_eq!(longest(&format!("{links}dif n a x\ndif n b x\n")), 0);
    assert_eq!(
        longest(&format!("{links}dif n a x\ndif n b x y\ndif n c y\n")),
        1500
    );
    assert_eq!(longest(&format!("{links}dif n v hv.v\ndif n c hv.v\n")), 0);
    let mixed = format!("{links}dif n b y\ndif n c y hv.v\n");
    assert_eq!(longest(&mixed), 1500);
    assert_eq!(longest(&format!("{mixed}set n max_pdu=700\n")), 700);
    let protected = format!("{mixed}policy n sdu-protection crc32\n");
    assert_eq!(longest(&protected), 1436);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario or table, step by step")]
fn errors_have_a_position_and_a_remedy() {
    for (text, place, remedy) in [
        ("", "line 1, column 1", "`system a b`"),
        ("sytem a\n", "line 1, column 1", "was `system` meant?"),
        ("eth x fast a b", "line 1, column 7", "100Mbps"),
        ("eth x 0Mbps a", "line 1, column 5", "two systems or more"),
        (
            "eth x 0Mbps a b dly=1ms",
            "line 1, column 17",
            "delay, jitter",
        ),
        ("eth x 0Mbps a b loss=2", "line 1, column 22", "0% to 100%"),
        ("eth 5000 0Mbps a b", "line 1, column 5", "1 to 4094"),
        (
            "eth 10 0Mbps a b vlan=11",
            "line 1, column 5",
            "leave one out",
        ),
        (
            "system a b\neth x 0Mbps a bb",
            "line 2, column 15",
            "was `b` meant?",
        ),
        (
            "eth x 0Mbps a b\ndif n a y",
            "line 2, column 9",
            "not a link, a DIF",
        ),
        (
            "eth x 0Mbps a b\ndif n c x",
            "line 2, column 9",
            "c is not in x",
        ),
        ("eth x 0Mbps a b\ndif x a x", "line 2, column 5", "already"),
        ("eth x 0Mbps a b\ndif n a x x", "line 2, column 11", "twice"),
        (
            "eth x 0Mbps a b\ndif n a m\ndif m a n",
            "line 2, column 5",
            "in a cycle: n, m",
        ),
        (
            "eth x 0Mbps a b\neth y 0Mbps c d\ndif n a x\ndif n c y",
            "line 4, column 7",
            "no member could admit it",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\nset n max_pud=1",
            "line 3, column 7",
            "max_pdu",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\nset n hop_limit=9\nset n max_pdu=99999999\n\
             set n keepalive_ms=900",
            "line 4, column 7",
            "max-pdu must be 128 to 65535",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\ncube n p id=1\ncube n q id=1\nset n hop_limit=9",
            "line 4, column 8",
            "ids must be 1 or more, and unique",
        ),
        (
            "eth x 0Mbps a b\ndif n a x dialect=irati\npolicy n address-assignment known-addresses \
             addresses=n.a=1\nset n hop_limit=9\nset n max_pdu=900",
            "line 4, column 7",
            "does not support it",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\npolicy n sdu-protection aead cipher=rot13\n\
             set n auth=password:/no/file",
            "line 3, column 10",
            "aes-256-gcm",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\nset n auth=pasword:/no/file",
            "line 3, column 7",
            "password:FILE and ed25519",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\nset m max_pdu=1",
            "line 3, column 5",
            "no line `dif`",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\npolicy n routing rip",
            "line 3, column 10",
            "link-state",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\npolicy n a,c routing static",
            "line 3, column 10",
            "defines a system `c`",
        ),
        (
            "eth x 0Mbps a b\ndif n a x\npolicy n a routing static\npolicy n b routing link-state",
            "line 4, column 12",
            "applies to the whole DIF",
        ),
        (
            "eth x 0Mbps a b\nnetem x slot 10ms",
            "line 2, column 9",
            "is not a supported parameter",
        ),
        (
            "system a\napp a carina",
            "line 2, column 1",
            "app SYSTEM: COMMAND",
        ),
        (
            "system a\nvm v in a",
            "line 2, column 6",
            "`on` is expected",
        ),
        (
            "system a\nvm v on a\nvm w on v",
            "line 3, column 4",
            "nested VMs",
        ),
        (
            "vm v on a\neth x 0Mbps a v",
            "line 2, column 5",
            "no network card",
        ),
        ("netem x delay 1ms", "line 1, column 7", "before this one"),
        ("udp4 u a:10.0.0.1/24", "line 1, column 6", "two systems"),
        (
            "udp4 u a b:10.0.0.2/24",
            "line 1, column 8",
            "`a:10.0.0.1/24`",
        ),
        (
            "udp4 u a:10.0.0.1 b:10.0.0.2/24",
            "line 1, column 10",
            "write 10.0.0.1/24",
        ),
        (
            "udp4 u a:10.0.0.1/24 b:10.0.1.2/24",
            "line 1, column 24",
            "in one",
        ),
        (
            "udp4 u a:10.0.0.1/24 b:10.0.0.1/24",
            "line 1, column 24",
            "the address of a",
        ),
        (
            "udp4 u a:10.0.0.1/24 b:10.0.0.2/24 vlan=7",
            "line 1, column 36",
            "mtu, rate",
        ),
        (
            "udp4 u a:10.0.0.1/24 b:10.0.0.2/24\nudp4 v a:10.0.0.3/28 c:10.0.0.4/28",
            "line 2, column 10",
            "network of link u",
        ),
        (
            "udp4 u a:10.0.0.1/24 b:10.0.0.2/24\ndif n a u dialect=rlite\ndif n b u\n\
             dif m a u\ndif m b u",
            "line 4, column 5",
            "can carry only one DIF",
        ),
        (
            "eth x 0Mbps a b\nnetem x \"delay 1lightyear\"",
            "line 2, column 15",
            "is not a time",
        ),
    ] {
        let error = what(text);
        assert!(
            error.starts_with(place) && error.contains(remedy),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn credentials_are_read_where_a_lab_is_made() {
    let text = "eth x 0Mbps a b\ndif n a x\ndif n b x\npolicy n sdu-protection aead\n\
                set n auth=password:/no/file";
    let topology = Topology::parse(text, &CarinaNode).unwrap();
    let error = topology
        .check_credentials(&CarinaNode)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("line 5, column 7"), "{error}");
    assert!(error.contains("/no/file"), "{error}");
}

#[test]
fn any_text_gives_a_topology_or_an_error() {
    let pieces = [
        "system", "a", "eth", "x", "0Mbps", "\"", "=", ":", "#", "\n", "dif", "n", " ", "vlan=",
        "é", "app", "netem", "policy", "*", "cube", "id=1", "on", "vm",
    ];
    let mut state = 1u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            if state & 1 << 60 != 0 {
                text.push(' ');
            }
        }
        if let Err(error) = Topology::parse(&text, &CarinaNode) {
            let lines = text.lines().count().max(1);
            assert!((1..=lines).contains(&error.at.line), "{text:?}: {error}");
        }
    }
}

#[test]
fn links_of_udp_give_members_addresses() {
    let text = "udp4 u a:10.0.0.1/24 b:10.0.0.2/24 mtu=1400 loss=1%\n\
                eth e 0Mbps b c\nnetem u a delay 5ms\n\
                dif n a u\ndif n b u e\ndif n c e\ndif m b u\ndif m a u\n";
    let topology = Topology::parse(text, &CarinaNode).unwrap();
    let faults = topology.links[0].ends.iter().map(|end| end.fault.unwrap());
    let faults: Vec<(f64, f64)> = faults.map(|fault| (fault.delay_ms, fault.loss)).collect();
    assert_eq!(faults, [(5.0, 0.01), (0.0, 0.01)]);
    let difs: Vec<_> = topology.difs.iter().collect();
    let config = |system: &str| {
        let text = node_config(&topology, system, &difs, str::to_owned);
        Config::parse(&text, None).unwrap_or_else(|e| panic!("{e}\n{text}"));
        text
    };
    let (a, b, c) = (config("a"), config("b"), config("c"));
    assert!(
        a.contains("listen = \"10.0.0.1:3359\"\nsdu_max = 1352\npeers = "),
        "{a}"
    );
    for peer in ["n.b", "m.b"] {
        let row = format!("{{ name = \"{peer}\", address = \"10.0.0.2\" }}");
        assert!(a.contains(&row), "{a}");
    }
    // Over UDP the name of a DIF has no address; over Ethernet a member answers to it.
    assert!(
        b.contains("via = \"n.a\"") && a.contains("via = \"m.b\""),
        "{a}{b}"
    );
    assert!(!c.contains("via"), "{c}");
    // The PDUs fit the UDP link, which has the shorter limit.
    assert_eq!(topology.difs[0].config.max_pdu, 1352);
    let rlite = Topology::parse(
        "udp4 u a:10.0.0.1/24 b:10.0.0.2/24\ndif n a u dialect=rlite\ndif n b u\n",
        &CarinaNode,
    );
    let rlite = rlite.unwrap();
    let difs: Vec<_> = rlite.difs.iter().collect();
    let text = node_config(&rlite, "b", &difs, str::to_owned);
    assert!(text.contains("framing = \"rlite\""), "{text}");
}

#[test]
fn what_a_node_would_refuse_is_refused_at_its_line() {
    for (text, message) in [
        (
            "eth l 0Mbps a b\nvm eth-l on a\ndif n a l\ndif n b l\n",
            "system a: the name eth-l is used twice",
        ),
        (
            "udp4 u a:10.0.0.1/24 b:10.0.0.2/24 mtu=1400\ndif n a u\ndif n b u\n\
             set n max_pdu=1600\n",
            "the longest PDU of DIF n has 1600",
        ),
    ] {
        let error = Topology::parse(text, &CarinaNode).unwrap_err().to_string();
        assert!(error.contains(message), "{text}\n{error}");
    }
}
