//! The `newc` cpio archive that Linux unpacks as its first root directory.
//!
//! Format: kernel documentation, `driver-api/early-userspace/buffer-format`. Each entry is 110
//! bytes of ASCII hexadecimal, the name with its NUL, padding to 4 bytes, the data, padding to 4
//! bytes; `TRAILER!!!` ends an archive. Several archives may follow each other; a later entry
//! replaces an earlier one of the same name. That is how a machine's own files are added to a
//! cached image.
//!
//! The owner is always root and the time always 0, so that equal contents give equal bytes.

use std::collections::BTreeSet;

/// A cpio archive in memory to which files are added; [`Archive::finish`] returns its bytes.
#[derive(Debug, Default, Clone)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    /// Starts an empty archive.
    pub fn new() -> Archive {
        Archive::default()
    }

    /// Adds a regular file, and the missing directories above it.
    ///
    /// `path` is absolute or relative to the root; `mode` has only permission bits.
    ///
    /// # Panics
    ///
    /// `data` is 4 GiB or larger, which the format cannot express.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.parents(path);
        self.entry(path, S_IFREG | (mode & 0o7777), (0, 0), data);
    }

    /// Adds a symbolic link at `path` that points to `target`.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.entry(path, S_IFLNK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a directory and the missing directories above it. A directory that was added before
    /// stays unchanged.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.directories.contains(path) {
            return;
        }
        self.parents(path);
        self.directories.insert(path.to_owned());
        self.entry(path, S_IFDIR | 0o755, (0, 0), &[]);
    }

    /// Adds a character device node.
    pub fn character_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.parents(path);
        self.entry(path, S_IFCHR | (mode & 0o7777), (major, minor), &[]);
    }

    /// Ends the archive and returns its bytes. Their number is a multiple of 512.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        let padded = self.bytes.len().next_multiple_of(512);
        self.bytes.resize(padded, 0);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.trim_matches('/').rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        let name = path.trim_start_matches('/');
        let size = u32::try_from(data.len()).expect("a file of an initramfs is below 4 GiB");
        self.inode += 1;
        let links = if mode & S_IFDIR == S_IFDIR { 2 } else { 1 };
        let name_size = name.len() as u32 + 1;
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(data);
        self.align();
    }

    fn align(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFCHR: u32 = 0o020_000;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> Vec<u8> {
        let mut archive = Archive::new();
        archive.file("/etc/one/two", 0o640, b"hello");
        archive.file("/etc/one/empty", 0o644, b"");
        archive.symlink("/bin/sh", "busybox");
        archive.finish()
    }

    #[test]
    fn entry_has_the_bytes_of_the_format() {
        let mut archive = Archive::new();
        archive.file("a", 0o644, b"xyz");
        let bytes = archive.finish();
        let header = b"07070100000001000081A40000000000000000000000010000000000000003\
            00000000000000000000000000000000000000020000000061"
            .iter()
            .copied()
            .take(110)
            .collect::<Vec<u8>>();
        assert_eq!(
            &bytes[..110],
            &header[..],
            "{}",
            String::from_utf8_lossy(&bytes[..110])
        );
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..116], b"xyz\0");
        assert_eq!(bytes.len() % 512, 0);
    }

    #[test]
    fn equal_contents_give_equal_bytes() {
        assert_eq!(sample(), sample());
    }

    #[test]
    fn each_directory_is_added_once_and_before_its_files() {
        let bytes = sample();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("etc\0").count(), 1);
        assert_eq!(text.matches("etc/one\0").count(), 1);
        assert!(text.find("etc/one\0").unwrap() < text.find("etc/one/two\0").unwrap());
    }

    /// busybox's cpio is an independent reader of the format.
    #[test]
    fn busybox_unpacks_what_was_packed() {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = match Command::new("busybox")
            .args(["cpio", "-idm"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
        {
            Ok(child) => child,
            Err(error) => panic!("busybox is needed (package busybox-static): {error}"),
        };
        reader.stdin.take().unwrap().write_all(&sample()).unwrap();
        assert!(reader.wait().unwrap().success());
        let read = |path: &str| std::fs::read(directory.path().join(path)).unwrap();
        assert_eq!(read("etc/one/two"), b"hello");
        assert_eq!(read("etc/one/empty"), b"");
        let target = std::fs::read_link(directory.path().join("bin/sh")).unwrap();
        assert_eq!(target.to_str(), Some("busybox"));
    }
}
