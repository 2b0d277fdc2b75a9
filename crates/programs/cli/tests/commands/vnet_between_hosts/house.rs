//! Two providers with their hosts, as processes in one namespace, for a test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use carina_namespaces::Namespace;
use serde_json::Value;

use super::{BEYOND, HOSTS, LIMIT, PROCESSES, STILL, TRIES, WAIT, other};
use crate::commands::node::CARINA;

/// A provider with two hosts and a provider with one, whose underlays are one segment; and a VNP
/// and a VNO.
pub(super) struct House {
    directory: tempfile::TempDir,
    namespace: Namespace,
    processes: Vec<(&'static str, Child)>,
}

impl House {
    pub(super) fn start() -> House {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::new(&format!("cvm{}.{count}", std::process::id())).unwrap();
        let ip = |words: &str| namespace.ip(&words.split(' ').collect::<Vec<_>>()).unwrap();
        ip("link add segment type bridge");
        ip("link set segment up");
        for host in [1, 2, 3] {
            ip(&format!(
                "link add wire{host} type veth peer name plug{host}"
            ));
            ip(&format!("link set plug{host} master segment"));
            ip(&format!("link set plug{host} up"));
            ip(&format!("link set wire{host} up"));
        }
        let mut house = House {
            directory: tempfile::tempdir().unwrap(),
            namespace,
            processes: Vec::new(),
        };
        house.write_files();
        for process in PROCESSES {
            house.begin(process);
        }
        house.wait("the VNO", || {
            let output = house.operator(&["list"]);
            output.status.success().then_some(())
        });
        house
    }

