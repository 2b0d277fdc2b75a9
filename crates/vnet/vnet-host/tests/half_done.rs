//! Tests that an agent completes what a killed agent has left unfinished.

use std::fs;

use carina_api::paths::RunDir;
use carina_vm::Record;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet_host::{Agent, VnetDir, Vnets};
use serde_json::Value;

use crate::waiting::{TestDirectory, is_root, left_of, run, wait_until_settled};

fn ready(agent: &Agent) -> VnetReport {
    let report = wait_until_settled(agent, "half");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    report
}

/// An agent that has begun to make a network.
fn made(run_dir: &RunDir, text: &str) -> Agent {
    let agent = Agent::new(run_dir).unwrap();
    let document = Document::read(text, Form::Toml).unwrap();
    agent.create(&document).unwrap();
    agent
}

fn machine(dir: &VnetDir) -> Record {
    let all = carina_vm::list(&dir.machines()).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn read(path: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn machine_of_an_agent_that_was_killed_is_made_whole() {
    if !is_root() {
        return;
    }
    let text = "[vnet]\nname = \"half\"\n[defaults]\nmemory = 128\nboot = \"clone\"\n[node.a]\n\
        [node.b]\nkind = \"namespace\"\nboot = \"cold\"\n\
        [[link]]\nends = [\"b\", \"a\"]\nrate = \"100Mbps\"\n";
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let dir = Vnets::of(&run_dir).vnet("half");
    let agent = made(&run_dir, text);
    let report = ready(&agent);
    run(&agent, "half", "a", "echo here >/tmp/mark");
    let marked = |agent: &Agent| run(agent, "half", "a", "cat /tmp/mark");

    // As if the agent was killed while it saved the machine, which is paused then.
    drop(agent);
    let first = machine(&dir);
    carina_vm::pause_guest(&first).unwrap();
    let agent = Agent::new(&run_dir).unwrap();
    ready(&agent);
    assert_eq!(
        (machine(&dir).pid, marked(&agent)),
        (first.pid, "here".into())
    );

    // As if the agent was killed while it renamed the machine after a move: there is a record at
    // both places.
    drop(agent);
    let to = dir.destination();
    fs::create_dir_all(&to).unwrap();
    let record = fs::read_to_string(dir.machines().join("a.machine")).unwrap();
    fs::write(to.join("a.machine"), record.replace("/vm/", "/to/")).unwrap();
    fs::write(to.join("a.moved"), "[\"l0.1\"]").unwrap();
    let agent = Agent::new(&run_dir).unwrap();
    ready(&agent);
    assert_eq!(
        (machine(&dir).pid, marked(&agent)),
        (first.pid, "here".into())
    );
    assert!(!to.exists());

    // As if the agent was killed while it cloned the machine.
    drop(agent);
    let path = dir.machines().join("a.machine");
    let mut record = read(&path);
    assert_eq!(record["is_partial"], false);
    record["is_partial"] = true.into();
    fs::write(&path, record.to_string()).unwrap();
    let agent = Agent::new(&run_dir).unwrap();
    ready(&agent);
    assert_ne!(machine(&dir).pid, first.pid);
    assert_eq!(run(&agent, "half", "a", "hostname"), "a");

    agent.remove("half").unwrap();
    assert_eq!(left_of(&report.vnet.to_string()), Vec::<String>::new());
}

#[test]
fn access_point_that_has_gone_with_its_agent_is_retired() {
    if !is_root() {
        return;
    }
    let text = "[vnet]\nname = \"half\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n\
        [[link]]\nends = [\"a\", \"b\"]\nrate = \"100Mbps\"\n\
        [access.home]\nnode = \"a\"\nusers = [\"alice\"]\nrate = \"10Mbps\"\n";
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let dir = Vnets::of(&run_dir).vnet("half");
    let agent = made(&run_dir, text);
    ready(&agent);
    drop(agent);
    let [home, old] = ["home", "old"].map(|name| dir.path().join(format!("access-{name}.json")));
    fs::copy(&home, &old).unwrap();
    assert_ne!(read(&old)["port"], 0);
    let agent = Agent::new(&run_dir).unwrap();
    ready(&agent);
    assert_eq!(read(&old)["port"], 0);
    assert_ne!(read(&home)["port"], 0);
    agent.remove("half").unwrap();
    assert!(!dir.path().exists());
}
