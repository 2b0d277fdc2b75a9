//! The environment of a program that is started: the settings of `carina wrap` are in it.
//!
//! Some programs empty the environment of a program that they start, and pass sockets on to it, as
//! nginx does when its binary is replaced. A socket that is a flow or a registration is of use to a
//! wrapped program only, so the settings are added where such a socket is inherited.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use carina_wrap::calls::Descriptors;
use carina_wrap::mark::Mark;
use carina_wrap::settings::VARIABLE;
use rustix::io::FdFlags;

use crate::exec_words::{Words, strings};
use crate::process::ThisProcess;
use crate::wrap;

/// Calls `act` with the environment for a program: `env`, with the settings added if they are not
/// in it and the program inherits a socket of Carina.
///
/// # Safety
/// `env` is null or an environment.
pub(crate) unsafe fn with_settings<T>(env: Words, act: impl FnOnce(Words) -> T) -> T {
    // SAFETY: the caller's promise.
    let additions = unsafe {
        if has_settings(env) {
            None
        } else {
            additions(env)
        }
    };
    let Some(additions) = additions else {
        return act(env);
    };
    // SAFETY: the caller's promise.
    let kept = unsafe { strings(env) }.filter(|entry| value_of(entry, PRELOAD).is_none());
    let mut list: Vec<_> = kept.map(CStr::as_ptr).collect();
    list.extend(additions.iter().map(|entry| entry.as_ptr()));
    list.push(ptr::null());
    act(list.as_ptr())
}

/// Whether an environment has the settings of `carina wrap`.
///
/// # Safety
/// It is null or an environment.
pub(crate) unsafe fn has_settings(env: Words) -> bool {
    // SAFETY: the caller's promise: each entry up to the null pointer is a string.
    unsafe { strings(env) }.any(|entry| value_of(entry, VARIABLE).is_some())
}

fn value_of<'a>(entry: &'a CStr, name: &str) -> Option<&'a [u8]> {
    let rest = entry.to_bytes().strip_prefix(name.as_bytes())?;
    rest.strip_prefix(b"=")
}

/// The entries that a program with this environment lacks; `None` if this program is not wrapped or
/// passes no socket of Carina on.
///
/// # Safety
/// It is null or an environment.
unsafe fn additions(env: Words) -> Option<[CString; 2]> {
    let wrap = wrap()?;
    if !inherits_socket() {
        return None;
    }
    let settings = wrap.settings().encode().ok()?;
    let settings = CString::new(format!("{VARIABLE}={settings}")).ok()?;
    let mut preload = format!("{PRELOAD}=").into_bytes();
    preload.extend(this_library()?.as_os_str().as_bytes());
    // SAFETY: the caller's promise.
    let others = unsafe { strings(env) }.find_map(|entry| value_of(entry, PRELOAD));
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        preload.push(b':');
        preload.extend(others);
    }
    Some([settings, CString::new(preload).ok()?])
}

/// Whether a program that starts now inherits a flow or a registration.
fn inherits_socket() -> bool {
    ThisProcess.any(&|socket| {
        Mark::of(socket).is_some()
            && rustix::io::fcntl_getfd(socket).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
    })
}

/// The file from which the dynamic linker has loaded this library.
fn this_library() -> Option<&'static Path> {
    // SAFETY: zero is a value of the structure, which the function fills.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let of_library: fn() -> bool = inherits_socket;
    // SAFETY: the function only looks for the library in which the address is.
    let is_found = unsafe { libc::dladdr(of_library as *const libc::c_void, &raw mut found) } != 0;
    if !is_found || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's string, which it keeps as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// The variable with the libraries that the dynamic linker loads first (ld.so(8)).
const PRELOAD: &str = "LD_PRELOAD";
