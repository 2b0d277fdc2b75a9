//! Tests machines that continue in another QEMU, and networks that are restored from a directory.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet_host::{Agent, Vnets};

use crate::waiting::{LIMIT, TestDirectory, is_root, left_of, run, wait_until_settled};

/// A machine with links to a namespace each, and to another machine.
fn document(is_large: bool) -> Document {
    let mut text = "[vnet]\nname = \"keep\"\n[defaults]\nmemory = 128\nboot = \"clone\"\n\
        [node.a]\n[node.b]\nkind = \"namespace\"\nboot = \"cold\"\n\
        [[link]]\nends = [\"b\", \"a\"]\nrate = \"100Mbps\"\n"
        .to_owned();
    if is_large {
        text.push_str(
            "[node.c]\nkind = \"namespace\"\nboot = \"cold\"\n\
             [[link]]\nends = [\"a\", \"c\"]\nrate = \"100Mbps\"\n",
        );
    }
    Document::read(&text, Form::Toml).expect("the text is a document")
}

fn ready(agent: &Agent) -> VnetReport {
    let report = wait_until_settled(agent, "keep");
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    report
}

/// Process ID of the machine's QEMU.
fn pid(run_dir: &RunDir) -> i32 {
    let machines = Vnets::of(run_dir).vnet("keep").machines();
    let all = carina_vm::list(&machines).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].pid
}

fn passes(agent: &Agent, from: &str, to: &str) -> bool {
    let to = to.parse().expect("the address is one");
    let passed = agent.echo("keep", from, to, Duration::from_secs(60));
    println!("{from} to {to}: {passed:?}");
    passed.is_ok()
}

/// The interfaces in the namespace of the network's ports.
fn ports(report: &VnetReport) -> Vec<String> {
    let inside = format!("cv-{}", report.vnet);
    let output = std::process::Command::new("ip")
        .args(["-n", &inside, "-br", "link", "show"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.split(['@', ' ']).next());
    let mut names: Vec<String> = names
        .filter(|name| *name != "lo")
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

#[test]
fn machine_moves_while_it_runs_and_losses_are_counted() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&document(false)).unwrap();
    let report = ready(&agent);
    run(&agent, "keep", "a", "echo here >/tmp/mark");
    let before = pid(&run_dir);
    let mut viewer = UnixStream::connect(agent.console("keep", "a").unwrap()).unwrap();
    viewer.set_read_timeout(Some(LIMIT)).unwrap();

    let moved = agent.migrate("keep", "a").unwrap();
    eprintln!("{moved}");
    assert_eq!(moved.watched_from.as_deref(), Some("b"));
    assert!(moved.sent >= 500, "{moved:?}");
    // Of the echo requests at 1 kHz, some pass while the guest moves, even on a busy machine.
    assert!(moved.lost.unwrap() < moved.sent, "{moved:?}");
    assert!(moved.gap_ms.unwrap() > 0.0 && moved.total_ms > 0.0);
    let between = pid(&run_dir);
    assert_ne!(before, between);
    assert_eq!(run(&agent, "keep", "a", "cat /tmp/mark"), "here");
    assert!(passes(&agent, "b", "10.0.0.2"));
    assert_eq!(ports(&report), ["l0.0", "l0.1b"]);
    assert!(!Vnets::of(&run_dir).vnet("keep").destination().exists());
    // A viewer of the console sees output after the move.
    run(&agent, "keep", "a", "echo after the move >/dev/ttyS0");
    let mut output = Vec::new();
    while !String::from_utf8_lossy(&output).contains("after the move") {
        let mut buffer = [0; 256];
        let length = viewer.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "{:?}", String::from_utf8_lossy(&output));
        output.extend(&buffer[..length]);
    }
    // The machine can be changed, can move again, and is adopted by another agent.
    agent.apply(&document(true)).unwrap();
    ready(&agent);
    assert!(passes(&agent, "c", "10.0.0.5"));
    let again = agent.migrate("keep", "a").unwrap();
    eprintln!("{again}");
    assert_eq!(run(&agent, "keep", "a", "cat /tmp/mark"), "here");
    assert!(passes(&agent, "b", "10.0.0.2") && passes(&agent, "c", "10.0.0.5"));
    assert_eq!(ports(&report), ["l0.0", "l0.1", "l1.0b", "l1.1"]);
    drop(agent);
    let agent = Agent::new(&run_dir).unwrap();
    ready(&agent);
    let found = agent.migrate("keep", "a").unwrap();
    eprintln!("{found}");
    assert_eq!(run(&agent, "keep", "a", "cat /tmp/mark"), "here");
    assert!(passes(&agent, "b", "10.0.0.2") && passes(&agent, "c", "10.0.0.5"));
    let refused = agent.migrate("keep", "b").unwrap_err().to_string();
    assert!(refused.contains("namespace"), "{refused}");
    agent.remove("keep").unwrap();
    assert_eq!(left_of(&report.vnet.to_string()), Vec::<String>::new());
}

