//! Runs providers, operators and agents as separate processes in a network namespace of the test.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use carina_namespaces::{Namespace, NamespaceAccess, namespace_file};
use carina_sys::NetworkNamespace;
use carina_vnet::document::{Document, Form};
use carina_vnet::vno::Seen;
use carina_vnet_roles::calling::address::Address;
use carina_vnet_roles::calling::connection::CallError;
use carina_vnet_roles::keys::KeyDir;
use carina_vnet_roles::operator::Client;

use crate::commands::node::CARINA;

/// Time limit of any step on a slow machine.
const LIMIT: Duration = Duration::from_secs(180);

/// The processes, each by its role and name.
pub(super) const PROCESSES: [&str; 6] = [
    "pip uk", "pip de", "vnp net", "vno acme", "agent h1", "agent h2",
];
/// Words that only providers may know.
pub(super) const SECRETS: [&str; 7] = ["h1", "h2", "10.9.0.1", "10.9.1.1", "uk", "de", "channel"];
/// IP address at which end users reach hosts.
pub(super) const HOST_FOR_USERS: &str = "192.0.2.1";
/// Address of the VNO.
pub(super) const VNO: &str = "127.0.0.1:7099";

/// Two providers with one host each, whose underlays are joined by a wire, and a VNP and a VNO.
pub(super) struct Providers {
    directory: tempfile::TempDir,
    namespace: Namespace,
    inside: NetworkNamespace,
    processes: Vec<(&'static str, Child)>,
    /// Whether agents are started with the option to open nodes that are namespaces.
    pub opens_namespaces: bool,
}

impl Providers {
    /// Starts all processes. `tag` distinguishes the namespace from those of other tests.
    pub(super) fn start(tag: &str) -> Providers {
        let name = format!("cvr{}{tag}", std::process::id());
        let namespace = Namespace::new(&name).unwrap();
        let wire = "link add wire1 type veth peer name wire2";
        for words in [wire, "link set wire1 up", "link set wire2 up"] {
            let words: Vec<&str> = words.split(' ').collect();
            namespace.ip(&words).unwrap();
        }
        let mut providers = Providers {
            directory: tempfile::tempdir().unwrap(),
            inside: NetworkNamespace::open(&namespace_file(&name)).unwrap(),
            namespace,
            processes: Vec::new(),
            opens_namespaces: true,
        };
        providers.make_keys();
        for (pip, host, place, address, beyond) in [
            ("uk", "h1", "london", "10.9.0.1", "10.9.1.0/24"),
            ("de", "h2", "berlin", "10.9.1.1", "10.9.0.0/24"),
        ] {
            let text = format!(
                "[[hosts]]\nname = \"{host}\"\ncpus = 8\nmemory_mib = 4096\n\
                 location = \"{place}\"\naddress = \"{address}\"\ntunnel_addresses = 8\n\
                 [[borders]]\nname = \"channel\"\nhost = \"{host}\"\nrate_bps = 1000000000\n\
                 reaches = [\"{beyond}\"]\n"
            );
            std::fs::write(providers.path(&format!("{pip}.toml")), text).unwrap();
        }
        for process in PROCESSES {
            providers.begin(process);
        }
        providers
    }

