//! The data plane of a command that moves frames: its options, and why it cannot be made.

use std::path::Path;

use carina_apps::runner::{GraphRunner, RunnerError};
use carina_frame::{PoolConfig, PoolError};

use crate::failure::{Failure, failed, usage};

/// Options of the pool of frames.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PoolArgs {
    /// Frames of the pool
    #[arg(long, default_value_t = PoolConfig::default().frames)]
    frames: usize,
    /// The longest frame in bytes
    #[arg(long, default_value_t = PoolConfig::default().frame_bytes)]
    frame_bytes: usize,
}

impl PoolArgs {
    /// Makes the data plane, whose counters are in this file.
    ///
    /// # Errors
    /// A pool cannot be so, or the system refuses it.
    pub fn make_runner(self, counters: &Path) -> Result<GraphRunner, Failure> {
        let pool = PoolConfig {
            frames: self.frames,
            frame_bytes: self.frame_bytes,
        };
        GraphRunner::new(pool, Some(counters)).map_err(runner_failure)
    }
}

/// Why a data plane was not made, for the user: options that cannot be are wrong usage.
pub fn runner_failure(error: RunnerError) -> Failure {
    match error {
        RunnerError::Pool(error @ (PoolError::Frames(_) | PoolError::FrameBytes(_))) => {
            usage(error)
        }
        error => failed(format!("making the data plane: {error}")),
    }
}
