//! A file that is accepted becomes a graph whose apps can all be made.

use carina_nfv::traffic::graph::{graph, port_kinds};
use carina_nfv::traffic::{Defaults, read};
use proptest::prelude::*;

use crate::{carina_file, snabb_file};

/// Values that replace a value of a file.
const VALUES: &[&str] = &[
    "0",
    "1",
    "-1",
    "2.5",
    "0.00001",
    "63",
    "64",
    "66",
    "100",
    "255",
    "256",
    "1517",
    "1518",
    "4094",
    "4095",
    "65535",
    "65536",
    "65522",
    "16777216",
    "4294967295",
    "4294967296",
    "1e12",
    "1e13",
    "true",
    "false",
    "\"\"",
    "\"a\"",
    "\"web\"",
    "\"5\"",
    "\"10.0.0.1\"",
    "\"0.0.0.0\"",
    "\"224.0.0.1\"",
    "\"2001:db8::1\"",
    "\"::\"",
    "\"ff02::1\"",
    "\"52:54:00:00:00:01\"",
    "\"01:00:5e:00:00:01\"",
    "\"plain0\"",
    "\"a-name-that-is-too-long\"",
    "\"a/b\"",
    "\"00010203\"",
    "\"03020100\"",
    "\"000102030405060708090a0b0c0d0e0f\"",
    "\"00000000000000000000000000000000\"",
    "\"0011223344556677\"",
    "\"deadbeef\"",
    "\"tcp\"",
    "\"tcp dst port\"",
    "\"gre\"",
    "\"vxlan\"",
    "\"ipip\"",
    "\"l2tpv3\"",
    "\"af_packet\"",
    "\"vhost_user\"",
    "[]",
    "{ }",
];

/// The byte ranges of all values: from a `=` to the next comma, semicolon, brace or line end.
fn places(text: &str) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for (at, _) in text.match_indices("= ") {
        let start = at + 2;
        let rest = &text[start..];
        let end = rest.find([',', '\n', '}', ';']).unwrap_or(rest.len());
        if !rest.starts_with(['{', '[']) {
            places.push((start, start + rest[..end].trim_end().len()));
        }
    }
    places
}

/// A file in which some values are replaced.
fn file() -> impl Strategy<Value = String> {
    let files = [carina_file::WHOLE, snabb_file::WHOLE];
    let index = any::<proptest::sample::Index>;
    let changes = proptest::collection::vec((index(), index()), 0..4);
    (proptest::sample::select(files.to_vec()), changes).prop_map(|(file, changes)| {
        let mut text = file.to_owned();
        for (place, value) in changes {
            let places = places(&text);
            let (start, end) = *place.get(&places);
            text.replace_range(start..end, value.get::<&str>(VALUES));
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn accepted_files_become_graphs_that_are_made(text in file()) {
        let defaults = Defaults { uplink: None, sockets: "/run/%s.sock".to_owned() };
        if let Ok(traffic) = read(&text, &defaults, &port_kinds()) {
            let made = graph(&traffic, &port_kinds()).unwrap();
            let made = made.rehearse(carina_frame::PoolConfig::default().frame_bytes);
            // An MTU that is too long for this pool's frames is valid for a pool with longer
            // frames.
            let is_long = |error: &str| error.contains("--frame-bytes");
            if let Err(error) = made {
                prop_assert!(is_long(&error.to_string()), "{text}\n{error}");
            }
        }
    }
}

#[test]
fn ports_that_share_an_interface_or_a_key_are_refused() {
    let refusal = |text: &str| {
        let error = read(text, &Defaults::default(), &port_kinds()).unwrap_err();
        error.to_string()
    };
    let text = carina_file::WHOLE.replace("plain0", "web0");
    assert_eq!(
        refusal(&text),
        "line 35: port plain and port web have the same name, web0: only one app can attach to an \
         interface"
    );
    let begin = carina_file::WHOLE.find("[ports.esp]").unwrap();
    let keys = &carina_file::WHOLE[begin..].split("\n\n").next().unwrap();
    let error = refusal(&format!("{}\n{keys}\n", carina_file::WHOLE));
    assert!(
        error.starts_with("line 35: port plain and port web have the same transmit_key"),
        "{error}"
    );
    let text =
        "[[ports]]\nname = \"a\"\nsocket = \"/SOCKET\"\n".replace("SOCKET", &"x".repeat(107));
    let error = refusal(&text);
    assert!(
        error.starts_with("line 3: vhost_user: socket = "),
        "{error}"
    );
}

#[test]
fn wrong_types_name_key_value_line_and_remedy() {
    let refusal = |line: &str| {
        let text = format!("[[ports]]\nname = \"a\"\n{line}\n");
        let error = read(&text, &Defaults::default(), &port_kinds()).unwrap_err();
        error.to_string()
    };
    for (line, message) in [
        (
            "ingress_mbps = \"100\"",
            "line 3: ingress_mbps = \"100\": must be a number, without quotes",
        ),
        (
            "vlan = \"5\"",
            "line 3: vlan = \"5\": must be a whole number from 0 to 65535, without quotes",
        ),
        (
            "stateful = 5",
            "line 3: stateful = 5: must be true, false or { connections = 1000, idle_s = 7200 }",
        ),
        (
            "ingress_mbps = 5\ningress_burst_bytes = 100",
            "line 4: ingress_burst_bytes = \"100\": must be 1518 to 1000000000000 bytes: a frame \
             that is longer than the bucket would never pass",
        ),
    ] {
        assert_eq!(refusal(line), message);
    }
}
