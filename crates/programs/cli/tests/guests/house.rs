//! A host with a node and guests: the steps from which the scenarios are made.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use carina_api::control::VmpiKind;
use carina_vm::{Boot, Cache, Image, Machine, Running};
use serde_json::Value;

/// The program under test.
pub(crate) const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// Time limit for booting: a guest under emulation on a busy machine is slow.
pub(crate) const BOOT: Duration = Duration::from_secs(240);

/// Time limit for what must happen soon, with an allowance for a busy machine. It only ends a test
/// that hangs; no result depends on it.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// A host: a run directory and a node.
pub(crate) struct Host {
    directory: tempfile::TempDir,
    node: Option<Child>,
    /// The words that start the node through another program; empty to start it itself.
    launcher: Vec<String>,
}

/// A guest of a host: a VM, a node inside it, and a link that is up.
pub(crate) struct Guest {
    pub name: String,
    pub vm: Running,
}

/// A VM that `carina vm run` started. Dropping the value stops it, however the test ends.
pub(crate) struct RunningVm<'a> {
    host: &'a Host,
    name: &'a str,
}

/// A `carina` command of the host in the background. Dropping the value kills it.
pub(crate) struct Background(pub Child);

impl Host {
    /// Starts a node in a new run directory, and waits until it answers.
    pub(crate) fn start() -> Host {
        Host::start_through(&[])
    }

    /// Like [`Host::start`]; the node is started by another program, such as nsenter.
    pub(crate) fn start_through(launcher: &[&str]) -> Host {
        let directory = tempfile::Builder::new()
            .prefix("carina-")
            .tempdir()
            .unwrap();
        let mut host = Host {
            directory,
            node: None,
            launcher: launcher.iter().map(ToString::to_string).collect(),
        };
        host.start_node();
        host
    }

