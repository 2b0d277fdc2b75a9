//! Starting of a machine's QEMU.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use carina_api::control::VmpiKind;

use super::{Boot, Life, Machine, SEED};
use crate::accel::{self, Accel};
use crate::cache::{Cache, write_whole};
use crate::cpio::Archive;
use crate::error::{Context, Error, Result};
use crate::kernel::Kernel;
use crate::network::Backend;
use crate::running::Running;
use crate::state::{Record, start_ticks};

impl Machine {
    /// Starts QEMU and returns at once, while the guest boots or waits for the node.
    ///
    /// # Errors
    ///
    /// QEMU is missing, a machine of that name is already running, or files cannot be written.
    pub fn start(self, cache: &Cache) -> Result<Running> {
        let accel = self.accel_in(cache)?;
        self.spawn(accel, Life::Cold)
    }

    /// The accelerator that was set, otherwise the one found by probing.
    pub(crate) fn accel_in(&self, cache: &Cache) -> Result<Accel> {
        match (self.accel, &self.boot) {
            (Some(accel), _) => Ok(accel),
            (None, _) if !Accel::may_be_kvm() => Ok(Accel::Tcg),
            (None, _) => Accel::probe(cache, &Kernel::obtain(cache)?),
        }
    }

    pub(crate) fn spawn(&self, accel: Accel, life: Life<'_>) -> Result<Running> {
        let qemu = accel::qemu()?;
        let args = self.args_of_life(accel, life)?;
        if let (Some(boot), false) = (&self.boot, life.is_continued()) {
            boot.check_memory(self.memory_mib)?;
        }
        self.clear_run_dir()?;
        if !life.is_continued() {
            self.write_initramfs()?;
        }
        self.write_private_files()?;
        let qemu_log = self.path("qemu.log");
        let stderr = File::create(&qemu_log).context("create", &qemu_log)?;
        let mut command = Command::new("sh");
        command.args(["-c", GATE, "sh"]).args(self.launching());
        if self.dies_with_parent {
            carina_sys::end_with_parent(&mut command);
        }
        // A person may end QEMU with SIGTERM.
        carina_sys::unblock_stop_signals(&mut command);
        let what = || self.run_dir.join(&self.name);
        let mut child = command
            .arg(qemu)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            // In a process group of its own, so that an interrupt typed at a terminal reaches only
            // the program that started the machine.
            .process_group(0)
            .spawn()
            .context("start QEMU for", &what())?;
        let gate = child.stdin.take();
        let pid = i32::try_from(child.id()).expect("Linux process numbers are below 2^22");
        let record = self.record(pid, accel, life);
        let sockets = self.plugged().filter_map(|(_, nic)| match &nic.backend {
            Backend::VhostUser { socket, .. } => Some(socket.clone()),
            _ => None,
        });
        let running = Running::new(record, self.run_dir.clone(), child, self.taps_in())
            .with_sockets(sockets.collect());
        running.record().write(&self.run_dir)?;
        if let Some(mut gate) = gate {
            let opened = gate.write_all(b"\n");
            opened.context("start QEMU for", &what())?;
        }
        Ok(running)
    }

    /// The words of the command that starts QEMU.
    fn launching(&self) -> Vec<OsString> {
        let entering = self.network.iter().flat_map(|file| {
            let mut option = OsString::from("--net=");
            option.push(file);
            ["nsenter".into(), option, "--".into()]
        });
        let own = self.launcher.iter().cloned();
        entering
            .chain(self.confined.launching())
            .chain(own)
            .collect()
    }

