//! Tests with files of both models, and with faulty files.

use super::*;
use crate::config::NextHopAddress;

const SNABB: &str = include_str!("../../tests/files/snabb-v3.conf");
const IETF: &str = include_str!("../../tests/files/ietf.conf");

#[test]
fn file_of_the_snabb_model_is_read_as_it_is() {
    let loaded = read(SNABB, false).unwrap();
    let Config {
        name,
        instances,
        external,
        internal,
    } = &loaded.config;
    assert_eq!(name.as_deref(), Some("site one"));
    let queue = &instances[0].queues[0];
    assert_eq!(queue.external.ip, Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(queue.external.vlan, Some(444));
    let hop = NextHopAddress::Ip("fd00::2".parse().unwrap());
    assert_eq!(queue.internal.next_hop, hop);
    assert_eq!((external.mtu, internal.mtu), (1460, 1540));
    assert_eq!(external.side.error_rate.packets, 600_000);
    assert_eq!(internal.side.reassembly.fragments, 20);
    assert!(!external.side.allows_icmp && !internal.has_hairpinning);
    let filter = external.side.ingress_filter.as_deref();
    assert_eq!(filter, Some("ip and not host 192.0.2.9"));
    assert_eq!(loaded.table.len(), 4);
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
    assert!(loaded.warnings[0].contains("178.79.150.15 psid 64"));
    let tunnel = loaded.table.find([178, 79, 150, 233], Some(80)).unwrap();
    assert_eq!(Ipv6Addr::from(tunnel.b4).to_string(), "127:2:3:4:5:6:7:128");
    assert_eq!(Ipv6Addr::from(tunnel.br).to_string(), "8:9:a:b:c:d:e:f");
}

#[test]
fn file_of_the_ietf_model_gives_the_same_table() {
    let ietf = read(IETF, false).unwrap();
    let snabb = read(SNABB, false).unwrap();
    assert_eq!(ietf.table.compile(), snabb.table.compile());
    assert_eq!(ietf.config.internal.mtu, 1540);
    assert_eq!(ietf.config.external.side.error_rate.period_s, 1);
    assert!(!ietf.config.internal.side.sends_icmp_errors);
    let both = format!("{}\n{IETF}", SNABB.replace("softwire {", "version {"));
    let both = read(&both, false).unwrap();
    assert_eq!(both.config.instances, snabb.config.instances);
    assert_eq!(both.table.compile(), snabb.table.compile());
}

#[test]
fn files_that_cannot_be_meant_are_refused_with_their_line() {
    let wrong = |from: &str, to: &str| {
        assert!(SNABB.contains(from), "{from}");
        let error = read(&SNABB.replacen(from, to, 1), false).unwrap_err();
        error.to_string()
    };
    for (from, to, words) in [
        ("mtu 1540", "mtu 1279", "the internal mtu is 1279"),
        ("mtu 1460", "mtu 67", "the external mtu is 67"),
        ("mtu 1460", "mtu many", "mtu is \"many\": a number"),
        ("psid-length 6;", "", "port-set lacks psid-length"),
        (
            "psid-length 6",
            "psid-length 17",
            "\"17\": a number of bits",
        ),
        ("id 0;", "", "queue lacks id"),
        ("id 0;", "id 0; id 1;", "id occurs twice"),
        ("id 0;", "id { }", "id has a block"),
        (
            "hairpinning",
            "hairpining",
            "internal-interface cannot contain \"hairpining\"",
        ),
        ("period 2", "period 0", "seconds, 1 or more"),
        ("device \"00:05.0\"", "x y", "instance cannot contain \"x\""),
        (
            "02:00:00:00:00:01",
            "03:00:00:00:00:01",
            "a MAC address is expected",
        ),
        (
            "softwire-config",
            "softwire-confi",
            "the file cannot contain",
        ),
        (
            "softwire {",
            "psid-map {",
            "psid-map cannot contain \"ipv4\"",
        ),
    ] {
        let error = wrong(from, to);
        assert!(error.contains(words), "{to}: {error}");
        assert!(error.starts_with("line "), "{error}");
    }
    let error = wrong("ip and not host", "ip and not hosts");
    assert!(
        error.contains("external-interface: ingress-filter"),
        "{error}"
    );
    // The line of the member, not of the end of the file.
    for (from, to) in [
        ("ip and not host", "ip and not hosts"),
        ("mtu 1540", "mtu 1279"),
        ("mtu 1460", "mtu 67"),
    ] {
        let line = SNABB.lines().position(|line| line.contains(from));
        let expected = format!("line {}: ", line.unwrap() + 1);
        let error = wrong(from, to);
        assert!(error.starts_with(&expected), "{expected}{error}");
    }
    let error = wrong("psid 2;", "psid 1;");
    assert!(
        error.contains("178.79.150.15 psid 1 is already on line"),
        "{error}"
    );
    assert!(read("", false).is_err());
}

const VERSION1: &str = include_str!("../../tests/files/snabb-v1.conf");

#[test]
fn file_of_version_1_gives_the_same_softwires() {
    let (one, three) = (read(VERSION1, false).unwrap(), read(SNABB, false).unwrap());
    assert_eq!(one.table.compile(), three.table.compile());
    let queue = &one.config.instances[0].queues[0];
    assert_eq!(*queue, three.config.instances[0].queues[0]);
    assert_eq!(one.config.external, three.config.external);
    assert_eq!(one.config.internal, three.config.internal);
}

#[test]
fn version_1_that_contradicts_itself_is_refused() {
    for (from, to, words) in [
        ("shift 10;", "shift 9;", "shift is 9: must be 10"),
        ("br 2;", "br 3;", "br is 3: must be 1 to 2"),
        ("br 2;", "br 0;", "br is 0: must be 1 to 2"),
        (
            "end-addr 178.79.150.16",
            "end-addr 1.2.3.4",
            "end-addr 1.2.3.4 is less than",
        ),
        (
            "addr 178.79.150.233",
            "addr 178.79.150.234",
            "no entry of psid-map contains 178.79.150.233",
        ),
        ("ip 10.0.0.1;", "", "external-interface lacks ip"),
        (
            "softwire-config {",
            "softwire-config { instance { device x; }",
            "and outside of one",
        ),
    ] {
        assert!(VERSION1.contains(from), "{from}");
        let error = read(&VERSION1.replacen(from, to, 1), false).unwrap_err();
        assert!(error.to_string().contains(words), "{to}: {error}");
    }
}

#[test]
fn softwires_that_fill_a_line_each_are_read() {
    let mut text = String::from("softwire-config { binding-table {\n");
    for n in 0..20_000_u32 {
        let (ipv4, psid) = (Ipv4Addr::from(0x0a00_0000 + n / 64), n % 64);
        text += &format!(
            "softwire {{ ipv4 {ipv4}; psid {psid}; b4-ipv6 fd00::{n:x}; br-address fd01::1; \
             port-set {{ psid-length 6; }} }}\n"
        );
    }
    text += "} }";
    assert_eq!(read(&text, false).unwrap().table.len(), 20_000);
}

#[test]
fn configuration_is_read_as_it_was_written() {
    let loaded = read(SNABB, false).unwrap();
    let again = read(&write(&loaded.config), false).unwrap();
    assert_eq!(again.config, loaded.config);
    let mut odd = loaded.config;
    odd.name = Some("a \"b\" \\ c;".to_owned());
    assert_eq!(read(&write(&odd), false).unwrap().config, odd);
}

#[test]
fn compiled_file_is_the_same_and_is_refused_when_changed() {
    let loaded = read(SNABB, false).unwrap();
    let file = compile(&loaded);
    assert!(is_compiled(&file) && !is_compiled(SNABB.as_bytes()));
    let again = read_compiled(&file, false).unwrap();
    assert_eq!(again.config, loaded.config);
    assert_eq!(again.table.compile(), loaded.table.compile());
    for at in 0..file.len() {
        assert!(read_compiled(&file[..at], false).is_err(), "cut at {at}");
        let mut bad = file.clone();
        bad[at] ^= 4;
        assert!(read_compiled(&bad, false).is_err(), "byte {at}");
    }
}
