//! The files of the workspace, and which of their lines are production code.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the workspace.
pub(crate) struct Source {
    /// Relative to the root.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

impl Source {
    /// The extension, or an empty text.
    pub(crate) fn extension(&self) -> &str {
        self.path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default()
    }

    /// The lines before the test module at the end of a file; all lines of a file without one.
    pub(crate) fn production(&self) -> impl Iterator<Item = &str> {
        let marker = self.text.find("\n#[cfg(test)]\nmod tests {");
        self.text[..marker.unwrap_or(self.text.len())].lines()
    }

    /// Production lines that are neither empty nor comment.
    pub(crate) fn code_lines(&self) -> usize {
        self.production()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .count()
    }
}

/// Reads all text files, in the order of their paths. Build output, corpora and what git ignores
/// at the top are left out.
pub(crate) fn all(root: &Path) -> Vec<Source> {
    let mut files = Vec::new();
    walk(root, root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn walk(root: &Path, directory: &Path, files: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_ref()) {
                walk(root, &path, files);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path
                .strip_prefix(root)
                .expect("found below the root")
                .to_owned();
            files.push(Source { path, text });
        }
    }
}

const SKIPPED: [&str; 4] = ["target", ".git", "corpus", "node_modules"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_empty_lines_are_no_code() {
        let text = "//! Doc.\n\nfn a() {\n    // why\n}\n\n#[cfg(test)]\nmod tests {\n    x\n}\n";
        let source = Source {
            path: "a.rs".into(),
            text: text.into(),
        };
        assert_eq!(source.code_lines(), 2);
        assert_eq!(source.extension(), "rs");
    }
}
