//! A node starts with every configuration that the check accepts.

use std::path::Path;

use carina_node::{Config, Node};
use proptest::prelude::*;

use crate::support::Scratch;

/// A configuration whose IPCPs need no device.
const WHOLE: &str = r#"
[node]
name = "host"
workers = 2
dif_order = ["net"]
placement = { u0 = 1 }
[limits]
flows_per_uid = 100
ring_bytes = 65536
[[ipcp]]
name = "l0"
type = "loopback"
dif = "here"
[[ipcp]]
name = "u0"
type = "udp"
dif = "near"
listen = "127.0.0.1:0"
sdu_max = 1400
timeout_ms = 5000
fault = { loss = 0.1, delay_ms = 1.5, queue_bytes = 100000, seed = 1 }
[[ipcp]]
name = "t0"
type = "tcp"
dif = "far"
listen = "127.0.0.1:0"
framing = "native"
peers = [{ name = "x", address = "127.0.0.1" }]
[[vm]]
name = "v1"
region_bytes = 1048576
dif = "hv.v1"
[[dif]]
name = "net"
role = "create"
over = ["near", "far"]
ipcp = "net.host"
config = { max_pdu = 1300, hop_limit = 60, widths = { address = 2 } }
[[dif]]
name = "high"
role = "create"
over = ["net"]
auth = "none"
[[dif]]
name = "other"
role = "join"
over = ["near", "hv.v1"]
via = "other.a"
dialect = "native"
[[rule]]
any = true
register = "*"
allow = true
"#;

/// Values to put into a configuration.
const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "63",
    "64",
    "65",
    "100",
    "128",
    "1300",
    "1400",
    "1401",
    "9000",
    "65000",
    "65535",
    "65536",
    "1048576",
    "2097152",
    "4294967296",
    "true",
    "false",
    "\"\"",
    "\"a\"",
    "\"loopback\"",
    "\"u0\"",
    "\"t0\"",
    "\"v1\"",
    "\"l0\"",
    "\"net\"",
    "\"high\"",
    "\"high.host\"",
    "\"other\"",
    "\"near\"",
    "\"far\"",
    "\"here\"",
    "\"local\"",
    "\"hv.v1\"",
    "\"udp\"",
    "\"tcp\"",
    "\"loopback\"",
    "\"normal\"",
    "\"create\"",
    "\"join\"",
    "\"native\"",
    "\"rlite\"",
    "\"irati\"",
    "\"password:/none\"",
    "\"127.0.0.1:0\"",
    "\"127.0.0.1\"",
    "\"a b\"",
    "\"a/b\"",
    "[]",
    "[\"near\"]",
    "[\"net\"]",
    "[\"net\", \"net\"]",
    "[\"high\", \"far\"]",
    "[\"hv.v1\"]",
    "[\"here\"]",
    "{}",
];

/// The positions of the values in a configuration: from `= ` to a comma, a brace or the end of the
/// line. The run directory and the addresses of sockets are left out.
fn places(text: &str) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for (at, _) in text.match_indices("= ") {
        let start = at + 2;
        let rest = &text[start..];
        let line = rest.lines().next().unwrap_or_default();
        let end = if rest.starts_with('[') {
            line.len()
        } else {
            line.find([',', '}']).unwrap_or(line.len())
        };
        if !text[..at].ends_with("listen ") && !rest.starts_with('{') {
            places.push((start, start + rest[..end].trim_end().len()));
        }
    }
    places
}

