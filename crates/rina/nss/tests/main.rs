//! `getent`, which loads the service as every program of the C library does.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test may panic and is read by its name"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use carina_client::Node;
use carina_node::{Config, NodeHandle};

/// The library, which cargo has built for these tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().unwrap();
    let places = [directory, directory.parent().unwrap()];
    let libraries = places.map(|place| place.join("libnss_carina.so"));
    let built = libraries.into_iter().find(|library| library.is_file());
    built.expect("cargo builds the library beside its tests")
}

fn node(directory: &Path) -> NodeHandle {
    let mut config = Config::parse("", None).unwrap();
    config.node.run_dir = Some(directory.join("run"));
    carina_node::Node::spawn(config).unwrap()
}

/// Runs getent with this service only.
fn getent(directory: &Path, words: &[&str]) -> Option<Output> {
    let named = directory.join("libnss_carina.so.2");
    if !named.exists() {
        std::os::unix::fs::symlink(library(), &named).unwrap();
    }
    let mut getent = Command::new("getent");
    getent.args(["-s", "carina"]).args(words);
    getent.env("LD_LIBRARY_PATH", directory);
    getent.env("CARINA_RUN", directory.join("run"));
    match getent.output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIP: no getent here: {error}");
            None
        }
    }
}

/// What getent prints; `None` where there is no getent. An unknown name is the exit code 2.
fn found(directory: &Path, words: &[&str]) -> Option<Result<String, Option<i32>>> {
    let output = getent(directory, words)?;
    let said = String::from_utf8(output.stdout).unwrap();
    Some(if output.status.success() {
        Ok(said)
    } else {
        Err(output.status.code())
    })
}

#[test]
fn programs_find_registered_names_and_their_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let _node = node(directory);
    let client = Node::connect_to(directory.join("run/ipc.sock")).unwrap();
    let name = carina_client::name("web:80").unwrap();
    let _web = client.register(&name, None).unwrap();
    let host = "web.dif.internal";
    let Some(four) = found(directory, &["ahostsv4", host]) else {
        return;
    };
    assert!(
        four.as_ref().unwrap().starts_with("198.18.0.1 "),
        "{four:?}"
    );
    let six = found(directory, &["ahostsv6", host]).unwrap().unwrap();
    assert!(six.starts_with("fd63:6172:696e:6100::1 "), "{six}");
    let entry = found(directory, &["hosts", host]).unwrap().unwrap();
    assert!(entry.trim_end().ends_with(host), "{entry}");
    for address in ["198.18.0.1", "fd63:6172:696e:6100::1"] {
        let entry = found(directory, &["hosts", address]).unwrap().unwrap();
        assert!(entry.trim_end().ends_with(host), "{entry}");
    }
    for unknown in [
        "nobody.dif.internal",
        "example.org",
        "198.18.0.2",
        "192.0.2.1",
    ] {
        assert_eq!(
            found(directory, &["hosts", unknown]),
            Some(Err(Some(2))),
            "{unknown}"
        );
    }
}

#[test]
fn without_a_node_a_look_up_fails_at_once() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("run")).unwrap();
    let Some(outcome) = found(directory.path(), &["hosts", "web.dif.internal"]) else {
        return;
    };
    assert_eq!(outcome, Err(Some(2)));
}
