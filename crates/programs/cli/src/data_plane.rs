//! The data plane of a command that forwards frames: the options of its buffer pool, and its
//! errors.

use std::path::Path;

use carina_frame::{PoolConfig, PoolError};
use carina_graph::runner::{GraphRunner, RunnerError};

use crate::failure::{Failure, failed, usage};

/// Options of the buffer pool, which holds the frames that the command forwards: its number of
/// buffers, and their size.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PoolArgs {
    /// Number of frames that the pool of buffers holds
    #[arg(long, default_value_t = PoolConfig::default().frames)]
    frames: usize,
    /// Longest frame in bytes that a buffer of the pool holds
    #[arg(long, default_value_t = PoolConfig::default().frame_bytes)]
    frame_bytes: usize,
}

impl PoolArgs {
    /// Makes the data plane. Its counters are in the file `counters`.
    ///
    /// # Errors
    /// The pool's options are invalid, or the system refuses its memory.
    pub(crate) fn make_runner(self, counters: &Path) -> Result<GraphRunner, Failure> {
        let pool = PoolConfig {
            frames: self.frames,
            frame_bytes: self.frame_bytes,
        };
        GraphRunner::new(pool, Some(counters)).map_err(runner_failure)
    }
}

/// Turns an error into a failure of the command. Invalid options of the pool are a wrong command
/// line.
pub(crate) fn runner_failure(error: RunnerError) -> Failure {
    match error {
        RunnerError::Pool(error @ (PoolError::Frames(_) | PoolError::FrameBytes(_))) => {
            usage(error)
        }
        error => failed(format!("making the data plane: {error}")),
    }
}
