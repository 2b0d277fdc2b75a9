//! Test of `carina sim vnet`.

use std::process::Command;

use serde_json::{Value, json};

use crate::commands::node::CARINA;

fn sim_vnet(arguments: &[&str]) -> String {
    let mut command = Command::new(CARINA);
    command.args(["sim", "vnet"]).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn virtual_networks_are_played_by_seed() {
    let printed: Value = serde_json::from_str(&sim_vnet(&["--seeds", "0..3", "--json"])).unwrap();
    assert_eq!(printed["seeds"], 3);
    assert_eq!(printed["failures"], json!([]));
    assert!(printed["messages"].as_u64() > Some(100), "{printed}");
}

#[test]
fn a_seed_of_virtual_networks_is_played_the_same_way_again() {
    let play = || {
        let mut events = sim_vnet(&["--seeds", "5..6", "--trace"]);
        // The last line is removed, because it contains the duration of the run.
        events.truncate(events.trim_end().rfind('\n').unwrap());
        events
    };
    let events = play();
    assert!(events.lines().count() > 100, "{events}");
    assert!(events == play(), "the events of a seed differ");
}
