//! Records of running `carina nfv run` processes, by which other commands find their files and
//! options.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use carina_frame_engine::counter_file::has_writer;
use carina_nfv::traffic::graph::port_kinds;
use carina_nfv::traffic::{Defaults, PortApp, Traffic};
use serde::{Deserialize, Serialize};

use super::parse;
use crate::Shared;
use crate::failure::{Attempt, Failure};
use crate::graph_directory::clear;

/// What other commands need to know of a running `carina nfv run`: its process id, its files, the
/// ports that it runs, and the options from its command line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The process id.
    pub pid: u32,
    /// Path of the file of ports.
    pub file: PathBuf,
    /// Text of the file when its ports were last applied. The file may be invalid, or missing, by
    /// now.
    pub text: String,
    /// The uplink of option `--uplink`, if it was given. It applies if the file of ports has no
    /// uplink.
    pub uplink: Option<PortApp>,
    /// Path of the ports' sockets, with `%s` for the port's name.
    pub sockets: String,
    /// Path of the counter file.
    pub counters: PathBuf,
}

/// The file of a record; dropping this removes the file.
pub(super) struct RecordFile {
    path: PathBuf,
    record: Record,
}

impl RecordFile {
    /// Replaces the text of the file of ports.
    pub(super) fn set_text(&mut self, text: String) -> Result<(), Failure> {
        self.record.text = text;
        self.write()
    }

    /// The text may have keys of ESP, so only the user of the process may read the record.
    fn write(&self) -> Result<(), Failure> {
        let text = serde_json::to_string(&self.record).attempt("writing JSON")?;
        let part = self.path.with_extension("part");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .open(&part)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&part, &self.path));
        written.attempt(format!("writing {}", self.path.display()))
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The directory of records, and by default of the ports' sockets.
pub(super) fn directory(shared: &Shared) -> PathBuf {
    shared.run_dir().path().join("nfv")
}

impl Record {
    /// The values that the process uses for what its file does not specify.
    pub(super) fn defaults(&self) -> Defaults {
        Defaults {
            uplink: self.uplink.clone(),
            sockets: self.sockets.clone(),
        }
    }

    /// The ports that the process runs.
    pub(super) fn traffic(&self) -> Result<Traffic, Failure> {
        parse(&self.file, &self.text, &self.defaults(), &port_kinds())
    }

    /// Writes the record; dropping the returned value removes it. The process must have its counter
    /// file already, because other commands see by it that the process is alive.
    pub(super) fn keep(self, shared: &Shared) -> Result<RecordFile, Failure> {
        let directory = make_directory(shared)?;
        let path = directory.join(format!("{}.json", self.pid));
        let file = RecordFile { path, record: self };
        file.write()?;
        Ok(file)
    }
}

/// Makes the directory of records, which is also where sockets of ports are by default.
///
/// # Errors
/// Those of the file system.
pub(super) fn make_directory(shared: &Shared) -> Result<PathBuf, Failure> {
    let directory = directory(shared);
    fs::create_dir_all(&directory).attempt(format!("making {}", directory.display()))?;
    Ok(directory)
}

/// The records of all running processes. Removes the records of processes that were killed.
pub(super) fn all(shared: &Shared) -> Vec<Record> {
    let Ok(files) = fs::read_dir(directory(shared)) else {
        return Vec::new();
    };
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let mut records: Vec<Record> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .filter_map(|path| {
            let record: Record = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            if has_writer(&record.counters) {
                return Some(record);
            }
            // The process was killed, and has left its record behind.
            let _ = fs::remove_file(path);
            clear(&record.counters);
            None
        })
        .collect();
    records.sort_by_key(|record| record.pid);
    records
}
