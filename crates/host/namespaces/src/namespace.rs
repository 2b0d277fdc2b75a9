//! Network namespaces and veth pairs between them, created with `ip`, by root or in a user
//! namespace.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use carina_sys::NetworkNamespace;

use crate::error::{Attempt, Error, Result};
use crate::process::Process;

/// Permission to create network namespaces. Root always has this permission. Another user has it
/// only in a user namespace of its own, which exists while one helper process lives:
/// [`hold_namespaces`](crate::hold_namespaces) starts that process.
#[derive(Debug, Clone, Default)]
pub struct NamespaceAccess {
    holder: Option<i32>,
}

impl NamespaceAccess {
    /// The permission of root: commands run in this process's own namespaces.
    pub fn of_root() -> Self {
        Self::default()
    }

    /// The permission in the user namespace that `holder` holds open: commands run in the holder's
    /// user, mount and network namespaces.
    pub fn held_by(holder: &Process) -> Self {
        Self {
            holder: Some(holder.pid),
        }
    }

    /// A command that runs with this permission, outside the network namespaces that were created
    /// with it.
    pub fn command(&self, program: &str) -> Command {
        let Some(holder) = self.holder else {
            return Command::new(program);
        };
        let mut command = Command::new("nsenter");
        command
            .args([
                "--preserve-credentials",
                "--user",
                "--mount",
                "--net",
                "--wd=.",
                "--target",
            ])
            .arg(holder.to_string())
            .arg("--")
            .arg(program);
        command
    }

    /// A command that runs in a network namespace.
    pub fn command_in(&self, namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.command("nsenter");
        command
            .arg(format!("--net={NETNS}/{namespace}"))
            .arg("--")
            .arg(program);
        command
    }

    /// Runs `ip` and returns its standard output.
    ///
    /// # Errors
    /// `ip` is missing or fails; the error has its message.
    pub fn ip(&self, words: &[impl AsRef<str>]) -> Result<String> {
        self.run("ip", words)
    }

    /// Runs `tc` and returns its standard output.
    ///
    /// # Errors
    /// `tc` is missing or fails; the error has its message.
    pub fn tc(&self, words: &[impl AsRef<str>]) -> Result<String> {
        self.run("tc", words)
    }

    fn run(&self, program: &str, words: &[impl AsRef<str>]) -> Result<String> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let what = format!("{program} {}", words.join(" "));
        let output = self
            .command(program)
            .args(&words)
            .stdin(Stdio::null())
            .output()
            .attempt(format!("{what} (`{program}` is in the package iproute2)"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(Error::Command {
            command: what,
            stderr: stderr.trim().to_owned(),
        })
    }

    /// Runs lines of `ip` in a network namespace, in one process. It stops at the first line that
    /// fails.
    ///
    /// # Errors
    /// `ip` is missing or a line fails; the error has the lines and the message.
    pub fn ip_batch(&self, namespace: &str, lines: &[String]) -> Result<()> {
        self.run_batch("ip", Some(namespace), lines)
    }

    /// Runs lines of `tc` in a network namespace, in one process. It stops at the first line that
    /// fails.
    ///
    /// # Errors
    /// `tc` is missing or a line fails; the error has the lines and the message.
    pub fn tc_batch(&self, namespace: &str, lines: &[String]) -> Result<()> {
        self.run_batch("tc", Some(namespace), lines)
    }

    /// Runs lines of `tc` in a network namespace, in one process, and returns their output. A line
    /// that fails is skipped, such as one about an interface that does not exist.
    ///
    /// # Errors
    /// `tc` is missing.
    pub fn tc_lines(&self, namespace: &str, lines: &[String]) -> Result<String> {
        let output = self.batch_output("tc", Some(namespace), &["-force"], lines)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs lines of `ip` outside the network namespaces, in one process. It stops at the first
    /// line that fails.
    ///
    /// # Errors
    /// As for [`NamespaceAccess::ip_batch`].
    pub fn ip_lines(&self, lines: &[String]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.run_batch("ip", None, lines)
    }

    fn run_batch(&self, program: &str, namespace: Option<&str>, lines: &[String]) -> Result<()> {
        let output = self.batch_output(program, namespace, &[], lines)?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(Error::Command {
            command: batch_in_words(program, namespace, lines),
            stderr: stderr.trim().to_owned(),
        })
    }

    /// Runs a program that reads its commands, one a line, from standard input.
    fn batch_output(
        &self,
        program: &str,
        namespace: Option<&str>,
        options: &[&str],
        lines: &[String],
    ) -> Result<Output> {
        let what = || batch_in_words(program, namespace, lines);
        let mut command = self.command(program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spawned = match namespace {
            // The option `-n` copies the table of mounts, which has an entry for each namespace. A
            // process begins in the namespace of the thread that starts it.
            Some(namespace) if self.holder.is_none() => {
                command.args(options).args(["-batch", "-"]);
                spawn_in(namespace, &mut command)
            }
            Some(namespace) => {
                command.args(["-n", namespace]).args(options);
                command.args(["-batch", "-"]).spawn()
            }
            None => command.args(options).args(["-batch", "-"]).spawn(),
        };
        let mut child = spawned.attempt(format!(
            "{} (`{program}` is in the package iproute2)",
            what()
        ))?;
        let mut text = lines.join("\n");
        text.push('\n');
        // Written beside the reading, because the program may print more than its pipe holds before
        // it has read all lines.
        let to = child.stdin.take();
        let (written, output) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || to.map(|mut to| to.write_all(text.as_bytes())));
            let output = child.wait_with_output();
            (writer.join(), output)
        });
        let output = output.attempt(what())?;
        // A program that ends early says so by its exit status.
        if output.status.success() {
            let written = written.unwrap_or(None);
            written.unwrap_or(Ok(())).attempt(what())?;
        }
        Ok(output)
    }

