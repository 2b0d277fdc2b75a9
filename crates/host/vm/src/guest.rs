//! Guests: their image, boot, commands inside, and the node inside.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_api::control::{Client, IpcpInfo, LinkState};
use carina_vm::shell::{NoAnswer, SILENCE, Shell};
use carina_vm::{Boot, Cache, Image, Machine, Output, Record};

use crate::error::{Attempt, Error, Result};
use crate::record::LabDir;
use crate::topology::Vm;

/// How long a guest may take to boot; under translation it is slow.
pub const BOOT: Duration = Duration::from_secs(180);

/// How long a guest on a disk of the user's may take to answer: it runs since QEMU has started, and
/// most such guests have nothing that answers.
const DISK_ANSWER: Duration = Duration::from_secs(30);
const AWAITED: &str = "waiting for it to answer";
const AWAITED_OF_DISK: &str = "waiting for it to answer (only Carina's own guest runs what answers; a \
     VM from --disk is reached by `carina vm console` or by flows)";

/// A running guest, reached through its second serial port.
#[derive(Debug)]
pub struct Guest {
    name: String,
    shell: Shell,
}

/// The kernel and the image that guests boot.
#[derive(Debug)]
pub struct GuestImage {
    cache: Cache,
    boot: Boot,
}

impl GuestImage {
    /// Obtains the kernel and packs the image.
    ///
    /// # Errors
    /// Something is missing.
    pub fn prepare(program: &Path) -> Result<Self> {
        let cache = Cache::default_location().attempt("opening the cache")?;
        let image = Image::new()
            .program("/bin/carina", program)
            .attempt("packing carina")?;
        let boot = Boot::prepare(&cache, &image).attempt("preparing the guest")?;
        Ok(Self { cache, boot })
    }

    /// A machine that boots it.
    ///
    /// # Errors
    /// The name is not well formed.
    pub fn machine(&self, name: &str, directory: impl Into<PathBuf>) -> Result<Machine> {
        let machine = Machine::new(name, directory).attempt("naming the VM")?;
        Ok(machine.boot(self.boot.clone()))
    }

    /// The cache that the image lies in.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Starts a machine for which its host's node has a port. The machine outlives this process.
    ///
    /// # Errors
    /// QEMU does not start.
    pub fn start(&self, dir: &LabDir, name: &str, vm: &Vm, config: &str) -> Result<Record> {
        let host = dir.run_dir(&vm.host);
        let port = Client::new(host.control_sock())
            .vm(name)
            .attempt(format!("asking {} for the port of VM {name}", vm.host))?;
        let running = self
            .machine(name, host.vm_dir())?
            .memory_mib(vm.memory_mib)
            .cpus(vm.cpus)
            .vmpi(port.vmpi, &port.qemu_socket)
            .node_config(config)
            .start(&self.cache)
            .attempt(format!("starting QEMU for {name}"))?;
        Ok(running.detach())
    }
}

impl Guest {
    /// Reaches the guest of a running lab, once it has booted.
    ///
    /// # Errors
    /// Its machine does not run, or does not answer.
    pub fn reach(dir: &LabDir, name: &str, vm: &Vm) -> Result<Self> {
        Self::reach_machine(&dir.run_dir(&vm.host).vm_dir(), name, None)
    }

    /// Reaches the guest of a machine recorded in `directory`, once it has booted, for which it has
    /// `limit`; without one, as long as the slowest boot of Carina's own guest takes. A disk of the
    /// user's may have nothing that answers.
    ///
    /// # Errors
    /// The machine does not run, or does not answer.
    pub fn reach_machine(directory: &Path, name: &str, limit: Option<Duration>) -> Result<Self> {
        let machines = carina_vm::list(directory).attempt("listing machines")?;
        let record = machines.into_iter().find(|record| record.name == name);
        let record = record.ok_or_else(|| Error::NoMachine(name.to_owned()))?;
        let shell = Shell::connect(&record.agent).attempt(format!("reaching VM {name}"))?;
        let name = name.to_owned();
        let guest = Self { name, shell };
        // The first bytes of a connection may be lost; the request is repeated until an answer.
        let (limit, what) = match record.from_disk {
            true => (limit.unwrap_or(DISK_ANSWER), AWAITED_OF_DISK),
            false => (limit.unwrap_or(BOOT), AWAITED),
        };
        guest
            .shell
            .wait_ready(limit, || false)
            .map_err(|answer| guest.silent(what, answer, limit))?;
        Ok(guest)
    }

