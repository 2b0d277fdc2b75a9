//! Why a graph cannot be run.

use std::io;

use carina_frame::PoolError;

use crate::app::AppError;
use crate::graph::GraphError;

/// Why a running network could not be changed to another graph. The network stays unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigureError {
    /// The new graph is not valid.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An app could not be built.
    #[error("app {name} ({kind}): {source}")]
    App {
        /// Name of the app that could not be built.
        name: String,
        /// Kind of the app that could not be built.
        kind: &'static str,
        /// Why the app could not be built.
        source: AppError,
    },
    /// A worker could not be started.
    #[error("worker {worker}: {source}")]
    Start {
        /// Number of the worker whose thread could not be started.
        worker: usize,
        /// Why the thread could not be started.
        source: WorkerError,
    },
    /// A worker does not answer in time: one of its apps has panicked, or takes very long.
    #[error("worker {worker} does not answer")]
    Silent {
        /// Number of the worker that does not answer.
        worker: usize,
    },
}

/// Why the thread of a worker could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The pool of frames could not be created.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The thread or a descriptor could not be created, or the thread could not be pinned to its
    /// processor.
    #[error(transparent)]
    System(#[from] io::Error),
}
