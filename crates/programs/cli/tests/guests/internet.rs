//! Tests of `carina vm run --internet`: curl, apt-get and git in a guest without a network card.
//! An HTTP server in a network namespace, with the host's node, stands for the internet.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::house::{Host, told};

/// What the name server of the internet says: a hosts file that only the namespace sees.
const HOSTS: &str = "127.0.0.1 localhost\n203.0.113.1 deb.example git.example other.example\n\
    127.0.0.1 rebound.example\n203.0.113.2 lan.example\n";

/// A namespace with an address of the internet, an HTTP server in it, and that server's files.
pub(crate) struct Internet {
    server: Child,
    directory: tempfile::TempDir,
}

impl Internet {
    /// `None` where namespaces cannot be made.
    pub(crate) fn start() -> Option<Internet> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: network namespaces are made by root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let site = directory.path().join("site");
        fs::create_dir(&site).unwrap();
        fs::write(directory.path().join("hosts"), HOSTS).unwrap();
        let script = "ip link set lo up && ip address add 203.0.113.1/32 dev lo && \
            ip address add 203.0.113.2/32 dev lo && \
            mount --make-rprivate / && mount --bind hosts /etc/hosts && echo ready && \
            exec python3 -m http.server --bind 0.0.0.0 --directory site 80 >log 2>&1";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "--mount"]);
        command.args(["sh", "-c", script]).current_dir(&directory);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        let read = BufReader::new(server.stdout.take().unwrap()).read_line(&mut line);
        if !(read.is_ok() && line == "ready\n") {
            let output = server.wait_with_output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            // Root without CAP_SYS_ADMIN, as in a container.
            assert!(
                error.contains("Operation not permitted"),
                "no namespace: {error}"
            );
            println!("SKIP: network namespaces cannot be made here: {error}");
            return None;
        }
        Some(Internet { server, directory })
    }

    /// A process in the namespace that plays the internet.
    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn site(&self) -> std::path::PathBuf {
        self.directory.path().join("site")
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Makes a repository of Debian packages with one package, and a repository of git.
pub(crate) fn fill(site: &Path) {
    fs::write(site.join("page"), "hello\n").unwrap();
    let debian = site.join("debian");
    fs::create_dir(&debian).unwrap();
    let package = "Package: nothing\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example>\n\
        Filename: ./nothing.deb\nSize: 8\n\
        SHA256: 0000000000000000000000000000000000000000000000000000000000000000\n\
        Description: no files\n";
    fs::write(debian.join("Packages"), package).unwrap();
    let script = "git init -q work && cd work && echo text >file && git add file && \
        git -c user.name=a -c user.email=a@example commit -qm one && cd .. && \
        git clone -q --bare work repository.git && git -C repository.git update-server-info";
    let mut git = Command::new("sh");
    git.args(["-ec", script])
        .current_dir(site)
        .env("HOME", site);
    let made = git.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(made.status.success(), "{}", told(&made));
}

/// The files that apt-get needs beside its programs.
pub(crate) const APT: &str = "mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial \
    /var/lib/dpkg /etc/apt/preferences.d /etc/apt/apt.conf.d /usr/share/dpkg && \
    : >/var/lib/dpkg/status && \
    echo 'deb [trusted=yes] http://deb.example/debian ./' >/etc/apt/sources.list && \
    echo 'APT::Architecture \"amd64\"; APT::Architectures { \"amd64\"; }; \
    APT::Sandbox::User \"root\";' >/etc/apt/apt.conf.d/10test && \
    echo 'amd64 x86_64 (amd64|x86_64) 64 little' >/usr/share/dpkg/cputable && \
    printf '# Version=1.0\\nbase-gnu-linux-<cpu> <cpu>\\n' >/usr/share/dpkg/tupletable && \
    apt-get update";

pub(crate) fn sh(host: &Host, command: &str) -> Output {
    host.carina(&["vm", "exec", "a", "sh", "-c", command])
}

pub(crate) fn succeeds(host: &Host, command: &str) -> String {
    let output = sh(host, command);
    assert!(output.status.success(), "{command}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn programs_in_a_guest_reach_what_the_rules_allow() {
    let Some(internet) = Internet::start() else {
        return;
    };
    fill(&internet.site());
    let pid = internet.server.id().to_string();
    let host = Host::start_through(&["nsenter", "-t", &pid, "--net", "--mount"]);
    let programs = [
        "/usr/bin/curl",
        "/usr/bin/git",
        "/usr/lib/git-core/git-remote-http",
        "/usr/bin/apt-get",
        "/usr/lib/apt/methods/http",
        "/usr/lib/apt/methods/store",
    ];
    let programs = programs.iter().flat_map(|path| ["--program", path]);
    // In the namespace, the server's addresses are of the host itself: a name alone does not lead
    // to them.
    let rules = [
        "deb.example:80",
        "git.example",
        "rebound.example",
        "lan.example",
        "203.0.113.1",
    ];
    let rules = rules.iter().flat_map(|rule| ["--internet", rule]);
    let memory = ["--memory", "512"].into_iter();
    let options: Vec<&str> = memory.chain(programs).chain(rules).collect();
    let vm = host.vm_run("a", &options);
    assert_eq!(
        succeeds(&host, "curl -sS http://deb.example/page"),
        "hello\n"
    );

    // Names are known on the host only, and each program finds its way by the environment.
    assert!(succeeds(&host, APT).contains("http://deb.example/debian"));
    let known = succeeds(&host, "cat /var/lib/apt/lists/*Packages");
    assert!(known.contains("Package: nothing"), "{known}");
    let clone = "cd /tmp && git clone -q http://git.example/repository.git && cat repository/file";
    assert_eq!(succeeds(&host, clone), "text\n");
    // A tunnel, as for https.
    let tunnel = succeeds(&host, "curl -sS -p http://git.example/page");
    assert_eq!(tunnel, "hello\n");
    let socks = "curl -sS --proxy socks5h://127.0.0.1:3128 http://git.example/page";
    assert_eq!(succeeds(&host, socks), "hello\n");

    // What is outside the rules is refused with the cause, and counted.
    let answer = succeeds(&host, "curl -sS http://other.example/page");
    let cause = "other.example:80 is outside the rules of --internet (deb.example:80, git.example, \
        rebound.example, lan.example, 203.0.113.1/32)";
    assert!(answer.contains(cause), "{answer}");
    let rebound = succeeds(&host, "curl -sS http://rebound.example/page");
    assert!(
        rebound.contains("rebound.example, which is 127.0.0.1,"),
        "{rebound}"
    );
    let own = succeeds(&host, "curl -sS http://lan.example/page");
    assert!(own.contains("lan.example, which is 203.0.113.2,"), "{own}");
    let closed = succeeds(&host, "curl -sS http://git.example:81/");
    assert!(
        closed.contains("git.example:81: connection refused"),
        "{closed}"
    );
    let list = host.json(&["vm", "list"]);
    let door: &Value = &list["ports"][0]["internet"];
    assert_eq!(
        (&door["outside_rules"], &door["unreachable"]),
        (&3.into(), &1.into()),
        "{door}"
    );
    assert!(door["connected"].as_u64() > Some(4), "{door}");

    let other = host.carina(&["vm", "run", "a", "--internet", "*"]);
    assert!(!other.status.success());
    assert!(
        told(&other).contains("with other rules of --internet"),
        "{}",
        told(&other)
    );
    let wrong = host.carina(&["vm", "run", "b", "--internet", "http://deb.example/"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", told(&wrong));
    vm.stop();
}
