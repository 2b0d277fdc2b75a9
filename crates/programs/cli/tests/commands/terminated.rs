//! Tests of SIGTERM: it ends every command that runs until a signal, soon and in order, with the
//! exit code that the command's help names. The command leaves nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::lwaftr::site::{Site, configuration};
use crate::commands::node::{CARINA, Node, PATIENCE, addresses, both_in_one};
use crate::room::Room;

/// A running command, whose output so far is in a file.
struct Serving {
    what: String,
    child: Child,
    printed: PathBuf,
}

impl Serving {
    fn start(run: &Path, words: &[&str]) -> Serving {
        Serving::begin(run, words, |mut command| command.spawn().unwrap())
    }

    fn start_in(room: &Room, run: &Path, words: &[&str]) -> Serving {
        Serving::begin(run, words, |mut command| {
            room.run(move || command.spawn().unwrap())
        })
    }

    fn begin(run: &Path, words: &[&str], spawn: impl FnOnce(Command) -> Child) -> Serving {
        let printed = run.with_extension(format!("said-{}", words.join("-").replace('/', "_")));
        let file = fs::File::create(&printed).unwrap();
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(run).args(words);
        command.stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Serving {
            what: words.join(" "),
            child: spawn(command),
            printed,
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.printed).unwrap()
    }

    /// Waits until `serves` is true.
    fn until(mut self, serves: impl Fn(&Serving) -> bool) -> Serving {
        let end = Instant::now() + PATIENCE;
        while !serves(&self) {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "{}: {}", self.what, self.text());
            assert!(Instant::now() < end, "{}: {}", self.what, self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    /// Sends SIGTERM, and requires exit code 0. Returns the output of the command.
    fn terminate(self) -> String {
        self.terminate_with(0)
    }

    fn terminate_with(mut self, code: i32) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let end = Instant::now() + LIMIT;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < end, "{} runs on", self.what),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(code), "{}: {}", self.what, self.text());
        self.text()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Files and directories in a place, except the output of commands.
fn left_in(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.contains("said-")).collect();
    names.sort();
    names
}

#[test]
fn graphs_and_ports_end_with_sigterm() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let graph = place.path().join("chain.toml");
    fs::write(
        &graph,
        "links = [\"source.output -> sink.input\"]\n[apps.source]\nkind = \"source\"\n\
         rate = 1000\n[apps.sink]\nkind = \"sink\"\n",
    )
    .unwrap();
    let ports = place.path().join("ports.toml");
    let socket = run.join("nfv/a.sock");
    fs::write(
        &ports,
        "[[ports]]\nname = \"a\"\nmac = \"52:54:00:00:00:01\"\n\
         [[ports]]\nname = \"b\"\nmac = \"52:54:00:00:00:02\"\n",
    )
    .unwrap();
    let counters = |_: &Serving| !left_in(&run.join("graphs")).is_empty();
    let graph = Serving::start(&run, &["graph", "run", graph.to_str().unwrap()]);
    graph.until(counters).terminate();
    assert_eq!(left_in(&run.join("graphs")), Vec::<String>::new());
    let nfv = Serving::start(&run, &["nfv", "run", ports.to_str().unwrap()]);
    nfv.until(|nfv| counters(nfv) && socket.exists())
        .terminate();
    for left in ["graphs", "nfv"] {
        assert_eq!(left_in(&run.join(left)), Vec::<String>::new(), "{left}");
    }
}