    /// Runs a shell command in it.
    ///
    /// # Errors
    /// The guest does not answer. A command that fails is reported by its status.
    pub fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        let mut attempts = 0;
        loop {
            let (status, stdout, stderr) = self
                .shell
                .run(command, limit)
                .map_err(|answer| self.silent(format!("`{command}`"), answer, limit))?;
            attempts += 1;
            // The serial port lost the text of the command, so nothing was run.
            let is_lost = status == 2 && String::from_utf8_lossy(&stderr).starts_with(LOST);
            if !is_lost || attempts == ATTEMPTS {
                return Ok(Output {
                    status,
                    stdout,
                    stderr,
                });
            }
        }
    }

    /// Runs a shell command in it that must succeed.
    ///
    /// # Errors
    /// The guest does not answer, or the command fails; its message is in the error.
    pub fn must_run(&self, command: &str) -> Result<Output> {
        let output = self.run(command, COMMAND)?;
        if output.is_success() {
            return Ok(output);
        }
        Err(Error::GuestCommand {
            vm: self.name.clone(),
            command: command.to_owned(),
            status: output.status,
            said: output.error_text(),
        })
    }

    /// Writes a text file in it, in commands short enough for the serial port's buffer.
    ///
    /// # Errors
    /// The guest does not answer or cannot.
    pub fn put(&self, path: &str, text: &str) -> Result<()> {
        self.must_run(&format!(": >'{path}'"))?;
        let mut rest = text;
        while !rest.is_empty() {
            let mut end = rest.len().min(PUT_BYTES);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (part, after) = rest.split_at(end);
            let quoted = part.replace('\'', "'\\''");
            self.must_run(&format!("printf '%s' '{quoted}' >>'{path}'"))?;
            rest = after;
        }
        Ok(())
    }

    /// Applies a configuration to its node.
    ///
    /// # Errors
    /// The node refuses.
    pub fn apply(&self, config: &str) -> Result<()> {
        self.put("/etc/carina.toml", config)?;
        self.must_run("carina apply /etc/carina.toml").map(drop)
    }

    /// The IPCPs of its node.
    ///
    /// # Errors
    /// The node does not answer.
    pub fn ipcps(&self) -> Result<Vec<IpcpInfo>> {
        let output = self.must_run("carina ipcp list --json")?;
        serde_json::from_slice(&output.stdout)
            .attempt(format!("reading what the node in VM {} says", self.name))
    }

    fn silent(&self, what: impl Into<String>, answer: NoAnswer, limit: Duration) -> Error {
        let mut what = what.into();
        if answer == NoAnswer::Silent {
            what.push_str(": the guest no longer answers while it runs");
        }
        Error::GuestSilent {
            vm: self.name.clone(),
            what,
            is_closed: answer == NoAnswer::Closed,
            limit: match answer {
                NoAnswer::Silent => SILENCE,
                _ => limit,
            },
        }
    }
}

/// Waits until the node in a guest is attached to the node of its host. `pause` waits between two
/// looks.
///
/// # Errors
/// It is not attached in time, or `pause` fails.
pub fn wait_for_link(
    dir: &LabDir,
    name: &str,
    vm: &Vm,
    pause: impl Fn() -> Result<()>,
) -> Result<()> {
    let host = Client::new(dir.run_dir(&vm.host).control_sock());
    let deadline = Instant::now() + BOOT;
    while Instant::now() < deadline {
        let port = host
            .vm(name)
            .attempt(format!("asking {} for {name}", vm.host))?;
        if port.state == LinkState::Up {
            return Ok(());
        }
        pause()?;
    }
    Err(Error::GuestNotAttached(name.to_owned()))
}

/// The guest's agent says this of a command whose text has not come.
const LOST: &str = "the text of command ";
const ATTEMPTS: u32 = 5;

/// Bytes of a file in one command.
const PUT_BYTES: usize = 800;

/// A command that asks the guest's own node.
const COMMAND: Duration = Duration::from_secs(60);
