//! Tests of `carina vnet check`, `convert` and `schema`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::commands::node::CARINA;

fn vnet(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(CARINA);
    command.arg("vnet").args(arguments).arg(file);
    command.output().expect("carina runs")
}

/// The TOML block of the reference page, which shows all keys of a document.
fn document_of_the_page() -> &'static str {
    let page = include_str!("../../../../../docs/reference/vnet-documents.md");
    let (_, rest) = page.split_once("```toml\n").expect("a block");
    rest.split_once("```").expect("its end").0
}

#[test]
fn documents_of_each_form_are_checked_and_converted() {
    let directory = tempfile::tempdir().unwrap();
    let toml = directory.path().join("demo.toml");
    fs::write(&toml, document_of_the_page()).unwrap();
    let checked = vnet(&["check"], &toml);
    let words = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(words, "demo: nodes 3, links 2, access points 1, tests 1\n");
    let mut before = toml;
    for form in ["xml", "json", "toml"] {
        let converted = vnet(&["convert", "--to", form], &before);
        assert!(converted.status.success(), "{converted:?}");
        let after = directory.path().join(format!("after.{form}"));
        fs::write(&after, &converted.stdout).unwrap();
        assert_eq!(vnet(&["check"], &after).stdout, checked.stdout);
        before = after;
    }
    let schema = Command::new(CARINA)
        .args(["vnet", "schema"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&schema.stdout).contains("xs:schema"));
}

#[test]
fn wrong_documents_are_refused_with_file_line_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("demo.toml");
    fs::write(
        &file,
        document_of_the_page().replace("\"r3\"]\nrate", "\"r4\"]\nrate"),
    )
    .unwrap();
    let refused = vnet(&["check"], &file);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{words}");
    for word in ["demo.toml: line ", "link 2", "`r4` is not in the document"] {
        assert!(words.contains(word), "{word} in {words}");
    }
    let other = directory.path().join("demo.yaml");
    fs::copy(&file, &other).unwrap();
    let unknown = vnet(&["check"], &other);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("--from"));
    assert_eq!(
        vnet(&["check"], &directory.path().join("none.toml"))
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn document_is_drawn_before_it_is_up() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("demo.toml");
    fs::write(&file, document_of_the_page()).unwrap();
    let picture = directory.path().join("demo.svg");
    let drawn = vnet(&["show", "--svg", picture.to_str().unwrap()], &file);
    assert!(drawn.status.success(), "{drawn:?}");
    let svg = fs::read_to_string(&picture).unwrap();
    for word in [
        "<svg ",
        ">r1</text>",
        ">r2</text>",
        ">r3</text>",
        "document of network demo",
    ] {
        assert!(svg.contains(word), "{word} in {svg}");
    }
    // Nodes that are not up yet have no state.
    assert!(!svg.contains("stroke-dasharray"), "{svg}");
    fs::write(&file, "[vnet]\nname = 7\n").unwrap();
    let refused = vnet(&["show"], &file);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("demo.toml: line 2"));
}
