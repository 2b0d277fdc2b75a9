//! The functions of the C library that start a program: `execv*` and `posix_spawn*`.
//!
//! The library cannot be loaded into a static program. When the program starts one, `carina wrap`
//! is started in its place, and supervises it:
//!
//! ```text
//!  execve("./static", ["static", "x"], env)
//!    = execve(CARINA, ["carina", "wrap", "--inherited", "--arg0", "static", "--", "./static", "x"],
//!             env)
//! ```
//!
//! The functions also run in a child of `vfork`, which shares the memory of its parent: they keep
//! what they make on the stack where they can.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use carina_wrap::program::{find, is_same_file, needs_supervisor};
use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::exec_environment::{has_settings, with_settings};
use crate::exec_words::{Words, strings};
use crate::lookup::next;
use crate::wrap;

unsafe extern "C" {
    static environ: Words;
}

/// `execve(2)`.
///
/// # Safety
/// As of `execve(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execve(path: *const c_char, words: Words, env: Words) -> c_int {
    // SAFETY: the caller's promise about all three; the kernel checks the pointers it is given.
    unsafe {
        with_settings(env, |env| {
            let exec = |path: *const c_char, words: Words| {
                libc::syscall(libc::SYS_execve, path, words, env) as c_int
            };
            match supervised(path, env) {
                Some(carina) => with_words(path, words, |words| exec(carina.as_ptr(), words)),
                None => exec(path, words),
            }
        })
    }
}

/// `execv(3)`.
///
/// # Safety
/// As of `execv(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execv(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise; the environment is the C library's.
    unsafe { execve(path, words, environ) }
}

/// `execvp(3)`.
///
/// # Safety
/// As of `execvp(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvp(file: *const c_char, words: Words) -> c_int {
    // SAFETY: as of `execv`.
    unsafe { execvpe(file, words, environ) }
}

/// `execvpe(3)`.
///
/// # Safety
/// As of `execvpe(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvpe(file: *const c_char, words: Words, env: Words) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, Words, Words) -> c_int;
    // SAFETY: the caller's promise about all three; the C library's function has this type.
    unsafe {
        with_settings(env, |env| {
            if let Some(path) = found(file)
                && supervised(path.as_ptr(), env).is_some()
            {
                return execve(path.as_ptr(), words, env);
            }
            match next::<Function>(c"execvpe") {
                Some(next) => next(file, words, env),
                None => crate::result(Err(rustix::io::Errno::NOSYS)),
            }
        })
    }
}

/// `posix_spawn(3)`.
///
/// # Safety
/// As of `posix_spawn(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    words: Words,
    env: Words,
) -> c_int {
    // SAFETY: the caller's promise; the C library's function has this type.
    unsafe {
        let Some(next) = next::<Spawn>(c"posix_spawn") else {
            return libc::ENOSYS;
        };
        with_settings(env, |env| match supervised(path, env) {
            Some(carina) => with_words(path, words, |words| {
                next(pid, carina.as_ptr(), actions, attributes, words, env)
            }),
            None => next(pid, path, actions, attributes, words, env),
        })
    }
}

/// `posix_spawnp(3)`.
///
/// # Safety
/// As of `posix_spawnp(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    words: Words,
    env: Words,
) -> c_int {
    // SAFETY: as of `posix_spawn`.
    unsafe {
        with_settings(env, |env| {
            if let Some(path) = found(file)
                && supervised(path.as_ptr(), env).is_some()
            {
                return posix_spawn(pid, path.as_ptr(), actions, attributes, words, env);
            }
            match next::<Spawn>(c"posix_spawnp") {
                Some(next) => next(pid, file, actions, attributes, words, env),
                None => libc::ENOSYS,
            }
        })
    }
}

type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const posix_spawn_file_actions_t,
    *const posix_spawnattr_t,
    Words,
    Words,
) -> c_int;

/// The path of `carina`, if it must supervise the program: the program is static, and its
/// environment still has the settings.
///
/// # Safety
/// `path` is null or a string, and `env` is null or an environment.
unsafe fn supervised(path: *const c_char, env: Words) -> Option<&'static CStr> {
    let wrap = wrap()?;
    // SAFETY: the caller's promise.
    if path.is_null() || !unsafe { has_settings(env) } {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = Path::new(OsStr::from_bytes(
        unsafe { CStr::from_ptr(path) }.to_bytes(),
    ));
    static CARINA: OnceLock<Option<CString>> = OnceLock::new();
    let carina = CARINA.get_or_init(|| {
        let path = wrap.carina()?.as_os_str();
        CString::new(path.as_bytes()).ok()
    });
    // A command of Carina itself makes no connections that rules are for.
    let is_carina = || {
        wrap.carina()
            .is_some_and(|carina| is_same_file(carina, path))
    };
    let carina = carina.as_deref()?;
    (needs_supervisor(path) && !is_carina()).then_some(carina)
}

/// Whether `carina` must supervise the program.
///
/// # Safety
/// As of [`supervised`].
pub(crate) unsafe fn is_supervised(path: *const c_char, env: Words) -> bool {
    // SAFETY: the caller's promise.
    unsafe { supervised(path, env) }.is_some()
}

/// Calls `act` with the words of the command that supervises a program.
///
/// # Safety
/// `path` is a string; `words` is null or the words of the program.
unsafe fn with_words<T>(path: *const c_char, words: Words, act: impl FnOnce(Words) -> T) -> T {
    // SAFETY: the caller's promise.
    let count = unsafe { strings(words) }.count();
    let total = COMMAND.len() + 3 + count + 1;
    let mut on_stack = [ptr::null(); WORDS_ON_STACK];
    let mut on_heap = Vec::new();
    let all = if total <= WORDS_ON_STACK {
        &mut on_stack[..total]
    } else {
        on_heap.resize(total, ptr::null());
        &mut on_heap[..]
    };
    let (command, rest) = all.split_at_mut(COMMAND.len());
    for (place, word) in command.iter_mut().zip(COMMAND) {
        *place = word.as_ptr();
    }
    rest[0] = path;
    rest[1] = c"--".as_ptr();
    rest[2] = path;
    // SAFETY: the caller's promise.
    for (place, word) in unsafe { strings(words) }.enumerate() {
        // The first word is the name that the program has for itself, behind `--arg0`.
        let to = if place == 0 { 0 } else { 2 + place };
        rest[to] = word.as_ptr();
    }
    act(all.as_ptr())
}

/// The file that a shell would find for this word.
///
/// # Safety
/// It is null or a string.
unsafe fn found(file: *const c_char) -> Option<CString> {
    if file.is_null() {
        return None;
    }
    wrap()?;
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(file) }.to_str().ok()?;
    let path = std::env::var("PATH").ok()?;
    CString::new(find(name, &path).ok()?.into_os_string().into_vec()).ok()
}

/// The first words of the command.
const COMMAND: [&CStr; 4] = [c"carina", c"wrap", c"--inherited", c"--arg0"];

/// Number of words for which the stack has room.
const WORDS_ON_STACK: usize = 512;
