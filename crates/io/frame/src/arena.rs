//! The memory of a pool, and the depot: the cells of the pool that no thread has.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use carina_sys::{HUGE_PAGE_BYTES, Mapping, Pages};
use carina_time::Instant;

use crate::metadata::{Checksum, Segmentation};

/// The memory of a pool's cells. It is freed when the pool is closed and every cell has returned.
/// Therefore a cell's reference to the arena is valid as long as any code owns the cell.
pub(crate) struct Arena {
    memory: Mapping,
    pub(crate) pages: Pages,
    pub(crate) id: u8,
    cells: usize,
    depot: Mutex<Depot>,
}

/// The header of a cell, in the cell's first cache line. `arena`, `index` and `room` never change
/// after the pool was created.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) arena: NonNull<Arena>,
    /// Number of the cell in its pool.
    pub(crate) index: u32,
    /// Number of bytes behind the header.
    pub(crate) room: u32,
    pub(crate) time: Instant,
    pub(crate) hash: u32,
    pub(crate) vlan: u16,
    pub(crate) checksum: Checksum,
    pub(crate) segmentation: Segmentation,
}

/// Pointer to a cell. Only the cell's owner may access its memory.
pub(crate) type Cell = NonNull<Header>;

pub(crate) const HEADER_BYTES: usize = 64;

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

struct Depot {
    cells: Vec<Cell>,
    is_closed: bool,
}

// SAFETY: cells in the depot have no owner; code that takes one out under the lock becomes it. The
// memory has no thread affinity.
unsafe impl Send for Arena {}
// SAFETY: as above: all that changes is behind the lock.
unsafe impl Sync for Arena {}

/// One bit for each pool id: set while the id is in use.
static IDS: Mutex<u64> = Mutex::new(0);

/// Largest number of pools of a process.
pub(crate) const POOLS_MAX: usize = 64;

/// The layout of cells in memory: the distance between cells in bytes, and the number of cells in a
/// huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) stride: usize,
    pub(crate) in_page: usize,
}

impl Grid {
    /// The layout for cells of `room` bytes, at most a huge page without the header.
    pub(crate) fn of(room: usize) -> Grid {
        let lines = (HEADER_BYTES + room).div_ceil(64);
        // An odd number of cache lines, unless that no longer fits.
        let stride = (lines | 1) * 64;
        let stride = if stride > HUGE_PAGE_BYTES {
            lines * 64
        } else {
            stride
        };
        Grid {
            stride,
            in_page: HUGE_PAGE_BYTES / stride,
        }
    }

    fn offset(self, index: usize) -> usize {
        index / self.in_page * HUGE_PAGE_BYTES + index % self.in_page * self.stride
    }
}

impl Arena {
    /// Allocates memory for `cells` cells of `room` bytes. `None` if there are already
    /// [`POOLS_MAX`] pools.
    pub(crate) fn new(cells: usize, room: u32) -> std::io::Result<Option<NonNull<Arena>>> {
        let grid = Grid::of(room as usize);
        let bytes = cells.div_ceil(grid.in_page).saturating_mul(HUGE_PAGE_BYTES);
        let (memory, pages) = Mapping::private(bytes)?;
        let Some(id) = take_id() else { return Ok(None) };
        let base = memory.as_ptr();
        let arena = Box::new(Arena {
            memory,
            pages,
            id,
            cells,
            depot: Mutex::new(Depot {
                cells: Vec::with_capacity(cells),
                is_closed: false,
            }),
        });
        let arena = NonNull::from(Box::leak(arena));
        // In this order, the cells with the lowest addresses are taken first.
        for index in (0..cells).rev() {
            // SAFETY: the grid keeps every cell inside the mapping, which is page-aligned, and a
            // stride is a multiple of the header's alignment; no other cell overlaps this one.
            unsafe {
                let cell = base.add(grid.offset(index)).cast::<Header>();
                cell.write(Header {
                    arena,
                    index: index as u32,
                    room,
                    time: Instant::ZERO,
                    hash: 0,
                    vlan: 0,
                    checksum: Checksum::default(),
                    segmentation: Segmentation::default(),
                });
                arena
                    .as_ref()
                    .depot()
                    .cells
                    .push(NonNull::new_unchecked(cell));
            }
        }
        Ok(Some(arena))
    }

