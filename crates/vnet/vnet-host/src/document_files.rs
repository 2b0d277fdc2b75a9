//! Reads the files that a document names, from the document's directory, for the command that reads
//! the document.
//!
//! Only a command that a user runs on a document of their own reads such files. Agents and
//! providers never do: they refuse a document whose files have no content.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use carina_vnet::document::{Document, NodeFile, limits::FILE_BYTES_MAX};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::error::{Attempt, Result};

/// Replaces the `source` of each file of the document by the file's text. `directory` is that of
/// the document. A path that leaves it, also by a symbolic link, is refused.
///
/// # Errors
/// A file cannot be read, is no regular file, is too long, or is no text.
pub fn read_sources(document: &mut Document, directory: &Path) -> Result<()> {
    let nodes = document.node.values_mut().chain([&mut document.defaults]);
    let files = nodes.flat_map(|node| &mut node.files);
    for file in files {
        if let Some(source) = &file.source {
            *file = NodeFile {
                content: Some(read(directory, source)?),
                source: None,
                ..file.clone()
            };
        }
    }
    Ok(())
}

fn read(directory: &Path, source: &str) -> Result<String> {
    let what = || {
        format!(
            "reading {source} beside the document, in {}",
            directory.display()
        )
    };
    // A pipe or device at this place must not block the command.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let place = openat(
        CWD,
        directory,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let place = place.map_err(std::io::Error::from).attempt(what())?;
    let file = openat2(&place, source, flags, Mode::empty(), beneath);
    let file = File::from(file.map_err(std::io::Error::from).attempt(what())?);
    let wrong = |problem: String| Err(std::io::Error::other(problem)).attempt(what());
    if !file.metadata().attempt(what())?.is_file() {
        return wrong("it is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = FILE_BYTES_MAX as u64 + 1;
    file.take(most).read_to_end(&mut bytes).attempt(what())?;
    if bytes.len() > FILE_BYTES_MAX {
        return wrong(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => wrong("it is no text in UTF-8".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use carina_vnet::document::Form;

    use super::*;

    fn document(source: &str) -> Document {
        let text = format!(
            "[vnet]\nname = \"x\"\n[node.a]\nfiles = [{{ path = \"/x\", source = \"{source}\" }}]\n"
        );
        Document::read(&text, Form::Toml).unwrap()
    }

    #[test]
    fn files_beside_the_document_are_read_and_no_others() {
        let whole = tempfile::tempdir().unwrap();
        let directory = whole.path().join("documents");
        std::fs::create_dir_all(directory.join("r1")).unwrap();
        std::fs::write(directory.join("r1/frr.conf"), "hostname r1\n").unwrap();
        std::fs::write(whole.path().join("secret"), "secret").unwrap();
        std::fs::write(directory.join("long"), vec![b'x'; FILE_BYTES_MAX + 1]).unwrap();
        std::fs::write(directory.join("binary"), [0xff, 0xfe]).unwrap();
        std::os::unix::fs::symlink("../secret", directory.join("link")).unwrap();
        std::os::unix::fs::symlink("r1/frr.conf", directory.join("beside")).unwrap();
        for source in ["r1/frr.conf", "beside"] {
            let mut found = document(source);
            read_sources(&mut found, &directory).unwrap();
            let file = &found.node["a"].files[0];
            assert_eq!(file.content.as_deref(), Some("hostname r1\n"));
            assert_eq!(file.source, None);
            found.check().unwrap();
        }
        for source in ["link", "long", "binary", "r1", "absent"] {
            let error = read_sources(&mut document(source), &directory).unwrap_err();
            assert!(error.to_string().contains(source), "{error}");
        }
    }
}