    /// The names of all network namespaces.
    ///
    /// # Errors
    /// The directory of namespaces cannot be read; for another user, `ip` is missing.
    pub fn list(&self) -> Result<Vec<String>> {
        if self.holder.is_none() {
            return names_in(Path::new(NETNS)).attempt(format!("reading {NETNS}"));
        }
        let text = self.ip(&["netns", "list"])?;
        let names = text
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        Ok(names.map(str::to_owned).collect())
    }

    /// The processes in any of the named network namespaces, by one pass over all processes.
    /// Processes of other users whose namespace this user may not see are left out.
    pub fn processes_in(&self, namespaces: &[&String]) -> Vec<Process> {
        let file = |name: &&String| {
            match self.holder {
                // As the holder sees the path, whose mount namespace has the file.
                Some(pid) => Path::new(&format!("/proc/{pid}/root{NETNS}")).join(name),
                None => namespace_file(name),
            }
        };
        let known = namespaces.iter().filter_map(|name| inode(&file(name)));
        let known: BTreeSet<(u64, u64)> = known.collect();
        let Ok(all) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pids = all.flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_inside = |pid: &i32| {
            let found = inode(Path::new(&format!("/proc/{pid}/ns/net")));
            found.is_some_and(|found| known.contains(&found))
        };
        let inside = pids.filter(is_inside);
        inside.filter_map(Process::numbered).collect()
    }
}

/// The names of the files in a directory; none if the directory does not exist.
fn names_in(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.map(|entry| entry.file_name().into_string());
        // `ip` makes no names that are not text.
        name.map(|name| name.ok()).transpose()
    };
    entries.filter_map(name).collect()
}

/// Starts a command in a network namespace.
fn spawn_in(namespace: &str, command: &mut Command) -> std::io::Result<Child> {
    let file = NetworkNamespace::open(&namespace_file(namespace))?;
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            file.enter()?;
            command.spawn()
        });
        match inside.join() {
            Ok(spawned) => spawned,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A batch as a person would run it.
fn batch_in_words(program: &str, namespace: Option<&str>, lines: &[String]) -> String {
    let inside = namespace
        .map(|namespace| format!("-n {namespace} "))
        .unwrap_or_default();
    format!("{program} {inside}-batch - (`{}`)", lines.join("; "))
}

/// Device and inode of a file; the same for two files of one namespace. (namespaces(7))
fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The file that names a network namespace.
pub fn namespace_file(namespace: &str) -> PathBuf {
    Path::new(NETNS).join(namespace)
}

/// Whether a network namespace of this name can be entered: its file must be a mount of a
/// namespace. A plain file remains if the mount was made in another mount namespace, or no longer
/// exists.
pub fn is_namespace(name: &str) -> bool {
    let found = rustix::fs::statfs(namespace_file(name));
    found.is_ok_and(|found| found.f_type as u64 == NSFS_MAGIC)
}

/// The file system type that statfs(2) returns for the file of a namespace.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// The arguments of two calls of `ip`, one string each, that create a namespace with this name and
/// set its loopback interface up.
pub fn new_namespace(name: &str) -> [String; 2] {
    [
        format!("netns add {name}"),
        format!("-n {name} link set dev lo up"),
    ]
}

/// The arguments of three calls of `ip`, one string each, that connect two namespaces by a veth
/// pair and set both interfaces up. Each end is a namespace and the name of the interface in it.
/// `mtu` is ` mtu N`, with its leading space, or empty for the kernel's default.
pub fn veth_pair([a, at_a]: [&str; 2], [b, at_b]: [&str; 2], mtu: &str) -> [String; 3] {
    [
        format!("link add name {at_a}{mtu} netns {a} type veth peer name {at_b}{mtu} netns {b}"),
        format!("-n {a} link set dev {at_a} up"),
        format!("-n {b} link set dev {at_b} up"),
    ]
}

/// A network namespace that is removed when this value is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a network namespace with this name, which is removed when the value is dropped.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn new(name: &str) -> Result<Self> {
        let this = Self {
            name: name.to_owned(),
        };
        run_all(new_namespace(name))?;
        Ok(this)
    }

    /// A command that runs in the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        NamespaceAccess::of_root().command_in(&self.name, program)
    }

    /// The words in front of a command that make it run in this namespace. They become the command
    /// by exec(2).
    pub fn launcher(&self) -> [OsString; 3] {
        let file = format!("--net={NETNS}/{}", self.name);
        ["nsenter".into(), file.into(), "--".into()]
    }

    /// Runs `ip` in the namespace.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        let words = ["-n", &self.name]
            .into_iter()
            .chain(arguments.iter().copied());
        NamespaceAccess::of_root()
            .ip(&words.collect::<Vec<_>>())
            .map(drop)
    }

    /// Connects two namespaces by a veth pair with these interface names.
    ///
    /// # Errors
    /// `ip` is missing or fails.
    pub fn connect(&self, interface: &str, peer: &Namespace, peer_interface: &str) -> Result<()> {
        run_all(veth_pair(
            [&self.name, interface],
            [&peer.name, peer_interface],
            "",
        ))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If the removal fails, the namespace ends with the mount namespace in which benches run.
        let _ = NamespaceAccess::of_root().ip(&["netns", "del", &self.name]);
    }
}

fn run_all(commands: impl IntoIterator<Item = String>) -> Result<()> {
    let access = NamespaceAccess::of_root();
    for text in commands {
        access.ip(&text.split(' ').collect::<Vec<_>>())?;
    }
    Ok(())
}

const NETNS: &str = "/run/netns";
