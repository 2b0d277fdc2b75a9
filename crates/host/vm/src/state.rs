//! Records of running machines: one small file for each in the run directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::qmp::Qmp;
use crate::shell::Shell;

/// The record of a machine that Carina has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The machine's name.
    pub name: String,
    /// Pid of QEMU.
    pub pid: i32,
    /// Start time of that process in clock ticks since the host booted. Together with the pid it
    /// distinguishes this QEMU from a later process with the same pid.
    pub started_ticks: u64,
    /// The accelerator: `kvm` or `tcg`.
    pub accel: String,
    /// Memory of the guest, in MiB.
    pub memory_mib: u32,
    /// Number of processors of the guest.
    pub cpus: u32,
    /// Unix socket on which QEMU listens for a QMP client, which controls the machine.
    pub qmp: PathBuf,
    /// Unix socket on which QEMU listens for a second QMP client, which waits for QEMU's events.
    #[serde(default)]
    pub events: PathBuf,
    /// Unix socket on which QEMU listens for a client of the first serial port, the console.
    pub console: PathBuf,
    /// Unix socket on which QEMU listens for a client of the second serial port, on which the
    /// guest's agent executes commands.
    pub agent: PathBuf,
    /// File with all output of the console.
    pub log: PathBuf,
    /// File with QEMU's standard error.
    pub qemu_log: PathBuf,
    /// Whether the machine boots a user's disk image, not Carina's own guest.
    #[serde(default)]
    pub from_disk: bool,
    /// Whether QEMU keeps the disk open for writing while it does not run the guest. Otherwise QEMU
    /// would open the disk again when it resumes, as another user who may not.
    #[serde(default)]
    pub keeps_disk_open: bool,
    /// The key of the template that the machine was cloned from; `None` if it is not a clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether the machine is a clone that has not taken its identity yet: it still has the
    /// template's.
    #[serde(default)]
    pub is_partial: bool,
    /// All files to remove with the machine.
    pub files: Vec<PathBuf>,
}

impl Record {
    /// Whether the QEMU of this record is still running.
    pub fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.started_ticks)
    }

    pub(crate) fn path(run_dir: &Path, name: &str) -> PathBuf {
        run_dir.join(format!("{name}.machine"))
    }

    pub(crate) fn write(&self, run_dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).expect("a record has only plain fields");
        crate::cache::write_whole(&Record::path(run_dir, &self.name), &text)
    }

    /// Reads the record of `name`; `None` if it is missing or invalid.
    pub(crate) fn read(run_dir: &Path, name: &str) -> Option<Record> {
        let text = fs::read(Record::path(run_dir, name)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Moves the machine's files to another name and run directory on the same file system. Returns
    /// the new record. QEMU continues with the files that it has open.
    pub(crate) fn adopted(&self, from: &Path, to: &Path, name: &str) -> Result<Record> {
        let moved = |path: &PathBuf| {
            let kind = path
                .file_name()
                .and_then(|file| file.to_str()?.strip_prefix(&self.name)?.strip_prefix('.'));
            kind.map_or_else(|| path.clone(), |kind| to.join(format!("{name}.{kind}")))
        };
        for old in &self.files {
            match fs::rename(old, moved(old)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context("rename", old);
                }
                _ => {}
            }
        }
        let mut record = self.clone();
        record.name = name.to_owned();
        for path in [
            &mut record.qmp,
            &mut record.events,
            &mut record.console,
            &mut record.agent,
            &mut record.log,
            &mut record.qemu_log,
        ]
        .into_iter()
        .chain(&mut record.files)
        {
            *path = moved(path);
        }
        record.write(to)?;
        let old = Record::path(from, &self.name);
        fs::remove_file(&old).context("remove", &old)?;
        Ok(record)
    }

    /// Removes the machine's files. The console's log is removed only if `log` is true.
    pub(crate) fn remove_files(&self, run_dir: &Path, log: bool) {
        for file in &self.files {
            if log || *file != self.log {
                // A file that is already gone needs no removal.
                let _ = fs::remove_file(file);
            }
        }
        let _ = fs::remove_file(Record::path(run_dir, &self.name));
    }
}

/// Lists the running machines of a run directory, sorted by name. Removes the files of machines
/// that have ended.
///
/// # Errors
///
/// The directory exists but cannot be read.
pub fn list(run_dir: &Path) -> Result<Vec<Record>> {
    let entries = match fs::read_dir(run_dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("read", run_dir)?,
    };
    let mut records = Vec::new();
    for entry in entries {
        let path = entry.context("read", run_dir)?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let Some(name) = name.strip_suffix(".machine") else {
            continue;
        };
        match Record::read(run_dir, name) {
            Some(record) if record.is_alive() => records.push(record),
            Some(record) => record.remove_files(run_dir, true),
            None => {}
        }
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(records)
}

/// The step of [`stop`] that ended a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The guest powered itself off, so its programs were asked to end.
    PoweredOff,
    /// QEMU ended when it was asked. The guest noticed nothing, as when a power cable is pulled.
    Quit,
    /// QEMU did not answer in time and was killed.
    Killed,
}

