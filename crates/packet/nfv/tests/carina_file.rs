//! Tests of Carina's format of the file of ports.

use carina_nfv::traffic::graph::{graph, port_kinds};
use carina_nfv::traffic::{Defaults, Traffic, read};

pub(crate) const WHOLE: &str = r#"
[uplink]
kind = "af_packet"
interface = "eth1"

[[ports]]
name = "web"
app = { kind = "tap", name = "web0", mtu = 1500 }
mac = "52:54:00:00:00:01"
vlan = 42
ingress_filter = "arp or icmp or tcp dst port 80"
egress_filter = "not udp port 53"
stateful = { connections = 5000, idle_s = 60 }
ingress_mbps = 1000
ingress_burst_bytes = 100000
egress_mbps = 2.5

[ports.tunnel]
type = "l2tpv3"
local_ip = "2001:db8::1"
remote_ip = "2001:db8::2"
next_hop = "2001:db8::3"
local_cookie = "0011223344556677"
remote_cookie = "8899aabbccddeeff"
session = 7

[ports.esp]
spi = 300
transmit_key = "000102030405060708090a0b0c0d0e0f"
transmit_salt = "00010203"
receive_key = "0f0e0d0c0b0a09080706050403020100"
receive_salt = "03020100"

[[ports]]
name = "plain"
app = { kind = "tap", name = "plain0" }
"#;

fn read_it(text: &str) -> Traffic {
    read(text, &Defaults::default(), &port_kinds()).unwrap()
}

#[test]
fn every_field_becomes_an_app() {
    let traffic = read_it(WHOLE);
    let web = &traffic.ports[0];
    assert_eq!(web.egress_rate.unwrap().bits_per_second, 2_500_000);
    assert_eq!(web.ingress_rate.unwrap().bucket_bytes, Some(100_000));
    assert_eq!(web.state.unwrap().connections, 5000);
    let graph = graph(&traffic, &port_kinds()).unwrap();
    let apps: Vec<(&str, &str)> = graph.apps().collect();
    assert_eq!(
        apps,
        [
            ("mux", "mac_mux"),
            ("plain_port", "tap"),
            ("uplink", "af_packet"),
            ("web_esp", "esp"),
            ("web_filter", "pcap_filter"),
            ("web_nd", "nd"),
            ("web_port", "tap"),
            ("web_rxrate", "rate_limiter"),
            ("web_tunnel", "l2tpv3"),
            ("web_txrate", "rate_limiter"),
        ]
    );
    let links: Vec<String> = graph.links().map(ToString::to_string).collect();
    for link in [
        "web_port.output -> web_txrate.input",
        "web_txrate.output -> web_filter.input",
        "web_filter.output -> web_tunnel.north",
        "web_tunnel.south -> web_esp.north",
        "web_esp.south -> web_nd.north",
        "web_nd.south -> mux.web",
        "mux.web -> web_rxrate.input",
        "web_rxrate.output -> web_nd.south",
        "web_nd.north -> web_esp.south",
        "web_esp.north -> web_tunnel.south",
        "web_tunnel.north -> web_filter.back_input",
        "web_filter.back_output -> web_port.input",
        "plain_port.output -> mux.plain",
        "mux.plain -> plain_port.input",
        "uplink.output -> mux.uplink",
        "mux.uplink -> uplink.input",
    ] {
        assert!(links.iter().any(|found| found == link), "{link}: {links:?}");
    }
    assert_eq!(links.len(), 16);
}

#[test]
fn next_hop_with_a_known_address_needs_no_discovery() {
    let text = WHOLE.replace(
        "next_hop = \"2001:db8::3\"",
        "next_mac = \"02:00:00:00:00:09\"",
    );
    let traffic = read_it(&text);
    assert_eq!(traffic.ports[0].tunnel.as_ref().unwrap().resolver, None);
}

/// A file with a port that has a tunnel of this type over IPv4.
fn over_ipv4(kind: &str, more: &str) -> String {
    format!(
        "[[ports]]\nname = \"a\"\nmac = \"02:00:00:00:00:01\"\n[ports.tunnel]\ntype = \"{kind}\"\n\
         local_ip = \"192.0.2.1\"\nremote_ip = \"192.0.2.2\"\n{more}\n"
    )
}

#[test]
fn tunnels_of_each_type_become_apps() {
    let next = "next_hop = \"192.0.2.3\"";
    for (kind, more) in [("gre", "key = 5"), ("vxlan", "vni = 70000\nport = 8472")] {
        let traffic = read_it(&over_ipv4(kind, &format!("{next}\n{more}")));
        let graph = graph(&traffic, &port_kinds()).unwrap();
        let apps: Vec<(&str, &str)> = graph.apps().collect();
        let wanted = [
            ("a_arp", "arp"),
            ("a_port", "vhost_user"),
            ("a_tunnel", kind),
            ("mux", "mac_mux"),
        ];
        assert_eq!(apps, wanted);
        let links: Vec<String> = graph.links().map(ToString::to_string).collect();
        for link in [
            "a_port.output -> a_tunnel.north",
            "a_tunnel.south -> a_arp.north",
            "a_arp.south -> mux.a",
        ] {
            assert!(links.iter().any(|found| found == link), "{link}: {links:?}");
        }
    }
    let over_ipv6 =
        over_ipv4("gre", "next_mac = \"02:00:00:00:00:09\"").replace("192.0.2.", "2001:db8::");
    assert_eq!(
        read_it(&over_ipv6).ports[0]
            .tunnel
            .as_ref()
            .unwrap()
            .resolver,
        None
    );
}

