//! Test of a VM that moves between two hosts of a provider, while processes are killed. One of its
//! links leads to another provider.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::commands::providers::{is_root, namespaces_of};

use self::house::{House, is_for_time};

mod disk;
mod house;

/// Time without new output of any process after which the test gives up. A busy machine is slow.
const STILL: Duration = Duration::from_secs(240);
/// Time limit of any step.
const LIMIT: Duration = Duration::from_secs(1800);
/// Time limit that commands get for their own waiting.
const WAIT: &str = "25m";
/// Number of attempts for steps that may take too long.
const TRIES: u32 = 5;
/// The hosts between which nodes move, and the host of the other provider.
const HOSTS: [&str; 2] = ["h1", "h2"];
const BEYOND: &str = "h3";
const PROCESSES: [&str; 6] = ["pip", "beyond", "rest", "h1", "h2", BEYOND];

fn other(host: &str) -> &'static str {
    HOSTS.into_iter().find(|other| *other != host).unwrap()
}

#[test]
fn machine_moves_between_hosts_whatever_is_killed() {
    if !is_root() {
        return;
    }
    let mut house = House::start();
    let output = house.operator(&["up", &house.path("moves.toml")]);
    assert!(output.status.success(), "{output:?}\n{}", house.logs());
    let marked = house.operator(&["exec", "r", "sh", "-c", "echo here >/tmp/mark"]);
    assert!(marked.status.success(), "{marked:?}\n{}", house.logs());
    let mut at = house.places();
    assert_eq!(at.len(), 1, "{at:?}");
    let mut here = at.remove(0);
    // The VM moves there and back, twice, so that each end of a link has been on either host, at
    // either of its ports.
    let mut watched = 0;
    for _ in 0..4 {
        let target = other(here);
        let report = house.migrate(target);
        println!("{report}");
        assert_eq!(report["to"], target);
        if let (Some(lost), Some(sent)) = (report["lost"].as_u64(), report["sent"].as_u64()) {
            assert!(lost < sent, "{report}\n{}", house.logs());
            assert!(report["gap_ms"].as_f64().unwrap() > 0.0, "{report}");
            watched += 1;
        }
        house.wait_until_ready();
        house.wait_for_mark();
        assert_eq!(house.places(), [target]);
        house.wait_for_tests();
        house.wait_for_ports();
        here = target;
    }
    assert!(watched > 0, "no move was watched\n{}", house.logs());
    is_refused(&house, here, other(here));
    survives_deaths(&mut house, here);
    let uids = house.uids();
    let output = house.operator(&["down"]);
    assert!(output.status.success(), "{output:?}\n{}", house.logs());
    is_drained(&house);
    assert_eq!(namespaces_of(&uids), Vec::<String>::new());
    for host in HOSTS.into_iter().chain([BEYOND]) {
        assert_eq!(house.network(host), Path::new(""));
    }
}

/// Checks that the VM survives on exactly one host, whichever process is killed and whenever.
fn survives_deaths(house: &mut House, mut here: &'static str) {
    for (process, wait) in [
        ("pip", 300),
        ("rest", 600),
        ("beyond", 700),
        (BEYOND, 900),
        ("pip", 1000),
        ("there", 500),
        ("here", 800),
    ] {
        let target = other(here);
        let process = match process {
            "here" => here,
            "there" => target,
            other => other,
        };
        let mut moves = house.migration("uk", "r", target);
        let mut moves = moves
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        house.kill_and_begin(process);
        moves.wait().unwrap();
        house.wait_until_moved();
        house.wait_until_ready();
        println!(
            "{process} killed after {wait} ms: from {here} to {:?}",
            house.places()
        );
        house.wait_for_mark();
        house.wait_for_ports();
        here = house.places().remove(0);
    }
}

/// Checks that a move which is not possible is refused with the reason, and changes nothing.
fn is_refused(house: &House, here: &str, target: &str) {
    for (operator, node, to, words) in [
        ("uk", "n", "h2", "it is a namespace"),
        ("uk", "r", here, "already"),
        ("uk", "r", "h9", "no host h9"),
        ("uk", "z", target, "no node z"),
        ("de", "r", target, "de"),
    ] {
        let output = house.migration(operator, node, to).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && printed.contains(words),
            "{node}: {output:?}"
        );
    }
    assert_eq!(house.places(), [here]);
}

/// Checks that the nodes of a drained host leave it, and that no other node arrives until the drain
/// is undone.
fn is_drained(house: &House) {
    let succeeded = |output: Output| {
        assert!(output.status.success(), "{output:?}\n{}", house.logs());
        output
    };
    succeeded(house.operator(&["up", &house.path("alone.toml")]));
    let here = house.places()[0];
    let (target, place) = match here {
        "h1" => ("h2", "london"),
        _ => ("h1", "berlin"),
    };
    // A node that stayed for lack of time leaves the host at the next attempt.
    let report = (0..TRIES).find_map(|_| {
        let output = house.drain("drain", here);
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        let stayed = report["stayed"].to_string();
        assert!(
            report["stayed"] == json!([]) || is_for_time(&stayed),
            "{report}"
        );
        output.status.success().then_some(report)
    });
    let report = report.unwrap_or_else(|| panic!("it has not left\n{}", house.logs()));
    let moved = report["moved"].as_array().unwrap();
    assert!(
        moved.len() == 1 && moved[0]["report"]["to"] == target,
        "{report}"
    );
    assert_eq!(house.places(), [target]);
    let late = |on_insufficient: &str| {
        format!(
            "[vnet]\nname = \"late\"\non_insufficient = \"{on_insufficient}\"\n[node.s]\n\
             kind = \"namespace\"\nlocation = [\"{place}\"]\n"
        )
    };
    std::fs::write(house.path("late.toml"), late("reject")).unwrap();
    let refused = house.operator(&["up", &house.path("late.toml")]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && printed.contains("no host"),
        "{refused:?}\n{}",
        house.logs()
    );
    succeeded(house.drain("undrain", here));
    let _ = house.operator(&["down", "late"]);
    // The host's latest report of its resources may still be on its way.
    std::fs::write(house.path("late.toml"), late("queue 25m")).unwrap();
    succeeded(house.operator(&["up", &house.path("late.toml")]));
    let refused = house.drain("drain", here);
    let printed = String::from_utf8_lossy(&refused.stderr);
    let words = "s of late: node s cannot move to another host: it is a namespace";
    assert!(
        refused.status.code() == Some(3) && printed.contains(words),
        "{refused:?}"
    );
    // The refused command has changed nothing.
    let refused = house.drain("undrain", here);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(printed.contains("is not drained"), "{refused:?}");
    for name in ["late", "alone"] {
        succeeded(house.operator(&["down", name]));
    }
}
