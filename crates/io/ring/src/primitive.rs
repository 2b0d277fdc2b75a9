//! The atomics of the ring: the machine's, or loom's under feature `loom`.

#[cfg(not(feature = "loom"))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(feature = "loom")]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The machine's cell, accessed as loom's is.
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

/// A full fence between the accesses of this thread.
#[inline]
pub(crate) fn fence_full() {
    #[cfg(not(feature = "loom"))]
    core::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(feature = "loom")]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Stops the compiler only; the processor is stopped by the peer's [`fence_of_everyone`].
///
/// Loom knows no such barrier. A global barrier acts as if each thread of the peer had a full
/// fence at the point it had reached, so loom checks the protocol with a full fence here.
#[inline]
pub(crate) fn fence_of_compiler() {
    #[cfg(not(feature = "loom"))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(feature = "loom")]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A full fence in this thread and in every running thread of every registered process.
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
