//! Tests of roles of virtual networks in one process, with requests of an operator.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use carina_vnet::vno::Seen;
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::node::{CARINA, Node, addresses};
use crate::commands::providers::is_root;

/// Time limit of any step on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);

fn carina(words: &[&str]) -> Output {
    let output = Command::new(CARINA).args(["--json"]).args(words).output();
    output.unwrap()
}

fn done(words: &[&str]) -> String {
    let output = carina(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(words: &[&str]) -> String {
    let output = carina(words);
    assert_eq!(output.status.code(), Some(3), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a file with a PIP, a VNP and a VNO. Returns the address of the VNO.
fn write_roles(directory: &Path) -> String {
    let places = addresses();
    write_roles_at(directory, &places);
    let [_, _, acme] = places;
    acme
}

/// Like [`write_roles`], with given addresses of the three roles.
fn write_roles_at(directory: &Path, [uk, net, acme]: &[String; 3]) {
    let inventory = "[[hosts]]\nname = \"h1\"\ncpus = 8\nmemory_mib = 4096\naddress = \"10.9.0.1\"\n\
         tunnel_addresses = 8\n";
    std::fs::write(directory.join("uk.toml"), inventory).unwrap();
    let roles = format!(
        "keys = \"keys\"\n[[pip]]\nname = \"uk\"\nlisten = \"{uk}\"\nstore = \"uk.db\"\n\
         inventory = \"uk.toml\"\n[[vnp]]\nname = \"net\"\nlisten = \"{net}\"\n\
         store = \"net.db\"\npips = {{ uk = [\"{uk}\"] }}\n[[vno]]\nname = \"acme\"\n\
         listen = \"{acme}\"\nstore = \"acme.db\"\nvnp = \"net\"\nvnp_at = [\"{net}\"]\n"
    );
    std::fs::write(directory.join("roles.toml"), roles).unwrap();
}

fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !look() {
        assert!(begin.elapsed() < LIMIT, "waiting: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that ends with its test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn roles_of_a_file_serve_their_operator_until_ctrl_c() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (keys, file) = (path("keys"), path("roles.toml"));
    let acme = write_roles(directory.path());
    done(&["vnet", "keys", "ca", &keys]);
    let missing = carina(&["vnet", "serve", &file]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    let printed = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(printed.contains("uk.pip.pem"), "{printed}");
    for party in ["pip uk", "vnp net", "vno acme", "operator acme"] {
        let (role, name) = party.split_once(' ').unwrap();
        done(&["vnet", "keys", "issue", &keys, role, name]);
    }
    let printed = refused(&["vnet", "keys", "issue", &keys, "pip", "UK"]);
    assert!(printed.contains("a to z"), "{printed}");
    let mut command = Command::new(CARINA);
    command.args(["vnet", "serve", &file]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut serving = Serving(command.spawn().unwrap());
    let at = ["--vno", &acme, "--keys", &keys];
    let with = |words: &[&str]| -> Output { carina(&[&["vnet"][..], words, &at[..]].concat()) };
    wait_until("the VNO answers", || with(&["list"]).status.success());
    assert_eq!(with(&["list"]).stdout, b"[]\n");
    // No agent reports, so there is no host. The network is refused with a reason, and removed.
    let document = "[vnet]\nname = \"one\"\n[node.a]\nkind = \"namespace\"\n";
    std::fs::write(path("one.toml"), document).unwrap();
    let output = with(&["up", &path("one.toml")]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("network one is refused"), "{printed}");
    wait_until("it goes", || with(&["list"]).stdout == b"[]\n");
    let output = with(&["down", "two"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && printed.contains("no network two"),
        "{printed}"
    );
    kill_process(Pid::from_child(&serving.0), Signal::INT).unwrap();
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
}

#[test]
fn roles_and_an_agent_talk_over_flows_of_a_dif() {
    if !is_root() {
        return;
    }
    let node = Node::new();
    let directory = node.directory.path();
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let keys = path("keys");
    node.done(&["dif", "create", "management", "--over", "local"]);
    write_roles_at(directory, &[(); 3].map(|()| "dif:management".to_owned()));
    done(&["vnet", "keys", "ca", &keys]);
    for party in ["pip uk", "vnp net", "vno acme", "agent h1", "operator acme"] {
        let (role, name) = party.split_once(' ').unwrap();
        done(&["vnet", "keys", "issue", &keys, role, name]);
    }
    let begin = |words: &[&str]| {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(directory.join("run")).arg("vnet");
        command.args(words).stdout(Stdio::null());
        Serving(command.spawn().unwrap())
    };
    let serve = || begin(&["serve", &path("roles.toml")]);
    let mut serving = serve();
    let agent = ["agent", "--host", "h1", "--pip", "uk=dif:management"];
    let _agent = begin(&[&agent[..], &["--keys", &keys]].concat());
    let at = ["--vno", "dif:management", "--keys", &keys];
    let with = |words: &[&str]| node.run(&[&["vnet"][..], words, &at[..]].concat());
    wait_until("the VNO answers", || with(&["list"]).status.success());
    let document = "[vnet]\nname = \"flows\"\non_insufficient = \"queue 2m\"\n\
        [defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n\
        [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n";
    std::fs::write(path("flows.toml"), document).unwrap();
    let output = with(&["up", &path("flows.toml")]);
    assert!(output.status.success(), "{output:?}");
    let seen: Seen = serde_json::from_slice(&output.stdout).unwrap();
    assert!(seen.standing.is_ready());
    // Roles that restart can use their names again.
    serving.0.kill().unwrap();
    serving.0.wait().unwrap();
    let _again = serve();
    wait_until("the VNO answers", || with(&["list"]).status.success());
    let output = with(&["down", "flows"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn mistakes_in_files_of_roles_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("roles.toml");
    write_roles(directory.path());
    let text = std::fs::read_to_string(&path).unwrap();
    let printed = |text: &str| {
        std::fs::write(&path, text).unwrap();
        refused(&["vnet", "serve", path.to_str().unwrap()])
    };
    assert!(printed(&text.replace("vnp_at", "at")).contains("unknown field `at`"));
    assert!(printed(&text.replace("uk.db", "http://uk")).contains("etcd://ADDRESS:PORT"));
    assert!(
        printed(&text.replace("\nlisten = \"127.", "\nlisten = \"there\"#")).contains("dif:NAME")
    );
    assert!(printed(&text.replace("uk.toml", "no.toml")).contains("no.toml"));
}