/// Stops a machine in up to three steps: the guest powers off within `grace`, if that is not zero;
/// then QEMU's `quit`; then a kill. Carina's own guests are asked through their agents, and give
/// processes in them time to end. Other guests are asked by the power button. Returns the step
/// that ended the machine.
///
/// # Errors
///
/// No such machine is running, or its process belongs to another user.
pub fn stop(run_dir: &Path, name: &str, grace: Duration) -> Result<Stopped> {
    let record = Record::read(run_dir, name)
        .filter(Record::is_alive)
        .ok_or_else(|| {
            let names: Vec<String> = list(run_dir)
                .unwrap_or_default()
                .into_iter()
                .map(|record| record.name)
                .collect();
            Error::Invalid {
                what: format!("machine {name}"),
                reason: match names.len() {
                    0 => "is not running; no machine runs here".into(),
                    _ => format!("is not running; running are: {}", names.join(", ")),
                },
            }
        })?;
    let stopped = end(&record, run_dir, grace)?;
    record.remove_files(run_dir, true);
    Ok(stopped)
}

/// Takes one step after the other until the machine's process has ended.
fn end(record: &Record, run_dir: &Path, grace: Duration) -> Result<Stopped> {
    if !grace.is_zero() {
        power_off(record, grace);
        if !record.is_alive() {
            return Ok(Stopped::PoweredOff);
        }
    }
    // Both may fail because QEMU has just ended or hangs; the kill handles that.
    let _ = Qmp::connect(&record.qmp, QMP_LIMIT).and_then(|mut qmp| qmp.quit());
    wait_for_end(record, QMP_LIMIT);
    if !record.is_alive() {
        return Ok(Stopped::Quit);
    }
    let pid = Pid::from_raw(record.pid).expect("a live process has a positive number");
    kill_process(pid, Signal::KILL)
        .map_err(std::io::Error::from)
        .context("kill QEMU of", &Record::path(run_dir, &record.name))?;
    wait_for_end(record, QMP_LIMIT);
    Ok(Stopped::Killed)
}

/// Asks the guest to power off, and waits for that.
fn power_off(record: &Record, grace: Duration) {
    let deadline = Instant::now() + grace;
    let asked = if record.from_disk {
        Qmp::connect(&record.qmp, QMP_LIMIT).and_then(|mut qmp| qmp.power_button())
    } else {
        // The agent ends with the guest, so usually the port closes without an answer.
        Shell::connect(&record.agent).map(|agent| drop(agent.run("kill -USR2 1", grace)))
    };
    if asked.is_ok() {
        wait_for_end(record, deadline.saturating_duration_since(Instant::now()));
    }
}

/// Kills a machine and removes its files. A machine that has already ended is not an error.
///
/// A QEMU that ends by itself removes its sockets under the names that it gave them. After an
/// [adoption](crate::Running::adopt), these names may belong to another machine; a killed QEMU
/// removes nothing.
///
/// # Errors
///
/// Its process belongs to another user, or does not end.
pub fn kill(run_dir: &Path, name: &str) -> Result<()> {
    let Some(record) = Record::read(run_dir, name) else {
        return Ok(());
    };
    if record.is_alive() {
        let pid = Pid::from_raw(record.pid).expect("a live process has a positive number");
        match kill_process(pid, Signal::KILL) {
            // QEMU has just ended.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            killed => killed.map_err(std::io::Error::from),
        }
        .context("kill QEMU of", &Record::path(run_dir, name))?;
        wait_for_end(&record, QMP_LIMIT);
    }
    if record.is_alive() {
        return Err(Error::Timeout {
            name: name.to_owned(),
            awaited: "end of its QEMU".into(),
            seconds: QMP_LIMIT.as_secs(),
            hint: String::new(),
        });
    }
    record.remove_files(run_dir, true);
    Ok(())
}

/// Start time of a process in clock ticks since boot; `None` if it has ended or is a zombie.
pub(crate) fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the command's name, may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    // Field 22 of proc(5), counted from the third field.
    fields.get(19)?.parse().ok()
}

fn wait_for_end(record: &Record, limit: Duration) {
    let deadline = Instant::now() + limit;
    while record.is_alive() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

const QMP_LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, pid: i32, started_ticks: u64, directory: &Path) -> Record {
        let file = directory.join(format!("{name}.console"));
        Record {
            from_disk: false,
            keeps_disk_open: false,
            template: None,
            is_partial: false,
            name: name.into(),
            pid,
            started_ticks,
            accel: "tcg".into(),
            memory_mib: 128,
            cpus: 1,
            qmp: file.clone(),
            events: file.clone(),
            console: file.clone(),
            agent: file.clone(),
            log: directory.join(format!("{name}.log")),
            qemu_log: directory.join(format!("{name}.qemu.log")),
            files: vec![file],
        }
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let ticks = start_ticks(pid).unwrap();
        let here = Path::new("/");
        assert!(record("a", pid, ticks, here).is_alive());
        assert!(!record("a", pid, ticks + 1, here).is_alive());
        assert_eq!(start_ticks(i32::MAX), None);
    }

    #[test]
    fn listing_keeps_the_living_and_removes_what_the_dead_left() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let pid = i32::try_from(std::process::id()).unwrap();
        let living = record("b", pid, start_ticks(pid).unwrap(), directory);
        let dead = record("a", pid, 1, directory);
        fs::write(&living.console, b"").unwrap();
        fs::write(&dead.console, b"").unwrap();
        living.write(directory).unwrap();
        dead.write(directory).unwrap();
        assert_eq!(list(directory).unwrap(), std::slice::from_ref(&living));
        assert!(living.console.exists());
        assert!(!dead.console.exists());
        assert!(!Record::path(directory, "a").exists());
        assert!(list(&directory.join("absent")).unwrap().is_empty());
    }

    #[test]
    fn stopping_what_does_not_run_names_what_does() {
        let directory = tempfile::tempdir().unwrap();
        let error = stop(directory.path(), "x", Duration::ZERO).unwrap_err();
        assert!(
            error.to_string().contains("no machine runs here"),
            "{error}"
        );
    }
}
