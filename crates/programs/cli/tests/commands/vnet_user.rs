//! Tests of `carina vnet` for users who may not create network namespaces: their networks are made
//! in a user namespace.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use carina_namespaces::{Process, check_user_namespaces};

use super::node::CARINA;

/// How long what must happen at once may take on a busy machine.
const ENDS: Duration = Duration::from_secs(30);

/// Number of the user who runs the commands, if root runs the test.
const USER: u32 = 65_534;

const DOCUMENT: &str = "[vnet]\nname = \"mine\"\n[defaults]\nkind = \"namespace\"\n\
                        [node.a]\n[node.b]\n[[link]]\nends = [\"a\", \"b\"]\nrate = \"50Mbps\"\n";

/// The directory of an ordinary user, with a document and a run directory in it.
struct Home(tempfile::TempDir);

impl Home {
    /// `None`, with a line that says so, if this system allows no user namespaces.
    fn new() -> Option<Home> {
        if let Err(error) = check_user_namespaces() {
            println!("SKIP: {error}");
            return None;
        }
        let home = Home(tempfile::tempdir().unwrap());
        std::fs::write(home.path("mine.toml"), DOCUMENT).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(home.0.path(), Some(USER), Some(USER)).unwrap();
        }
        // The user must be able to execute the program.
        let done = home.carina(&["--version"]);
        match done {
            Ok(output) if output.status.success() => Some(home),
            other => {
                println!("SKIP: user {USER} cannot execute {CARINA}: {other:?}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command `carina`, as an ordinary user.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            let user = USER.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups", CARINA]);
            command
        } else {
            Command::new(CARINA)
        };
        command
            .arg("--run")
            .arg(self.path("run"))
            .args(words)
            .env("HOME", self.0.path())
            .env_remove("CARINA_TEMPLATES")
            .current_dir(self.0.path());
        command
    }

    fn carina(&self, words: &[&str]) -> std::io::Result<Output> {
        self.command(words).output()
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.carina(words).unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The process that holds the user's namespaces.
    fn holder(&self) -> Option<Process> {
        let text = std::fs::read_to_string(self.path("run/vnet.user/process.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn kill_agent(&self) {
        let agent = Process::numbered(self.agent_pid()).unwrap();
        agent.signal(rustix::process::Signal::KILL);
        wait_until("the agent has ended", || !agent.is_alive());
    }

    fn agent_pid(&self) -> i32 {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let run = self.path("run").to_str().unwrap().to_owned();
        let is_agent = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words.contains(&b"agent".as_slice()) && words.contains(&run.as_bytes())
        };
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.into_iter().find(is_agent).expect("an agent runs")
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < ENDS, "not within {ENDS:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.carina(&["vnet", "down", "--all"]);
        if let Some(holder) = self.holder() {
            holder.signal(rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn users_network_outlives_its_agent_and_leaves_nothing() {
    let Some(home) = Home::new() else { return };
    let plan = home.done(&["vnet", "plan", "mine.toml"]);
    assert!(plan.contains("3 to add"), "{plan}");
    assert!(home.holder().is_none(), "a plan makes no namespace");
    home.done(&["vnet", "up", "mine.toml"]);
    let echo = home.done(&["vnet", "exec", "a", "--", "ip", "-o", "-4", "addr"]);
    assert!(echo.contains("10.0.0.1/30"), "{echo}");
    let tested = home.done(&["vnet", "test"]);
    assert!(tested.contains("yes"), "{tested}");
    let holder = home.holder().unwrap();
    assert!(holder.is_alive());

    home.kill_agent();
    // The next agent finds the nodes in the same namespaces.
    let tested = home.done(&["vnet", "test"]);
    assert!(tested.contains("yes"), "{tested}");
    assert_eq!(home.holder(), Some(holder.clone()));
    home.kill_agent();
    // Without an agent, the network is removed by the command itself.
    home.done(&["vnet", "down"]);
    assert!(home.holder().is_none());
    wait_until("the namespaces are gone", || !holder.is_alive());
}

#[test]
fn what_needs_interfaces_of_the_host_is_refused_to_users() {
    let Some(home) = Home::new() else { return };
    let refused = home.carina(&["vnet", "agent", "--underlay", "lo"]).unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("--underlay needs root"), "{error}");
    assert!(home.holder().is_none());
}

#[test]
fn page_of_a_users_agent_is_on_the_hosts_loopback() {
    let Some(home) = Home::new() else { return };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let text = address.to_string();
    let mut agent = home
        .command(&["vnet", "agent", "--web", &text])
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let page = loop {
        let asked = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut page = String::new();
            stream.read_to_string(&mut page).map(|_| page)
        });
        match asked {
            Ok(page) if !page.is_empty() => break page,
            _ if begin.elapsed() > ENDS => panic!("no page at {address}"),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(
        page.starts_with("HTTP/1.0 200") || page.starts_with("HTTP/1.1 200"),
        "{page}"
    );
    let id = agent.id().cast_signed();
    Process::numbered(id).unwrap().interrupt();
    agent.wait().unwrap();
    assert!(
        home.holder().is_none(),
        "an agent without networks ends its namespaces"
    );
}
