//! End users who join networks from systems that have no more than IP connectivity.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use carina_lab::{Namespace, NamespaceAccess, namespace_file};
use carina_sys::NetworkNamespace;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::CARINA;
use crate::commands::providers::is_root;

/// How long anything may take on a slow machine.
const LIMIT: Duration = Duration::from_secs(180);

/// A host with networks, and two systems of users with a wire to it.
struct Site {
    directory: tempfile::TempDir,
    host: Namespace,
    users: [(String, Namespace); 2],
    agent: Option<Child>,
    /// Options of the agent.
    options: Vec<String>,
}

/// A system that has joined.
struct Member {
    child: Child,
    said: BufReader<ChildStdout>,
    joined: Value,
}

impl Site {
    /// `tag` tells the namespaces of one test from those of others.
    fn new(tag: &str) -> Site {
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

    fn run_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Starts the agent.
    fn begin(&mut self) {
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

    /// Ends the agent as `kill -9` does.
    fn kill(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    /// A command of the operator.
    fn command(&self, words: &[&str]) -> Output {
        let mut command = self.host.command(CARINA);
        command
            .arg("--run")
            .arg(self.run_dir())
            .args(["--json", "vnet"]);
        command.args(words).output().unwrap()
    }

    fn done(&self, words: &[&str]) -> Value {
        let output = self.command(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn up(&self, name: &str) {
        let text = format!(
            "[vnet]\nname = \"{name}\"\n[defaults]\nkind = \"namespace\"\n[node.r1]\n[node.r2]\n\
             [[link]]\nends = [\"r1\", \"r2\"]\nrate = \"100Mbps\"\n\
             [access.home]\nnode = \"r1\"\nusers = [\"alice\", \"bob\"]\nrate = \"10Mbps\"\n"
        );
        let file = self.directory.path().join("wanted.toml");
        std::fs::write(&file, text).unwrap();
        self.done(&["up", file.to_str().unwrap()]);
    }

    /// A token for a user, with all addresses of the host; each user reaches one.
    fn token(&self, name: &str, user: usize, words: &[&str]) -> String {
        let who = ["alice", "bob"][user];
        let begin = ["token", name, "home", "--user", who];
        let at = ["--at", "192.0.2.5", "--at", "192.0.2.1"];
        let all = [&begin[..], &at, words].concat();
        self.done(&all)["token"].as_str().unwrap().to_owned()
    }

    /// `join` of a user's system, which has not said anything yet.
    fn joining(&self, user: usize, token: &str) -> Command {
        let mut command = self.users[user].1.command(CARINA);
        command
            .args(["--json", "vnet", "join", token])
            .stdin(Stdio::null());
        command
    }

    fn join(&self, user: usize, token: &str) -> Member {
        let mut command = self.joining(user, token);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let joined: Value = serde_json::from_str(&line).unwrap();
        assert!(joined["address"].is_string(), "{joined}");
        Member {
            child,
            said,
            joined,
        }
    }

    /// The words with which a token is refused.
    fn refusal(&self, user: usize, token: &str) -> String {
        let output = self.joining(user, token).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Whether an address answers a user's system.
    fn answers(&self, user: usize, address: &str) -> bool {
        let inside = namespace_file(&self.users[user].0);
        answers(&NetworkNamespace::open(&inside).unwrap(), address)
    }

    fn interfaces(&self, user: usize) -> String {
        NamespaceAccess::of_root()
            .ip(&["-n", &self.users[user].0, "-o", "link"])
            .unwrap()
    }

    /// The namespace of a node.
    fn node(&self, name: &str, node: &str) -> NetworkNamespace {
        let uid = self.uid(name);
        NetworkNamespace::open(&namespace_file(&format!("cv-{uid}-{node}"))).unwrap()
    }

    fn uid(&self, name: &str) -> String {
        self.done(&["status", name])["vnet"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Segments of TCP that a node has got.
    fn segments(&self, name: &str, node: &str) -> u64 {
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
        let lines: Vec<Vec<&str>> = text.lines().map(|it| it.split(' ').collect()).collect();
        let place = lines[0].iter().position(|word| *word == "InSegs").unwrap();
        lines[1][place].parse().unwrap()
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
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
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code, and what was said at the end.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

/// Whether an address answers in a namespace: nothing listens there, which it says.
fn answers(inside: &NetworkNamespace, address: &str) -> bool {
    let to = format!("{address}:9").parse().unwrap();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
    let connected = inside.within(connect).unwrap();
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// How long a megabyte takes from a user to a node.
fn megabyte(site: &Site, user: usize, name: &str) -> Duration {
    const BYTES: usize = 1_000_000;
    let to: SocketAddr = "10.0.0.2:7000".parse().unwrap();
    let listener = site
        .node(name, "r2")
        .within(|| TcpListener::bind(to))
        .unwrap()
        .unwrap();
    let inside = NetworkNamespace::open(&namespace_file(&site.users[user].0)).unwrap();
    let begin = Instant::now();
    let sender = std::thread::spawn(move || {
        let mut stream = inside.within(|| TcpStream::connect(to)).unwrap().unwrap();
        stream.write_all(&vec![7; BYTES]).unwrap();
    });
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), format!("10.128.0.{}", 3 + user));
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), BYTES);
    sender.join().unwrap();
    begin.elapsed()
}

#[test]
fn users_join_a_network_are_bounded_and_cut_off() {
    if !is_root() {
        return;
    }
    let mut site = Site::new("u");
    for name in ["demo", "other"] {
        site.up(name);
    }
    let token = site.token("demo", 0, &[]);
    let alice = site.join(0, &token);
    assert_eq!(alice.joined["address"], "10.128.0.3/23");
    user_is_in_one_network_with_a_rate(&site);
    tokens_that_do_not_hold_are_refused(&site, &token);
    let bob = site.join(1, &site.token("demo", 1, &[]));
    site.wait("an answer to bob", || site.answers(1, "10.0.0.2"));
    users_are_told_apart(&site);
    // Revoked is cut off, at once and with words.
    let begin = Instant::now();
    site.done(&["revoke", "demo", "home", "--user", "alice"]);
    let (code, said) = alice.end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("revoked"), "{said}");
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(!site.answers(0, "10.0.0.2") && !site.interfaces(0).contains("carina"));
    assert!(site.refusal(0, &token).contains("revoked"));
    assert!(site.answers(1, "10.0.0.2"));
    // Killed, a user's system leaves nothing behind.
    bob.signal(Signal::KILL);
    bob.end();
    site.wait("the interface to go", || {
        !site.interfaces(1).contains("carina")
    });
    // An agent that is killed leaves the user alone, and the next one goes on.
    let alice = site.join(0, &site.token("demo", 0, &[]));
    site.wait("an answer", || site.answers(0, "10.0.0.2"));
    site.kill();
    assert!(!site.answers(0, "10.0.0.2"));
    site.begin();
    let what = "the network to be taken up";
    site.wait(what, || site.answers(0, "10.0.0.2"));
    alice.signal(Signal::INT);
    assert_eq!(alice.end().0, Some(0));
    nothing_is_left_of(&site, ["demo", "other"]);
}

fn user_is_in_one_network_with_a_rate(site: &Site) {
    let others = site.segments("other", "r2");
    for address in ["10.128.0.1", "10.0.0.2"] {
        site.wait("an answer", || site.answers(0, address));
    }
    for _ in 0..20 {
        assert!(site.answers(0, "10.0.0.2"));
    }
    let took = megabyte(site, 0, "demo");
    // 8 Mbit at 10 Mbit/s, but for the first burst.
    assert!(took > Duration::from_millis(700), "{took:?}");
    assert_eq!(site.segments("other", "r2"), others);
    // A node reaches the user.
    assert!(answers(&site.node("demo", "r2"), "10.128.0.3"));
}

fn tokens_that_do_not_hold_are_refused(site: &Site, used: &str) {
    let again = site.refusal(1, used);
    assert!(
        again.contains("used before") && again.contains("new one"),
        "{again}"
    );
    let short = site.token("demo", 1, &["--for", "1s"]);
    let letter = if short[60..].starts_with('A') {
        "B"
    } else {
        "A"
    };
    let mut changed = short.clone();
    changed.replace_range(60..61, letter);
    let changed = site.refusal(1, &changed);
    assert!(
        changed.contains("changed") || changed.contains("no token"),
        "{changed}"
    );
    std::thread::sleep(Duration::from_millis(2100));
    let expired = site.refusal(1, &short);
    assert!(expired.contains("expired"), "{expired}");
}

fn users_are_told_apart(site: &Site) {
    // They reach one another through their node.
    assert!(site.answers(1, "10.128.0.3"));
    let points = site.done(&["users", "demo"]);
    let users = &points[0]["users"];
    assert_eq!(users[1]["user"], "bob");
    let sent = users[0]["sent_bytes"].as_u64().unwrap();
    assert!(sent > 1_000_000, "{points}");
    let above = points[0]["discarded"]["rate_up"].as_u64();
    assert!(above.is_some_and(|above| above > 0), "{points}");
}

fn nothing_is_left_of(site: &Site, names: [&str; 2]) {
    let uids = names.map(|name| site.uid(name));
    site.done(&["down", "--all"]);
    let mut left = NamespaceAccess::of_root().list().unwrap();
    left.retain(|it| uids.iter().any(|uid| it.contains(uid)));
    assert!(left.is_empty(), "{left:?}");
    let mut files = std::fs::read_dir(site.run_dir().join("vnet")).unwrap();
    assert!(files.next().is_none());
}

#[test]
fn nodes_have_cards_of_the_host_and_give_them_back() {
    if !is_root() {
        return;
    }
    let mut site = Site::new("n");
    // The wire of a user's system is one of a card: what is beyond is not the host's.
    site.kill();
    site.host.ip(&["address", "flush", "dev", "wire0"]).unwrap();
    site.options = ["--nic", "wire0"].map(str::to_owned).to_vec();
    site.begin();
    let file = |name: &str, via: &str| {
        let text = format!(
            "[vnet]\nname = \"{name}\"\n[node.r1]\nkind = \"namespace\"\n\
             nics = {{ count = 1, via = \"{via}\" }}\n"
        );
        let file = site.directory.path().join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (one, two) = (file("one", "forwarder"), file("two", "forwarder"));
    site.done(&["up", &one]);
    let status = site.done(&["status", "one"]);
    assert_eq!(status["links"][0]["ends"][1], "card wire0", "{status}");
    let add = "ip address add 192.0.2.1/30 dev nic0";
    let words = [
        &["exec", "--vnet", "one", "r1"][..],
        &add.split(' ').collect::<Vec<_>>(),
    ];
    assert!(site.command(&words.concat()).status.success());
    site.wait("an answer through the card", || {
        site.answers(0, "192.0.2.1")
    });
    // There is one card.
    let refused = site.command(&["up", &two]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("network card"), "{said}");
    let unknown = site.command(&["up", &file("three", "bridge")]);
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        !unknown.status.success() && said.contains("forwarder"),
        "{said}"
    );
    // It goes on with the next agent, and back with its network.
    site.kill();
    site.begin();
    site.wait("the network to be taken up", || {
        site.answers(0, "192.0.2.1")
    });
    site.done(&["down", "one"]);
    assert!(!site.answers(0, "192.0.2.1"));
    site.done(&["up", &two]);
    let status = site.done(&["status", "two"]);
    assert_eq!(status["links"][0]["state"], "up", "{status}");
    site.done(&["down", "two"]);
}
