//! Tests of filters that are refused, and of the error messages.

use carina_filter::Filter;

/// Filters that both libpcap and this compiler refuse, and this compiler's error.
pub(crate) const REFUSED: [(&str, &str); 42] = [
    (
        "tcp port",
        "character 9: the end where a port of 0 to 65535, or the name of a common one would be right",
    ),
    (
        "tcp port 70000",
        "character 10: port 70000: a port is 0 to 65535",
    ),
    (
        "5",
        "character 1: 5 where a word such as host, net, port, tcp or ip would be right",
    ),
    (
        "ip and 5",
        "character 8: 5 where a word such as host, net, port, tcp or ip would be right",
    ),
    (
        "(port 5) or 6",
        "character 13: 6 where a word such as host, net, port, tcp or ip would be right",
    ),
    (
        "less 5 or",
        "character 10: the end where host, net, port, tcp, ip or another term would be right",
    ),
    (
        "host 256.1.1.1",
        "character 6: 256.1.1.1: each part of an IPv4 address is 0 to 255",
    ),
    (
        "port 08",
        "character 6: 08: a number is 0 to 4294967295, decimal, 0x… or octal 0…",
    ),
    (
        "ip[4294967296]=1",
        "character 4: 4294967296: a number is 0 to 4294967295, decimal, 0x… or octal 0…",
    ),
    ("tcp # x", "character 5: '#' is no part of the language"),
    (
        "net 10.1.2.3/8",
        "character 5: bits behind the mask are set; 10.0.0.0 is right",
    ),
    (
        "net fd00::/0",
        "character 5: bits behind the mask are set; :: is right",
    ),
    (
        "net 10.0.0.0/33",
        "character 14: 33 where a mask of 0 to 32 bits would be right",
    ),
    (
        "net fd00::/129",
        "character 12: 129 where a mask of 0 to 128 bits would be right",
    ),
    (
        "host 10.0.0.0/8",
        "character 6: a mask is possible behind net only",
    ),
    (
        "ip host fd00::1",
        "character 9: ip has no address of IPv6; write ip and host …",
    ),
    (
        "tcp src 1.2.3.4",
        "character 9: tcp has no address of IPv4; write tcp and host …",
    ),
    (
        "tcp net 10.0",
        "character 9: tcp has no network of IPv4; write tcp and host …",
    ),
    (
        "host 1:2:3:4:5:6",
        "character 6: a MAC address is behind ether host",
    ),
    (
        "ip port 5",
        "character 9: ip has no ports; tcp, udp and sctp have",
    ),
    (
        "port 1.2",
        "character 6: an IPv4 address where a port of 0 to 65535, or the name of a common one is",
    ),
    (
        "port 80-90",
        "character 6: 80-90: no name of a common port; write a number",
    ),
    (
        "udp port ssh",
        "character 10: ssh is no port of that protocol; write 22",
    ),
    (
        "ip proto tcp",
        "character 10: tcp where a number, or a name with a backslash in front, as \\tcp would be right",
    ),
    (
        "tcp proto 5",
        "character 11: tcp carries no protocols; ether, ip and ip6 do",
    ),
    (
        "src proto 5",
        "character 5: proto where an address of IPv4 or IPv6 would be right",
    ),
    (
        "ether",
        "character 1: ether needs host, proto, broadcast, multicast or [ behind it",
    ),
    (
        "ether 1:2:3:4:5:6",
        "character 1: ether needs host, proto, broadcast, multicast or [ behind it",
    ),
    (
        "ip broadcast",
        "character 1: ip broadcast: the mask of the network is not known; dst host …",
    ),
    (
        "arp multicast",
        "character 1: multicast is possible behind ether, ip and ip6",
    ),
    ("vlan 4096", "character 6: vlan 4096: a VLAN is 0 to 4095"),
    (
        "ip[0",
        "character 5: the end where an operator, :SIZE or ] would be right",
    ),
    (
        "ip[0:3]=1",
        "character 6: 3 where 1, 2 or 4 bytes would be right",
    ),
    (
        "ip[0]+1",
        "character 8: the end where one of + - * / % & | ^ << >> = != < <= > >= would be right",
    ),
    (
        "ip[0]/0=1",
        "character 7: a division by zero; the divisor is 1 or more",
    ),
    ("len<<32=0", "character 6: a shift is by 0 to 31 bits"),
    ("esp[0]=1", "character 1: esp[…] is not possible; ip[…] is"),
    (
        "(tcp",
        "character 5: the end where and, or, or ) would be right",
    ),
    (
        "tcp)",
        "character 4: ) where and, or, or the end would be right",
    ),
    (
        "ip[0]=ip[1]=1",
        "character 12: = where and, or, or the end would be right",
    ),
    (
        "frobnicate",
        "character 1: frobnicate where a word such as host, net, port, tcp or ip would be right",
    ),
    (
        "less (5)",
        "character 6: ( where a number of bytes would be right",
    ),
];

#[test]
fn errors_say_where_and_what_would_be_right() {
    let mut wrong = Vec::new();
    for (text, error) in REFUSED {
        let found = Filter::compile(text).err().map(|error| error.to_string());
        if found.as_deref() != Some(error) {
            wrong.push((text, found, error));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn parts_that_are_missing_are_named() {
    let said = |text: &str| Filter::compile(text).unwrap_err().to_string();
    assert_eq!(
        said("gateway 10.0.0.1"),
        "character 1: gateway is not implemented; write the gateway's MAC address: ether host …"
    );
    assert!(said("ip and mpls").starts_with("character 8: mpls is not implemented; "));
    assert!(said("host example.org").contains("names are not looked up"));
}

#[test]
fn deep_and_long_texts_are_refused_in_time() {
    let deep = format!("{}tcp{}", "(".repeat(5000), ")".repeat(5000));
    assert!(
        Filter::compile(&deep)
            .unwrap_err()
            .to_string()
            .contains("nested more than 64")
    );
    let operators = format!("len {} = 1", "+ (1 ".repeat(3000));
    assert!(Filter::compile(&operators).is_err());
    let nots = format!("{}tcp", "not ".repeat(4000));
    assert!(Filter::compile(&nots).is_err());
    let long = format!("tcp{}", " or tcp".repeat(2300));
    assert!(!Filter::compile(&long).unwrap().matches(&[0; 60]));
    assert!(
        Filter::compile(&"tcp ".repeat(5000))
            .unwrap_err()
            .to_string()
            .contains("20000 bytes")
    );
    let sum = format!("len{} > 5", " + len".repeat(2000));
    assert!(Filter::compile(&sum).unwrap().matches(&[0; 60]));
    let many = format!("port 1{}", " or 2".repeat(2000));
    assert!(Filter::compile(&many).is_ok_and(|filter| !filter.matches(&[0; 60])));
}