    fn depot(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address and length of the memory.
    pub(crate) fn memory(&self) -> (*mut u8, usize) {
        (self.memory.as_ptr(), self.memory.len())
    }

    /// Number of cells in the depot.
    pub(crate) fn spare(&self) -> usize {
        self.depot().cells.len()
    }

    /// Moves up to `count` cells from the depot to `to`. Returns how many.
    ///
    /// # Safety
    /// `to` must be valid for writing `count` cells.
    pub(crate) unsafe fn take(&self, to: *mut Cell, count: usize) -> usize {
        let mut depot = self.depot();
        let count = count.min(depot.cells.len());
        let from = depot.cells.len() - count;
        for (at, cell) in depot.cells.drain(from..).enumerate() {
            // SAFETY: `at` is less than the count that the caller promised room for.
            unsafe { to.add(at).write(cell) };
        }
        count
    }

    /// Returns cells to the depot. If the pool is closed and these are the last cells, frees the
    /// arena.
    ///
    /// # Safety
    /// `arena` must be that of all `cells`, and the caller must own them; neither may be used
    /// afterwards.
    pub(crate) unsafe fn give_back(arena: NonNull<Arena>, cells: &[Cell]) {
        // SAFETY: the caller owns cells, so the arena lives.
        let this = unsafe { arena.as_ref() };
        let mut depot = this.depot();
        depot.cells.extend_from_slice(cells);
        let is_over = depot.is_closed && depot.cells.len() == this.cells;
        drop(depot);
        if is_over {
            // SAFETY: every cell is in the depot and the pool is closed, so that no other
            // reference to the arena is left.
            unsafe { Arena::free(arena) };
        }
    }

    /// Closes the pool: no more cells are taken, and the arena is freed when the last cell returns.
    ///
    /// # Safety
    /// The owner of the pool calls this once, and must not use the arena afterwards.
    pub(crate) unsafe fn close(arena: NonNull<Arena>) {
        // SAFETY: the pool was open, so the arena lives.
        let this = unsafe { arena.as_ref() };
        let mut depot = this.depot();
        depot.is_closed = true;
        let is_over = depot.cells.len() == this.cells;
        drop(depot);
        if is_over {
            // SAFETY: as in `give_back`.
            unsafe { Arena::free(arena) };
        }
    }

    /// # Safety
    /// There must be no other reference to the arena.
    unsafe fn free(arena: NonNull<Arena>) {
        // SAFETY: made by `Box::leak` and, as the caller promises, freed once.
        let arena = unsafe { Box::from_raw(arena.as_ptr()) };
        let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
        *ids &= !(1 << arena.id);
        drop(arena);
    }
}

fn take_id() -> Option<u8> {
    let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
    let id = ids.trailing_ones();
    if id as usize >= POOLS_MAX {
        return None;
    }
    *ids |= 1 << id;
    Some(id as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_span_an_odd_number_of_lines_inside_huge_pages() {
        for room in [64, 2048, 2176, 9216, 70_000, HUGE_PAGE_BYTES - 64] {
            let grid = Grid::of(room);
            assert!(grid.stride >= room + HEADER_BYTES && grid.in_page >= 1);
            assert!(grid.stride / 64 % 2 == 1 || grid.in_page == 1, "{room}");
            for index in [0, 1, grid.in_page - 1, grid.in_page, 5 * grid.in_page + 3] {
                let first = grid.offset(index);
                let last = first + grid.stride - 1;
                assert_eq!(first / HUGE_PAGE_BYTES, last / HUGE_PAGE_BYTES);
            }
        }
    }
}
