//! The files that a program needs to run in a guest that has no libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Context, Error, Result};
use crate::tool;

/// Whether an ELF program is static: it names no dynamic loader, so it runs without other files.
///
/// # Errors
///
/// The file cannot be read, or is not a 64-bit little-endian ELF file.
pub fn is_static(program: &Path) -> Result<bool> {
    let bytes = fs::read(program).context("read", program)?;
    match interpreted(&bytes) {
        Some(interpreted) => Ok(!interpreted),
        None => Err(Error::Invalid {
            what: program.display().to_string(),
            reason: "is no 64-bit little-endian ELF program".into(),
        }),
    }
}

/// The loader and the shared libraries of a program, as absolute paths; empty for a static program.
/// It runs `ldd`, so the program must be trusted.
///
/// # Errors
///
/// The program cannot be read, or a library is missing.
pub fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    libraries_from(program, None)
}

/// Like [`shared_libraries`]; the loader first looks into `directory`.
pub(crate) fn libraries_from(program: &Path, directory: Option<&Path>) -> Result<Vec<PathBuf>> {
    if is_static(program)? {
        return Ok(Vec::new());
    }
    needed(program, directory)
}

/// What the dynamic loader loads for a program or library. The loader first looks into `directory`.
/// It runs `ldd`, so the file must be trusted.
///
/// # Errors
///
/// The file is not dynamic, or a library is missing.
pub(crate) fn needed(program: &Path, directory: Option<&Path>) -> Result<Vec<PathBuf>> {
    let mut ldd = match tool::find("ldd", "libc-bin") {
        Ok(ldd) => Command::new(ldd),
        Err(_) if Path::new(LOADER).is_file() => {
            // The program that `ldd` runs, where the shell that `ldd` needs is missing.
            let mut loader = Command::new(LOADER);
            loader.arg("--list");
            loader
        }
        Err(error) => return Err(error),
    };
    if let Some(directory) = directory {
        ldd.env("LD_LIBRARY_PATH", directory);
    }
    let listing = tool::output(ldd.arg(program))?;
    parse_ldd(&String::from_utf8_lossy(&listing)).map_err(|MissingLibrary(missing)| {
        Error::Invalid {
            what: program.display().to_string(),
            reason: format!("needs the shared library {missing}, which this machine lacks"),
        }
    })
}

/// Whether a PT_INTERP header exists. `None` if the bytes are not such an ELF file.
fn interpreted(bytes: &[u8]) -> Option<bool> {
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let start = u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?);
    let (size, count) = (u16_at(54)?, u16_at(56)?);
    for index in 0..u64::from(count) {
        let at = start.checked_add(index * u64::from(size))?;
        let at = usize::try_from(at).ok()?;
        let kind = bytes.get(at..at.checked_add(4)?)?;
        if kind == PT_INTERP.to_le_bytes() {
            return Some(true);
        }
    }
    Some(false)
}

/// A shared library that this host lacks.
#[derive(Debug, PartialEq, Eq)]
struct MissingLibrary(String);

fn parse_ldd(listing: &str) -> std::result::Result<Vec<PathBuf>, MissingLibrary> {
    let mut libraries = Vec::new();
    for line in listing.lines().map(str::trim) {
        let target = match line.split_once("=>") {
            Some((name, target)) if target.contains("not found") => {
                return Err(MissingLibrary(name.trim().to_owned()));
            }
            Some((_, target)) => target.trim(),
            None => line,
        };
        // An entry without a path, the vDSO, comes from the kernel.
        if let Some(path) = target
            .split(" (")
            .next()
            .filter(|path| path.starts_with('/'))
        {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

const PT_INTERP: u32 = 3;
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_listing_gives_loader_and_libraries() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let want = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse_ldd(listing).unwrap(), want.map(PathBuf::from));
        assert_eq!(parse_ldd("libx.so => not found").unwrap_err().0, "libx.so");
    }

    #[test]
    fn truncated_or_foreign_files_are_no_programs() {
        assert_eq!(interpreted(b""), None);
        assert_eq!(interpreted(b"#!/bin/sh"), None);
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(interpreted(&own).is_some());
        for length in 0..64 {
            assert_eq!(interpreted(&own[..length]), None, "length {length}");
        }
    }
}