#[test]
fn wrong_tunnels_are_refused_with_what_would_be_right() {
    let next = "next_hop = \"192.0.2.3\"";
    let refusal = |kind: &str, more: &str| error_of(&over_ipv4(kind, &format!("{next}\n{more}")));
    for (kind, more, wanted) in [
        (
            "ipsec",
            "",
            "tunnel.type = \"ipsec\": must be l2tpv3, gre, vxlan or ipip",
        ),
        (
            "vxlan",
            "",
            "vni is missing: give the number of the network",
        ),
        (
            "vxlan",
            "vni = 16777216",
            "vni = 16777216: must be 0 to 16777215",
        ),
        (
            "vxlan",
            "vni = 5\nkey = 5",
            "key: only a tunnel of type gre has this field",
        ),
        (
            "gre",
            "session = 5",
            "session: only a tunnel of type l2tpv3 has",
        ),
        ("gre", "hop_limit = 0", "hop_limit = 0: must be 1 to 255"),
        (
            "gre",
            "gateway_ip = \"10.0.0.1\"",
            "gateway_ip: only a tunnel of type ipip has this field",
        ),
        ("ipip", "", "gateway_ip is missing: give the IPv4 address"),
        (
            "ipip",
            "gateway_ip = \"10.0.0.1\"",
            "station_ip is missing: give the IPv4 address of the station",
        ),
        (
            "ipip",
            "gateway_ip = \"10.0.0.1\"\nstation_ip = \"10.0.0.1\"",
            "station_ip = \"10.0.0.1\": must differ from gateway_ip",
        ),
        (
            "ipip",
            "gateway_ip = \"224.0.0.1\"\nstation_ip = \"10.0.0.1\"",
            "gateway_ip = \"224.0.0.1\": must be the address of one station",
        ),
        (
            "ipip",
            "key = 5",
            "key: only a tunnel of type gre has this field",
        ),
        (
            "l2tpv3",
            "",
            "local_ip = \"192.0.2.1\": must be an IPv6 address: L2TPv3",
        ),
    ] {
        let message = refusal(kind, more);
        assert!(message.starts_with("line 4: "), "{message}");
        assert!(message.contains(wanted), "{message}\n{wanted}");
    }
}

#[test]
fn addresses_of_tunnels_are_of_one_kind_and_differ() {
    let next = "next_hop = \"192.0.2.3\"";
    let change = |old: &str, new: &str| error_of(&over_ipv4("gre", next).replace(old, new));
    let message = change("_ip = \"192.0.2.2\"", "_ip = \"192.0.2.1\"");
    assert!(message.contains("must differ from local_ip"), "{message}");
    let message = change("_ip = \"192.0.2.2\"", "_ip = \"2001:db8::2\"");
    assert!(
        message.contains("remote_ip = \"2001:db8::2\": must have the same IP version"),
        "{message}"
    );
    let message = change("192.0.2.3", "2001:db8::3");
    assert!(
        message.contains("next_hop = \"2001:db8::3\": must have the same IP version"),
        "{message}"
    );
    let message = change(next, "");
    assert!(
        message.contains("next_hop is missing: give an IPv4 address"),
        "{message}"
    );
}

#[test]
fn station_of_an_ipip_tunnel_has_a_router() {
    let more = "next_hop = \"192.0.2.3\"\ngateway_ip = \"10.0.0.1\"\nstation_ip = \"10.0.0.2\"";
    let esp = WHOLE.split("[ports.esp]").nth(1).unwrap();
    let esp = esp.split("[[ports]]").next().unwrap();
    let traffic = read_it(&(over_ipv4("ipip", more) + "[ports.esp]" + esp));
    let gateway = traffic.ports[0].tunnel.as_ref().unwrap().gateway.unwrap();
    assert_eq!(gateway.mac.0.to_string(), "02:00:00:00:00:00");
    let graph = graph(&traffic, &port_kinds()).unwrap();
    let links: Vec<String> = graph.links().map(ToString::to_string).collect();
    let wanted = [
        "a_port.output -> a_gateway.south",
        "a_gateway.north -> a_tunnel.north",
        "a_tunnel.south -> a_esp.north",
        "a_esp.south -> a_arp.north",
        "a_arp.south -> mux.a",
        "mux.a -> a_arp.south",
        "a_arp.north -> a_esp.south",
        "a_esp.north -> a_tunnel.south",
        "a_tunnel.north -> a_gateway.north",
        "a_gateway.south -> a_port.input",
    ];
    for link in wanted {
        assert!(links.iter().any(|found| found == link), "{link}: {links:?}");
    }
    assert_eq!(links.len(), wanted.len());
}

