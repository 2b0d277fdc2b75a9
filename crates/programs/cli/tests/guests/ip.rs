//! Tests of `carina vm run --ip`: programs in guests without a network card have an address, a name
//! server and a route to a server in another network namespace, behind the host's NAT.
//!
//! ```text
//!   VM a 10.9.1.2 --+                                                       DNS, HTTP
//!                   +-- namespace of the host: 203.0.113.2 --- veth --- 203.0.113.1
//!   VM b 10.9.1.3 --+                         the server has no route to 10.9.1.0/24
//! ```

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::disk::{Disk, path};
use crate::house::{BOOT, Host, SOON, told};
use crate::internet::{APT, fill, sh, succeeds};

/// Answers each query for an address with 203.0.113.1, and serves the files of a directory.
const SERVER: &str = r#"
import functools, http.server, socket, threading
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("203.0.113.1", 53))
def answer():
    while True:
        query, client = names.recvfrom(512)
        end = query.index(b"\0", 12) + 5
        is_address = query[end - 4:end - 2] == b"\0\1"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton("203.0.113.1")
        count = b"\0\1" if is_address else b"\0\0"
        head = query[:2] + b"\x81\x80\0\1" + count + b"\0\0\0\0" + query[12:end]
        names.sendto(head + (record if is_address else b""), client)
threading.Thread(target=answer, daemon=True).start()
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="site")
server = http.server.ThreadingHTTPServer(("203.0.113.1", 80), handler)
print("ready", flush=True)
server.serve_forever()
"#;

/// A process in a network namespace of its own. Dropping the value kills it.
struct Space(Child);

impl Space {
    /// Starts a script, which prints `ready`. `None` where namespaces cannot be made.
    fn start(directory: &Path, script: &str) -> Option<Space> {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--net",
            "sh",
            "-ec",
            script,
        ]);
        command.current_dir(directory).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take().unwrap()).read_line(&mut line);
        if read.is_ok() && line == "ready\n" {
            return Some(Space(child));
        }
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains("Operation not permitted"),
            "no namespace: {error}"
        );
        println!("SKIP: network namespaces cannot be made here: {error}");
        None
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Runs a command in the namespace.
    fn runs(&self, script: &str) -> bool {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid(), "--net", "sh", "-ec", script]);
        command.status().unwrap().success()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops VM a when the value is dropped, also while the node does not run.
struct StopsVm(std::path::PathBuf);

impl Drop for StopsVm {
    fn drop(&mut self) {
        // Fails if the test has stopped the VM.
        let _ = carina_vm::stop(&self.0, "a", std::time::Duration::ZERO);
    }
}

/// The namespace of the host, and that of the server, joined by an Ethernet.
struct World {
    host: Space,
    _server: Space,
    directory: tempfile::TempDir,
}

impl World {
    fn start() -> Option<World> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: network namespaces are made by root");
            return None;
        }
        if !Path::new("/dev/net/tun").exists() {
            println!("SKIP: /dev/net/tun (the kernel's module tun) does not exist");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("site")).unwrap();
        fs::write(directory.path().join("server.py"), SERVER).unwrap();
        let idle = "ip link set lo up; echo ready; exec sleep 3600";
        let host = Space::start(directory.path(), idle)?;
        let script = format!(
            "ip link set lo up; ip link add wan type veth peer name uplink netns {}; ip address add \
             203.0.113.1/24 dev wan; ip link set wan up; exec python3 server.py 2>log",
            host.pid()
        );
        let server = Space::start(directory.path(), &script)?;
        assert!(host.runs("ip address add 203.0.113.2/24 dev uplink; ip link set uplink up"));
        Some(World {
            host,
            _server: server,
            directory,
        })
    }

    /// The addresses from which the server was asked.
    fn clients(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap();
        let lines = log.lines().filter(|line| line.contains("GET"));
        lines
            .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
            .collect()
    }
}