    fn record(&self, pid: i32, accel: Accel, life: Life<'_>) -> Record {
        Record {
            name: self.name.clone(),
            pid,
            started_ticks: start_ticks(pid).unwrap_or_default(),
            accel: accel.name().to_owned(),
            memory_mib: self.memory_mib,
            cpus: self.cpus,
            qmp: self.path("qmp"),
            events: self.path("events"),
            console: self.path("console"),
            agent: self.path("agent"),
            log: self.path("log"),
            qemu_log: self.path("qemu.log"),
            from_disk: matches!(self.boot, Some(Boot::Disk(_))),
            keeps_disk_open: matches!(self.boot, Some(Boot::Disk(_))),
            template: match life {
                Life::Clone { key, .. } => Some(key.to_owned()),
                Life::Awaiting { hardware, .. } => hardware.template.clone(),
                Life::Cold | Life::Template(_) => None,
            },
            is_partial: matches!(life, Life::Clone { .. }),
            // QEMU creates the sockets that the node connects to, and leaves them when it is
            // killed.
            files: FILES
                .iter()
                .map(|kind| self.path(kind))
                .chain(self.vmpi_sockets())
                .collect(),
        }
    }

    /// The sockets on which QEMU listens for the node. The region of an ivshmem-plain device is a
    /// file of the node, which exists before QEMU and after it.
    fn vmpi_sockets(&self) -> impl Iterator<Item = PathBuf> {
        let listens = |kind: &VmpiKind| *kind != VmpiKind::IvshmemPlain;
        let sockets = self.vmpi.iter().filter(move |(kind, _)| listens(kind));
        sockets.map(|(_, socket)| socket.clone())
    }

    pub(crate) fn clear_run_dir(&self) -> Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.run_dir)
            .context("create", &self.run_dir)?;
        if let Some(record) = Record::read(&self.run_dir, &self.name) {
            if record.is_alive() {
                return Err(Error::Invalid {
                    what: format!("machine {}", self.name),
                    reason: format!("runs already, as process {}", record.pid),
                });
            }
            record.remove_files(&self.run_dir, true);
        }
        for path in FILES
            .iter()
            .map(|kind| self.path(kind))
            .chain(self.vmpi_sockets())
        {
            if path.symlink_metadata().is_ok() {
                fs::remove_file(&path).context("remove the stale", &path)?;
            }
        }
        Ok(())
    }

    fn write_private_files(&self) -> Result<()> {
        for (kind, data) in &self.private_files {
            let path = self.path(kind);
            let mut options = File::options();
            let created = options.write(true).create_new(true).mode(0o600).open(&path);
            let written = created.and_then(|mut file| file.write_all(data));
            written.context("write", &path)?;
        }
        Ok(())
    }

    fn write_initramfs(&self) -> Result<()> {
        let Some(initramfs) = self.boot.as_ref().and_then(Boot::initramfs) else {
            if self.files.is_empty() {
                return Ok(());
            }
            return Err(Error::Invalid {
                what: format!("files for machine {}", self.name),
                reason: "can only be put into a guest that boots from an initramfs".into(),
            });
        };
        if self.files.is_empty() {
            return Ok(());
        }
        let mut bytes = fs::read(initramfs).context("read", initramfs)?;
        let mut overlay = Archive::new();
        for (path, mode, data) in &self.files {
            overlay.file(path, *mode, data);
        }
        bytes.extend(overlay.finish());
        write_whole(&self.path("initrd"), &bytes)
    }
}

/// A shell script that becomes QEMU when it reads a line, which is sent after the machine's record
/// was written. Without a record, nothing would find QEMU if this process was killed in between. If
/// this process is killed earlier, the pipe ends and so does the script.
const GATE: &str = "read -r line && exec \"$@\" </dev/null";

/// Suffixes of the machine's files in its run directory.
const FILES: [&str; 11] = [
    "qmp",
    "events",
    "console",
    "agent",
    "log",
    "qemu.log",
    "initrd",
    "state",
    "ssh.key",
    "ssh.known_hosts",
    SEED,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_opens_with_a_line_and_ends_with_its_pipe() {
        for (line, expected) in [(&b"\n"[..], "a b, c\n"), (b"", "")] {
            let mut child = Command::new("sh")
                .args(["-c", GATE, "sh", "printf", "%s, %s\n", "a b", "c"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(line).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.success(), !line.is_empty());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        }
    }
}