/// The error of the file when one of its lines is replaced.
fn error(old: &str, new: &str) -> String {
    assert!(WHOLE.contains(old), "{old}");
    error_of(&WHOLE.replacen(old, new, 1))
}

fn error_of(text: &str) -> String {
    let refused = read(text, &Defaults::default(), &port_kinds());
    refused.expect_err(text).to_string()
}

#[test]
fn errors_name_the_line_and_what_would_be_right() {
    let message = error("vlan = 42", "vlan = 4095");
    assert_eq!(
        message,
        "line 10: vlan = \"4095\": must be 1 to 4094; leave vlan out for frames without a VLAN tag"
    );
    let message = error("tcp dst port 80", "tcp dst prot 80");
    assert!(
        message.starts_with("line 11: ingress_filter: character "),
        "{message}"
    );
    let message = error("52:54:00:00:00:01", "52:54:00:00:00");
    assert_eq!(
        message,
        "line 9: mac = \"52:54:00:00:00\": write a MAC address as 52:54:00:00:00:01"
    );
    let message = error("52:54:", "53:54:");
    assert!(
        message
            .starts_with("line 9: mac = \"53:54:00:00:00:01\": must be the address of one station"),
        "{message}"
    );
    let message = error("egress_mbps = 2.5", "egress_mbps = -1");
    assert_eq!(
        message,
        "line 16: egress_mbps = \"-1\": must be above 0, and at most 1000000"
    );
    let message = error("egress_mbps = 2.5", "egress_bps = 5");
    assert!(
        message.starts_with("line 16: unknown field `egress_bps`"),
        "{message}"
    );
    let message = error("idle_s = 60", "idle_s = 0");
    assert_eq!(
        message,
        "line 13: stateful.idle_s = \"0\": must be 1 to 1000000"
    );
    let message = error("name = \"plain\"", "name = \"web\"");
    assert_eq!(
        message,
        "line 35: port web: the port on line 7 already has this name"
    );
    let message = error("name = \"plain\"", "name = \"pl ain\"");
    assert!(
        message.starts_with("line 35: name = \"pl ain\": must be 1 to 64"),
        "{message}"
    );
}

#[test]
fn errors_of_tables_name_their_line() {
    let message = error("kind = \"af_packet\"", "kind = \"tun\"");
    assert!(
        message.contains("kind = \"tun\": must be one of af_packet, "),
        "{message}"
    );
    assert!(message.starts_with("line "), "{message}");
    let message = error("interface = \"eth1\"", "interfaces = \"eth1\"");
    assert!(message.contains("unknown field `interfaces`"), "{message}");
    let message = error("0011223344556677", "00112233");
    assert!(
        message.contains("8 characters: must be 16 digits"),
        "{message}"
    );
    let message = error("session = 7", "session = 0");
    assert!(
        message.contains("session 0 is reserved for control messages"),
        "{message}"
    );
    let message = error("spi = 300", "spi = \"x\"");
    assert!(message.contains("esp"), "{message}");
    let message = error("next_hop = \"2001:db8::3\"", "");
    assert!(
        message.contains("next_hop is missing: give an IPv6 address"),
        "{message}"
    );
    let message = error("mac = \"52:54:00:00:00:01\"", "");
    assert!(message.contains("tunnel needs mac"), "{message}");
    let message = error(
        "app = { kind = \"tap\", name = \"plain0\" }",
        "client = true\napp = { kind = \"tap\", name = \"x\" }",
    );
    assert!(message.contains("beside client"), "{message}");
    assert!(error_of("[[ports]]\nvlan = 5\n").starts_with("line 1: missing field `name`"));
    assert!(error_of("ports = 5\n").starts_with("line 1: "));
    assert!(error_of("[[ports]\n").starts_with("line 1: "));
}

#[test]
fn two_ports_share_no_address_in_one_vlan() {
    let port = |name: &str, vlan: u16| {
        format!(
            "[[ports]]\nname = \"{name}\"\napp = {{ kind = \"tap\", name = \"{name}\" }}\n\
             mac = \"02:00:00:00:00:01\"\nvlan = {vlan}\n"
        )
    };
    assert_eq!(read_it(&(port("a", 5) + &port("b", 6))).ports.len(), 2);
    assert_eq!(
        error_of(&(port("a", 5) + &port("b", 5))),
        "line 9: port b: mac = 02:00:00:00:00:01: port a in the same VLAN has this address too; \
         each station needs its own"
    );
    let many: String = (0..129).map(|n| port(&format!("p{n}"), n + 1)).collect();
    assert!(error_of(&many).ends_with("129 ports: must be at most 128"));
}

#[test]
fn empty_file_has_no_ports_and_the_uplink_of_the_command_line() {
    let mut uplink = toml::Table::new();
    uplink.insert("kind".into(), "tap".into());
    uplink.insert("name".into(), "u".into());
    let defaults = Defaults {
        uplink: Some(uplink.clone()),
        sockets: String::new(),
    };
    let traffic = read("", &defaults, &port_kinds()).unwrap();
    assert_eq!((traffic.uplink, traffic.ports.len()), (Some(uplink), 0));
}
