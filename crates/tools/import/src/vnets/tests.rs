//! Tests with a network in each of the formats.

mod containers;
mod graphs;
mod testbeds;

use carina_vnet::document::{Carrier, Kind};

use super::*;

fn imported(format: Format, file: &str, text: &str) -> Imported {
    let rate = "100Mbps".parse().expect("a rate");
    read(format, Source { file, text, rate }, &carina_lab::CarinaNode)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(format: Format, text: &str) -> String {
    let rate = "100Mbps".parse().expect("a rate");
    let file = "x";
    match read(format, Source { file, text, rate }, &carina_lab::CarinaNode) {
        Ok(imported) => panic!("{:?}", imported.document),
        Err(error) => error.to_string(),
    }
}

fn links(imported: &Imported) -> Vec<String> {
    let links = imported.document.link.iter();
    links
        .map(|link| {
            let [one, other] = &link.ends;
            format!("{one} {other} {}", link.rate)
        })
        .collect()
}

/// Where a node is in pictures; empty if the document does not place it.
fn position(imported: &Imported, node: &str) -> String {
    let position = imported.document.node[node].position;
    position.map_or_else(String::new, |position| position.to_string())
}

fn notes(imported: &Imported) -> Vec<String> {
    let notes = imported.notes.iter();
    notes
        .map(|note| format!("{} {}", note.line, note.what))
        .collect()
}

#[test]
fn lab_becomes_nodes_and_links() {
    let text = "system a b c\nvm v on a memory=192 cpus=2\neth ab 10Mbps a b delay=5ms\n\
                eth abc 0Mbps a b c\ndif n a ab\ndif n b ab\n";
    let found = imported(Format::Lab, "dir/two.lab", text);
    assert_eq!(found.document.vnet.name, "two");
    let node = &found.document.node["v"];
    assert_eq!(
        (node.kind, node.memory, node.cpus),
        (Some(Kind::Vm), Some(192), Some(2))
    );
    assert_eq!(found.document.link[0].carrier, Carrier::Dif);
    assert_eq!(
        links(&found),
        [
            "a v 100Mbps",
            "a b 10Mbps",
            "a abc 100Mbps",
            "b abc 100Mbps",
            "c abc 100Mbps",
        ]
    );
    let link = &found.document.link[1];
    assert_eq!(link.impairment().to_string(), "delay=5ms");
    assert!(found.document.link[2].impairment().is_none());
    let notes = notes(&found).join("\n");
    let hub = &found.document.node["abc"];
    assert_eq!(hub.kind, Some(Kind::Bridge));
    assert_eq!(found.document.link[2].carrier, Carrier::Gre);
    for what in ["DIF n", "4 links"] {
        assert!(notes.contains(what), "{what}: {notes}");
    }
    assert!(refusal(Format::Lab, "eth ab").contains("line 1"));
}

#[test]
fn fit_name_is_kept_whatever_comes_before_it() {
    let text = "a_b[0]=X\na-b[0]=X\na+b[0]=Y\na_b[1]=Y\n";
    let found = imported(Format::Kathara, "lab.conf", text);
    let names: Vec<&String> = found.document.node.keys().collect();
    assert_eq!(names, ["a-b", "a-b-2", "a-b-3"]);
    assert_eq!(
        links(&found),
        [
            "a-b-2:eth0 a-b:eth0 100Mbps",
            "a-b-3:eth0 a-b-2:eth1 100Mbps"
        ]
    );
    assert_eq!(
        notes(&found)[1..3],
        ["1 the name \"a_b\"", "3 the name \"a+b\""]
    );
}

#[test]
fn network_that_is_too_large_is_refused_at_once() {
    let text: String = (0..100_000).map(|n| format!("_{n}_[0]=A\n")).collect();
    assert!(refusal(Format::Kathara, &text).contains("2000"));
    let text = format!("a: {}", "[\n".repeat(1_000_000));
    assert!(refusal(Format::Containerlab, &text).contains("line "));
    let text: String = (0..100_000).map(|n| format!("k{n}: 1\n")).collect();
    assert!(refusal(Format::Containerlab, &text).contains("no `topology`"));
}

#[test]
fn name_of_a_file_says_its_format() {
    let names = [
        "lab.conf",
        "a.lab",
        "a.clab.yml",
        "a.rspec",
        "a.graphml",
        "a.gml",
    ];
    let found: Vec<&str> = names
        .iter()
        .filter_map(|name| Format::of_file(name).map(Format::name))
        .collect();
    assert_eq!(
        found,
        ["kathara", "lab", "containerlab", "rspec", "graphml", "gml"]
    );
    assert_eq!(Format::of_file("a.toml"), None);
}
