//! Tests of snabbnfv's files.

use carina_apps::l2tpv3::L2tpv3Config;
use carina_nfv::traffic::graph::port_kinds;
use carina_nfv::traffic::{Defaults, Resolver, Traffic, Tunnel, TunnelProtocol, read};
use carina_wire::ether::Mac;

fn defaults() -> Defaults {
    Defaults {
        uplink: None,
        sockets: "/tmp/%s.sock".to_owned(),
    }
}

fn read_it(text: &str) -> Traffic {
    read(text, &defaults(), &port_kinds()).unwrap()
}

fn error(text: &str) -> String {
    read(text, &defaults(), &port_kinds())
        .expect_err(text)
        .to_string()
}

fn l2tpv3(tunnel: &Tunnel) -> L2tpv3Config {
    match tunnel.protocol {
        TunnelProtocol::L2tpv3(config) => config,
        other => panic!("{other:?}"),
    }
}

pub(crate) const WHOLE: &str = r#"-- Written by a tool
return {
  {
    port_id = "0f3f2a4e-9c1d-4d2f-8a55-5a0d6f1b2c3d",
    mac_address = "52:54:00:01:02:03",
    vlan = 42,
    ingress_filter = [[tcp dst port 80 or icmp]],
    egress_filter = "not udp",
    stateful_filter = true,
    rx_police = 1.5,
    tx_police_gbps = 10,
    disable_mrg_rxbuf = true,
    disable_indirect_desc = true,
    tunnel = {
      type = "L2TPv3",
      local_ip = "2001:db8::1", remote_ip = "2001:db8::2",
      next_hop = "2001:db8::3",
      local_cookie = "00 11 22 33 44 55 66 77",
      remote_cookie = "8899aabbccddeeff",
      session = 7;
    },
    crypto = {
      type = "esp-aes-128-gcm", spi = 0x100, auditing = true,
      transmit_key = "000102030405060708090a0b0c0d0e0f", transmit_salt = "00010203",
      receive_key = "0f0e0d0c0b0a09080706050403020100", receive_salt = "03020100",
    },
  },
  { port_id = "other", vlan = 0, ingress_filter = nil },
}
"#;

#[test]
fn every_field_of_snabbnfv_is_read() {
    let traffic = read_it(WHOLE);
    let port = &traffic.ports[0];
    assert_eq!(port.mac, Some(Mac([0x52, 0x54, 0, 1, 2, 3])));
    assert_eq!(port.vlan, Some(42));
    assert_eq!(
        port.ingress_filter.as_deref(),
        Some("tcp dst port 80 or icmp")
    );
    assert_eq!(port.egress_filter.as_deref(), Some("not udp"));
    let state = port.state.unwrap();
    assert_eq!((state.connections, state.idle_s), (1000, 7200));
    // Rates to the guest and from it; the bucket holds one second's worth.
    let rates = [port.ingress_rate.unwrap(), port.egress_rate.unwrap()];
    assert_eq!(
        rates.map(|rate| (rate.bits_per_second, rate.bucket_bytes)),
        [(1_500_000_000, None), (10_000_000_000, None)]
    );
    let socket = "/tmp/0f3f2a4e-9c1d-4d2f-8a55-5a0d6f1b2c3d.sock";
    assert_eq!(port.app["socket"].as_str(), Some(socket));
    assert_eq!(port.app["client"].as_bool(), Some(true));
    assert_eq!(port.app["mergeable"].as_bool(), Some(false));
    assert_eq!(port.app["indirect"].as_bool(), Some(false));
    let tunnel = port.tunnel.as_ref().unwrap();
    assert!(tunnel.protects_resolver, "as the other end has it");
    let l2tpv3 = l2tpv3(tunnel);
    assert_eq!(l2tpv3.local_cookie.to_string(), "0011223344556677");
    assert_eq!(l2tpv3.remote_cookie.to_string(), "8899aabbccddeeff");
    assert_eq!(l2tpv3.session, 7);
    let Some(Resolver::Nd(nd)) = &tunnel.resolver else {
        panic!("{tunnel:?}")
    };
    assert_eq!(nd["next"].as_str(), Some("2001:db8::3"));
    assert_eq!(port.esp.as_ref().unwrap()["spi"].as_integer(), Some(256));
    let other = &traffic.ports[1];
    assert_eq!(
        (other.vlan, other.mac, &other.ingress_filter),
        (None, None, &None)
    );
    assert_eq!(
        traffic.warnings,
        [
            "line 11: tx_police_gbps is the old name of tx_police, and is read like the new name",
            "line 23: auditing: rejected packets are counted by reason, and not logged",
        ]
    );
}

#[test]
fn next_hop_may_be_a_mac_address() {
    let text = WHOLE.replace(
        "next_hop = \"2001:db8::3\"",
        "next_hop = \"02:00:00:00:00:09\"",
    );
    let traffic = read_it(&text);
    let tunnel = traffic.ports[0].tunnel.as_ref().unwrap();
    assert!(tunnel.resolver.is_none());
    assert_eq!(l2tpv3(tunnel).next_mac.unwrap().0, Mac([2, 0, 0, 0, 0, 9]));
}

/// The error of the file when a part of it is replaced.
fn changed(old: &str, new: &str) -> String {
    assert!(WHOLE.contains(old), "{old}");
    error(&WHOLE.replacen(old, new, 1))
}