/// The configuration with some values replaced, or with a table duplicated.
fn configuration() -> impl Strategy<Value = String> {
    let index = any::<proptest::sample::Index>;
    let changes = proptest::collection::vec((index(), index()), 1..4);
    let twice = proptest::option::weighted(0.2, index());
    (changes, twice).prop_map(|(changes, twice)| {
        let mut text = WHOLE.to_owned();
        if let Some(twice) = twice {
            let tables: Vec<&str> = WHOLE.split("\n[[").skip(1).collect();
            text.push_str(&format!("[[{}\n", twice.get(&tables)));
        }
        for (place, value) in changes {
            let places = places(&text);
            let (start, end) = *place.get(&places);
            text.replace_range(start..end, value.get::<&str>(VALUES));
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn accepted_configurations_start(text in configuration()) {
        let config = Config::parse(&text, None).ok();
        if let Some(mut config) = config.filter(|config| Node::check(config).is_ok()) {
            let scratch = Scratch::new("checked");
            config.node.run_dir = Some(scratch.run_dir().path().into());
            let started = Node::spawn(config).map(drop);
            prop_assert!(started.is_ok(), "{text}\n{}", started.unwrap_err());
        }
    }
}

#[test]
fn whole_configuration_is_accepted() {
    Node::check(&Config::parse(WHOLE, None).unwrap()).unwrap();
}

#[test]
fn what_a_start_would_refuse_is_refused_before() {
    let file = Path::new("node.toml");
    let refusal = |text: &str| {
        let checked = Config::parse(text, Some(file)).and_then(|config| Node::check(&config));
        checked.unwrap_err().to_string()
    };
    let udp = |name: &str, more: &str| {
        format!("[[ipcp]]\nname = \"{name}\"\ntype = \"udp\"\ndif = \"d\"\n{more}\n")
    };
    for (text, message) in [
        (
            udp("a", "sdu_max = 63"),
            "line 1: IPCP a: the longest SDU is set to 63 bytes; over UDP it must be 64 to",
        ),
        (
            format!("{}{}", udp("a", ""), udp("b", "")),
            "line 6: IPCP b: IPCP a listens on 0.0.0.0:3359 already",
        ),
        (udp("loopback", ""), "line 1: the name loopback belongs to"),
        (
            "[[vm]]\nname = \"v\"\nsocket = \"/s\"\n".to_owned(),
            "line 1: VM v: `socket` belongs to",
        ),
        (
            "[[vm]]\nname = \"v\"\ninternet = [\"http://a/\"]\n".to_owned(),
            "line 1: VM v: internet: rule \"http://a/\": \"//a/\" is neither a port",
        ),
        (
            "[[vm]]\nname = \"v\"\ndif = \"d\"\ninternet = [\"a:80\"]\n\
             [[vm]]\nname = \"w\"\ndif = \"d\"\n"
                .to_owned(),
            "line 5: w would share DIF d with VM v, and reach what `internet` or `ip` allows v",
        ),
        (
            format!(
                "{}[[vm]]\nname = \"v\"\ndif = \"d\"\ninternet = [\"*\"]\n",
                udp("a", "")
            ),
            "line 6: a would share DIF d with VM v",
        ),
        (
            format!(
                "[node]\nname = \"h\"\n{}[[dif]]\nname = \"n\"\nrole = \"create\"\nover = [\"d\"]\n\
                 config = {{ max_pdu = 1453 }}\n",
                udp("a", "")
            ),
            "line 8: [[dif]] n: d carries 1452 bytes and the longest PDU of DIF n has 1453",
        ),
        (
            format!(
                "[node]\nname = \"h\"\n{}[[dif]]\nname = \"n\"\nrole = \"create\"\nover = [\"d\"]\n\
                 [[dif]]\nname = \"m\"\nrole = \"join\"\nover = [\"d\"]\nipcp = \"n.h\"\n",
                udp("a", "")
            ),
            "line 12: [[dif]] m: there is an IPCP or VM named n.h already",
        ),
        (
            "[[dif]]\nname = \"n\"\nrole = \"create\"\nover = [\"d\"]\n".to_owned(),
            "line 1: [[dif]] n: this system is in no DIF d",
        ),
    ] {
        let refused = refusal(&text);
        let message = format!("configuration node.toml: {message}");
        assert!(refused.starts_with(&message), "{text}\n{refused}");
    }
}
