//! The directory of counter files of running graphs, which other commands read.
//!
//! `graphs/` in the run directory has a file for each running graph. The file of `carina graph run`
//! is named by the path of the graph's file, with `+` in place of `/`. Files of other commands are
//! named by the command and its process id.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_frame_engine::counter_file::{has_writer, remove_dead};
use carina_graph::trace;

use crate::Shared;
use crate::failure::{Attempt, Failure, failed};

/// A running graph whose counters other commands can read: its name, and the path of its counter
/// file in `graphs/` of the run directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GraphEntry {
    /// Name for people: that of the graph's file, or the command and its process id.
    pub name: String,
    /// Path of the counter file.
    pub counters: PathBuf,
}

/// The running graphs below a run directory, ordered by name. Removes the files of processes that
/// were killed.
pub(crate) fn entries(run: &Path) -> Vec<GraphEntry> {
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

/// Removes the files of a graph whose process was killed: its counters and its sockets.
pub(crate) fn clear(counters: &Path) {
    if remove_dead(counters) {
        for socket in [trace::socket_of(counters), counters.with_extension(CHANNEL)] {
            // Most graphs have none of these sockets.
            let _ = fs::remove_file(socket);
        }
    }
}

/// The path at which the counters of the graph in `file` are while the graph runs. Does not check
/// whether it runs.
///
/// # Errors
/// The file `file` does not exist or cannot be reached.
pub(crate) fn counters_of_file(shared: &Shared, file: &Path) -> Result<PathBuf, Failure> {
    let whole = fs::canonicalize(file).attempt(format!("looking for {}", file.display()))?;
    // The whole path is in the name, because files of the same name in two directories are two
    // graphs.
    let name = whole.to_string_lossy().replace('/', "+");
    let directory = shared.run_dir().path().join(DIRECTORY);
    Ok(directory.join(format!("{name}.counters")))
}

/// The counter file of a graph that this process runs. Dropping the value removes the file.
pub(crate) struct OwnCounters(PathBuf);

impl OwnCounters {
    /// The counter file of the graph in `file`.
    ///
    /// # Errors
    /// There is no such file, another process runs the graph in it, or the directory of counters
    /// cannot be made.
    pub(crate) fn of_file(shared: &Shared, file: &Path) -> Result<OwnCounters, Failure> {
        let counters = counters_of_file(shared, file)?;
        // Both processes would use the same counter file, and forward each frame twice. A process
        // that has just got a signal is still ending.
        let deadline = Instant::now() + ENDING;
        while has_writer(&counters) {
            if Instant::now() < deadline {
                std::thread::sleep(LOOK);
                continue;
            }
            let run = shared.run_dir();
            return Err(failed(format!(
                "{}: another process runs this graph, with the run directory {}: end that \
                 process, or use another run directory with --run",
                file.display(),
                run.path().display()
            )));
        }
        make_directory(shared)?;
        Ok(OwnCounters(counters))
    }

    /// The counter file of a graph that this command runs without a graph file.
    ///
    /// # Errors
    /// The directory of counters cannot be made.
    pub(crate) fn of_process(shared: &Shared, command: &str) -> Result<OwnCounters, Failure> {
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
        // The file does not exist when the data plane could not be made.
        let _ = fs::remove_file(&self.0);
    }
}

fn make_directory(shared: &Shared) -> Result<PathBuf, Failure> {
    let directory = shared.run_dir().path().join(DIRECTORY);
    fs::create_dir_all(&directory).attempt(format!("making {}", directory.display()))?;
    Ok(directory)
}

const DIRECTORY: &str = "graphs";
/// How long a process may take to end after a signal.
const ENDING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// Extension of an AFTR's control socket, which is in the directory of its counters.
pub(crate) const CHANNEL: &str = "channel";

#[cfg(test)]
mod tests {
    use carina_frame_engine::counter_file::CounterFile;

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