#[test]
fn guest_without_a_card_reaches_servers_behind_its_host() {
    let Some(world) = World::start() else { return };
    let site = world.directory.path().join("site");
    fill(&site);
    fs::write(site.join("large"), vec![7; 4 << 20]).unwrap();
    let mut host = Host::start_through(&["nsenter", "-t", &world.host.pid(), "--net"]);
    let programs = [
        "/usr/bin/apt-get",
        "/usr/lib/apt/methods/http",
        "/usr/lib/apt/methods/store",
    ];
    let programs = programs.iter().flat_map(|path| ["--program", path]);
    let link = ["--memory", "512", "--nat", "--dns", "203.0.113.1"].into_iter();
    let options: Vec<&str> = link
        .chain(["--ip", "10.9.1.2/24"])
        .chain(programs)
        .collect();
    let a = host.vm_run("a", &options);

    // Names, a download, apt.
    let page = "wget -qO- http://deb.example/page";
    assert_eq!(succeeds(&host, page), "hello\n");
    let large = succeeds(&host, "wget -qO- http://deb.example/large | wc -c");
    assert_eq!(large.trim(), (4 << 20).to_string());
    assert!(succeeds(&host, APT).contains("http://deb.example/debian"));
    let known = succeeds(&host, "cat /var/lib/apt/lists/*Packages");
    assert!(known.contains("Package: nothing"), "{known}");

    // The server saw the address of the host only; the host reaches the VM without NAT.
    let clients = world.clients();
    assert!(clients.len() >= 3, "{clients:?}");
    assert!(
        clients.iter().all(|client| client == "203.0.113.2"),
        "{clients:?}"
    );
    assert!(world.host.runs("busybox ping -c 1 -w 60 10.9.1.2"));
    let list = host.json(&["vm", "list"]);
    let link = &list["ports"][0]["ip"];
    assert_eq!(link["host"][0], "10.9.1.1", "{link}");
    assert_eq!((&link["tun"], &link["nat"]), (&"ip-a".into(), &true.into()));

    // A second VM of the same prefix is reached through the host.
    let b = host.vm_run("b", &["--ip", "10.9.1.3/24"]);
    succeeds(&host, "ping -c 1 -w 60 10.9.1.3");
    let other = host.carina(&["vm", "run", "a", "--ip", "10.9.1.4/24"]);
    assert!(
        told(&other).contains("other values of --ip"),
        "{}",
        told(&other)
    );
    b.stop();

    // A node that is killed loses the interface; the next node makes it again.
    let _stops = StopsVm(host.run_dir().join("vm"));
    std::mem::forget(a);
    host.kill_node();
    assert!(!world.host.runs("ip link show ip-a 2>/dev/null"));
    host.start_node();
    host.until("the VM reaches the server again", SOON, || {
        let output = sh(&host, page);
        (output.stdout == b"hello\n").then_some(())
    });
    let stopped = host.carina(&["vm", "stop", "a"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    host.until("the interface is removed", SOON, || {
        (!world.host.runs("ip link show ip-a 2>/dev/null")).then_some(())
    });
}

#[test]
fn guest_from_a_disk_gets_its_address_from_the_host() {
    let Some(world) = World::start() else { return };
    let host = Host::start_through(&["nsenter", "-t", &world.host.pid(), "--net"]);
    let Disk { file, boot } = Disk::make(&host, &["tun", "qemu_fw_cfg"]);
    let run = ["vm", "run", "d", "--memory", "256", "--ip", "10.9.1.2/24"];
    let disk = ["--disk", path(&file), "--qemu-args", &boot];
    let output = host.carina(&[&run[..], &disk].concat());
    assert!(output.status.success(), "{}", told(&output));
    host.until("the guest answers under its address", BOOT, || {
        let ping = "busybox ping -c 1 -w 2 10.9.1.2 >/dev/null 2>&1";
        world.host.runs(ping).then_some(())
    });
    let output = host.carina(&["vm", "stop", "d"]);
    assert!(output.status.success(), "{}", told(&output));
}

#[test]
fn wrong_addresses_of_a_vm_are_refused_before_it_boots() {
    let host = Host::start();
    for (options, word) in [
        (&["--nat"][..], "--ip"),
        (&["--ip", "10.9.1.2/32"], "10.9.1.2/32"),
        (&["--ip", "10.9.1.255/24"], "10.9.1.255/24"),
        (
            &[
                "--ip",
                "10.9.1.2/24",
                "--disk",
                "/dev/null",
                "--dns",
                "192.0.2.1",
            ],
            "--dns",
        ),
    ] {
        let output = host.carina(&[&["vm", "run", "a"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(told(&output).contains(word), "{}", told(&output));
    }
}
