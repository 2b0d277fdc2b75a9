//! Where the counters of graphs lie while they run, for commands that look at them.
//!
//! `graphs/` in the run directory has a file for each: of `carina graph run` it has the path of the
//! graph's file, with `+` for `/`; of other commands their name and the process.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Shared;
use crate::failure::{Attempt, Failure};

/// A graph that runs, or whose process was killed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphEntry {
    /// Name for people: that of its file, or of the command with its process.
    pub name: String,
    /// Its counters.
    pub counters: PathBuf,
}

/// The graphs below a run directory, in the order of their names.
pub fn entries(run: &Path) -> Vec<GraphEntry> {
    let files = fs::read_dir(run.join(DIRECTORY)).into_iter().flatten();
    let mut graphs: Vec<GraphEntry> = files
        .filter_map(|file| {
            let counters = file.ok()?.path();
            let file = counters.file_name()?.to_str()?.strip_suffix(".counters")?;
            let name = file.rsplit('+').next().unwrap_or(file).to_owned();
            Some(GraphEntry { name, counters })
        })
        .collect();
    graphs.sort();
    graphs
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

/// Where the counters of this process are while it runs a graph of its own.
///
/// # Errors
/// The directory cannot be made.
pub fn counters_of_process(shared: &Shared, program: &str) -> Result<PathBuf, Failure> {
    let directory = shared.run_dir().path().join(DIRECTORY);
    fs::create_dir_all(&directory).attempt(format!("making {}", directory.display()))?;
    Ok(directory.join(format!("{program}-{}.counters", std::process::id())))
}

const DIRECTORY: &str = "graphs";
