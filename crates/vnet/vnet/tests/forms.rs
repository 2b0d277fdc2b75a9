//! Tests that the three forms are equivalent.

use std::fs;
use std::process::Command;

use carina_random::Random;
use carina_vnet::document::{Boot, Document, Form, Kind, Via, XML_SCHEMA};

const DEMO: &str = include_str!("documents/demo.toml");

#[test]
fn defaults_fill_in_what_a_node_leaves_open() {
    let document = Document::read(DEMO, Form::Toml).unwrap();
    let node = document.resolved("r2").unwrap();
    assert_eq!(
        (node.kind, node.boot, node.cpus),
        (Kind::Vm, Boot::Clone, 1)
    );
    assert_eq!((node.memory, node.image.as_str()), (128, "carina"));
    assert_eq!((node.nics.count, node.nics.via), (1, Via::Bridge));
    assert_eq!(node.location, ["de"]);
    assert_eq!(document.resolved("r9"), None);
    let bare = "[vnet]\nname = \"x\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n";
    let bare = Document::read(bare, Form::Toml).unwrap();
    assert_eq!(bare.resolved("a").unwrap().boot, Boot::Cold);
}

#[test]
fn every_form_reads_what_every_form_has_written() {
    let document = Document::read(DEMO, Form::Toml).unwrap();
    for form in Form::ALL {
        let text = document.write(form);
        let again = Document::read(&text, form);
        assert_eq!(again.as_ref(), Ok(&document), "{form}:\n{text}");
    }
}

#[test]
fn random_documents_survive_every_form() {
    let mut random = Random::new(20_261_123);
    for _ in 0..300 {
        let text = random_document(&mut random);
        let document = Document::read(&text, Form::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"));
        for form in Form::ALL {
            let written = document.write(form);
            let again = Document::read(&written, form);
            assert_eq!(again.as_ref(), Ok(&document), "{form}:\n{written}");
        }
    }
}

#[test]
fn written_xml_is_valid_by_the_schema() {
    let demo = Document::read(DEMO, Form::Toml).unwrap();
    assert_eq!(xmllint(&demo.write(Form::Xml)), "");
    let mut random = Random::new(7);
    for _ in 0..20 {
        let text = random_document(&mut random);
        let document = Document::read(&text, Form::Toml).unwrap();
        assert_eq!(xmllint(&document.write(Form::Xml)), "", "{text}");
    }
    let wrong = "<vnet name=\"a\"><node name=\"b\" cpu=\"1\"/></vnet>";
    assert!(xmllint(wrong).contains("cpu"));
    let stranger = demo
        .write(Form::Xml)
        .replace("<end node=\"r3\"", "<end node=\"r4\"");
    assert!(xmllint(&stranger).contains("ends-of-links"));
}

#[test]
fn examples_survive_every_form() {
    for text in [
        include_str!("../../../../examples/vnets/flapping.toml"),
        include_str!("../../../../examples/vnets/switched.toml"),
        include_str!("../../../../examples/vnets/prepared.toml"),
    ] {
        let document = Document::read(text, Form::Toml).unwrap();
        for form in Form::ALL {
            let written = document.write(form);
            let again = Document::read(&written, form);
            assert_eq!(again.as_ref(), Ok(&document), "{form}:\n{written}");
        }
        assert_eq!(xmllint(&document.write(Form::Xml)), "");
    }
}

/// The complaints of `xmllint` about a text (package libxml2-utils).
fn xmllint(xml: &str) -> String {
    let name = std::thread::current().id();
    let directory = format!("carina-vnet-{}-{name:?}", std::process::id());
    let directory = std::env::temp_dir().join(directory);
    fs::create_dir_all(&directory).expect("a directory");
    let (schema, document) = (directory.join("vnet.xsd"), directory.join("document.xml"));
    fs::write(&schema, XML_SCHEMA).expect("a file");
    fs::write(&document, xml).expect("a file");
    let mut command = Command::new("xmllint");
    command
        .args(["--nonet", "--noout", "--schema"])
        .args([&schema, &document]);
    let output = command
        .output()
        .expect("xmllint of package libxml2-utils runs");
    fs::remove_dir_all(&directory).expect("the directory goes");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.success(),
        complaints.trim_end().ends_with("validates")
    );
    if output.status.success() {
        String::new()
    } else {
        complaints
    }
}

