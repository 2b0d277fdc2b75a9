//! Where the counters of graphs lie while they run, for commands that look at them.
//!
//! `graphs/` in the run directory has a file for each: of `carina graph run` it has the path of the
//! graph's file, with `+` for `/`; of other commands their name and the process.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use carina_apps::trace;
use carina_engine::counter_file::{has_writer, remove_dead};

use crate::Shared;
use crate::failure::{Attempt, Failure};

/// A graph that runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphEntry {
    /// Name for people: that of its file, or of the command with its process.
    pub name: String,
    /// Its counters.
    pub counters: PathBuf,
}

/// The graphs that run below a run directory, in the order of their names. Files of processes that
/// were killed are removed.
pub fn entries(run: &Path) -> Vec<GraphEntry> {
    let files = fs::read_dir(run.join(DIRECTORY)).into_iter().flatten();
    let mut graphs: Vec<GraphEntry> = files
        .filter_map(|file| {
            let counters = file.ok()?.path();
            let file = counters.file_name()?.to_str()?.strip_suffix(".counters")?;
            if !has_writer(&counters) {
                clear(&counters);
                return None;
            }
            let name = file.rsplit('+').next().unwrap_or(file).to_owned();
            Some(GraphEntry { name, counters })
        })
        .collect();
    graphs.sort();
    graphs
}

/// Removes the files of a graph whose process was killed: its counters, and its sockets.
pub fn clear(counters: &Path) {
    if remove_dead(counters) {
        for socket in [trace::socket_of(counters), counters.with_extension(CHANNEL)] {
            // Most graphs have no such socket.
            let _ = fs::remove_file(socket);
        }
    }
}

/// Where the counters of the graph in a file are while it runs.
///
/// # Errors
/// There is no such file.
pub fn counters_of_file(shared: &Shared, file: &Path) -> Result<PathBuf, Failure> {
    let whole = fs::canonicalize(file).attempt(format!("looking for {}", file.display()))?;
    // Files of the same name in two directories are two graphs.
    let name = whole.to_string_lossy().replace('/', "+");
    let directory = shared.run_dir().path().join(DIRECTORY);
    Ok(directory.join(format!("{name}.counters")))
}

/// The counters of a graph that this process runs: the file is removed when the value is dropped.
pub struct OwnCounters(PathBuf);

impl OwnCounters {
    /// The counters of the graph in a file.
    ///
    /// # Errors
    /// There is no such file, or the directory of counters cannot be made.
    pub fn of_file(shared: &Shared, file: &Path) -> Result<OwnCounters, Failure> {
        let counters = counters_of_file(shared, file)?;
        make_directory(shared)?;
        Ok(OwnCounters(counters))
    }

    /// The counters of a graph that has no file, for this command.
    ///
    /// # Errors
    /// The directory of counters cannot be made.
    pub fn of_process(shared: &Shared, command: &str) -> Result<OwnCounters, Failure> {
        let name = format!("{command}-{}.counters", std::process::id());
        Ok(OwnCounters(make_directory(shared)?.join(name)))
    }
}

impl Deref for OwnCounters {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnCounters {
    fn drop(&mut self) {
        // It does not exist yet when the data plane could not be made.
        let _ = fs::remove_file(&self.0);
    }
}

fn make_directory(shared: &Shared) -> Result<PathBuf, Failure> {
    let directory = shared.run_dir().path().join(DIRECTORY);
    fs::create_dir_all(&directory).attempt(format!("making {}", directory.display()))?;
    Ok(directory)
}

const DIRECTORY: &str = "graphs";

/// What the name of the socket of an AFTR ends with, beside its counters.
pub const CHANNEL: &str = "channel";

#[cfg(test)]
mod tests {
    use carina_engine::counter_file::CounterFile;

    use super::*;

    #[test]
    fn graphs_of_dead_processes_are_not_listed_and_go() {
        let run = tempfile::tempdir().unwrap();
        let directory = run.path().join(DIRECTORY);
        fs::create_dir(&directory).unwrap();
        let path = |name: &str| directory.join(name);
        let _running = CounterFile::create(&path("+etc+a.toml.counters")).unwrap();
        drop(CounterFile::create(&path("nfv-17.counters")).unwrap());
        let names: Vec<String> = entries(run.path()).into_iter().map(|of| of.name).collect();
        assert_eq!(names, ["a.toml"]);
        assert!(!path("nfv-17.counters").exists());
    }
}
