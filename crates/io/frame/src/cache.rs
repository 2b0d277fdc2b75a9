//! Cells that each thread keeps, so that taking and returning a cell needs no lock.

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

use crate::arena::{Arena, Cell, POOLS_MAX};

/// The cells of one pool that this thread keeps: a stack in memory of the thread.
struct Stack {
    len: u32,
    /// Capacity of the stack. It is 0 until the thread first needs the stack, and again when the
    /// thread ends.
    max: u32,
    cells: *mut Cell,
}

/// Largest number of cells of each pool that a thread keeps.
pub(crate) const KEPT_MAX: usize = 512;

/// Number of cells that move between a thread and the depot at a time.
const BATCH: usize = KEPT_MAX / 2;

thread_local! {
    /// These have no destructor, so that an access is a plain load.
    static STACKS: UnsafeCell<[Stack; POOLS_MAX]> = const {
        UnsafeCell::new([const { Stack { len: 0, max: 0, cells: ptr::null_mut() } }; POOLS_MAX])
    };
    /// Returns all kept cells when the thread ends.
    static AT_END: AtEnd = const { AtEnd };
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        for id in 0..POOLS_MAX {
            with_stack(id as u8, |stack| {
                stack.flush(0);
                stack.close();
            });
        }
    }
}

/// Calls `f` with this thread's stack for a pool. Only the address of the stacks is thread-local,
/// so that everything else can be inlined into the caller.
#[inline(always)]
fn with_stack<R>(id: u8, f: impl FnOnce(&mut Stack) -> R) -> R {
    let stacks = STACKS.with(UnsafeCell::get);
    // SAFETY: only this thread reaches its stacks, and no function of this module that is called
    // inside of `f` asks for them again; they live as long as the thread.
    let stacks = unsafe { &mut *stacks };
    f(&mut stacks[usize::from(id) % POOLS_MAX])
}

/// Takes a cell of the pool `id`, whose memory is `arena`. `None` if the pool has no cell left.
#[inline]
pub(crate) fn take(id: u8, arena: NonNull<Arena>) -> Option<Cell> {
    with_stack(id, |stack| {
        if stack.len == 0 && !stack.refill(arena) {
            return None;
        }
        stack.len -= 1;
        // SAFETY: the first `len` places of the stack hold cells, and this one is left.
        Some(unsafe { stack.cells.add(stack.len as usize).read() })
    })
}

/// Returns a cell to the pool `id`.
///
/// # Safety
/// The caller must own the cell, which must be of that pool, and must not use it afterwards.
#[inline]
pub(crate) unsafe fn give_back(id: u8, cell: Cell) {
    with_stack(id, |stack| {
        if stack.len == stack.max && !stack.make_room() {
            // SAFETY: the caller owns the cell; its arena is that of its header.
            unsafe { Arena::give_back(cell.as_ref().arena, &[cell]) };
            return;
        }
        // SAFETY: `len` is less than `max`, the number of places.
        unsafe { stack.cells.add(stack.len as usize).write(cell) };
        stack.len += 1;
    });
}

/// Returns to the depot all cells of a pool that this thread keeps.
pub(crate) fn flush(id: u8) {
    with_stack(id, |stack| stack.flush(0));
}

/// Number of cells of a pool that this thread keeps.
pub(crate) fn kept(id: u8) -> usize {
    with_stack(id, |stack| stack.len as usize)
}

impl Stack {
    /// Allocates the stack. Returns false if the thread is ending.
    #[cold]
    fn open(&mut self) -> bool {
        if AT_END.try_with(|_| ()).is_err() {
            return false;
        }
        let places: Box<[Option<Cell>]> = vec![None; KEPT_MAX].into_boxed_slice();
        // An `Option<Cell>` has the layout of a `Cell`.
        self.cells = Box::into_raw(places).cast();
        self.max = KEPT_MAX as u32;
        true
    }

    fn close(&mut self) {
        if self.max > 0 {
            let places = ptr::slice_from_raw_parts_mut(self.cells.cast::<Option<Cell>>(), KEPT_MAX);
            // SAFETY: made by `open` with this length, and forgotten here.
            drop(unsafe { Box::from_raw(places) });
            (self.max, self.cells) = (0, ptr::null_mut());
        }
    }

    #[cold]
    fn refill(&mut self, arena: NonNull<Arena>) -> bool {
        let is_open = self.max > 0 || self.open();
        if !is_open {
            return false;
        }
        // SAFETY: the caller has a pool, so its arena lives; the stack is empty and has more than
        // `BATCH` places.
        self.len = unsafe { arena.as_ref().take(self.cells, BATCH) } as u32;
        self.len > 0
    }

    /// Makes room for one more cell. Returns false if the thread is ending.
    #[cold]
    fn make_room(&mut self) -> bool {
        if self.max == 0 {
            return self.open();
        }
        self.flush(KEPT_MAX - BATCH);
        true
    }

    /// Returns all cells to the depot except the `keep` lowest.
    fn flush(&mut self, keep: usize) {
        let len = self.len as usize;
        if len <= keep {
            return;
        }
        // SAFETY: the first `len` places hold cells that this thread owns; those from `keep` on
        // are forgotten below. All cells of a stack are of one pool, hence of one arena.
        unsafe {
            self.len = keep as u32;
            let cells = std::slice::from_raw_parts(self.cells.add(keep), len - keep);
            let arena = cells[0].as_ref().arena;
            Arena::give_back(arena, cells);
        }
    }
}
