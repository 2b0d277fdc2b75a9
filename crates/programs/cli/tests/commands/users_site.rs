//! A host with access points, and systems of users with wires to it, for tests.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use carina_namespaces::{Namespace, NamespaceAccess, namespace_file};
use carina_sys::NetworkNamespace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::CARINA;

/// Time limit of any step on a slow machine.
const LIMIT: Duration = Duration::from_secs(180);

/// A host with networks, and two systems of users, each with a wire to the host.
pub(super) struct Site {
    pub directory: tempfile::TempDir,
    pub host: Namespace,
    pub users: [(String, Namespace); 2],
    agent: Option<Child>,
    /// Options with which the agent is started.
    pub options: Vec<String>,
}

/// A user's system that has joined a network.
pub(super) struct Member {
    child: Child,
    printed: BufReader<ChildStdout>,
    pub joined: Value,
}

impl Site {
    /// Makes the site. `tag` distinguishes its namespaces from those of other tests.
    pub(super) fn new(tag: &str) -> Site {
        let name = |what: &str| format!("cvx{}{tag}{what}", std::process::id());
        let host = Namespace::new(&name("h")).unwrap();
        let users = ["alice", "bob"].map(|user| {
            let name = name(user);
            (name.clone(), Namespace::new(&name).unwrap())
        });
        for (number, (_, user)) in users.iter().enumerate() {
            let (wire, end) = (format!("wire{number}"), "eth0");
            host.connect(&wire, user, end).unwrap();
            let address = |last| format!("address add 192.0.2.{}/30 dev", 4 * number + last);
            let add = |text: String, dev: &str| {
                let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
                words.push(dev.to_owned());
                words
            };
            for (space, words) in [
                (&host, add(address(1), &wire)),
                (user, add(address(2), end)),
            ] {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                space.ip(&words).unwrap();
            }
        }
        let mut site = Site {
            directory: tempfile::tempdir().unwrap(),
            host,
            users,
            agent: None,
            options: Vec::new(),
        };
        site.begin();
        site
    }

    pub(super) fn run_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Starts the agent.
    pub(super) fn begin(&mut self) {
        let log = std::fs::File::options();
        let log = { log }.create(true).append(true).open(self.log()).unwrap();
        let mut command = self.host.command(CARINA);
        command
            .arg("--run")
            .arg(self.run_dir())
            .args(["vnet", "agent"]);
        command.args(&self.options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.agent = Some(command.spawn().unwrap());
        self.wait("the agent", || self.command(&["list"]).status.success());
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("agent.log")
    }

    /// Kills the agent as `kill -9` does.
    pub(super) fn kill(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    /// Runs a command of the operator.
    pub(super) fn command(&self, words: &[&str]) -> Output {
        let mut command = self.host.command(CARINA);
        command
            .arg("--run")
            .arg(self.run_dir())
            .args(["--json", "vnet"]);
        command.args(words).output().unwrap()
    }

    pub(super) fn done(&self, words: &[&str]) -> Value {
        let output = self.command(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    pub(super) fn up(&self, name: &str) {
        self.make("up", name, "");
    }

    /// Makes or changes a network. `more` is added to its document.
    pub(super) fn make(&self, verb: &str, name: &str, more: &str) {
        let text = format!(
            "[vnet]\nname = \"{name}\"\n[defaults]\nkind = \"namespace\"\n[node.r1]\n[node.r2]\n\
             [access.home]\nnode = \"r1\"\nusers = [\"alice\", \"bob\"]\nrate = \"10Mbps\"\n\
             [[link]]\nends = [\"r1\", \"r2\"]\nrate = \"100Mbps\"\n{more}"
        );
        let file = self.directory.path().join("wanted.toml");
        std::fs::write(&file, text).unwrap();
        self.done(&[verb, file.to_str().unwrap()]);
    }

    /// Makes a token for a user. It contains all addresses of the host, of which each user reaches
    /// one.
    pub(super) fn token(&self, name: &str, user: usize, words: &[&str]) -> String {
        let who = ["alice", "bob"][user];
        let begin = ["token", name, "home", "--user", who];
        let at = ["--at", "192.0.2.5", "--at", "192.0.2.1"];
        let all = [&begin[..], &at, words].concat();
        self.done(&all)["token"].as_str().unwrap().to_owned()
    }

    /// The command `join` for a user's system, not started yet.
    pub(super) fn joining(&self, user: usize, token: &str) -> Command {
        let mut command = self.users[user].1.command(CARINA);
        command
            .args(["--json", "vnet", "join", token])
            .stdin(Stdio::null());
        command
    }

    pub(super) fn join(&self, user: usize, token: &str) -> Member {
        Site::joined(self.joining(user, token))
    }

    /// Lets a user's system join and become a member of a DIF. Returns it with the run directory of
    /// its node.
    pub(super) fn join_dif(&self, user: usize, token: &str) -> (Member, PathBuf) {
        let run = self.directory.path().join(["alice", "bob"][user]);
        let mut command = self.users[user].1.command(CARINA);
        command.arg("--run").arg(&run);
        command.args(["--json", "vnet", "join", token]);
        command.stdin(Stdio::null());
        (Site::joined(command), run)
    }

    fn joined(mut command: Command) -> Member {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        let joined: Value = serde_json::from_str(&line).unwrap();
        assert!(joined["address"].is_string(), "{joined}");
        Member {
            child,
            printed,
            joined,
        }
    }

    /// The text with which a token is refused.
    pub(super) fn refusal(&self, user: usize, token: &str) -> String {
        let output = self.joining(user, token).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Whether an address answers a user's system.
    pub(super) fn answers(&self, user: usize, address: &str) -> bool {
        let inside = namespace_file(&self.users[user].0);
        answers(&NetworkNamespace::open(&inside).unwrap(), address)
    }

    pub(super) fn interfaces(&self, user: usize) -> String {
        NamespaceAccess::of_root()
            .ip(&["-n", &self.users[user].0, "-o", "link"])
            .unwrap()
    }

    /// The network namespace of a node.
    pub(super) fn node(&self, name: &str, node: &str) -> NetworkNamespace {
        let uid = self.uid(name);
        NetworkNamespace::open(&namespace_file(&format!("cv-{uid}-{node}"))).unwrap()
    }

    pub(super) fn uid(&self, name: &str) -> String {
        self.done(&["status", name])["vnet"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Number of TCP segments that a node has received.
    pub(super) fn segments(&self, name: &str, node: &str) -> u64 {
        let words = [
            "exec",
            "--vnet",
            name,
            node,
            "grep",
            "^Tcp:",
            "/proc/net/snmp",
        ];
        let text = String::from_utf8(self.command(&words).stdout).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let place = lines[0].iter().position(|word| *word == "InSegs").unwrap();
        lines[1][place].parse().unwrap()
    }

    pub(super) fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            let log = || std::fs::read_to_string(self.log()).unwrap_or_default();
            assert!(begin.elapsed() < LIMIT, "{what}\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.agent.is_some() {
            self.command(&["down", "--all"]);
            self.kill();
        }
    }
}

impl Member {
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end. Returns the exit code and the last output.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.printed.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

/// Whether an address answers in a namespace: nothing listens there, so the answer is a refusal.
pub(super) fn answers(inside: &NetworkNamespace, address: &str) -> bool {
    let to = format!("{address}:9").parse().unwrap();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
    let connected = inside.within(connect).unwrap();
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
