//! Unmodified servers of Debian under `carina wrap`, each with a client of its own kind.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::node::{Node, both_in_one};
use super::within::{LIMIT, is_running, output_of, waits_of};
use super::wrap::{has_python, python, run, serve, wrap};

/// Whether all programs are installed; otherwise prints which one is not.
fn have(programs: &[&str]) -> bool {
    for program in programs {
        if !Path::new(program).exists() {
            println!("SKIP: there is no {program} here");
            return false;
        }
    }
    true
}

/// Tries until the attempt gives a result.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_name(node: &Node, name: &str) {
    until(name, || {
        let apps = node.done(&["app", "list"]).to_string();
        apps.contains(name).then_some(())
    });
}

/// A server that ends with its test, by the signal at which it also ends its children.
struct Server(Child, Signal);

impl Server {
    /// Starts a wrapped server, and waits until its name is registered.
    fn start(node: &Node, mut command: Command, name: &str, end: Signal) -> Server {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let server = Server(command.spawn().unwrap(), end);
        wait_for_name(node, name);
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), self.1);
        let end = Instant::now() + Duration::from_secs(20);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a client prints, which must succeed.
fn printed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

/// The processes of nginx, which runs in the background; they end with the test.
struct Nginx(PathBuf);

impl Nginx {
    fn process(&self, file: &str) -> Option<Pid> {
        let text = std::fs::read_to_string(self.0.join(file)).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    /// Waits until a process of nginx, told to end, has ended.
    fn until_ended(&self, what: &str, process: Pid) {
        let end = Instant::now() + LIMIT;
        let pid = process.as_raw_nonzero().get().unsigned_abs();
        while is_running(pid) {
            let log = || std::fs::read_to_string(self.0.join("log")).unwrap_or_default();
            assert!(
                Instant::now() < end,
                "{what} runs on; it waits for:{}\n{}",
                waits_of(pid),
                log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let processes = ["pid", "pid.oldbin"].map(|file| self.process(file));
        for process in processes.into_iter().flatten() {
            let _ = kill_process(process, Signal::TERM);
        }
    }
}

/// Two workers with a file; then a new binary takes over the sockets, with an empty environment.
#[test]
fn nginx_serves_wrk_and_hands_its_sockets_to_a_new_binary() {
    if !have(&["/usr/sbin/nginx", "/usr/bin/wrk", "/usr/bin/curl"]) {
        return;
    }
    let node = both_in_one();
    let directory = node.directory.path();
    // Workers run as another user when the test runs as root.
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(directory.join("page"), "x".repeat(100_000)).unwrap();
    let at = directory.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String = kinds
        .map(|kind| format!("{kind}_temp_path {at}/{kind};"))
        .concat();
    let settings = format!(
        "pid {at}/pid; error_log {at}/log; worker_processes 2;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; sendfile on; {paths}\n\
         server {{ listen 8080; listen [::]:8080; root {at}; }} }}\n"
    );
    let file = directory.join("settings");
    std::fs::write(&file, settings).unwrap();
    let nginx = Nginx(directory.to_owned());
    let words = ["/usr/sbin/nginx", "-c", file.to_str().unwrap()];
    let started = run(&node, &["--as", "web"], &words);
    printed(&started);
    wait_for_name(&node, "web:8080");
    let page = "http://web.dif.internal:8080/page";
    let load = || {
        let words = ["/usr/bin/wrk", "-t2", "-c16", "-d1s", page];
        let text = printed(&run(&node, &[], &words));
        assert!(text.contains(" requests in "), "{text}");
        assert!(
            !text.contains("errors") && !text.contains("Non-2xx"),
            "{text}"
        );
    };
    load();
    let old = nginx.process("pid").unwrap();
    kill_process(old, Signal::USR2).unwrap();
    let new = until("a new binary", || {
        nginx.process("pid.oldbin")?;
        nginx.process("pid").filter(|new| *new != old)
    });
    kill_process(old, Signal::QUIT).unwrap();
    nginx.until_ended("the old binary", old);
    load();
    let curl = run(&node, &[], &["/usr/bin/curl", "-sS", page]);
    assert_eq!(printed(&curl).len(), 100_000);
    kill_process(new, Signal::QUIT).unwrap();
    nginx.until_ended("the new binary", new);
}

/// The server forks a process for each connection.
#[test]
fn postgres_serves_pgbench() {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let Some(bin) = versions.find(|bin| bin.join("pgbench").exists()) else {
        return println!("SKIP: there is no PostgreSQL in /usr/lib/postgresql here");
    };
    // PostgreSQL refuses to run as root.
    let is_root = rustix::process::geteuid().is_root();
    let other = ["unshare", "--user", "--map-user=65534"];
    let user: &[&str] = if is_root { &other } else { &[] };
    if is_root
        && !Command::new(user[0])
            .args(&user[1..])
            .arg("true")
            .status()
            .is_ok_and(|s| s.success())
    {
        return println!("SKIP: a user namespace cannot be made here");
    }
    let node = both_in_one();
    let directory = node.directory.path();
    let path = |name: &str| bin.join(name).to_str().unwrap().to_owned();
    let data = directory.join("data").to_str().unwrap().to_owned();
    let init = path("initdb");
    let words = [
        &init,
        "-D",
        &data,
        "-A",
        "trust",
        "-U",
        "tester",
        "--no-sync",
    ];
    let words = [user, &words].concat();
    let mut init = Command::new(words[0]);
    init.args(&words[1..]).env("LC_ALL", "C");
    printed(&output_of(&mut init));
    let access = Path::new(&data).join("pg_hba.conf");
    let mut rules = std::fs::read_to_string(&access).unwrap();
    rules.push_str("host all all 0.0.0.0/0 trust\n");
    std::fs::write(access, rules).unwrap();
    let sockets = directory.to_str().unwrap();
    let postgres = path("postgres");
    let words = [
        &postgres, "-D", &data, "-h", "0.0.0.0", "-p", "5432", "-k", sockets, "-F",
    ];
    let server = wrap(&node, &["--as", "db"], &words);
    let mut command = Command::new(user.first().map_or(super::node::CARINA, |unshare| unshare));
    if is_root {
        command.args(&user[1..]).arg(super::node::CARINA);
    }
    command.args(server.get_args()).env("LC_ALL", "C");
    command.stderr(Stdio::null());
    let _server = Server::start(&node, command, "db:5432", Signal::INT);
    let bench = path("pgbench");
    let client = |words: &[&str]| {
        let to = ["-h", "db.dif.internal", "-p", "5432", "-U", "tester"];
        let words = [&[bench.as_str()], &to[..], words, &["postgres"]].concat();
        run(&node, &[], &words)
    };
    // The name is registered a little before the server accepts users.
    until("a database", || {
        client(&["-i", "-q"]).status.success().then_some(())
    });
    let text = printed(&client(&["-c", "8", "-j", "2", "-t", "50", "-C"]));
    assert!(text.contains("actually processed: 400/400"), "{text}");
}

/// The server connects its bound UDP socket to each client, and binds another one.
#[test]
fn iperf3_measures_streams_and_datagrams() {
    if !have(&["/usr/bin/iperf3"]) {
        return;
    }
    let node = both_in_one();
    let words = ["/usr/bin/iperf3", "-s"];
    let server = wrap(&node, &["--as", "perf"], &words);
    let _server = Server::start(&node, server, "perf:5201", Signal::TERM);
    for options in [
        &["-n", "20M"][..],
        &["-n", "20M", "-R", "-P", "3"],
        &["-u", "-b", "20M", "-l", "1200", "-t", "1"],
        &["-u", "-b", "20M", "-l", "1200", "-t", "1", "-R"],
        &["-u", "-b", "5M", "-l", "1200", "-t", "1", "-P", "2"],
    ] {
        let client = ["/usr/bin/iperf3", "-J", "-c", "perf.dif.internal"];
        let text = printed(&run(&node, &[], &[&client, options].concat()));
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let sum = &report["end"]["sum"];
        let received = match options[0] {
            "-u" => sum["packets"].as_u64().unwrap() - sum["lost_packets"].as_u64().unwrap(),
            _ => report["end"]["sum_received"]["bytes"].as_u64().unwrap(),
        };
        assert!(received > 0, "{options:?}: {text}");
    }
}

/// Its threads share one socket for datagrams.
#[test]
fn memcached_answers_datagrams_and_streams() {
    if !have(&["/usr/bin/memcached"]) || !has_python() {
        return;
    }
    let node = both_in_one();
    let words = ["/usr/bin/memcached", "-u", "root", "-l", "0.0.0.0"];
    let ports = ["-p", "11211", "-U", "11211", "-t", "2"];
    let server = wrap(&node, &["--as", "cache"], &[&words[..], &ports].concat());
    let _server = Server::start(&node, server, "cache:11211/udp", Signal::TERM);
    let client = "
import socket, struct
to = (socket.gethostbyname('cache.dif.internal'), 11211)
stream = socket.create_connection(to)
for key, value in (b'a', b'hello'), (b'big', b'x' * 6000):
    stream.sendall(b'set %s 0 0 %d\\r\\n%s\\r\\n' % (key, len(value), value))
    assert stream.recv(99) == b'STORED\\r\\n'
peers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
for n, s in enumerate(peers): s.sendto(struct.pack('!HHHH', n, 0, 1, 0) + b'get a\\r\\n', to)
for n, s in enumerate(peers):
    text, peer = s.recvfrom(2000); assert peer == to
    assert text == struct.pack('!HHHH', n, 0, 1, 0) + b'VALUE a 0 5\\r\\nhello\\r\\nEND\\r\\n', text
peers[0].sendto(struct.pack('!HHHH', 9, 0, 1, 0) + b'get big\\r\\n', to)
parts, count = {}, 1
while len(parts) < count:
    text = peers[0].recv(2000); _, at, count, _ = struct.unpack('!HHHH', text[:8])
    parts[at] = text[8:]
whole = b''.join(parts[at] for at in sorted(parts))
assert count > 1 and whole == b'VALUE big 0 6000\\r\\n' + b'x' * 6000 + b'\\r\\nEND\\r\\n'
";
    python(&node, &[], client);
}

/// Configuration of haproxy: a proxy in front of two servers that it checks.
const BALANCED: &str = "
global
    maxconn 200
defaults
    mode http
    timeout connect 20s
    timeout client 20s
    timeout server 20s
frontend front
    bind 0.0.0.0:8000
    default_backend servers
backend servers
    balance roundrobin
    option httpchk GET /
    server web1 web1.dif.internal:8080 check inter 200ms init-addr libc
    server web2 web2.dif.internal:8080 check inter 200ms init-addr libc
";

/// A proxy in front of two servers, with its checks; then it starts again, with the same sockets.
#[test]
fn haproxy_balances_servers_and_reloads() {
    if !have(&["/usr/sbin/haproxy", "/usr/bin/curl"]) || !has_python() {
        return;
    }
    let node = both_in_one();
    let program = |name: &str| {
        format!(
            "
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{name}')
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(('0.0.0.0', 8080), Handler)
print('listening', flush=True); server.serve_forever()
"
        )
    };
    let _servers = ["web1", "web2"].map(|name| serve(&node, &["--as", name], &program(name)));
    let file = node.directory.path().join("settings");
    std::fs::write(&file, BALANCED).unwrap();
    let words = [
        "/usr/sbin/haproxy",
        "-W",
        "-db",
        "-f",
        file.to_str().unwrap(),
    ];
    let mut server = wrap(&node, &["--as", "front"], &words);
    server.stderr(Stdio::null());
    let server = Server::start(&node, server, "front:8000", Signal::TERM);
    let page = || {
        let words = ["/usr/bin/curl", "-sS", "http://front.dif.internal:8000/"];
        let output = run(&node, &[], &words);
        output.status.success().then(|| printed(&output))
    };
    let both_answer = || {
        let mut seen = Vec::new();
        until("pages of both servers", || {
            seen.extend(page());
            ["web1", "web2"]
                .iter()
                .all(|name| seen.iter().any(|page| page == name))
                .then_some(())
        });
    };
    both_answer();
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", server.0.id());
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let old = children();
    assert!(!old.trim().is_empty());
    kill_process(Pid::from_child(&server.0), Signal::USR2).unwrap();
    until("a new worker alone", || {
        let new = children();
        let is_new = |child: &str| !old.split_whitespace().any(|of_old| of_old == child);
        let is_done = !new.trim().is_empty() && new.split_whitespace().all(is_new);
        is_done.then_some(())
    });
    both_answer();
}
