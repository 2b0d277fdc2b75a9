//! Copying into and out of memory that a peer may change.
//!
//! The copies are opaque to the compiler, so that it can neither read shared memory twice nor
//! assume that what it read is still there.
//!
//! Measured on a virtual Intel Xeon with AVX-512 and AMX, source and destination in cache, GB/s:
//!
//! ```text
//! bytes        16    64   200   512  1500  4096 16384 65536
//! SSE          5.7  20.4  30.0  43.8  55.4  52.2  52.6  34.5
//! rep movsb    3.7  15.1  17.7  29.3  81.9   169   201  49.2
//! glibc        5.4  26.8  50.0  91.2   135   169   204  49.2
//! ```
//!
//! From memory all of them move 7 GB/s.
//!
//! Between two processors of a virtual AMD EPYC (Zen 4), through a ring of 1 MiB, ns per message of
//! one copy in and one out; whole lines are 64-byte registers stored to aligned addresses:
//!
//! ```text
//! bytes           200   512  1500  4000 65536
//! SSE              33    66   182   529  7030
//! rep movsb        32    55   146   366  5560
//! whole lines      27    50   140   350  5120
//! glibc            30    51   136   330  4960
//! ```
//!
//! The same inside a guest under QEMU's TCG, which emulates `rep movsb` byte by byte (glibc picks
//! it for long copies where the processor says that it is fast) and each vector register as pieces:
//!
//! ```text
//! bytes        64   512  4032 65536  1 MiB
//! SSE         1.2   1.9   2.0   1.9    1.9
//! AVX         1.5   2.9   3.4   3.1    3.0
//! rep movsb   0.5   0.5   0.6   0.6    0.5
//! rep movsq   1.7   3.3   3.7   3.3    3.2
//! glibc       1.3   2.5   3.2   3.1    3.0
//! words       1.9   4.4   5.3   4.6    4.5
//! ```

/// Copies `len` bytes.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes. Either may be shared with another
/// process that writes at the same time, and they may overlap; the copy is then torn.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise, passed on.
    unsafe {
        x86_64::copy(from, to, len);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise, byte by byte.
    unsafe {
        for at in 0..len {
            to.add(at).write_volatile(from.add(at).read_volatile());
        }
    }
}

/// Appends `len` bytes to a vector.
///
/// # Safety
/// `from` must be readable for `len` bytes, and may be shared as with [`copy`].
pub(crate) unsafe fn append(from: *const u8, to: &mut Vec<u8>, len: usize) {
    to.reserve(len);
    // SAFETY: room was just reserved, reading is the caller's promise, and the bytes are
    // initialised by the copy before the length covers them.
    unsafe {
        copy(from, to.as_mut_ptr().add(to.len()), len);
        to.set_len(to.len() + len);
    }
}

