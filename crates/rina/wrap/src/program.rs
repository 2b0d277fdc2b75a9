//! Examines a program: whether the preload library can be put into it, and if not, why.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Whether a program uses the dynamic linker, and so can be given a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// The dynamic linker starts the program and can load libraries into it.
    Dynamic,
    /// The program has no dynamic linker.
    Static,
}

/// Why a program cannot be wrapped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// No directory of `PATH` has a program of this name.
    #[error("{0}: there is no such program in PATH")]
    NotFound(String),
    /// The file of the program cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Path of the program's file.
        path: PathBuf,
        /// Why the operating system could not read the file.
        error: io::Error,
    },
    /// The file is a directory, or has no permission to be executed.
    #[error("{0} is not an executable file")]
    NotExecutable(PathBuf),
    /// The program runs as another user or group than its caller (set-user-ID, set-group-ID).
    #[error(
        "{0} is set-user-ID or set-group-ID: the system lets no library into such a program. \
         Wrap the program that it starts instead"
    )]
    SetId(PathBuf),
    /// The file is neither an ELF program nor a script.
    #[error("{0} is neither an ELF program nor a script that begins with #!")]
    Unknown(PathBuf),
    /// The program is for another word size or processor.
    #[error(
        "{path} is a program for {what}; only 64-bit programs of this processor can be wrapped"
    )]
    Foreign {
        /// Path of the program's file.
        path: PathBuf,
        /// The word size or processor that the program is for.
        what: String,
    },
    /// Too many scripts name each other as interpreters.
    #[error("{0}: a script's interpreter is a script, more than {SCRIPTS_MAX} times over")]
    Scripts(PathBuf),
}

/// Finds the file of a program as a shell does. A name with a slash is a path; any other name is
/// searched in the directories of `path`, the value of `PATH`.
///
/// # Errors
/// [`ProgramError::NotFound`]
pub fn find(program: &str, path: &str) -> Result<PathBuf, ProgramError> {
    if program.contains('/') {
        return Ok(program.into());
    }
    let mut candidates = path.split(':').map(|directory| {
        let directory = if directory.is_empty() { "." } else { directory };
        Path::new(directory).join(program)
    });
    candidates
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| ProgramError::NotFound(program.to_owned()))
}

fn is_executable(path: &Path) -> bool {
    let metadata = path.metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Whether a program, or the interpreter of a script, is static. False for a file that cannot be
/// wrapped, or that the kernel will refuse.
pub fn needs_supervisor(path: &Path) -> bool {
    matches!(linkage(path), Ok(Linkage::Static))
}

/// Whether two paths lead to the same file.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = path.metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(a).is_some_and(|a| Some(a) == identity(b))
}

/// Finds out how a program is linked; for a script, how its interpreter is linked.
///
/// # Errors
/// [`ProgramError`] says why the program cannot be wrapped.
pub fn linkage(path: &Path) -> Result<Linkage, ProgramError> {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPTS_MAX {
        let failed = |error| ProgramError::File {
            path: path.clone(),
            error,
        };
        let mut file = File::open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() || metadata.mode() & 0o111 == 0 {
            return Err(ProgramError::NotExecutable(path));
        }
        if metadata.mode() & 0o6000 != 0 {
            return Err(ProgramError::SetId(path));
        }
        let mut head = Vec::new();
        let head_bytes = HEAD_BYTES as u64;
        Read::by_ref(&mut file)
            .take(head_bytes)
            .read_to_end(&mut head)
            .map_err(failed)?;
        if let Some(interpreter) = interpreter(&head) {
            path = interpreter;
            continue;
        }
        let table = program_headers(&path, &head)?;
        let mut headers = Vec::new();
        file.seek(SeekFrom::Start(table.offset)).map_err(failed)?;
        file.take(u64::from(table.count) * HEADER_BYTES as u64)
            .read_to_end(&mut headers)
            .map_err(failed)?;
        let kinds = headers.chunks_exact(HEADER_BYTES).map(kind_of_header);
        let is_dynamic = kinds.into_iter().any(|kind| kind == PT_INTERP);
        return Ok(if is_dynamic {
            Linkage::Dynamic
        } else {
            Linkage::Static
        });
    }
    Err(ProgramError::Scripts(path))
}

/// Returns the interpreter that the first line of a script names; `None` if the file is not a
/// script.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if !first.ends_with("/env") {
        return Some(first.into());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let program = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    Some(find(program, &path).unwrap_or_else(|_| program.into()))
}

/// Where the program headers of a file are (ELF-64, *System V ABI*, "ELF Header").
struct HeaderTable {
    offset: u64,
    count: u16,
}

