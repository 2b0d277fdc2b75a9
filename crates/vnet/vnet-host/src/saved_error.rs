//! Errors of saving and restoring networks.

use std::path::PathBuf;

/// Why a network cannot be saved or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// The directory has no manifest: it does not exist, or the network was not saved completely.
    #[error(
        "{} is missing: the directory is not a saved network, or saving it was interrupted",
        .0.display()
    )]
    Missing(PathBuf),
    /// The directory to save into already exists.
    #[error(
        "{} already exists; `save` creates the directory: name one that does not exist",
        .0.display()
    )]
    Exists(PathBuf),
    /// A file has unexpected contents, or is damaged.
    #[error("{}: {what}", path.display())]
    Content {
        /// Path of the file with wrong contents.
        path: PathBuf,
        /// The fault in the file, and its place in the file.
        what: String,
    },
    /// The manifest belongs to another version of this program.
    #[error("{}: format {format:?}, version {version}; this program reads {FORMAT:?}, version {VERSION}", path.display())]
    Version {
        /// Path of the manifest.
        path: PathBuf,
        /// Format that the manifest names.
        format: String,
        /// Version that the manifest names.
        version: u32,
    },
    /// The saved state of a machine is not usable.
    #[error("the state of {node}: {source}")]
    Guest {
        /// Name of the node whose saved state is not usable.
        node: String,
        /// Why the saved state cannot be resumed.
        source: carina_vm::Error,
    },
    /// A network of this uid exists, perhaps the one that was saved.
    #[error("network {0} is the saved network itself, or was restored from it: remove it first")]
    AlreadyExists(String),
}

/// The format and version that this program writes and reads.
pub(crate) const FORMAT: &str = "carina-vnet";
pub(crate) const VERSION: u32 = 1;
