//! The functions of the C library that start a program by a descriptor: `fexecve` and `execveat`.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use carina_wrap::program::is_same_file;
use libc::{c_char, c_int};
use rustix::io::Errno;

use crate::exec::{execve, is_supervised};
use crate::exec_words::Words;
use crate::process::borrowed;
use crate::result;

/// `fexecve(3)`.
///
/// # Safety
/// As of `fexecve(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fexecve(file: c_int, words: Words, env: Words) -> c_int {
    if file < 0 || words.is_null() || env.is_null() {
        return result(Err(Errno::INVAL));
    }
    // SAFETY: the caller's promise.
    unsafe { execveat(file, c"".as_ptr(), words, env, libc::AT_EMPTY_PATH) }
}

/// `execveat(2)`.
///
/// # Safety
/// As of `execveat(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    words: Words,
    env: Words,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise about the path and the environment.
    unsafe {
        if let Some(found) = path_of(directory, path, flags)
            && is_supervised(found.as_ptr(), env)
        {
            return match path_for_another_process(&found) {
                Ok(found) => execve(found.as_ptr(), words, env),
                Err(error) => result(Err(error)),
            };
        }
        libc::syscall(libc::SYS_execveat, directory, path, words, env, flags) as c_int
    }
}

/// Returns a path of the file that `execveat` names; `None` if the kernel must decide.
///
/// # Safety
/// `path` is null or a string.
unsafe fn path_of(directory: c_int, path: *const c_char, flags: c_int) -> Option<CString> {
    crate::wrap()?;
    if path.is_null() || flags & !libc::AT_EMPTY_PATH != 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.first() == Some(&b'/') || (directory == libc::AT_FDCWD && !path.is_empty()) {
        return CString::new(path).ok();
    }
    if directory < 0 || (path.is_empty() && flags & libc::AT_EMPTY_PATH == 0) {
        return None;
    }
    let mut of_descriptor = PathBuf::from(format!("/proc/self/fd/{directory}"));
    if !path.is_empty() {
        of_descriptor.push(OsStr::from_bytes(path));
    }
    CString::new(of_descriptor.into_os_string().into_vec()).ok()
}

/// Returns a path by which the supervisor finds the same program: one that does not depend on a
/// descriptor of this process, or, for a file without a path, a copy of the descriptor that stays
/// open.
fn path_for_another_process(path: &CStr) -> Result<CString, Errno> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !path.starts_with("/proc/self/fd") {
        return CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL);
    }
    let real = path.canonicalize().ok();
    if let Some(real) = real.filter(|real| is_same_file(real, path)) {
        return CString::new(real.into_os_string().into_vec()).map_err(|_| Errno::INVAL);
    }
    let number = path.file_name().and_then(OsStr::to_str);
    let number = number.and_then(|number| number.parse().ok());
    // SAFETY: used during this call only.
    let file = unsafe { borrowed(number.unwrap_or(-1)) }.ok_or(Errno::BADF)?;
    let copy = std::os::fd::IntoRawFd::into_raw_fd(rustix::io::dup(file)?);
    CString::new(format!("/proc/self/fd/{copy}")).map_err(|_| Errno::INVAL)
}
