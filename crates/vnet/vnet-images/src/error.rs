//! Errors of the image store.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// An error of the image store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// This host has no such image.
    #[error("this host has no image {name:?}; it has: {known}; `carina vnet image add` adds one")]
    Unknown {
        /// Name of the image that this host does not have.
        name: String,
        /// The images of this host.
        known: String,
    },
    /// A file cannot be added as an image.
    #[error("image {name:?}: {reason}")]
    Refused {
        /// Name that the new image was to get.
        name: String,
        /// Why the store refuses the image.
        reason: String,
    },
    /// The image cannot be removed, because a node's disk is based on it.
    #[error(
        "image {name:?} is in use: the disk of node {user} is based on it; remove that node first"
    )]
    InUse {
        /// Name of the image that is in use.
        name: String,
        /// The network and node whose disk is based on it.
        user: String,
    },
    /// Another command kept the store locked.
    #[error("{} stays locked by another command for {} s; try again", store.display(), limit.as_secs_f32())]
    Locked {
        /// Path of the store.
        store: PathBuf,
        /// How long this command waited for the lock.
        limit: Duration,
    },
    /// A program of this host fails, or a suitable one is missing.
    #[error("{what}: {reason}")]
    Tool {
        /// The operation that the program was to carry out, as text.
        what: String,
        /// Output of the program.
        reason: String,
    },
    /// A program cannot be run.
    #[error(transparent)]
    Process(#[from] carina_namespaces::Error),
    /// An operation on a file fails.
    #[error("{what}: {source}")]
    File {
        /// The operation on a file that failed, as text.
        what: String,
        /// The error of the failed operation.
        source: io::Error,
    },
    /// The description of an image cannot be read or written.
    #[error("{what}: {source}")]
    Json {
        /// The operation on the description that failed, as text.
        what: String,
        /// What is wrong with the JSON of the description.
        source: serde_json::Error,
    },
}

impl ImageError {
    /// Whether a retry would fail again until the document or the store has changed.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            ImageError::Unknown { .. } | ImageError::Refused { .. }
        )
    }
}

/// A result of this crate.
pub(crate) type Result<T, E = ImageError> = std::result::Result<T, E>;

/// Adds to an error what was attempted.
pub(crate) trait Attempt<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| ImageError::File {
            what: what.into(),
            source,
        })
    }
}

impl<T> Attempt<T> for serde_json::Result<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| ImageError::Json {
            what: what.into(),
            source,
        })
    }
}
