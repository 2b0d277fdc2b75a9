//! What a process of `carina nfv run` leaves for other commands: which file it runs, and how.

use std::fs;
use std::path::PathBuf;

use carina_engine::counter_file::has_writer;
use carina_nfv::traffic::{Defaults, PortApp};
use serde::{Deserialize, Serialize};

use crate::Shared;
use crate::failure::{Attempt, Failure};
use crate::graph_directory::clear;

/// One process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub pid: u32,
    /// The file of ports.
    pub file: PathBuf,
    /// The uplink of its command line.
    pub uplink: Option<PortApp>,
    /// The sockets of its ports.
    pub sockets: String,
    /// Its counters.
    pub counters: PathBuf,
}

/// Removes the record when the process ends.
pub struct Kept {
    path: PathBuf,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Where records and sockets are.
pub fn directory(shared: &Shared) -> PathBuf {
    shared.run_dir().path().join("nfv")
}

impl Record {
    /// What the file leaves open, as the process has it.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            uplink: self.uplink.clone(),
            sockets: self.sockets.clone(),
        }
    }

    /// Writes it, until the value that is returned goes. The process has its counters already: by
    /// those others see that it lives.
    pub fn keep(&self, shared: &Shared) -> Result<Kept, Failure> {
        let directory = make_directory(shared)?;
        let path = directory.join(format!("{}.json", self.pid));
        let text = serde_json::to_string(self).attempt("writing JSON")?;
        fs::write(&path, text).attempt(format!("writing {}", path.display()))?;
        Ok(Kept { path })
    }
}

/// Makes the directory of records, which is also where sockets of ports are by default.
///
/// # Errors
/// Those of the file system.
pub fn make_directory(shared: &Shared) -> Result<PathBuf, Failure> {
    let directory = directory(shared);
    fs::create_dir_all(&directory).attempt(format!("making {}", directory.display()))?;
    Ok(directory)
}

/// The processes that run. Records of those that were killed are removed.
pub fn all(shared: &Shared) -> Vec<Record> {
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
            // A process that was killed has left it.
            let _ = fs::remove_file(path);
            clear(&record.counters);
            None
        })
        .collect();
    records.sort_by_key(|record| record.pid);
    records
}