#[test]
fn saved_network_goes_on_with_its_addresses() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&document(true)).unwrap();
    let before = ready(&agent);
    run(&agent, "keep", "a", "echo here >/tmp/mark; (sleep 1000 &)");
    let place = directory.path().join("saved");
    let saved = agent.save("keep", &place).unwrap();
    eprintln!("{saved:?}");
    assert_eq!(saved.namespaces, ["b", "c"]);
    assert!(saved.machines["a"] > 1 << 20, "{saved:?}");
    // The network ran on while it was saved, and a second save does not overwrite anything.
    assert_eq!(run(&agent, "keep", "a", "cat /tmp/mark"), "here");
    assert!(passes(&agent, "b", "10.0.0.2"));
    assert!(agent.save("keep", &place).is_err());
    let refusal = agent.restore(&place).unwrap_err().to_string();
    assert!(refusal.contains("already exists"), "{refusal}");
    agent.remove("keep").unwrap();

    agent.restore(&place).unwrap();
    let after = ready(&agent);
    assert_eq!((before.vnet, &before.nodes), (after.vnet, &after.nodes));
    assert_eq!(
        run(&agent, "keep", "a", "cat /tmp/mark; pidof sleep | wc -w"),
        "here\n1"
    );
    assert!(passes(&agent, "b", "10.0.0.2") && passes(&agent, "c", "10.0.0.5"));
    let clock: u64 = run(&agent, "keep", "a", "date +%s").parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    assert!(now.unwrap().as_secs().abs_diff(clock) < 600, "{clock}");
    // The restored machine can move, and be saved again.
    agent.migrate("keep", "a").unwrap();
    agent.save("keep", &directory.path().join("again")).unwrap();
    agent.remove("keep").unwrap();
    assert_eq!(left_of(&before.vnet.to_string()), Vec::<String>::new());

    damage(&place.join("a.guest"));
    let damaged = agent.restore(&place).unwrap_err().to_string();
    assert!(
        damaged.contains("state of a") && damaged.contains("damaged"),
        "{damaged}"
    );
    assert!(agent.is_empty());
}

/// Changes a byte in the middle of a file.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// The steps of a move at which its QEMU or its agent may end.
#[test]
fn move_that_is_broken_off_leaves_the_machine_on_one_side() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&document(false)).unwrap();
    let report = ready(&agent);
    run(&agent, "keep", "a", "echo here >/tmp/mark");
    let dir = Vnets::of(&run_dir).vnet("keep");
    // The new QEMU is killed as soon as it exists, and later.
    for wait in [0, 200, 500, 1000] {
        let moved = migrate_while_killing(&agent, &dir.destination(), wait);
        eprintln!("destination after {wait} ms: {moved:?}");
        assert!(!dir.destination().exists(), "{moved:?}");
        let now = agent.report("keep").unwrap();
        assert_eq!(ports(&now).len(), 2, "{:?}", ports(&now));
        // The machine continues in its old QEMU, unless it was already in the new one and has ended
        // with it.
        if moved.is_err() {
            assert!(passes(&agent, "b", "10.0.0.2"));
            assert_eq!(run(&agent, "keep", "a", "cat /tmp/mark"), "here");
        } else {
            break;
        }
    }
    // If the old QEMU is killed, the machine ends, and nothing else is left.
    let moved = migrate_while_killing(&agent, &dir.machines(), 100);
    eprintln!("source: {moved:?}");
    assert!(!dir.destination().exists(), "{moved:?}");
    agent.remove("keep").unwrap();
    assert_eq!(left_of(&report.vnet.to_string()), Vec::<String>::new());
}

/// Moves the machine, and kills the QEMUs of a directory `wait` ms after the new QEMU has appeared.
fn migrate_while_killing(
    agent: &Agent,
    killed: &Path,
    wait: u64,
) -> carina_vnet_host::Result<carina_vnet::report::MigrationReport> {
    let is_done = AtomicBool::new(false);
    let destination = killed.with_file_name("to");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let has_come = || !carina_vm::list(&destination).unwrap_or_default().is_empty();
            while !is_done.load(Ordering::Relaxed) && !has_come() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(wait));
            for machine in carina_vm::list(killed).unwrap_or_default() {
                kill(machine.pid);
            }
        });
        let moved = agent.migrate("keep", "a");
        is_done.store(true, Ordering::Relaxed);
        moved
    })
}

fn kill(pid: i32) {
    let pid = pid.to_string();
    let _ = std::process::Command::new("kill")
        .args(["-9", &pid])
        .status();
}
