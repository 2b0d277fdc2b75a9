//! Why a directory is no saved network.

use std::path::PathBuf;

/// Why a directory is no saved network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// It is not there, or was not written to its end.
    #[error("{} is missing: this is no saved network, or one whose saving was broken off", .0.display())]
    Missing(PathBuf),
    /// A network is to be saved where something is already.
    #[error(
        "{} exists already; `save` makes the directory: name one that does not exist",
        .0.display()
    )]
    Exists(PathBuf),
    /// It is another file, or damaged.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// It is of another version of this program.
    #[error("{}: format {format:?}, version {version}; this program reads {FORMAT:?}, version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The format.
        format: String,
        /// The version.
        version: u32,
    },
    /// A state is not what was saved.
    #[error("the state of {node}: {source}")]
    Guest {
        /// The node.
        node: String,
        /// What is wrong with it.
        source: carina_vm::Error,
    },
    /// There is a network of this uid, perhaps the one that was saved.
    #[error("network {0} is the one that was saved, or was restored from it: remove it first")]
    IsThere(String),
}

/// That a manifest is one, and the version that this program reads.
pub(crate) const FORMAT: &str = "carina-vnet";
pub(crate) const VERSION: u32 = 1;
