//! Tests of the three programs: `carina`, `carina-guest` and `carina-tools`.

use std::path::Path;
use std::process::{Command, Output};

use super::node::CARINA;

const GUEST: &str = concat!(env!("CARGO_BIN_EXE_carina"), "-guest");
const TOOLS: &str = concat!(env!("CARGO_BIN_EXE_carina"), "-tools");

fn run(program: &str, words: &[&str]) -> Output {
    Command::new(program).args(words).output().unwrap()
}

/// The commands that `--help` lists.
fn commands(program: &str) -> Vec<String> {
    let help = String::from_utf8(run(program, &["--help"]).stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).unwrap();
    let list = list.split("\n\n").next().unwrap();
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn help_of_a_tool_is_the_same_from_both_programs() {
    assert_eq!(commands(CARINA), commands(TOOLS));
    for words in [
        &["bench", "hv", "--help"][..],
        &["vnet", "bench", "--help"],
        &["import", "--help"],
        &["bench", "no-such-bench"],
    ] {
        let (from_carina, from_tools) = (run(CARINA, words), run(TOOLS, words));
        assert_eq!(from_carina.status, from_tools.status, "{words:?}");
        assert_eq!(from_carina.stdout, from_tools.stdout, "{words:?}");
        assert_eq!(from_carina.stderr, from_tools.stderr, "{words:?}");
    }
}

#[test]
fn carina_hands_a_tool_its_options_and_its_exit_code() {
    let simulation = run(CARINA, &["--json", "sim", "run", "--seed", "7"]);
    assert!(simulation.status.success(), "{simulation:?}");
    let result: serde_json::Value = serde_json::from_slice(&simulation.stdout).unwrap();
    assert!(result.is_object(), "{result}");
    let missing = run(CARINA, &["import", "rlite-ctl", "/no/such/file"]);
    let direct = run(TOOLS, &["import", "rlite-ctl", "/no/such/file"]);
    assert_eq!(missing.status.code(), direct.status.code());
    assert_ne!(missing.status.code(), Some(0));
    assert_eq!(missing.stderr, direct.stderr);
}

#[test]
fn carina_without_the_tools_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let alone = directory.path().join("carina");
    // `cp` writes the copy. If this process wrote it, a process that another test starts at the
    // same moment could inherit the open file, and the kernel refuses to run a file that is open
    // for writing.
    let copied = run("cp", &[CARINA, alone.to_str().unwrap()]);
    assert!(copied.status.success(), "{copied:?}");
    let output = run(alone.to_str().unwrap(), &["sim", "run", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8(output.stderr).unwrap();
    let place = alone.display().to_string();
    assert!(
        printed.contains("carina-tools") && printed.contains(&place),
        "{printed}"
    );
}

#[test]
fn guest_has_a_node_and_what_uses_its_flows() {
    let commands = commands(GUEST);
    for present in ["node", "ipcp", "flow", "dif", "ping", "perf", "cat"] {
        assert!(commands.iter().any(|name| name == present), "{commands:?}");
    }
    for absent in ["vm", "vnet", "bench", "graph", "sim", "lab"] {
        assert!(!commands.iter().any(|name| name == absent), "{commands:?}");
    }
    let size = |program: &str| Path::new(program).metadata().unwrap().len();
    assert!(3 * size(GUEST) < 2 * size(CARINA));
    assert!(size(CARINA) < size(TOOLS));
}