    fn make_keys(&self) {
        let (keys, operator) = (self.path("keys"), self.path("operator"));
        let done = |words: &[&str]| {
            let mut command = Command::new(CARINA);
            let output = command.args(["vnet", "keys"]).args(words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
        };
        done(&["ca", &keys]);
        for party in PROCESSES {
            let (role, name) = party.split_once(' ').unwrap();
            done(&["issue", &keys, role, name]);
        }
        done(&["issue", &keys, "operator", "acme", "--to", &operator]);
        done(&["issue", &keys, "delegate", "bob", "--to", &self.path("bob")]);
    }

    /// Path of a file or directory of this test.
    pub(super) fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// Starts one of the processes.
    pub(super) fn begin(&mut self, process: &'static str) {
        let (role, name) = process.split_once(' ').unwrap();
        let inventory = self.path(&format!("{name}.toml"));
        let rest = match process {
            "pip uk" => "--listen 127.0.0.1:7101 --inventory",
            "pip de" => "--listen 127.0.0.1:7102 --inventory",
            "vnp net" => "--listen 127.0.0.1:7100 --pip uk=127.0.0.1:7101 --pip de=127.0.0.1:7102",
            "vno acme" => "--listen 127.0.0.1:7099 --vnp net=127.0.0.1:7100",
            "agent h1" => "--underlay wire1 --pip uk=127.0.0.1:7101",
            "agent h2" => "--underlay wire2 --pip de=127.0.0.1:7102",
            other => panic!("{other} is not one of them"),
        };
        let log = std::fs::File::options();
        let log = { log }.create(true).append(true).open(self.log(process));
        let mut command = self.namespace.command(CARINA);
        command.arg("--run").arg(self.run_dir(process));
        command.args(["vnet", role]).args(rest.split(' '));
        match role {
            "pip" => command.arg(inventory).args(["--name", name]),
            "agent" => command
                .args(["--host", name, "--users-at", HOST_FOR_USERS])
                .args(self.opens_namespaces.then_some("--open-namespaces")),
            _ => command.args(["--name", name]),
        };
        command.arg("--keys").arg(self.path("keys"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(log.unwrap()).spawn();
        self.processes.push((process, child.unwrap()));
    }

    fn run_dir(&self, process: &str) -> PathBuf {
        self.directory.path().join(process.replace(' ', "-"))
    }

    fn log(&self, process: &str) -> PathBuf {
        self.run_dir(process).with_extension("log")
    }

    /// Kills a process as `kill -9` does, and starts it again.
    pub(super) fn kill_and_begin(&mut self, process: &'static str) {
        self.kill(process);
        self.begin(process);
    }

    /// Kills a process as `kill -9` does.
    pub(super) fn kill(&mut self, process: &'static str) {
        let place = self.processes.iter().position(|(it, _)| *it == process);
        let (_, mut child) = self.processes.remove(place.unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a request of the operator to the VNO.
    pub(super) fn ask<T>(
        &self,
        request: impl FnOnce(&Client) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let keys = KeyDir::new(self.path("operator"));
        let client = Client::new(&keys, Address::Tcp(VNO.to_owned())).unwrap();
        self.inside.within(|| request(&client)).unwrap()
    }

    /// Runs a command of the operator.
    pub(super) fn command(&self, words: &[&str]) -> Output {
        let keys = self.path("operator");
        let mut command = self.namespace.command(CARINA);
        command.args(["--json", "vnet"]).args(words);
        command.args(["--vno", VNO, "--keys", &keys]);
        command.output().unwrap()
    }

    /// Runs a command of the person who runs a host, with the host's agent.
    pub(super) fn at_host(&self, agent: &str, words: &[&str]) -> Output {
        let mut command = self.namespace.command(CARINA);
        command.arg("--run").arg(self.run_dir(agent));
        command.arg("--json").args(words);
        command.output().unwrap()
    }

    /// Run directory of a host's own Carina node.
    pub(super) fn host_node(&self, agent: &str) -> PathBuf {
        self.run_dir(agent).join("vnet.dif")
    }

    /// Runs a command of the delegate `bob`.
    pub(super) fn command_of_delegate(&self, words: &[&str]) -> Output {
        let mut command = self.namespace.command(CARINA);
        command.args(["--json", "vnet"]).args(words);
        command.args(["--vno", &format!("acme={VNO}"), "--keys", &self.path("bob")]);
        command.output().unwrap()
    }

    /// The network namespace of the processes.
    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs a command of the operator inside a node, with `input` as standard input.
    pub(super) fn command_inside(&self, verb: &str, words: &[&str], input: &[u8]) -> Output {
        let keys = self.path("operator");
        let mut command = self.namespace.command(CARINA);
        command.args(["vnet", verb, "--vno", VNO, "--keys", &keys]);
        command.args(words).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Types at the console of a node, and leaves it when the answer appears.
    pub(super) fn console(&self, node: &str, typed: &str, answer: &str) {
        let keys = self.path("operator");
        let mut command = self.namespace.command(CARINA);
        command.args(["vnet", "console", "--vno", VNO, "--keys", &keys, node]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut keyboard = child.stdin.take().unwrap();
        let mut screen = child.stdout.take().unwrap();
        let printed = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = screen.read(&mut buffer) {
                    printed.lock().unwrap().extend(&buffer[..length]);
                }
            });
            keyboard.write_all(typed.as_bytes()).unwrap();
            let begin = Instant::now();
            let has_answer = || String::from_utf8_lossy(&printed.lock().unwrap()).contains(answer);
            while !has_answer() && begin.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(keyboard);
            let is_done = child.wait().unwrap().success();
            let printed = String::from_utf8_lossy(&printed.lock().unwrap()).into_owned();
            assert!(printed.contains(answer), "{printed}\n{}", self.logs());
            assert!(is_done, "{printed}\n{}", self.logs());
        });
    }

    /// The log of accesses to nodes, as written by the agents.
    pub(super) fn accesses(&self) -> String {
        let notes = ["agent h1", "agent h2"].map(|agent| {
            let path = self.run_dir(agent).join("vnet.access");
            std::fs::read_to_string(path).unwrap_or_default()
        });
        notes.concat()
    }

    /// The logs of all processes, for messages of failed tests.
    pub(super) fn logs(&self) -> String {
        let logs = PROCESSES.map(|process| {
            let text = std::fs::read_to_string(self.log(process)).unwrap_or_default();
            format!("--- {process}\n{text}")
        });
        logs.join("\n")
    }

    /// Waits until `look` returns a value.
    pub(super) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begin.elapsed() < LIMIT, "{what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until `is_right` is true of a network.
    pub(super) fn wait_until(&self, name: &str, is_right: impl Fn(&Seen) -> bool) -> Seen {
        let what = format!("waiting for {name}");
        self.wait(&what, || {
            let seen = self.ask(|client| client.seen(name));
            seen.ok().filter(|seen| is_right(seen))
        })
    }

    /// Waits until a network is removed, and checks that nothing of it is left.
    pub(super) fn wait_until_gone(&self, name: &str, uids: &[String]) {
        self.wait("the removal", || {
            let seen = self.ask(|client| client.seen(name));
            matches!(seen, Err(CallError::Refused(_))).then_some(())
        });
        let left = namespaces_of(uids);
        assert!(left.is_empty(), "{left:?}\n{}", self.logs());
        let left = self.records();
        assert!(left.is_empty(), "{left:?}\n{}", self.logs());
    }

    /// The record directories of networks at both agents.
    pub(super) fn records(&self) -> Vec<PathBuf> {
        let agents = ["agent h1", "agent h2"].iter();
        agents.flat_map(|agent| self.records_of(agent)).collect()
    }

    /// The record directories of networks at an agent.
    pub(super) fn records_of(&self, agent: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.run_dir(agent).join("vnet"));
        let entries = entries.into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect()
    }

    /// The uids in the names of everything that the agents make for their networks.
    pub(super) fn uids(&self) -> Vec<String> {
        let uid = |path: &PathBuf| {
            let text = std::fs::read_to_string(path.join("record.json")).unwrap();
            let record: serde_json::Value = serde_json::from_str(&text).unwrap();
            record["vnet"].as_str().unwrap().to_owned()
        };
        self.records().iter().map(uid).collect()
    }
}

impl Drop for Providers {
    fn drop(&mut self) {
        for (_, child) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The network namespaces that agents have made for networks.
pub(super) fn namespaces_of(uids: &[String]) -> Vec<String> {
    let mut all = NamespaceAccess::of_root().list().unwrap();
    all.retain(|namespace| uids.iter().any(|uid| namespace.contains(uid.as_str())));
    all
}

/// A document with two nodes at each provider in a row. The middle link joins the two providers.
/// The network waits for resources, because an agent may not have reported yet.
pub(super) fn document(name: &str) -> Document {
    document_with(name, "queue 2m", "1Mbps")
}

/// Like [`document`], with another rate between the providers, and another reaction if the network
/// does not fit.
pub(super) fn document_with(name: &str, on_insufficient: &str, rate: &str) -> Document {
    let text = format!(
        "[vnet]\nname = \"{name}\"\non_insufficient = \"{on_insufficient}\"\n\
         [defaults]\nkind = \"namespace\"\n\
         [node.a]\nlocation = [\"london\"]\n[node.b]\nlocation = [\"london\"]\n\
         [node.c]\nlocation = [\"berlin\"]\n[node.d]\nlocation = [\"berlin\"]\n\
         [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n\
         [[link]]\nends = [\"b\", \"c\"]\nrate = \"{rate}\"\nas = \"gre\"\n\
         [[link]]\nends = [\"c\", \"d\"]\nrate = \"1Mbps\"\n"
    );
    Document::read(&text, Form::Toml).unwrap()
}

/// Whether this process may make network namespaces; prints a message if not.
pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIP: network namespaces are made by root");
    }
    is_root
}