/// Copies between private slices with the routine for shared memory. Where the processor is
/// emulated, this is several times faster than `copy_from_slice`.
///
/// # Panics
/// The lengths differ.
#[inline]
pub fn copy_slice(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "lengths of a copy");
    // SAFETY: both are slices of that length.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), to.len()) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    use core::sync::atomic::{AtomicU8, Ordering};

    /// Smallest length for `rep movsb`. From here it is faster than SSE on processors where it is
    /// fast at all; see the tables above.
    const REP_BYTES_MIN: usize = 1024;
    /// Smallest length for `rep movsb` on processors with 64-byte registers. From here it is as
    /// fast as copying whole cache lines.
    const REP_BYTES_MIN_WIDE: usize = 4096;

    /// Copies short lengths inline, with two loads and two stores that may overlap.
    #[inline]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: every access below is inside the `len` bytes the caller promised: each branch
        // touches the first and the last N bytes and is taken only for len in N..=2N.
        unsafe {
            match len {
                0..16 => short(from, to, len),
                _ if routine() == WORDS => words(from, to, len),
                16..=32 => {
                    asm!(
                        "movups {a}, xmmword ptr [{from}]",
                        "movups {b}, xmmword ptr [{from} + {len} - 16]",
                        "movups xmmword ptr [{to}], {a}",
                        "movups xmmword ptr [{to} + {len} - 16], {b}",
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                        a = out(xmm_reg) _, b = out(xmm_reg) _,
                        options(nostack, preserves_flags),
                    );
                }
                33..=64 => {
                    asm!(
                        "movups {a}, xmmword ptr [{from}]",
                        "movups {b}, xmmword ptr [{from} + 16]",
                        "movups {c}, xmmword ptr [{from} + {len} - 32]",
                        "movups {d}, xmmword ptr [{from} + {len} - 16]",
                        "movups xmmword ptr [{to}], {a}",
                        "movups xmmword ptr [{to} + 16], {b}",
                        "movups xmmword ptr [{to} + {len} - 32], {c}",
                        "movups xmmword ptr [{to} + {len} - 16], {d}",
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                        a = out(xmm_reg) _, b = out(xmm_reg) _,
                        c = out(xmm_reg) _, d = out(xmm_reg) _,
                        options(nostack, preserves_flags),
                    );
                }
                _ => long(from, to, len),
            }
        }
    }

    /// # Safety
    /// As for [`copy`], with `len` below 16.
    #[inline]
    unsafe fn short(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as in `copy`.
        unsafe {
            match len {
                0 => {}
                1..4 => bytes(from, to, len),
                4..8 => {
                    asm!(
                        "mov {a:e}, dword ptr [{from}]",
                        "mov {b:e}, dword ptr [{from} + {len} - 4]",
                        "mov dword ptr [{to}], {a:e}",
                        "mov dword ptr [{to} + {len} - 4], {b:e}",
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                        a = out(reg) _, b = out(reg) _,
                        options(nostack, preserves_flags),
                    );
                }
                _ => {
                    asm!(
                        "mov {a}, qword ptr [{from}]",
                        "mov {b}, qword ptr [{from} + {len} - 8]",
                        "mov qword ptr [{to}], {a}",
                        "mov qword ptr [{to} + {len} - 8], {b}",
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                        a = out(reg) _, b = out(reg) _,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    }

    /// # Safety
    /// As for [`copy`], with `len` above 64.
    #[inline(never)]
    unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise, passed on; `WIDE` is the answer only of a processor that
        // has its instructions.
        unsafe {
            match routine() {
                WIDE if len < REP_BYTES_MIN_WIDE => wide(from, to, len),
                WIDE => rep(from, to, len),
                REP if len >= REP_BYTES_MIN => rep(from, to, len),
                _ => sse(from, to, len),
            }
        }
    }

    /// # Safety
    /// As for [`copy`].
    pub(super) unsafe fn rep(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the instruction copies `len` bytes upwards; the ABI keeps the direction flag
        // clear.
        unsafe {
            asm!(
                "rep movsb",
                inout("rsi") from => _,
                inout("rdi") to => _,
                inout("rcx") len => _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// The routine that copies long lengths on this processor.
    #[inline]
    fn routine() -> u8 {
        static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
        match ANSWER.load(Ordering::Relaxed) {
            UNKNOWN => {
                let answer = ask_processor();
                ANSWER.store(answer, Ordering::Relaxed);
                answer
            }
            answer => answer,
        }
    }

    const UNKNOWN: u8 = 0;
    const SSE: u8 = 1;
    const REP: u8 = 2;
    const WORDS: u8 = 3;
    const WIDE: u8 = 4;

    #[cold]
    fn ask_processor() -> u8 {
        if carina_sys::is_emulated() {
            return WORDS;
        }
        if __cpuid(0).eax < 7 {
            return SSE;
        }
        let leaf = __cpuid_count(7, 0);
        let (enhanced, short) = (leaf.ebx & (1 << 9) != 0, leaf.edx & (1 << 4) != 0);
        // Processors with AVX-512 but without fast short `rep movsb` (before Ice Lake) slow down
        // for a while after each use of a 64-byte register.
        if enhanced && short && std::arch::is_x86_feature_detected!("avx512f") {
            return WIDE;
        }
        if enhanced { REP } else { SSE }
    }

    /// Copies whole cache lines of the destination, then the last 64 bytes. A line that another
    /// processor owns then need not be fetched in parts, and many lines can be in transit at once.
    ///
    /// # Safety
    /// As for [`copy`], with `len` above 64.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn wide(from: *const u8, to: *mut u8, len: usize) {
        let ahead = 64 - to.addr() % 64;
        // SAFETY: the first 64 bytes, those of whole lines behind them that end before the last
        // 64, and the last 64. Registers above 15 leave no state behind that slows SSE.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, zmmword ptr [{from}]",
                "vmovdqu64 zmm17, zmmword ptr [{from} + {len} - 64]",
                "vmovdqu64 zmmword ptr [{to}], zmm16",
                "add {from}, {ahead}",
                "add {to}, {ahead}",
                "sub {len}, {ahead}",
                "cmp {len}, 64",
                "jbe 3f",
                "2:",
                "vmovdqu64 zmm16, zmmword ptr [{from}]",
                "vmovdqa64 zmmword ptr [{to}], zmm16",
                "add {from}, 64",
                "add {to}, 64",
                "sub {len}, 64",
                "cmp {len}, 64",
                "ja 2b",
                "3:",
                "vmovdqu64 zmmword ptr [{to} + {len} - 64], zmm17",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                len = inout(reg) len => _,
                ahead = in(reg) ahead,
                out("zmm16") _, out("zmm17") _,
                options(nostack),
            );
        }
    }

    /// Copies 64 bytes per iteration through general registers, then the rest in smaller and
    /// smaller portions. The last portion may copy some bytes a second time.
    ///
    /// # Safety
    /// As for [`copy`], with `len` of at least 16.
    #[inline(never)]
    pub(super) unsafe fn words(mut from: *const u8, mut to: *mut u8, mut len: usize) {
        // SAFETY: each portion is taken only while more bytes than it has are left; the last 16
        // bytes are there because `len` was at least that.
        unsafe {
            if len > 64 {
                asm!(
                    "2:",
                    "mov {a}, qword ptr [{from}]",
                    "mov {b}, qword ptr [{from} + 8]",
                    "mov {c}, qword ptr [{from} + 16]",
                    "mov {d}, qword ptr [{from} + 24]",
                    "mov qword ptr [{to}], {a}",
                    "mov qword ptr [{to} + 8], {b}",
                    "mov qword ptr [{to} + 16], {c}",
                    "mov qword ptr [{to} + 24], {d}",
                    "mov {a}, qword ptr [{from} + 32]",
                    "mov {b}, qword ptr [{from} + 40]",
                    "mov {c}, qword ptr [{from} + 48]",
                    "mov {d}, qword ptr [{from} + 56]",
                    "mov qword ptr [{to} + 32], {a}",
                    "mov qword ptr [{to} + 40], {b}",
                    "mov qword ptr [{to} + 48], {c}",
                    "mov qword ptr [{to} + 56], {d}",
                    "add {from}, 64",
                    "add {to}, 64",
                    "sub {len}, 64",
                    "cmp {len}, 64",
                    "ja 2b",
                    from = inout(reg) from,
                    to = inout(reg) to,
                    len = inout(reg) len,
                    a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                    options(nostack),
                );
            }
            if len > 32 {
                four_words(from, to);
                (from, to, len) = (from.add(32), to.add(32), len - 32);
            }
            if len > 16 {
                two_words(from, to);
            }
            // At most 32 bytes are left, of which at most 16 are already copied.
            two_words(from.add(len).sub(16), to.add(len).sub(16));
        }
    }

    /// # Safety
    /// As for [`copy`], with 16 bytes.
    #[inline]
    unsafe fn two_words(from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "mov {a}, qword ptr [{from}]",
                "mov {b}, qword ptr [{from} + 8]",
                "mov qword ptr [{to}], {a}",
                "mov qword ptr [{to} + 8], {b}",
                from = in(reg) from, to = in(reg) to,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// As for [`copy`], with 32 bytes.
    #[inline]
    unsafe fn four_words(from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            two_words(from, to);
            two_words(from.add(16), to.add(16));
        }
    }

    #[inline]
    unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
        for at in 0..len {
            // SAFETY: `at` is below the `len` the caller promised.
            unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) }
        }
    }

    /// Copies 64 bytes per iteration, then the last 64 bytes.
    ///
    /// # Safety
    /// As for [`copy`], with `len` above 64.
    pub(super) unsafe fn sse(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the loop covers whole blocks before `len - 64`, the end the last 64 bytes.
        unsafe {
            asm!(
                "2:",
                "movups {a}, xmmword ptr [{from}]",
                "movups {b}, xmmword ptr [{from} + 16]",
                "movups {c}, xmmword ptr [{from} + 32]",
                "movups {d}, xmmword ptr [{from} + 48]",
                "movups xmmword ptr [{to}], {a}",
                "movups xmmword ptr [{to} + 16], {b}",
                "movups xmmword ptr [{to} + 32], {c}",
                "movups xmmword ptr [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "sub {left}, 64",
                "ja 2b",
                "movups {a}, xmmword ptr [{from} + {left}]",
                "movups {b}, xmmword ptr [{from} + {left} + 16]",
                "movups {c}, xmmword ptr [{from} + {left} + 32]",
                "movups {d}, xmmword ptr [{from} + {left} + 48]",
                "movups xmmword ptr [{to} + {left}], {a}",
                "movups xmmword ptr [{to} + {left} + 16], {b}",
                "movups xmmword ptr [{to} + {left} + 32], {c}",
                "movups xmmword ptr [{to} + {left} + 48], {d}",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                left = inout(reg) len - 64 => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn long_copies_agree_whichever_routine_is_picked() {
        let from: Vec<u8> = (0..9000u32).map(|at| (at * 13) as u8).collect();
        for len in (65..200).chain([1023, 1024, 4096, 8999]) {
            let (mut sse, mut rep) = (vec![0; len], vec![0; len]);
            // SAFETY: all three vectors have `len` bytes.
            unsafe {
                super::x86_64::sse(from.as_ptr(), sse.as_mut_ptr(), len);
                super::x86_64::rep(from.as_ptr(), rep.as_mut_ptr(), len);
            }
            assert!(sse == from[..len] && rep == from[..len], "{len}");
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn words_are_copied_exactly_at_every_length() {
        let from: Vec<u8> = (0..9100u32).map(|at| (at * 13 + 5) as u8).collect();
        for len in (16..300).chain([1023, 1024, 4096, 8999]) {
            let mut to = vec![0xee; len + 64];
            // SAFETY: there are `len` bytes behind those that are skipped.
            unsafe { super::x86_64::words(from.as_ptr().add(3), to.as_mut_ptr().add(17), len) };
            assert_eq!(to[17..17 + len], from[3..3 + len], "{len}");
            let mut around = to[..17].iter().chain(&to[17 + len..]);
            assert!(around.all(|b| *b == 0xee), "{len}");
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn whole_lines_are_copied_exactly_at_every_length_and_place() {
        if !std::arch::is_x86_feature_detected!("avx512f") {
            return;
        }
        let from: Vec<u8> = (0..4400u32).map(|at| (at * 11 + 3) as u8).collect();
        for len in (65..330).chain([1023, 1024, 4095]) {
            for skip in (0..64).step_by(7).chain([63]) {
                let mut to = vec![0xee; len + 130];
                // SAFETY: both vectors have `len` bytes behind the skipped ones.
                unsafe {
                    super::x86_64::wide(from.as_ptr().add(skip), to.as_mut_ptr().add(skip), len);
                }
                assert_eq!(to[skip..skip + len], from[skip..skip + len], "{len} {skip}");
                let mut around = to[..skip].iter().chain(&to[skip + len..]);
                assert!(around.all(|b| *b == 0xee), "{len} {skip}");
            }
        }
    }

    #[test]
    fn every_short_length_and_alignment_is_copied_exactly() {
        let from: Vec<u8> = (0..2300u32).map(|at| (at * 7 + 1) as u8).collect();
        for len in (0..400).chain([511, 512, 513, 1499, 1500, 2048, 2100]) {
            for (skip_from, skip_to) in [(0, 0), (1, 0), (0, 1), (3, 7), (15, 8), (64, 63)] {
                let mut to = vec![0xee; len + 130];
                // SAFETY: both vectors have that many bytes behind the skipped ones.
                unsafe {
                    copy(
                        from.as_ptr().add(skip_from),
                        to.as_mut_ptr().add(skip_to),
                        len,
                    )
                }
                assert_eq!(to[skip_to..skip_to + len], from[skip_from..skip_from + len]);
                assert!(
                    to[..skip_to]
                        .iter()
                        .chain(&to[skip_to + len..])
                        .all(|b| *b == 0xee)
                );
            }
        }
    }
}
