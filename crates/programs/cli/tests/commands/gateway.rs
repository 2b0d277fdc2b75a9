//! `carina expose` and `carina connect`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use carina_sys::recv_with_fds;
use serde_json::Value;

use super::within::{ended, first_line, output_from, output_of};

/// The program under test.
const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// A node, and commands to it.
struct Site {
    directory: tempfile::TempDir,
    node: Child,
}

/// A command that serves until it is stopped, and what it said first.
struct Server {
    child: Child,
    printed: Value,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let node = carina(&directory.path().join("run"), &["node"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Site { directory, node }
    }

    fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn command(&self, words: &[&str]) -> Command {
        carina(&self.run(), &[&["--wait", "60s"], words].concat())
    }

    fn serve(&self, words: &[&str]) -> Server {
        let mut child = self
            .command(&[&["--json"], words].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let printed = serde_json::from_str(&first_line(&mut child)).unwrap();
        Server { child, printed }
    }

    /// What a command says that fails.
    fn fails(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = output_of(&mut self.command(words));
        (output.status.code(), printed(&output))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

impl Server {
    fn address(&self) -> String {
        let listening = self.printed["listening"].as_str().unwrap();
        listening.split_once(':').unwrap().1.to_owned()
    }

    /// Ctrl-C; gives the exit code and the time it took.
    fn interrupt(mut self) -> (Option<i32>, Duration) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let start = Instant::now();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let code = ended(&mut self.child, "a server").code();
        (code, start.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn carina(run: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(run).args(words);
    command
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server of TCP that reads each connection to its end and sends the bytes back.
fn echo_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            std::thread::spawn(move || {
                let mut all = Vec::new();
                connection.read_to_end(&mut all).unwrap();
                connection.write_all(&all).unwrap();
            });
        }
    });
    address.to_string()
}

#[test]
fn a_tcp_server_is_reached_by_port_stdio_and_descriptor() {
    let site = Site::new();
    let exposed = site.serve(&["expose", "tcp", &echo_server(), "--as", "echo"]);
    assert_eq!(exposed.printed["exposed"], "echo");
    let connector = site.serve(&["connect", "echo", "--tcp", "127.0.0.1:0"]);
    let mut connection = TcpStream::connect(connector.address()).unwrap();
    connection.write_all(b"by port").unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "by port");

    let mut stdio = site
        .command(&["connect", "echo", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = stdio.stdin.take().unwrap();
    input.write_all(b"by standard input").unwrap();
    drop(input);
    let output = output_from(stdio, "carina connect --stdio");
    assert!(output.status.success());
    assert_eq!(output.stdout, b"by standard input");

    let (ssh, stdout) = UnixStream::pair().unwrap();
    let passed = site
        .command(&["connect", "echo", "--fdpass"])
        .stdout(OwnedFd::from(stdout))
        .status();
    assert!(passed.unwrap().success(), "no process stays");
    let mut received = recv_with_fds(&ssh, &mut [0; 1]).unwrap();
    let mut socket = UnixStream::from(received.fds.pop().unwrap());
    socket.write_all(b"by descriptor").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "by descriptor");

    for server in [exposed, connector] {
        let (code, time) = server.interrupt();
        assert_eq!(code, Some(0));
        assert!(time < Duration::from_secs(60), "{time:?}");
    }
}

#[test]
fn a_listeners_file_goes_with_it_and_stale_ones_are_replaced() {
    let site = Site::new();
    let path = site.directory.path().join("app.sock");
    let path_text = path.to_str().unwrap();
    let mut connector = site.serve(&["connect", "app", "--unix", path_text]);
    let (code, error) = site.fails(&["connect", "app", "--unix", path_text]);
    assert_eq!(code, Some(1));
    assert!(error.contains("another process listens there"), "{error}");
    connector.child.kill().unwrap();
    connector.child.wait().unwrap();
    assert!(path.exists(), "kill -9 runs no handler");
    let connector = site.serve(&["connect", "app", "--unix", path_text]);
    assert_eq!(connector.interrupt().0, Some(0));
    assert!(!path.exists());
    std::fs::write(&path, "a letter").unwrap();
    let (code, error) = site.fails(&["connect", "app", "--unix", path_text]);
    assert_eq!(code, Some(1));
    assert!(error.contains("a file exists there"), "{error}");
}

#[test]
fn wrong_uses_say_what_would_be_right() {
    let site = Site::new();
    let _held = site.serve(&["expose", "tcp", "127.0.0.1:9", "--as", "taken"]);
    let cases: [(&[&str], i32, &str); 10] = [
        (
            &["connect", "nobody", "--stdio"],
            1,
            "no application is registered as nobody",
        ),
        (
            &["connect", "taken", "--stdio", "--dif", "atlantis"],
            1,
            "atlantis",
        ),
        (
            &["connect", "taken", "--fdpass"],
            1,
            "tcp:127.0.0.1:9: connection refused",
        ),
        (&["connect", "taken"], 2, "--tcp"),
        (
            &["connect", "taken", "--tcp", "127.0.0.1"],
            2,
            "HOST:PORT, such as",
        ),
        (
            &["connect", "a", "--tcp", "1:2", "--stdio"],
            2,
            "cannot be used with",
        ),
        (
            &["expose", "tcp", "127.0.0.1:9", "--as", "taken"],
            3,
            "registering taken",
        ),
        (&["expose", "tcp", "127.0.0.1:x", "--as", "a"], 2, "no port"),
        (
            &[
                "expose",
                "udp",
                "127.0.0.1:9",
                "--as",
                "a",
                "--proxy-protocol",
            ],
            2,
            "proxy_protocol",
        ),
        (
            &["expose", "ftp", "127.0.0.1:9", "--as", "a"],
            2,
            "tcp, unix, udp",
        ),
    ];
    for (words, code, right) in cases {
        let (got, error) = site.fails(words);
        assert!(error.contains(right), "{words:?}: {error}");
        assert_eq!(got.map(|got| got.min(3)), Some(code), "{words:?}: {error}");
    }
    let nowhere = site.directory.path().join("nowhere");
    let output = output_of(&mut carina(&nowhere, &["connect", "a", "--stdio"]));
    assert!(
        printed(&output).contains("carina node"),
        "{}",
        printed(&output)
    );
    let connector = site.serve(&["connect", "a", "--tcp", "127.0.0.1:0"]);
    let (_, error) = site.fails(&["connect", "a", "--tcp", &connector.address()]);
    assert!(error.contains("the port is in use"), "{error}");
}

/// A server of ssh for the user of the test, its port and the client's key.
struct Sshd {
    child: Child,
    port: u16,
    key: PathBuf,
}

impl Sshd {
    /// None where there is no ssh, or this user may not start a server.
    fn start(directory: &Path) -> Option<Sshd> {
        let (key, host_key) = (directory.join("key"), directory.join("host_key"));
        for file in [&key, &host_key] {
            let mut keygen = Command::new("ssh-keygen");
            keygen
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(file);
            keygen.status().ok().filter(|status| status.success())?;
        }
        // A port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
             StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n",
            host_key.display(),
            key.with_extension("pub").display()
        );
        let file = directory.join("sshd_config");
        std::fs::write(&file, config).unwrap();
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f"]).arg(file);
        let child = sshd.stderr(Stdio::null()).spawn().ok()?;
        let mut sshd = Sshd { child, port, key };
        loop {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(sshd);
            }
            if sshd.child.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ssh_runs_over_stdio_and_over_a_passed_descriptor() {
    let site = Site::new();
    let Some(sshd) = Sshd::start(site.directory.path()) else {
        eprintln!("SKIP: no sshd is installed, or this user may not start one");
        return;
    };
    let server = format!("127.0.0.1:{}", sshd.port);
    let _exposed = site.serve(&["expose", "tcp", &server, "--as", "ssh.here"]);
    let run = site.run();
    let payload = vec![b'x'; 4 << 20];
    for (option, fdpass) in [("--stdio", "no"), ("--fdpass", "yes")] {
        let proxy = format!("{CARINA} --run {} connect ssh.here {option}", run.display());
        let mut ssh = Command::new("ssh")
            .args(["-F", "/dev/null", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
            .args(["-o", &format!("ProxyCommand={proxy}")])
            .args(["-o", &format!("ProxyUseFdpass={fdpass}"), "-i"])
            .arg(&sshd.key)
            .args(["here", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, sent) = (ssh.stdin.take().unwrap(), payload.clone());
        let writer = std::thread::spawn(move || input.write_all(&sent));
        let output = output_from(ssh, option);
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{option}: {}", printed(&output));
        assert!(output.stdout == payload, "{option}");
    }
}
