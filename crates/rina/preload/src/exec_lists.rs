//! The functions of the C library that start a program with a list of words in their arguments:
//! `execl`, `execlp` and `execle`.
//!
//! A function in Rust cannot have a variable number of arguments. These functions put the words
//! that are in registers before the others, which are on the stack, so that all words are one list,
//! and call a function that takes the list:
//!
//! ```text
//!  on entry:      return address | word 5 | word 6 | ... | null     words 0 to 4 in registers
//!  for the call:  return address | word 0 | word 1 | ... | null     the second argument: word 0
//! ```

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::naked_asm;

    use libc::c_int;

    /// Calls a function with the first argument and the list of all others.
    macro_rules! with_list {
        ($function:path) => {
            naked_asm!(
                // The return address makes room for the words, of which five are in registers.
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {function}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                function = sym $function,
            )
        };
    }

    /// `execl(3)`.
    ///
    /// # Safety
    /// As of `execl(3)`.
    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub(crate) unsafe extern "C" fn execl() -> c_int {
        with_list!(super::with_path)
    }

    /// `execlp(3)`.
    ///
    /// # Safety
    /// As of `execlp(3)`.
    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub(crate) unsafe extern "C" fn execlp() -> c_int {
        with_list!(super::with_file)
    }

    /// `execle(3)`.
    ///
    /// # Safety
    /// As of `execle(3)`.
    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub(crate) unsafe extern "C" fn execle() -> c_int {
        with_list!(super::with_environment)
    }
}

use libc::{c_char, c_int};

use crate::exec::{execv, execve, execvp};
use crate::exec_words::Words;

/// # Safety
/// As of `execv(3)`.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
unsafe extern "C" fn with_path(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execv(path, words) }
}

/// # Safety
/// As of `execvp(3)`.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
unsafe extern "C" fn with_file(file: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execvp(file, words) }
}

/// # Safety
/// As of `execv(3)`; the environment is behind the null pointer that ends the words.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
unsafe extern "C" fn with_environment(path: *const c_char, words: Words) -> c_int {
    let mut end = words;
    // SAFETY: the caller's promise.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, words, (*end.add(1)).cast())
    }
}
