//! Finds the library that is loaded into dynamic programs.

use std::path::{Path, PathBuf};

/// File name of the library.
pub const LIBRARY: &str = "libcarina_preload.so";

/// Directory of the library where packages install it.
pub const DIRECTORY: &str = "/usr/lib/carina";

/// Returns the path of the library that belongs to `carina`, the path of that program: in the
/// directory of the program, in `../lib/carina` beside that directory, or in [`DIRECTORY`]. `None`
/// if no file exists there.
pub fn library_of(carina: &Path) -> Option<PathBuf> {
    let directory = carina.parent().unwrap_or(Path::new("/"));
    let candidates = [
        // In a build directory, cargo writes the library here first: the one beside the program may
        // be of an earlier build.
        directory.join("deps"),
        directory.to_owned(),
        directory.join("../lib/carina"),
        PathBuf::from(DIRECTORY),
    ];
    let mut files = candidates.iter().map(|candidate| candidate.join(LIBRARY));
    files.find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_of_the_newest_build_comes_first() {
        let place = tempfile::tempdir().unwrap();
        let carina = place.path().join("bin/carina");
        std::fs::create_dir(place.path().join("bin")).unwrap();
        let made = ["lib/carina", "bin", "bin/deps"].map(|directory| {
            let directory = place.path().join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            let file = directory.join(LIBRARY);
            std::fs::write(&file, "").unwrap();
            let found = library_of(&carina).unwrap();
            (found.canonicalize().unwrap(), file.canonicalize().unwrap())
        });
        for (found, newest) in made {
            assert_eq!(found, newest);
        }
    }
}