fn program_headers(path: &Path, head: &[u8]) -> Result<HeaderTable, ProgramError> {
    let unknown = || ProgramError::Unknown(path.to_path_buf());
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return Err(unknown());
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let foreign = |what: &str| ProgramError::Foreign {
        path: path.to_path_buf(),
        what: what.to_owned(),
    };
    match (head[4], head[5], half(18)) {
        (1, _, _) => return Err(foreign("32 bits")),
        (2, 1, MACHINE) => {}
        (2, _, machine) => return Err(foreign(&format!("another processor (machine {machine})"))),
        _ => return Err(unknown()),
    }
    let offset = head[32..40].try_into().map(u64::from_le_bytes);
    if usize::from(half(54)) != HEADER_BYTES {
        return Err(unknown());
    }
    Ok(HeaderTable {
        offset: offset.map_err(|_| unknown())?,
        count: half(56),
    })
}

fn kind_of_header(header: &[u8]) -> u32 {
    u32::from_le_bytes([header[0], header[1], header[2], header[3]])
}

/// Number of bytes at the start of a file that show its kind: the longest first line of a script
/// that Linux reads.
const HEAD_BYTES: usize = 256;

/// Size of a program header of ELF-64, in bytes.
const HEADER_BYTES: usize = 56;

/// Type of the program header that names the dynamic linker.
const PT_INTERP: u32 = 3;

/// Value of `e_machine` for this processor.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    183
} else {
    62
};

/// Largest number of scripts whose interpreter is again a script: as many as Linux follows.
const SCRIPTS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &tempfile::TempDir, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    fn elf(class: u8, machine: u16, header: Option<u32>) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = HEADER_BYTES as u8;
        bytes[56] = header.is_some().into();
        if let Some(kind) = header {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; HEADER_BYTES - 4]);
        }
        bytes
    }

    #[test]
    fn linkage_of_programs_and_scripts_is_found() {
        let d = tempfile::tempdir().unwrap();
        let dynamic = file(&d, "dynamic", &elf(2, MACHINE, Some(PT_INTERP)), 0o755);
        let fixed = file(&d, "static", &elf(2, MACHINE, Some(1)), 0o755);
        assert_eq!(linkage(&dynamic).unwrap(), Linkage::Dynamic);
        assert_eq!(linkage(&fixed).unwrap(), Linkage::Static);
        let script = file(
            &d,
            "script",
            format!("#!{}\nx", fixed.display()).as_bytes(),
            0o755,
        );
        assert_eq!(linkage(&script).unwrap(), Linkage::Static);
        let through_env = file(&d, "env", b"#!/usr/bin/env -S sh\n", 0o755);
        assert_eq!(linkage(&through_env).unwrap(), Linkage::Dynamic);
        let needing = [&dynamic, &fixed, &script].map(|path| needs_supervisor(path));
        assert_eq!(needing, [false, true, true]);
        assert!(!needs_supervisor(&d.path().join("none")));
        let link = d.path().join("link");
        std::os::unix::fs::symlink(&fixed, &link).unwrap();
        assert!(is_same_file(&link, &fixed) && !is_same_file(&link, &dynamic));
    }

    #[test]
    fn programs_that_cannot_be_wrapped_are_refused_with_the_reason() {
        let d = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes: &[u8], mode| {
            linkage(&file(&d, name, bytes, mode))
                .unwrap_err()
                .to_string()
        };
        assert!(of("a", b"\x7fELF", 0o755).contains("neither an ELF program nor"));
        assert!(of("b", b"", 0o755).contains("neither"));
        assert!(of("c", &elf(1, 3, None), 0o755).contains("32 bits"));
        assert!(of("d", &elf(2, 243, None), 0o755).contains("machine 243"));
        assert!(of("e", &elf(2, MACHINE, None), 0o644).contains("not an executable file"));
        assert!(of("f", &elf(2, MACHINE, None), 0o4755).contains("set-user-ID"));
        let itself = d.path().join("g").display().to_string();
        assert!(of("g", format!("#!{itself}\n").as_bytes(), 0o755).contains("more than 5 times"));
        let missing = linkage(&d.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("none: No such file"), "{missing}");
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let d = tempfile::tempdir().unwrap();
        let program = file(&d, "there", b"", 0o755);
        file(&d, "not", b"", 0o644);
        let path = format!("/no/such/directory:{}", d.path().display());
        assert_eq!(find("there", &path).unwrap(), program);
        assert_eq!(find("./x", &path).unwrap(), Path::new("./x"));
        for absent in ["not", "absent"] {
            assert!(matches!(
                find(absent, &path),
                Err(ProgramError::NotFound(_))
            ));
        }
    }
}