/// Waits until a node has none of these names registered.
fn until_unregistered(node: &Node, names: &[&str]) {
    let end = Instant::now() + PATIENCE;
    while names.iter().any(|name| registered(node).contains(name)) {
        assert!(Instant::now() < end, "{}", registered(node));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a node has no flows, except the two ends of the N-1 flow between its two members.
fn until_without_flows(node: &Node) {
    let flows = || node.done(&["flow", "list"]).to_string();
    let end = Instant::now() + PATIENCE;
    while ["perf", "echo"].iter().any(|name| flows().contains(name)) {
        assert!(Instant::now() < end, "{}", flows());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn registered(node: &Node) -> String {
    node.done(&["app", "list"]).to_string()
}

#[test]
fn servers_of_flows_end_with_sigterm() {
    let node = both_in_one();
    let run = node.directory.path().join("run");
    let serve = |words: &[&str], name: &str| {
        Serving::start(&run, words).until(|_| registered(&node).contains(name))
    };
    let register = serve(&["register", "held", "--dif", "net"], "held");
    let to = ["--listen-dif", "net", "--to", "held", "--to-dif", "local"];
    let bridge = [&["bridge", "--listen", "front"][..], &to].concat();
    let bridge = serve(&bridge, "front");
    let echo = serve(&["ping", "echo", "--listen"], "echo");
    let perf = serve(&["perf", "perf", "--listen"], "perf");
    let peer = serve(&["bench-peer", "peer", "--stay"], "peer");
    let cat = serve(&["cat", "stream", "--listen"], "stream");
    // The clients are in the middle of their work.
    let limit = ["-t", "600s", "--interval", "20ms"];
    let measuring = Serving::start(&run, &[&["perf", "perf"][..], &limit].concat());
    let measuring = measuring.until(|_| perf.text().contains("job: "));
    let pinging = Serving::start(&run, &["ping", "echo", "-c", "0", "--interval", "20ms"]);
    let pinging = pinging.until(|serving| serving.text().contains("seq=2"));
    // The servers end while their clients have flows to them.
    perf.terminate();
    echo.terminate();
    until_without_flows(&node);
    drop((measuring, pinging));
    assert!(bridge.terminate().contains("0 flows carried"));
    register.terminate();
    peer.terminate();
    assert!(cat.terminate_with(130).contains("interrupted"));
    until_unregistered(&node, &["held", "front", "echo", "perf", "peer", "stream"]);
}

#[test]
fn clients_of_flows_end_with_sigterm() {
    let node = both_in_one();
    let run = node.directory.path().join("run");
    let serve = |words: &[&str], name: &str| {
        Serving::start(&run, words).until(|_| registered(&node).contains(name))
    };
    let server = serve(&["perf", "perf", "--listen"], "perf");
    let echo_server = serve(&["ping", "echo", "--listen"], "echo");
    let limit = ["-t", "600s", "--interval", "20ms"];
    let perf = Serving::start(&run, &[&["perf", "perf"][..], &limit].concat());
    let perf = perf.until(|_| server.text().contains("job: "));
    let echo = Serving::start(&run, &["ping", "echo", "-c", "0", "--interval", "20ms"]);
    let echo = echo.until(|serving| serving.text().contains("seq=2"));
    let top = Serving::start(&run, &["top", "--json", "--interval", "20ms"]);
    let top = top.until(|serving| serving.text().contains("rows"));
    let capture = Serving::start(&run, &["capture", "net.a"]);
    let capture = capture.until(|serving| !serving.text().is_empty());
    assert!(capture.terminate().contains("packets of net.a"));
    top.terminate();
    assert!(perf.terminate_with(130).contains("interrupted"));
    assert!(echo.terminate().contains("0.0 % lost"));
    server.terminate();
    echo_server.terminate();
    until_unregistered(&node, &["perf", "echo"]);
    until_without_flows(&node);
}

#[test]
fn node_ends_with_sigterm() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let node = Serving::start(&run, &["node"]).until(|_| run.join("control.sock").exists());
    node.terminate();
    for left in ["control.sock", "ipc.sock", "counters"] {
        assert!(!run.join(left).exists(), "{left}");
    }
}

#[test]
fn roles_and_agents_end_with_sigterm() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let done = |words: &[&str]| {
        let output = Command::new(CARINA).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    let keys = path("keys");
    done(&["vnet", "keys", "ca", &keys]);
    for party in ["pip uk", "vnp net", "vno acme"] {
        let (role, name) = party.split_once(' ').unwrap();
        done(&["vnet", "keys", "issue", &keys, role, name]);
    }
    fs::write(
        path("uk.toml"),
        "[[hosts]]\nname = \"h1\"\ncpus = 8\nmemory_mib = 4096\naddress = \"10.9.0.1\"\n\
         tunnel_addresses = 8\n",
    )
    .unwrap();
    let [uk, net, acme] = addresses();
    let (at_uk, at_net) = (format!("uk={uk}"), format!("net={net}"));
    let inventory = path("uk.toml");
    let served = |role: &str, name: &str, listen: &str, more: [&str; 2]| {
        let words = [
            "vnet", role, "--name", name, "--listen", listen, "--keys", &keys,
        ];
        let serving = Serving::start(&run, &[&words[..], &more].concat());
        serving.until(|serving| serving.text().contains(": serving "))
    };
    let roles = [
        served("pip", "uk", &uk, ["--inventory", &inventory]),
        served("vnp", "net", &net, ["--pip", &at_uk]),
        served("vno", "acme", &acme, ["--vnp", &at_net]),
    ];
    let agent = Serving::start(&run, &["vnet", "agent"]);
    let agent = agent.until(|serving| serving.text().contains("serving "));
    agent.terminate();
    assert!(!run.join("vnet.sock").exists());
    for role in roles {
        role.terminate();
    }
}

#[test]
fn server_of_several_roles_ends_with_sigterm() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let keys = place.path().join("keys").to_str().unwrap().to_owned();
    for words in [
        &["ca", &keys][..],
        &["issue", &keys, "vnp", "net"],
        &["issue", &keys, "vno", "acme"],
    ] {
        let mut command = Command::new(CARINA);
        let output = command.args(["vnet", "keys"]).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    let [uk, net, acme, page] = addresses();
    let file = place.path().join("roles.toml");
    fs::write(
        &file,
        format!(
            "keys = {keys:?}\n[[vnp]]\nname = \"net\"\nlisten = \"{net}\"\nstore = \"net.db\"\n\
             pips = {{ uk = [\"{uk}\"] }}\n\
             [[vno]]\nname = \"acme\"\nlisten = \"{acme}\"\nstore = \"acme.db\"\nweb = \"{page}\"\n\
             vnp = \"net\"\nvnp_at = [\"{net}\"]\n"
        ),
    )
    .unwrap();
    let roles = Serving::start(&run, &["vnet", "serve", file.to_str().unwrap()]);
    let roles = roles.until(|serving| serving.text().matches(": serving ").count() == 2);
    roles.terminate();
}

#[test]
fn labs_that_are_interrupted_are_removed() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let run = place.path().join("run");
    let labs = place.path().join("labs");
    fs::create_dir(&labs).unwrap();
    let file = place.path().join(format!("term{}.lab", std::process::id()));
    let net = "eth x 0Mbps a b\ndif n a x\ndif n b x\n";
    // No application ever registers this name.
    let waits = format!("{net}app a wait=never: sleep 600\n");
    let is_waiting = |serving: &Serving| serving.text().contains("a: sleep 600");
    let is_up = |_: &Serving| {
        let records = left_in(&labs).into_iter();
        let mut texts = records.map(|lab| fs::read_to_string(labs.join(lab).join("lab.json")));
        texts.any(|text| text.is_ok_and(|text| text.contains("\"is_up\": true")))
    };
    let place_and_file = ["--labs", labs.to_str().unwrap(), file.to_str().unwrap()];
    let is_forbidden = |serving: &Serving| serving.text().contains("not allowed here");
    for (verb, text, more) in [
        ("up", waits.as_str(), &[][..]),
        ("run", net, &["a", "sleep", "600"][..]),
    ] {
        fs::write(&file, text).unwrap();
        let words = [&["lab", verb][..], &place_and_file, more].concat();
        let lab = Serving::start(&run, &words);
        let lab = lab.until(|lab| is_waiting(lab) || is_up(lab) || is_forbidden(lab));
        if is_forbidden(&lab) {
            println!("SKIP: {}", lab.text());
            return;
        }
        assert!(lab.terminate_with(130).contains("removed"), "{verb}");
        assert_eq!(left_in(&labs), Vec::<String>::new(), "{verb}");
        let namespaces = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let namespaces = String::from_utf8(namespaces.stdout).unwrap();
        let name = format!("term{}", std::process::id());
        assert!(!namespaces.contains(&name), "{verb}: {namespaces}");
    }
}

#[test]
fn packet_forwarders_end_with_sigterm() {
    let Some(mut site) = Site::without_tunnel() else {
        return;
    };
    let run = site.run.path().join("run");
    let counters = |_: &Serving| !left_in(&run.join("graphs")).is_empty();
    let forward = Serving::start_in(&site.aftr, &run, &["forward", "inside", "outside"]);
    forward.until(counters).terminate();
    assert_eq!(left_in(&run.join("graphs")), Vec::<String>::new());
    site.write(&configuration(1500, "fd00:1::b4"));
    let file = site.file();
    for (words, is_begun) in [
        (&["impair", "inside", "outside"][..], "are joined"),
        (
            &["vlan-translate", "inside", "outside", "--inner", "0x7100"],
            "are joined",
        ),
        (
            &["blast", "inside", "--rate", "100pps", "--every", "50ms"],
            "pps",
        ),
    ] {
        let joined = Serving::start_in(&site.aftr, &run, words);
        let joined = joined.until(|serving| serving.text().contains(is_begun));
        joined.terminate();
        assert_eq!(left_in(&run.join("graphs")), Vec::<String>::new());
    }
    let words = [
        "lwaftr", "run", "--v4", "outside", "--v6", "inside", "--conf",
    ];
    let words = [&words[..], &[file.to_str().unwrap()]].concat();
    let lwaftr = Serving::start_in(&site.aftr, &run, &words);
    lwaftr.until(counters).terminate();
    for left in ["graphs", "lwaftr"] {
        assert_eq!(left_in(&run.join(left)), Vec::<String>::new(), "{left}");
    }
    site.children.clear();
}

/// The promise is two seconds; the rest allows for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
