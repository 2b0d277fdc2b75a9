//! Operations on files that need not exist.

use std::io::{self, ErrorKind};

/// Counts an operation on a file or directory that does not exist as done: it is removed already.
///
/// # Errors
/// Any other error of the operation.
pub fn absent_is_done(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{remove_dir, remove_file};

    use super::*;

    #[test]
    fn only_absence_counts_as_done() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        assert!(absent_is_done(remove_file(&file)).is_ok());
        std::fs::write(&file, "").unwrap();
        assert!(
            absent_is_done(remove_dir(directory.path())).is_err(),
            "it is not empty"
        );
        assert!(absent_is_done(remove_file(&file)).is_ok());
        assert!(!file.exists());
    }
}
