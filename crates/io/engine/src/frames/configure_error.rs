//! Why a graph does not run.

use std::io;

use carina_frame::PoolError;

use crate::frames::app::AppError;
use crate::frames::graph::GraphError;

/// Why a network stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigureError {
    /// The graph is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An app could not be made.
    #[error("app {name} ({kind}): {source}")]
    App {
        /// Its name.
        name: String,
        /// Its kind.
        kind: &'static str,
        /// The reason.
        source: AppError,
    },
    /// A worker could not be started.
    #[error("worker {worker}: {source}")]
    Start {
        /// Its number.
        worker: usize,
        /// The reason.
        source: WorkerError,
    },
    /// A worker does not answer: an app of it has panicked, or takes very long.
    #[error("worker {worker} does not answer")]
    Silent {
        /// Its number.
        worker: usize,
    },
}

/// Why a worker does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// No frames.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// No thread, no descriptor, or not the processor that it is to have.
    #[error(transparent)]
    System(#[from] io::Error),
}
