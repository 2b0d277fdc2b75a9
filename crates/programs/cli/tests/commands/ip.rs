//! `carina ip`: TCP between two network namespaces, each with a node.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use carina_namespaces::{Namespace, namespace_file};
use carina_sys::NetworkNamespace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::CARINA;
use crate::commands::providers::is_root;

/// A namespace with a node.
struct Host {
    name: String,
    namespace: Namespace,
    directory: tempfile::TempDir,
    processes: Vec<Child>,
}

impl Host {
    fn new(side: &str) -> Host {
        let name = format!("cip{}-{side}", std::process::id());
        let namespace = Namespace::new(&name).unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        Host {
            name,
            namespace,
            directory: tempfile::tempdir().unwrap(),
            processes: Vec::new(),
        }
    }

    fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn start_node(&mut self, side: &str, role: &str) {
        let file = self.directory.path().join("node.toml");
        let toml = format!(
            "node.name = \"{side}\"\n[[ipcp]]\nname = \"e\"\ntype = \"eth\"\ndif = \"lan\"\n\
             interface = \"v{side}\"\n[[dif]]\nname = \"n.DIF\"\nrole = \"{role}\"\nover = \
             [\"lan\"]\n"
        );
        std::fs::write(&file, toml).unwrap();
        let mut node = self.namespace.command(CARINA);
        node.arg("--run")
            .arg(self.run())
            .arg("node")
            .arg("--config")
            .arg(file);
        let node = node.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.processes.push(node.unwrap());
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.run());
        command.args(["--wait", "60s", "--json"]).args(words);
        command
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Starts a member whose interface is in the namespace, though the command is not.
    fn up(&mut self, words: &[&str]) -> u32 {
        let netns = self.name.clone();
        let all = [&["ip", "up", "n.DIF", "--netns", &netns], words].concat();
        eventually("the system is in the DIF", || {
            let difs = self.json(&["dif", "list"]);
            difs.to_string().contains("n.DIF")
        });
        let mut up = self.command(&all).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(up.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.contains("carina0"), "{line}");
        let pid = up.id();
        self.processes.push(up);
        pid
    }

    fn knows(&self, prefix: &str) -> bool {
        let routes = self.json(&["ip", "routes"]);
        routes[0]["members"].to_string().contains(prefix)
    }

    fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        let namespace = NetworkNamespace::open(&namespace_file(&self.name)).unwrap();
        namespace.within(act).unwrap()
    }

    fn ip(&self, words: &[&str]) -> Output {
        let mut command = Command::new("ip");
        command
            .args(["-n", &self.name])
            .args(words)
            .output()
            .unwrap()
    }

    /// Ends the last process with a signal.
    fn end(&mut self, signal: Signal) {
        let mut process = self.processes.pop().unwrap();
        kill_process(Pid::from_child(&process), signal).unwrap();
        process.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        while !self.processes.is_empty() {
            self.end(Signal::KILL);
        }
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not in time: {what}");
}

#[test]
fn tcp_crosses_a_dif_and_no_interface_outlives_its_command() {
    if !is_root() {
        return;
    }
    let [mut a, mut b] = [Host::new("a"), Host::new("b")];
    a.namespace.connect("va", &b.namespace, "vb").unwrap();
    a.start_node("a", "create");
    b.start_node("b", "join");
    a.up(&["--address", "10.9.1.1/24", "--prefix", "10.20.0.0/16"]);
    b.up(&["--address", "10.9.1.2/24", "--route", "10.20.0.0/16"]);
    eventually("a knows b", || a.knows("10.9.1.2/32"));
    eventually("b knows a", || b.knows("10.20.0.0/16"));
    a.ip(&["address", "add", "10.20.0.1/32", "dev", "lo"]);
    // The address of the interface, and one behind the member.
    for address in ["10.9.1.1", "10.20.0.1"] {
        let listener = a.within(|| TcpListener::bind((address, 0)).unwrap());
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            connection.read_to_end(&mut all).unwrap();
            all
        });
        let mut client = b.within(|| TcpStream::connect(at).unwrap());
        let sent = vec![7; 1 << 20];
        client.write_all(&sent).unwrap();
        drop(client);
        assert!(server.join().unwrap() == sent);
    }
    let peers = b.json(&["ip", "peers"]);
    assert_eq!(peers[0]["flows"][0]["local"], "10.9.1.2/32", "{peers}");
    let stats = a.json(&["ip", "stats"]);
    let received = &stats[0]["counters"]["bytes_received"];
    assert!(received.as_u64().unwrap() > 2 << 20, "{stats}");
    let has = |host: &Host| host.ip(&["link", "show", "carina0"]).status.success();
    assert!(has(&a) && has(&b));
    a.end(Signal::KILL);
    b.end(Signal::INT);
    eventually("no interface is left", || !has(&a) && !has(&b));
    assert!(!String::from_utf8_lossy(&b.ip(&["route"]).stdout).contains("10.20"));
    assert_eq!(b.json(&["ip", "routes"]), serde_json::json!([]));
}
