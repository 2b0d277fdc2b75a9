//! Tests that a host with enough room admits and divides every document that the parser accepts.

use std::sync::LazyLock;

use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::HostLimits;
use carina_vnet_host::admission::Capacity;
use carina_vnet_host::admission_check::{AdmissionCheck, MACHINE_INTERFACES_MAX, check_document};
use carina_vnet_host::plan::Plan;
use proptest::prelude::*;

static WHOLE: LazyLock<String> = LazyLock::new(|| {
    let demo = include_str!("../../vnet/tests/documents/demo.toml");
    // A single host without labels does not satisfy all that the document requests.
    demo.replace("via = \"bridge\"", "via = \"forwarder\"")
        .replace("apart_from = [\"r1\", \"r2\"]\n", "")
        .replace("labels = { disk = \"ssd\" }\n", "")
});

/// Replacements of values.
const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "8",
    "-1",
    "0.5",
    "63",
    "64",
    "128",
    "1000000",
    "true",
    "\"\"",
    "\"a\"",
    "\"r1\"",
    "\"r2\"",
    "\"r2:eth1\"",
    "\"r3:lo\"",
    "\"r3:eth0\"",
    "\"r3:a-name-that-is-too-long\"",
    "\"r9\"",
    "\"vm\"",
    "\"namespace\"",
    "\"cold\"",
    "\"clone\"",
    "\"carina\"",
    "\"ipip\"",
    "\"vxlan\"",
    "\"dif\"",
    "\"bridge\"",
    "\"nic\"",
    "\"0s\"",
    "\"12h\"",
    "\"10ms\"",
    "\"0Mbps\"",
    "\"1kbps\"",
    "\"100Gbps\"",
    "\"0%\"",
    "\"100%\"",
    "\"101%\"",
    "\"refuse\"",
    "\"queue 2m\"",
    "\"alice\"",
];

/// The positions of values: what follows `= ` or is in a list.
fn places(text: &str) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for begin in ["= ", "[", ", "] {
        for (at, _) in text.match_indices(begin) {
            let start = at + begin.len();
            let rest = &text[start..];
            let end = rest.find([',', '\n', '}', ']']).unwrap_or(rest.len());
            let value = rest[..end].trim_end();
            let is_value =
                value.starts_with('"') || value.starts_with(|c: char| c.is_ascii_digit());
            if is_value {
                places.push((start, start + value.len()));
            }
        }
    }
    places
}

/// The document with some values replaced, and perhaps a table repeated.
fn document() -> impl Strategy<Value = String> {
    let index = any::<proptest::sample::Index>;
    let changes = proptest::collection::vec((index(), index()), 1..4);
    let twice = proptest::option::weighted(0.3, index());
    (changes, twice).prop_map(|(changes, twice)| {
        let mut text = WHOLE.to_owned();
        if let Some(twice) = twice {
            let tables: Vec<&str> = WHOLE.split("\n[[").skip(1).collect();
            text.push_str(&format!("\n[[{}\n", twice.get(&tables)));
        }
        for (place, value) in changes {
            let places = places(&text);
            let (start, end) = *place.get(&places);
            text.replace_range(start..end, value.get::<&str>(VALUES));
        }
        text
    })
}

/// Runs the checks of `carina vnet up` on a host with enough room and with the document's images;
/// returns a refusal.
fn refusal(document: &Document) -> Option<String> {
    let names = document.node.keys();
    let images = names.filter_map(|name| Some(document.resolved(name)?.image.to_owned()));
    let check = AdmissionCheck {
        capacity: Capacity::MAX,
        limits: HostLimits {
            images: images.collect(),
            interfaces_max: MACHINE_INTERFACES_MAX,
            ..HostLimits::none()
        },
    };
    match Plan::of(document, &[], &check) {
        Ok(plan) => plan.refusal,
        Err(error) => Some(error.to_string()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn accepted_documents_can_be_made(text in document()) {
        let document = Document::read(&text, Form::Toml).ok();
        if let Some(document) = document.filter(|document| check_document(document).is_ok()) {
            prop_assert_eq!(refusal(&document), None, "{}", text);
        }
    }
}

#[test]
fn documents_that_no_host_makes_are_refused() {
    let bridged = WHOLE.replace("\"forwarder\"", "\"bridge\"");
    let mut wide =
        "[vnet]\nname = \"wide\"\nlease = \"1h\"\n[defaults]\nkind = \"vm\"\n".to_owned();
    let leaves = 1..=MACHINE_INTERFACES_MAX + 1;
    wide.push_str("[node.hub]\n");
    leaves
        .clone()
        .for_each(|leaf| wide.push_str(&format!("[node.l{leaf}]\n")));
    leaves.for_each(|leaf| {
        wide.push_str(&format!(
            "[[link]]\nends = [\"hub\", \"l{leaf}\"]\nrate = \"1Mbps\"\n"
        ))
    });
    for (text, reason) in [(bridged, "via = \"forwarder\""), (wide, "node hub")] {
        let document = Document::read(&text, Form::Toml).unwrap();
        let refused = check_document(&document).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
        assert!(refusal(&document).is_some());
    }
}
