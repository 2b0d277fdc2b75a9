//! Extraction of the kernel from its compressed image.
//!
//! An emulated guest takes longer to decompress its kernel than to boot it. QEMU can start the bare
//! ELF kernel by its PVH entry point, if the kernel was built with one (`CONFIG_PVH`, enabled in
//! Debian's and Ubuntu's).
//!
//! Layout of a `bzImage`: kernel documentation, `x86/boot`, fields `setup_sects`, `payload_offset`
//! and `payload_length`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache::write_whole;
use crate::error::{Context, Error, Result};
use crate::tool;

/// Unpacks the kernel into the file `vmlinux-RELEASE` in the directory of `image`, and returns that
/// path. Returns `image` if the kernel has no PVH entry point, or a compression that this host
/// cannot decompress.
pub(crate) fn unpacked(image: &Path, release: &str) -> Result<PathBuf> {
    let bare = image.with_file_name(format!("vmlinux-{release}"));
    if bare.is_file() {
        return Ok(bare);
    }
    let config = fs::read_to_string(image.with_file_name(format!("config-{release}")));
    if !config
        .unwrap_or_default()
        .lines()
        .any(|line| line == "CONFIG_PVH=y")
    {
        return Ok(image.to_owned());
    }
    let bytes = fs::read(image).context("read", image)?;
    match payload(&bytes).map(decompress) {
        Some(Ok(elf)) if elf.starts_with(b"\x7fELF") => {
            write_whole(&bare, &elf)?;
            Ok(bare)
        }
        _ => Ok(image.to_owned()),
    }
}

/// The compressed kernel, without the length that the image appends to it.
fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(0x1fe..0x200)? != [0x55, 0xaa] {
        return None;
    }
    let word = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let setup_sectors = usize::from(*image.get(0x1f1)?);
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    let end = start.checked_add(word(0x24c)?)?;
    let whole = image.get(start..end)?;
    // gzip contains the length itself; after other formats it is appended.
    if whole.starts_with(GZIP) {
        Some(whole)
    } else {
        whole.get(..whole.len().checked_sub(4)?)
    }
}

fn decompress(payload: &[u8]) -> Result<Vec<u8>> {
    let (program, package) = match payload {
        _ if payload.starts_with(b"\xfd7zXZ\0") => ("xz", "xz-utils"),
        _ if payload.starts_with(b"\x28\xb5\x2f\xfd") => ("zstd", "zstd"),
        _ if payload.starts_with(GZIP) => ("gzip", "gzip"),
        _ => {
            return Err(Error::Invalid {
                what: "kernel image".into(),
                reason: "is not compressed with xz, zstd or gzip".into(),
            });
        }
    };
    let path = tool::find(program, package)?;
    let mut child = Command::new(&path)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("run", &path)?;
    let mut stdin = child
        .stdin
        .take()
        .expect("its standard input was asked for as a pipe");
    let output = std::thread::scope(|scope| {
        // If writing fails, the output is too short.
        scope.spawn(move || stdin.write_all(payload));
        child.wait_with_output()
    });
    Ok(output.context("read from", &path)?.stdout)
}

const GZIP: &[u8] = b"\x1f\x8b";

#[cfg(test)]
mod tests {
    use super::*;

    fn image(compressed: &[u8], appended: usize) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[0x1f1] = 1;
        image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        let length = (compressed.len() + appended) as u32;
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(compressed);
        image.resize(image.len() + appended, 7);
        image
    }

    #[test]
    fn payload_is_found_by_the_boot_header() {
        assert_eq!(
            payload(&image(b"\xfd7zXZ\0data", 4)).unwrap(),
            b"\xfd7zXZ\0data"
        );
        assert_eq!(
            payload(&image(b"\x1f\x8bdata", 0)).unwrap(),
            b"\x1f\x8bdata"
        );
    }

    #[test]
    fn truncated_or_foreign_images_have_no_payload() {
        let whole = image(b"\xfd7zXZ\0data", 4);
        for length in 0..whole.len() {
            assert_eq!(payload(&whole[..length]), None, "length {length}");
        }
        assert_eq!(payload(&vec![0; 4096]), None);
    }

    #[test]
    fn decompression_gives_back_what_was_compressed() {
        let mut child = Command::new("sh")
            .args(["-c", "printf '\\177ELF and more' | gzip -c"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut compressed = Vec::new();
        std::io::Read::read_to_end(&mut child.stdout.take().unwrap(), &mut compressed).unwrap();
        child.wait().unwrap();
        assert_eq!(decompress(&compressed).unwrap(), b"\x7fELF and more");
        assert!(decompress(b"nothing known").is_err());
    }
}