const IMPAIRED: &str = "delay = [\"10ns\", \"0ns\"]\njitter = [\"10ns\", \"0ns\"]\nloss = \"0%\"\n\
                        duplicate = \"12.5%\"\nreorder = [\"1%\", \"0%\"]\n\
                        corrupt = [\"0.0001%\", \"99%\"]";

const FLAPPING: &str = "down = [\"0s-1500ms\", \"2s-1h\"]\ndown_every = \"1d\"";

/// The keys of a link with addresses and long packets.
fn addressed(link: u64) -> String {
    format!(
        "as = \"vxlan\"\nmtu = 9000\naddresses = [\"172.16.{link}.1/24\", \"172.16.{link}.2/24\"]\n\
         addresses6 = [\"2001:db8:{link}::1/64\", \"2001:db8:{link}::2/64\"]"
    )
}

/// Adds a line, or does not.
fn maybe(text: &mut String, line: &str, random: &mut Random) {
    if random.below(2) == 0 {
        text.push_str(line);
        text.push('\n');
    }
}

/// A valid random document that uses everything that the form has.
fn random_document(random: &mut Random) -> String {
    let nodes = 2 + random.below(6);
    let mut text = String::from("[vnet]\nname = \"n\"\n");
    maybe(&mut text, "lease = \"90m\"", random);
    maybe(&mut text, "on_insufficient = \"queue 1500ms\"", random);
    maybe(
        &mut text,
        "[defaults]\nmemory = 64\nlocation = [\"x\", \"y\"]",
        random,
    );
    for node in 0..nodes {
        text.push_str(&format!("[node.n{node}]\n"));
        maybe(&mut text, "kind = \"vm\"\nboot = \"pool\"", random);
        maybe(&mut text, "image = \"a & <b> \\\"c\\\" 'd' é\"", random);
        maybe(&mut text, "position = \"-0.5 1000000\"", random);
        maybe(&mut text, "cpus = 256\nmemory = 1048576", random);
        maybe(
            &mut text,
            "nics = { count = 16, via = \"vhost-user\" }",
            random,
        );
        maybe(&mut text, "location = [\"north-1\", \"süd\"]", random);
        maybe(
            &mut text,
            "labels = { \"a b\" = \"x&y\", c = \" d \" }",
            random,
        );
        if node > 0 && random.below(2) == 0 {
            text.push_str(&format!("apart_from = [\"n{}\"]\n", random.below(node)));
        }
    }
    for link in 0..random.below(8) {
        let one = random.below(nodes);
        let other = (one + 1 + random.below(nodes - 1)) % nodes;
        let interface = if random.below(2) == 0 {
            format!(":e{link}")
        } else {
            String::new()
        };
        text.push_str(&format!(
            "[[link]]\nends = [\"n{one}{interface}\", \"n{other}\"]\n"
        ));
        text.push_str(&format!("rate = \"{}bps\"\n", 1 + random.below(1 << 40)));
        maybe(
            &mut text,
            &format!("delay_max = \"{}ns\"", 10 + random.below(1 << 40)),
            random,
        );
        maybe(&mut text, "loss_max = \"0.0001%\"", random);
        maybe(&mut text, "path = \"engine\"", random);
        let addressed = addressed(link);
        maybe(&mut text, &addressed, random);
        maybe(&mut text, IMPAIRED, random);
        maybe(&mut text, FLAPPING, random);
    }
    maybe(
        &mut text,
        "[access.home]\nnode = \"n0\"\nusers = [\"a@b\", \"c\"]",
        random,
    );
    maybe(&mut text, "[[test]]\nping = [\"n0\", \"n1\"]", random);
    maybe(
        &mut text,
        "[[test]]\nthroughput = [\"n1\", \"n0\"]\nrate_min = \"1bps\"",
        random,
    );
    text
}