    pub(crate) fn start_node(&mut self) {
        assert!(self.node.is_none());
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let child = self
            .command_through(&self.launcher, &["node"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.node = Some(child);
        self.until("the node answers", SOON, || {
            self.carina(&["ipcp", "list"])
                .status
                .success()
                .then_some(())
        });
    }

    /// Kills the node as `kill -9` does.
    pub(crate) fn kill_node(&mut self) {
        let mut node = self.node.take().expect("the node runs");
        node.kill().unwrap();
        node.wait().unwrap();
    }

    /// Ends the node as a service manager does, and returns its exit status.
    pub(crate) fn terminate_node(&mut self) -> std::process::ExitStatus {
        let mut node = self.node.take().expect("the node runs");
        let pid = rustix::process::Pid::from_child(&node);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        node.wait().unwrap()
    }

    pub(crate) fn node_pid(&self) -> u32 {
        self.node.as_ref().expect("the node runs").id()
    }

    pub(crate) fn node_is_running(&mut self) -> bool {
        self.node
            .as_mut()
            .is_some_and(|node| node.try_wait().unwrap().is_none())
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Creates a port for the VM, boots it, and waits until its node has attached.
    pub(crate) fn boot(&self, name: &str) -> Guest {
        self.boot_with(name, |machine| machine)
    }

    pub(crate) fn boot_with(&self, name: &str, shape: impl FnOnce(Machine) -> Machine) -> Guest {
        self.boot_over(VmpiKind::Ivshmem, name, shape)
    }

    /// Like [`Host::boot_with`], with the VMPI device `vmpi`.
    pub(crate) fn boot_over(
        &self,
        vmpi: VmpiKind,
        name: &str,
        shape: impl FnOnce(Machine) -> Machine,
    ) -> Guest {
        let socket = match vmpi {
            VmpiKind::Ivshmem => self.port(name),
            VmpiKind::IvshmemPlain => self.port_with(name, &["--vmpi", "ivshmem-plain"]),
            VmpiKind::Virtqueue => self.port_with(name, &["--vmpi", "virtqueue"]),
            VmpiKind::Vsock => self.port_with(name, &["--vmpi", "vsock"]),
            VmpiKind::Xen => panic!("a domain of Xen does not run in QEMU"),
        };
        let toml = format!(
            "[[ipcp]]\nname = \"hv0\"\ntype = \"hv\"\nside = \"guest\"\ndif = \"hv.{name}\"\n"
        );
        let machine = Machine::new(name, self.run_dir().join("vm"))
            .unwrap()
            .boot(boot().clone())
            .memory_mib(256)
            .vmpi(vmpi, socket)
            .node_config(&toml)
            .dies_with_parent();
        let vm = shape(machine).start(&cache()).unwrap();
        vm.wait_ready(BOOT).unwrap();
        let guest = Guest {
            name: name.to_owned(),
            vm,
        };
        self.until_link(&guest, "up");
        guest
    }

    /// Creates the VM's port in the node, if it does not exist, and returns QEMU's socket.
    pub(crate) fn port(&self, name: &str) -> PathBuf {
        self.port_with(name, &[])
    }

    fn port_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let output = self.carina(&[&["vm", "args", name], options].concat());
        assert!(output.status.success(), "{}", told(&output));
        let line = told(&output);
        let path = line
            .split("path=")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        PathBuf::from(path.unwrap_or_else(|| panic!("no path in {line}")))
    }

    /// Waits until the host's IPCP of a guest is in state `up` or `down`.
    pub(crate) fn until_link(&self, guest: &Guest, state: &str) {
        let what = format!("the link of {} is {state}", guest.name);
        self.until(&what, BOOT, || {
            let ipcps = self.json(&["ipcp", "list"]).to_string();
            let ipcps: Value = serde_json::from_str(&ipcps).unwrap();
            let all = flatten(&ipcps);
            let is =
                |value: &&Value| value["name"] == guest.name.as_str() && value["state"] == state;
            all.iter().any(is).then_some(())
        });
    }

    /// Waits until an application with this name can be reached from this host.
    pub(crate) fn until_reachable(&self, name: &str) {
        let what = format!("{name} is registered");
        self.until(&what, SOON, || self.knows(name).then_some(()));
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.carina_json(&["app", "list"])
            .is_some_and(|apps| flatten(&apps).iter().any(|value| value["name"] == name))
    }

    /// Pings, and requires every answer. The program itself compares the answers byte by byte.
    pub(crate) fn pings(&self, name: &str, size: &str, count: u32) {
        let output = self.ping(name, size, count);
        assert!(
            output.status.success(),
            "ping {name} {size}: {}",
            told(&output)
        );
    }

    pub(crate) fn ping(&self, name: &str, size: &str, count: u32) -> Output {
        self.ping_every("1ms", name, size, count)
    }

    /// Pings with pauses, and returns the output.
    pub(crate) fn pings_every(&self, pause: &str, name: &str, size: &str, count: u32) -> String {
        let output = self.ping_every(pause, name, size, count);
        assert!(output.status.success(), "ping {name}: {}", told(&output));
        told(&output)
    }

    fn ping_every(&self, pause: &str, name: &str, size: &str, count: u32) -> Output {
        let count = count.to_string();
        // On a busy machine an answer of a guest may be late.
        let words = ["-s", size, "-c", &count, "-i", pause, "-q", "-W", "60s"];
        self.carina(&[&["ping", name], &words[..]].concat())
    }

    /// Runs an echo server on the host until the value is dropped.
    pub(crate) fn serves_echo(&self, name: &str) -> Background {
        let server = self.in_background(&["ping", "--listen", name]);
        self.until_reachable(name);
        server
    }

    /// Sends bytes to an application with `carina cat`.
    pub(crate) fn gives(&self, name: &str, bytes: &[u8]) {
        let mut command = self.command(&["cat", name]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut cat = command.spawn().unwrap();
        cat.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = cat.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
    }

    /// Starts a VM by `carina vm run`, with these options.
    pub(crate) fn vm_run<'a>(&'a self, name: &'a str, options: &[&str]) -> RunningVm<'a> {
        let vm = RunningVm { host: self, name };
        let started = self.carina(&[&["vm", "run", name], options].concat());
        assert!(started.status.success(), "{}", told(&started));
        vm
    }

    pub(crate) fn in_background(&self, args: &[&str]) -> Background {
        let mut command = self.command(args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Background(command.spawn().unwrap())
    }

    pub(crate) fn carina(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        self.carina_json(args)
            .unwrap_or_else(|| panic!("carina {args:?} gave no JSON"))
    }

    fn carina_json(&self, args: &[&str]) -> Option<Value> {
        let mut with_json = vec!["--json"];
        with_json.extend(args);
        let output = self.carina(&with_json);
        serde_json::Deserializer::from_slice(&output.stdout)
            .into_iter()
            .next()?
            .ok()
    }

    /// Calls `ask` until it returns a value, and panics with the node's log when the time is over.
    pub(crate) fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        ask: impl FnMut() -> Option<T>,
    ) -> T {
        until(limit, ask).unwrap_or_else(|| {
            panic!(
                "not within {limit:?}: {what}; the node's log:\n{}",
                self.log()
            )
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_through(&[], args)
    }

    fn command_through(&self, launcher: &[String], args: &[&str]) -> Command {
        // The kernel ends the process with the test, however the test ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(launcher);
        command.arg(CARINA).args(args);
        command.env("CARINA_RUN", self.run_dir());
        command
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("node.log")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl RunningVm<'_> {
    /// Stops the VM, which must succeed.
    pub(crate) fn stop(self) {
        let stopped = self.host.carina(&["vm", "stop", self.name]);
        assert!(stopped.status.success(), "{}", told(&stopped));
    }
}

impl Drop for RunningVm<'_> {
    fn drop(&mut self) {
        // Fails if the test has stopped the VM.
        let _ = self.host.carina(&["vm", "stop", self.name]);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Background {
    /// Waits for the end of the process, and returns its output.
    pub(crate) fn output(mut self) -> Output {
        // The destructor gets an empty stand-in, so that it has nothing to kill.
        let stand_in = Command::new("true").spawn().unwrap();
        std::mem::replace(&mut self.0, stand_in)
            .wait_with_output()
            .unwrap()
    }

    /// Waits for the end of the process, and returns its status.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> std::process::ExitStatus {
        until(limit, || self.0.try_wait().unwrap())
            .unwrap_or_else(|| panic!("still running after {limit:?}"))
    }
}

impl Guest {
    /// Runs a command in the guest that must succeed, and returns its output.
    pub(crate) fn does(&self, command: &str) -> String {
        let output = self.vm.run_within(command, BOOT).unwrap();
        assert!(
            output.is_success(),
            "in {}: {command}: status {}: {} {}\nits node:\n{}",
            self.name,
            output.status,
            output.text(),
            output.error_text(),
            self.node_log(),
        );
        output.text()
    }

    /// Starts a command in the guest in the background, and returns its process id there.
    pub(crate) fn starts(&self, command: &str) -> String {
        self.does(&format!(
            "{command} >/tmp/started.log 2>&1 </dev/null & echo $!"
        ))
    }

    /// Runs an echo server in the guest, and waits until the host knows its name.
    pub(crate) fn serves_echo(&self, host: &Host, name: &str) -> String {
        let pid = self.starts(&format!("carina ping --listen {name}"));
        host.until_reachable(name);
        pid
    }

    /// Waits until the guest's node can reach `name`.
    pub(crate) fn until_reachable(&self, name: &str) {
        let ask = format!("carina app list | grep -qw {name}");
        let known = || self.vm.run(&ask).unwrap().is_success().then_some(());
        assert!(
            until(SOON, known).is_some(),
            "{name} is unknown in {}",
            self.name
        );
    }

    /// Number of VFIO interrupts so far, on all processors.
    pub(crate) fn interrupts(&self) -> u64 {
        let sum = "{ for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i }";
        let awk = format!("awk '/vfio/ {sum} END {{ print sum + 0 }}' /proc/interrupts");
        self.does(&awk).parse().unwrap()
    }

    pub(crate) fn node_log(&self) -> String {
        self.vm
            .run("tail -n 30 /var/log/carina.log")
            .map(|out| out.text())
            .unwrap_or_default()
    }
}

/// The output of a command, for messages.
pub(crate) fn told(output: &Output) -> String {
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(stdout),
        String::from_utf8_lossy(stderr)
    )
}

/// Calls `ask` every few milliseconds until it returns a value or the time is over.
pub(crate) fn until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All objects at any depth in a JSON value.
pub(crate) fn flatten(value: &Value) -> Vec<&Value> {
    let mut all = vec![value];
    match value {
        Value::Array(items) => all.extend(items.iter().flat_map(flatten)),
        Value::Object(fields) => all.extend(fields.values().flat_map(flatten)),
        _ => {}
    }
    all
}

/// The guest image for all tests of this program. It contains this test program too, for the
/// scribbler.
pub(crate) fn boot() -> &'static Boot {
    static BOOT: OnceLock<Boot> = OnceLock::new();
    BOOT.get_or_init(|| {
        let image = Image::new()
            .program("/bin/carina", Path::new(CARINA))
            .and_then(|image| image.program("/bin/scribbler", &std::env::current_exe().unwrap()))
            .unwrap();
        Boot::prepare(&cache(), &image).unwrap()
    })
}

pub(crate) fn cache() -> Cache {
    Cache::default_location().unwrap()
}
