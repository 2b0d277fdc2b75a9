//! The atomics of the ring: the standard library's, or loom's under feature `loom`.

#[cfg(not(feature = "loom"))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(feature = "loom")]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The standard cell with the interface of loom's.
#[cfg(not(feature = "loom"))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(feature = "loom"))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// A full fence between this thread's accesses before and after it.
#[inline]
pub(crate) fn fence_full() {
    #[cfg(not(feature = "loom"))]
    core::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(feature = "loom")]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Prevents reordering by the compiler only. The peer's [`fence_of_everyone`] prevents it by the
/// processor.
///
/// Loom has no such barrier. A global barrier acts as if each thread of the peer executed a full
/// fence wherever it was, so in loom this is a full fence.
#[inline]
pub(crate) fn fence_of_compiler() {
    #[cfg(not(feature = "loom"))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(feature = "loom")]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A full fence in this thread, and in every running thread of every registered process. Returns
/// whether the kernel did it.
pub(crate) fn fence_of_everyone() -> bool {
    #[cfg(not(feature = "loom"))]
    {
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        carina_sys::membarrier_global()
    }
    #[cfg(feature = "loom")]
    {
        loom::sync::atomic::fence(Ordering::SeqCst);
        true
    }
}
