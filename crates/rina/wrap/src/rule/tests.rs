//! Rules as users write them, and what they fit.

use proptest::prelude::*;

use super::*;

fn rule(text: &str) -> Rule {
    text.parse().unwrap()
}

fn address(host: Option<&str>, socket: &str) -> Address {
    Address {
        host: host.map(str::to_owned),
        socket: socket.parse().unwrap(),
    }
}

fn flow(dif: Option<&str>, name: &str) -> Decision {
    Decision::Flow {
        dif: dif.map(|dif| DifName::new(dif).unwrap()),
        name: AppName::new(name).unwrap(),
    }
}

#[test]
fn names_and_ports_make_the_name_of_the_application() {
    let at = address(Some("Web.vm"), "198.18.0.1:80");
    let of = |text: &str| rule(text).decide(&at).unwrap();
    assert_eq!(of("*.vm -> dif"), flow(None, "web.vm:80"));
    assert_eq!(of("*.vm -> dif n"), flow(Some("n"), "web.vm:80"));
    assert_eq!(of("* -> dif n as web"), flow(Some("n"), "web"));
    assert_eq!(of("*->dif as {port}/{host}"), flow(None, "80/web.vm"));
    let long = address(Some("web.dif.internal"), "198.18.0.1:80");
    let default = rule("*.dif.internal -> dif as {name}:{port}");
    assert_eq!(default.decide(&long).unwrap(), flow(None, "web:80"));
    assert_eq!(of("* -> kernel"), Decision::Kernel);
    assert_eq!(of("* -> refuse"), Decision::Refuse);
}

#[test]
fn rule_fits_by_name_network_port_and_direction() {
    let named = address(Some("web.vm"), "198.18.0.1:80");
    let plain = address(None, "10.9.3.4:80");
    let six = address(None, "[fd00::7]:80");
    let mapped = address(None, "[::ffff:10.9.3.4]:80");
    let is_match = |text: &str, at: &Address| rule(text).matches(Direction::Connect, at);
    assert!(is_match("*.vm -> dif", &named) && is_match("*.VM:80 -> dif", &named));
    assert!(!is_match("*.vm -> dif", &plain) && !is_match("vm -> dif", &named));
    assert!(is_match("10.9.0.0/16 -> dif", &plain) && is_match("10.9.0.0/16 -> dif", &mapped));
    assert!(!is_match("10.8.0.0/16 -> dif", &plain) && !is_match("10.9.3.5 -> dif", &plain));
    assert!(is_match("0.0.0.0/0 -> dif", &plain) && !is_match("0.0.0.0/0 -> dif", &six));
    assert!(is_match("fd00::/8 -> dif", &six) && is_match("[fd00::7]:80 -> dif", &six));
    assert!(is_match("*:80-90 -> dif", &plain) && !is_match("*:81-90 -> dif", &plain));
    assert!(!rule("listen * -> dif").matches(Direction::Connect, &plain));
    assert!(rule("listen * -> dif").matches(Direction::Listen, &plain));
}

#[test]
fn rule_behind_one_that_fits_more_is_found() {
    let is_shadowed = |first: &str, second: &str| rule(first).shadows(&rule(second));
    assert!(
        is_shadowed("* -> kernel", "*.vm:80 -> dif")
            && is_shadowed("*:80-90 -> dif", "*:85 -> dif")
    );
    assert!(
        is_shadowed("10.0.0.0/8 -> dif", "10.1.0.0/16 -> kernel")
            && is_shadowed("a.vm -> dif", "a.vm -> dif")
    );
    assert!(
        !is_shadowed("*:80 -> dif", "*:81 -> dif") && !is_shadowed("* -> dif", "listen * -> dif")
    );
    assert!(
        !is_shadowed("10.1.0.0/16 -> dif", "10.0.0.0/8 -> dif")
            && !is_shadowed("*.vm -> dif", "* -> dif")
    );
}

#[test]
fn only_names_that_become_flows_are_looked_up() {
    assert!(rule("*.vm:22 -> dif").names("a.vm"));
    assert!(!rule("*.vm -> kernel").names("a.vm"));
    assert!(rule("* -> dif").names("a.vm") && !rule("listen *.vm -> dif").names("a.vm"));
    assert!(!rule("* -> dif").names("localhost") && !rule("* -> dif").names("10.1.2.3"));
}

#[test]
fn network_of_mapped_addresses_is_one_of_ipv4() {
    let rule: Rule = "::ffff:10.0.0.0/104 -> refuse".parse().unwrap();
    let is_match = |ip: &str| {
        let socket = SocketAddr::new(ip.parse().unwrap(), 80);
        rule.matches(Direction::Connect, &Address { host: None, socket })
    };
    assert!(is_match("10.1.2.3") && is_match("::ffff:10.1.2.3") && !is_match("11.1.2.3"));
}

#[test]
fn wrong_rules_are_refused_with_what_is_wrong() {
    for (text, names) in [
        ("*.vm dif", "no \"->\""),
        (" -> dif", "no host"),
        ("10.0.0.0/33 -> dif", "/33 is no prefix length of 10.0.0.0"),
        ("10.0.0.0/x -> dif", "/x is no prefix length"),
        (
            "10.0.0/8 -> refuse",
            "\"10.0.0/8\" is neither a host name nor",
        ),
        (
            "[fd00::]/8 -> refuse",
            "is neither a host name nor a network",
        ),
        ("[::1]443 -> refuse", "is neither a host name nor a network"),
        ("*:0 -> dif", "\"0\" is neither a port"),
        ("*:90-80 -> dif", "\"90-80\" is neither"),
        ("*:http -> dif", "\"http\" is neither"),
        ("* -> tunnel", "\"tunnel\" must be kernel"),
        ("* -> ", "\"\" must be kernel"),
        ("* -> dif a b", "\"dif a b\" must be"),
        ("* -> dif as {n}", "{n} must be {host}, {name} or {port}"),
        ("* -> dif as {host", "{host must be "),
        ("* -> dif a|b", "DIF"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(names), "{text}: {error}");
    }
}

#[test]
fn name_that_is_too_long_is_an_error_not_a_cut_name() {
    let at = address(Some(&"a".repeat(254)), "198.18.0.1:80");
    assert!(rule("* -> dif").decide(&at).is_err());
}

proptest! {
    #[test]
    fn any_text_is_a_rule_or_an_error(text in "\\PC*") {
        let _ = text.parse::<Rule>();
    }

    #[test]
    fn rule_that_is_shown_reads_the_same(
        listen in any::<bool>(),
        host in "\\*|\\*\\.[a-z]{1,8}|[1-9][0-9]?\\.1\\.2\\.3(/[0-9])?|fd00::[0-9]{1,3}/[0-9]{2}",
        ports in proptest::option::of((1u16.., 1u16..)),
        target in "kernel|refuse|dif|dif n|dif as \\{host\\}|dif n as x\\{port\\}",
    ) {
        let ports = ports.map(|(a, b)| format!(":{}-{}", a.min(b), a.max(b))).unwrap_or_default();
        let host = if host.contains("::") && !ports.is_empty() { format!("[{host}]") } else { host };
        let listen = if listen { "listen " } else { "" };
        let first = rule(&format!("{listen}{host}{ports} -> {target}"));
        prop_assert_eq!(rule(&first.to_string()), first);
    }
}