    pub(super) fn write_files(&self) {
        let keys = self.path("keys");
        let issue = |words: &[&str]| {
            let mut command = Command::new(CARINA);
            let output = command.args(["vnet", "keys"]).args(words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
        };
        issue(&["ca", &keys]);
        for party in [
            "pip uk", "pip de", "vnp net", "vno acme", "agent h1", "agent h2", "agent h3",
        ] {
            let (role, name) = party.split_once(' ').unwrap();
            issue(&["issue", &keys, role, name]);
        }
        for (operator, directory) in [("acme", "acme"), ("uk", "uk"), ("de", "de")] {
            let to = self.path(directory);
            issue(&["issue", &keys, "operator", operator, "--to", &to]);
        }
        let host = |host: &str, place: &str, last: u8| {
            format!(
                "[[hosts]]\nname = \"{host}\"\ncpus = 8\nmemory_mib = 4096\n\
                 location = \"{place}\"\n\
                 address = \"10.9.{last}.1\"\ntunnel_addresses = 8\n"
            )
        };
        let border = |host: &str, beyond: &str| {
            format!(
                "[[borders]]\nname = \"channel\"\nhost = \"{host}\"\nrate_bps = 1000000000\n\
                 reaches = [\"{beyond}\"]\n"
            )
        };
        let wire = "[[links]]\nname = \"wire\"\nends = [\"h1\", \"h2\"]\nrate_bps = 1000000000\n";
        let (h1, h2) = (host("h1", "london", 0), host("h2", "berlin", 1));
        let uk = format!("{h1}{h2}{wire}{}", border("h1", "10.9.2.0/24"));
        std::fs::write(self.path("uk.toml"), uk).unwrap();
        let de = host(BEYOND, "paris", 2) + &border(BEYOND, "10.9.0.0/23");
        std::fs::write(self.path("de.toml"), de).unwrap();
        let roles = "keys = \"keys\"\n\
            [[vnp]]\nname = \"net\"\nlisten = \"127.0.0.1:7100\"\nstore = \"net.db\"\n\
            pips = { uk = [\"127.0.0.1:7101\"], de = [\"127.0.0.1:7102\"] }\n\
            [[vno]]\nname = \"acme\"\nlisten = \"127.0.0.1:7099\"\nstore = \"acme.db\"\n\
            vnp = \"net\"\nvnp_at = [\"127.0.0.1:7100\"]\n";
        std::fs::write(self.path("roles.toml"), roles).unwrap();
        let alone = "[vnet]\nname = \"alone\"\non_insufficient = \"queue 25m\"\n\
            [node.r]\nmemory = 128\nlocation = [\"london\", \"berlin\"]\n";
        std::fs::write(self.path("alone.toml"), alone).unwrap();
        let document = "[vnet]\nname = \"moves\"\non_insufficient = \"queue 25m\"\n\
            [node.r]\nmemory = 320\nlocation = [\"london\", \"berlin\"]\n\
            [node.n]\nkind = \"namespace\"\nlocation = [\"london\"]\n\
            [node.m]\nkind = \"namespace\"\nlocation = [\"berlin\"]\n\
            [node.e]\nkind = \"namespace\"\nlocation = [\"paris\"]\n\
            [[link]]\nends = [\"n\", \"r\"]\nrate = \"10Mbps\"\nas = \"gre\"\n\
            [[link]]\nends = [\"r\", \"m\"]\nrate = \"10Mbps\"\nas = \"ipip\"\n\
            [[link]]\nends = [\"e\", \"r\"]\nrate = \"10Mbps\"\nas = \"vxlan\"\n\
            [[link]]\nends = [\"r\", \"e\"]\nrate = \"10Mbps\"\nas = \"ipip\"\n\
            [[link]]\nends = [\"r\", \"m\"]\nrate = \"10Mbps\"\nas = \"dif\"\n";
        std::fs::write(self.path("moves.toml"), document).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// The image store of a host.
    pub(super) fn store(&self, host: &str) -> String {
        self.path(&format!("images-{host}"))
    }

    pub(super) fn begin(&mut self, process: &'static str) {
        let log = std::fs::File::options();
        let log = { log }
            .create(true)
            .append(true)
            .open(self.path(&format!("{process}.log")));
        let number = process.trim_start_matches('h');
        let (wire, at) = (format!("wire{number}"), format!("127.0.0.1:720{number}"));
        let (pip, port) = match process {
            "beyond" | BEYOND => ("de", "7102"),
            _ => ("uk", "7101"),
        };
        let listens = format!("127.0.0.1:{port}");
        let calls = format!("{pip}={listens}");
        let (roles, inventory, keys) = (
            self.path("roles.toml"),
            self.path(&format!("{pip}.toml")),
            self.path("keys"),
        );
        let mut command = self.namespace.command(CARINA);
        command.env("CARINA_IMAGES", self.store(process));
        command.arg("--run").arg(self.path(process)).arg("vnet");
        match process {
            "rest" => command.args(["serve", &roles]),
            "pip" | "beyond" => command
                .args(["pip", "--name", pip, "--listen", &listens])
                .args(["--keys", &keys, "--inventory", &inventory]),
            host => command
                .args(["agent", "--host", host, "--underlay", &wire, "--moves", &at])
                .args(["--pip", &calls, "--keys", &keys]),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(log.unwrap()).spawn();
        self.processes.push((process, child.unwrap()));
    }

    /// Kills a process as `kill -9` does, and starts it again.
    pub(super) fn kill_and_begin(&mut self, process: &'static str) {
        let place = self.processes.iter().position(|(it, _)| *it == process);
        let (_, mut child) = self.processes.remove(place.unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        self.begin(process);
    }

    pub(super) fn logs(&self) -> String {
        let logs = PROCESSES.map(|process| {
            let text = std::fs::read_to_string(self.path(&format!("{process}.log")));
            format!(
                "--- {process}\n{}{}",
                text.unwrap_or_default(),
                self.events(process)
            )
        });
        logs.join("\n")
    }

    /// The events of the network at an agent, as text.
    pub(super) fn events(&self, host: &str) -> String {
        if !HOSTS.contains(&host) && host != BEYOND {
            return String::new();
        }
        let name = self.network(host).file_name().map(ToOwned::to_owned);
        let mut command = self.namespace.command(CARINA);
        command
            .arg("--run")
            .arg(self.path(host))
            .args(["vnet", "events"]);
        let output = command.arg(name.unwrap_or_default()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command of the network's operator.
    pub(super) fn operator(&self, words: &[&str]) -> Output {
        let mut command = self.namespace.command(CARINA);
        let keys = self.path("acme");
        command.args([
            "--json",
            "vnet",
            words[0],
            "--vno",
            "127.0.0.1:7099",
            "--keys",
            &keys,
        ]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    pub(super) fn migration(&self, operator: &str, node: &str, to: &str) -> Command {
        let mut command = self.namespace.command(CARINA);
        let keys = self.path(operator);
        command.args([
            "--json", "vnet", "migrate", node, "--vnet", "moves", "--to", to, "--limit", WAIT,
        ]);
        command.args(["--pip", "127.0.0.1:7101", "--keys", &keys]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `drain` or `undrain` as the operator of the provider.
    pub(super) fn drain(&self, verb: &str, host: &str) -> Output {
        let mut command = self.namespace.command(CARINA);
        command.args(["--json", "vnet", verb, host]);
        command.args(["--pip", "127.0.0.1:7101", "--keys", &self.path("uk")]);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Moves the VM, and returns the report. On a busy machine it may take longer than the agents
    /// wait for each other. Then the VM has stayed, and this tries again.
    pub(super) fn migrate(&self, to: &str) -> Value {
        for _ in 0..TRIES {
            let output = self.migration("uk", "r", to).output().unwrap();
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).unwrap();
            }
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(is_for_time(&printed), "{output:?}\n{}", self.logs());
            println!("{printed}");
            self.wait_until_moved();
            self.wait_until_ready();
            self.wait_for_mark();
            assert_eq!(self.places(), [other(to)]);
        }
        panic!("it has stayed {TRIES} times\n{}", self.logs());
    }

    /// Waits until the tests of the network pass.
    pub(super) fn wait_for_tests(&self) {
        self.wait("tests that pass", || {
            self.operator(&["test"]).status.success().then_some(())
        });
    }

    pub(super) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        let (mut known, mut since) = (String::new(), Instant::now());
        loop {
            if let Some(found) = look() {
                return found;
            }
            if since.elapsed() > STILL || begin.elapsed() > LIMIT {
                let printed = self.logs();
                let goes_on = printed != known && begin.elapsed() < LIMIT;
                assert!(goes_on, "{what}\n{printed}");
                (known, since) = (printed, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn wait_until_ready(&self) {
        self.wait("ready", || {
            let output = self.operator(&["status"]);
            let status: Value = serde_json::from_slice(&output.stdout).ok()?;
            let holds = status["standing"]["holds"].as_array()?;
            holds.iter().any(|state| state == "Ready").then_some(())
        });
    }

    /// The directory of a host's part of the network.
    pub(super) fn network(&self, host: &str) -> PathBuf {
        let vnets = Path::new(&self.path(host)).join("vnet");
        let entries = std::fs::read_dir(vnets).into_iter().flatten().flatten();
        let mut paths = entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir());
        paths.next().unwrap_or_default()
    }

    /// The hosts on which a QEMU of the VM runs.
    pub(super) fn places(&self) -> Vec<&'static str> {
        let runs = |host: &str| {
            let text = std::fs::read(self.network(host).join("vm/r.machine")).ok()?;
            let record: Value = serde_json::from_slice(&text).ok()?;
            let process = Path::new("/proc").join(record["pid"].to_string());
            process.exists().then_some(())
        };
        HOSTS
            .into_iter()
            .filter(|host| runs(host).is_some())
            .collect()
    }

    /// The names of the ports in both namespaces of the network.
    pub(super) fn ports(&self) -> Vec<String> {
        let of = |host: &str| {
            let text = std::fs::read_to_string(self.network(host).join("record.json"));
            let record: Value = serde_json::from_str(&text.unwrap()).unwrap();
            let inside = format!("cv-{}", record["vnet"].as_str().unwrap());
            let shown = Command::new("ip")
                .args(["-n", &inside, "-br", "link"])
                .output();
            let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
            let names = shown
                .lines()
                .filter(|line| line.starts_with('l') && !line.starts_with("lo"));
            names
                .map(|line| line.split(['@', ' ']).next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        HOSTS.iter().flat_map(|host| of(host)).collect()
    }

    /// Waits until a file in the VM has the content that was written there, which shows that the VM
    /// kept running and was not recreated. An agent that restarts does not answer for a while.
    pub(super) fn wait_for_mark(&self) {
        self.wait("the mark in the machine", || {
            let output = self.operator(&["exec", "r", "cat", "/tmp/mark"]);
            (output.status.success() && output.stdout == b"here\n").then_some(())
        });
    }

    /// Waits until all ports exist: two for each of three links, and one for each of two links to
    /// the other provider.
    pub(super) fn wait_for_ports(&self) {
        self.wait("the ports of five links", || {
            (self.ports().len() == 8).then_some(())
        });
    }

    /// Waits until no move is under way. The VM may be on either host.
    pub(super) fn wait_until_moved(&self) {
        self.wait("one place, and no move", || {
            let places = self.places();
            let [place] = places[..] else {
                return None;
            };
            // During a move, the error of the command says so.
            let output = self.migration("uk", "r", place).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            printed.contains("already").then_some(())
        });
    }

    pub(super) fn uids(&self) -> Vec<String> {
        let uid = |host: &&str| {
            let text = std::fs::read_to_string(self.network(host).join("record.json")).ok()?;
            let record: Value = serde_json::from_str(&text).ok()?;
            Some(record["vnet"].as_str()?.to_owned())
        };
        HOSTS.iter().chain([&BEYOND]).filter_map(uid).collect()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for (_, child) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Removes what a failed test has left, without agents.
        for host in HOSTS.into_iter().chain([BEYOND]) {
            let mut command = self.namespace.command(CARINA);
            command.env("CARINA_IMAGES", self.store(host));
            let command = command.arg("--run").arg(self.path(host));
            let _ = command.args(["vnet", "down", "--all"]).output();
        }
    }
}

/// Whether an error only says that something took too long, or that another operation interfered.
pub(super) fn is_for_time(printed: &str) -> bool {
    let words = [
        "in time",
        "try again",
        "does not answer",
        "timed out",
        "has not come",
    ];
    words.iter().any(|word| printed.contains(word))
}