/// The part to replace, its replacement, and the beginning of the error.
const WRONG: [[&str; 3]; 19] = [
    [
        "\"L2TPv3\"",
        "\"GRE\"",
        "line 15: tunnel.type = \"GRE\": must be L2TPv3",
    ],
    [
        "\"esp-aes-128-gcm\"",
        "\"x\"",
        "line 23: crypto.type = \"x\": must be esp-aes-128-gcm",
    ],
    [
        "vlan = 42",
        "vlan = 4095",
        "line 6: vlan = \"4095\": must be 1 to 4094",
    ],
    [
        "vlan = 42",
        "vlan = 4096",
        "line 6: vlan = \"4096\": must be a whole number, 0 to 4095",
    ],
    [
        "vlan = 42",
        "vlan = 1.5",
        "line 6: vlan = \"1.5\": must be a whole number",
    ],
    [
        "vlan = 42",
        "vlan = {}",
        "line 6: vlan is a table: a number is expected",
    ],
    [
        "vlan = 42",
        "vlans = 42",
        "line 6: vlans: unknown field; expected port_id",
    ],
    [
        "egress_filter = \"",
        "egress_filter = \"(",
        "line 8: egress_filter: character",
    ],
    [
        "rx_police = 1.5",
        "rx_police = 0",
        "line 10: rx_police = \"0\": must be above 0",
    ],
    [
        "5a0d6f1b2c3d\"",
        "5a0d6f1b2c3d /\"",
        "line 4: name = \"0f3f",
    ],
    [
        "52:54:00:01:02:03",
        "52:54",
        "line 5: mac_address = \"52:54\": write a MAC address as",
    ],
    [
        "8899aabb",
        "8899aabb0011",
        "line 19: remote_cookie = \"20 characters\": must be up to 16 digits",
    ],
    [
        "00010203\"",
        "0001020\"",
        "line 24: transmit_salt = \"7 characters\": must be 8 digits",
    ],
    [
        "2001:db8::1",
        "10.0.0.1",
        "line 16: local_ip = \"10.0.0.1\": an IPv6 address",
    ],
    [
        "port_id = \"other\"",
        "x = 1",
        "line 28: port_id is missing",
    ],
    [
        "session = 7",
        "session = 0",
        "line 15: session = \"0\": must be 1 to",
    ],
    [
        "spi = 0x100",
        "spi = 0x42",
        "line 23: spi = \"66\": must be 256 to 4294967295",
    ],
    [
        "\"0f0e0d0c0b0a09080706050403020100\", receive_salt = \"03020100\"",
        "\"000102030405060708090a0b0c0d0e0f\", receive_salt = \"00010203\"",
        "line 23: esp: transmit_key and transmit_salt equal receive_key",
    ],
    [
        "spi = 0x100,",
        "",
        "line 22: spi is missing: give a number, 256 or more",
    ],
];

#[test]
fn short_cookies_end_with_zeros_as_at_snabbnfv() {
    let cookie = |text: &str| {
        let traffic = read_it(&WHOLE.replace("8899aabbccddeeff", text));
        let tunnel = traffic.ports[0].tunnel.as_ref().unwrap();
        let warnings = traffic
            .warnings
            .iter()
            .filter(|line| line.contains("zeros"));
        (
            l2tpv3(tunnel).remote_cookie.to_string(),
            warnings.cloned().collect::<Vec<_>>(),
        )
    };
    let warning = |bytes: usize| {
        format!(
            "line 19: remote_cookie has {bytes} of 8 bytes; the missing ones are zeros, as in \
             snabbnfv"
        )
    };
    for (text, read, bytes) in [
        ("deadbeef", "deadbeef00000000", 4),
        ("deadbee", "deadbe0000000000", 3),
        ("0xdead", "dead000000000000", 2),
        ("", "0000000000000000", 0),
    ] {
        assert_eq!(
            cookie(text),
            (read.to_owned(), vec![warning(bytes)]),
            "{text}"
        );
    }
    let whole = ("8899aabbccddeeff".to_owned(), Vec::new());
    assert_eq!(cookie("88-99-aa-bb-cc-dd-ee-ff"), whole);
}

#[test]
fn byte_order_mark_and_programs_are_known_as_lua() {
    assert_eq!(read_it(&format!("\u{feff}{WHOLE}")), read_it(WHOLE));
    let toml = read_it("\u{feff}[[ports]]\nname = \"a\"\n");
    assert_eq!(toml.ports[0].name, "a");
    let message = error("local ports = {}\nreturn ports\n");
    assert!(
        message.starts_with("line 1: local") && message.contains("it is not executed"),
        "{message}"
    );
}

#[test]
fn wrong_fields_are_refused_with_line_and_remedy() {
    for [old, new, expected] in WRONG {
        let found = changed(old, new);
        assert!(
            found.starts_with(expected),
            "{old} -> {new}:\n{found}\n{expected}"
        );
    }
    assert!(
        !changed("00010203\"", "0x0102\"").contains("0x0102"),
        "a key in an error"
    );
}

#[test]
fn other_programs_and_values_are_refused() {
    assert!(error("return 5").contains("the file is a number: a table of ports"));
    assert!(error("return { a = {} }").contains("line 1: a: unknown field"));
    assert!(error("return { 5 }").contains("a port is a number: a table { … } is expected"));
    assert!(error("return dofile('x')").contains("it is not executed"));
    assert_eq!(read_it("return { }").ports.len(), 0);
    assert_eq!(read_it("{ nil }").ports.len(), 0);
}
