//! Tests of filters that are refused, and of the error messages.

use carina_filter::Filter;

/// Filters that both libpcap and this compiler refuse, and this compiler's error.
pub(crate) const REFUSED: [(&str, &str); 42] = [
    (
        "tcp port",
        "character 9: found the end of the filter, expected a port from 0 to 65535, or the name of a common port",
    ),
    (
        "tcp port 70000",
        "character 10: port 70000: a port must be 0 to 65535",
    ),
    (
        "5",
        "character 1: found 5, expected a word such as host, net, port, tcp or ip",
    ),
    (
        "ip and 5",
        "character 8: found 5, expected a word such as host, net, port, tcp or ip",
    ),
    (
        "(port 5) or 6",
        "character 13: found 6, expected a word such as host, net, port, tcp or ip",
    ),
    (
        "less 5 or",
        "character 10: found the end of the filter, expected host, net, port, tcp, ip or another term",
    ),
    (
        "host 256.1.1.1",
        "character 6: 256.1.1.1: each part of an IPv4 address must be 0 to 255",
    ),
    (
        "port 08",
        "character 6: 08: a number must be 0 to 4294967295, in decimal, hexadecimal (0x…) or \
         octal (0…)",
    ),
    (
        "ip[4294967296]=1",
        "character 4: 4294967296: a number must be 0 to 4294967295, in decimal, hexadecimal (0x…) \
         or octal (0…)",
    ),
    ("tcp # x", "character 5: '#' has no meaning in a filter"),
    (
        "net 10.1.2.3/8",
        "character 5: bits after the mask are set; write 10.0.0.0",
    ),
    (
        "net fd00::/0",
        "character 5: bits after the mask are set; write ::",
    ),
    (
        "net 10.0.0.0/33",
        "character 14: found 33, expected a mask of 0 to 32 bits",
    ),
    (
        "net fd00::/129",
        "character 12: found 129, expected a mask of 0 to 128 bits",
    ),
    (
        "host 10.0.0.0/8",
        "character 6: a mask is possible behind net only",
    ),
    (
        "ip host fd00::1",
        "character 9: ip cannot qualify an IPv6 address; write ip and host …",
    ),
    (
        "tcp src 1.2.3.4",
        "character 9: tcp cannot qualify an IPv4 address; write tcp and host …",
    ),
    (
        "tcp net 10.0",
        "character 9: tcp cannot qualify an IPv4 network; write tcp and host …",
    ),
    (
        "host 1:2:3:4:5:6",
        "character 6: a MAC address is possible only after ether host, ether src or ether dst",
    ),
    (
        "ip port 5",
        "character 9: ip has no ports; only tcp, udp and sctp have ports",
    ),
    (
        "port 1.2",
        "character 6: found an IPv4 address, expected a port from 0 to 65535, or the name of a \
         common port",
    ),
    (
        "port 80-90",
        "character 6: 80-90 is not the name of a common port; write a number",
    ),
    (
        "udp port ssh",
        "character 10: ssh is not a port of this protocol; write its number, 22",
    ),
    (
        "ip proto tcp",
        "character 10: found tcp, expected a number, or a name after a backslash, such as \\tcp",
    ),
    (
        "tcp proto 5",
        "character 11: proto is not possible after tcp; it is possible after ether, ip and ip6",
    ),
    (
        "src proto 5",
        "character 5: found proto, expected an IPv4 or IPv6 address",
    ),
    (
        "ether",
        "character 1: after ether, host, proto, broadcast, multicast or [ is expected",
    ),
    (
        "ether 1:2:3:4:5:6",
        "character 1: after ether, host, proto, broadcast, multicast or [ is expected",
    ),
    (
        "ip broadcast",
        "character 1: ip broadcast: the mask of the network is unknown; write dst host …",
    ),
    (
        "arp multicast",
        "character 1: multicast is possible only after ether, ip and ip6",
    ),
    (
        "vlan 4096",
        "character 6: vlan 4096: a VLAN id must be 0 to 4095",
    ),
    (
        "ip[0",
        "character 5: found the end of the filter, expected an operator, :SIZE or ]",
    ),
    (
        "ip[0:3]=1",
        "character 6: found 3, expected 1, 2 or 4 bytes",
    ),
    (
        "ip[0]+1",
        "character 8: found the end of the filter, expected one of + - * / % & | ^ << >> = != < <= > >=",
    ),
    (
        "ip[0]/0=1",
        "character 7: division by zero; the divisor must be 1 or more",
    ),
    ("len<<32=0", "character 6: a shift must be by 0 to 31 bits"),
    (
        "esp[0]=1",
        "character 1: esp[…] is not possible; write ip[…]",
    ),
    (
        "(tcp",
        "character 5: found the end of the filter, expected and, or, or )",
    ),
    (
        "tcp)",
        "character 4: found ), expected and, or, or the end of the filter",
    ),
    (
        "ip[0]=ip[1]=1",
        "character 12: found =, expected and, or, or the end of the filter",
    ),
    (
        "frobnicate",
        "character 1: found frobnicate, expected a word such as host, net, port, tcp or ip",
    ),
    (
        "less (5)",
        "character 6: found (, expected a number of bytes",
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
    let error_of = |text: &str| Filter::compile(text).unwrap_err().to_string();
    assert_eq!(
        error_of("gateway 10.0.0.1"),
        "character 1: gateway is not implemented; write the gateway's MAC address: ether host …"
    );
    assert!(error_of("ip and mpls").starts_with("character 8: mpls is not implemented; "));
    assert!(error_of("host example.org").contains("names are not looked up"));
}

#[test]
fn deep_and_long_texts_are_refused_in_time() {
    let deep = format!("{}tcp{}", "(".repeat(5000), ")".repeat(5000));
    assert!(
        Filter::compile(&deep)
            .unwrap_err()
            .to_string()
            .contains("the nesting is deeper than 64 levels")
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
