//! Memory of huge pages with known physical addresses, for a device that this process drives
//! without an IOMMU.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::{HUGE_PAGE_BYTES, Mapping, Memory, PAGE_BYTES};

/// Opens or creates a file of huge pages of 2 MiB. The file stays when this process ends, so that a
/// device that is still running does not write into memory of another process. The function asks
/// the kernel for missing huge pages, and mounts a file system of huge pages if no such file system
/// is mounted: both need root.
///
/// # Errors
/// `InvalidInput` if `bytes` is 0 or not a multiple of [`HUGE_PAGE_BYTES`]; `OutOfMemory` if the
/// kernel finds too few contiguous pages; errors of the file system.
pub fn huge_page_file(name: &str, bytes: usize) -> io::Result<Memory> {
    if bytes == 0 || !bytes.is_multiple_of(HUGE_PAGE_BYTES) {
        let text = format!(
            "memory of {bytes} bytes in huge pages: must be a positive multiple \
            of {HUGE_PAGE_BYTES}"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // No other thread may take the free pages between counting them and mapping them.
    static TAKING: Mutex<()> = Mutex::new(());
    let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = directory()?.join(name);
    let has_pages = fs::metadata(&path).is_ok_and(|found| found.len() == bytes as u64);
    if !has_pages {
        // A file of another size is from another version of this program.
        let _ = fs::remove_file(&path);
        reserve(bytes / HUGE_PAGE_BYTES)?;
    }
    Memory::file(&path, bytes)
}

/// Whether [`huge_page_file`] has created a file of this name since the system booted.
#[must_use]
pub fn huge_page_file_exists(name: &str) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounted(&mounts).is_some_and(|directory| directory.join(name).exists())
}

/// Removes a file that [`huge_page_file`] created, which frees its pages. Does nothing if there is
/// no such file.
pub fn huge_page_file_remove(name: &str) {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if let Some(directory) = mounted(&mounts) {
        let _ = fs::remove_file(directory.join(name));
    }
}

/// The physical address of each huge page in `bytes` bytes from `offset` of a mapping of a
/// huge-page file. Both numbers are multiples of [`HUGE_PAGE_BYTES`], counted from the first page.
///
/// # Errors
/// `PermissionDenied` if the process may not read physical addresses (CAP_SYS_ADMIN); the kernel's
/// refusal.
///
/// # Panics
/// The range is not within the mapping.
pub fn physical_addresses(mapping: &Mapping, offset: usize, bytes: usize) -> io::Result<Vec<u64>> {
    let path = "/proc/self/pagemap";
    let pagemap = File::open(path).map_err(|error| at(path, &error))?;
    let address = |page: usize| {
        let begin = offset + page * HUGE_PAGE_BYTES;
        // A page that was never accessed is in no page table.
        mapping.atomic_u8(begin).load(Ordering::Relaxed);
        let number = (mapping.as_ptr().addr() + begin) / PAGE_BYTES;
        let mut entry = [0; 8];
        pagemap
            .read_exact_at(&mut entry, 8 * number as u64)
            .map_err(|error| at(path, &error))?;
        let entry = u64::from_ne_bytes(entry);
        let frame = entry & PAGEMAP_FRAME;
        if entry & PAGEMAP_PRESENT == 0 || frame == 0 {
            let text = "the kernel hides physical addresses from this process, which needs \
                CAP_SYS_ADMIN to read them";
            let error = io::Error::new(io::ErrorKind::PermissionDenied, text);
            return Err(at(path, &error));
        }
        Ok(frame * PAGE_BYTES as u64)
    };
    (0..bytes / HUGE_PAGE_BYTES).map(address).collect()
}

/// The bits of a pagemap entry that hold the frame number. (Linux,
/// Documentation/admin-guide/mm/pagemap.rst)
const PAGEMAP_FRAME: u64 = (1 << 55) - 1;
const PAGEMAP_PRESENT: u64 = 1 << 63;

/// Directory of a file system with huge pages of 2 MiB; mounts one if necessary.
fn directory() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    if let Some(found) = mounted(&mounts) {
        return Ok(found);
    }
    fs::create_dir_all(MOUNT_POINT).map_err(|error| at(MOUNT_POINT, &error))?;
    mount()?;
    Ok(MOUNT_POINT.into())
}

/// The first mount of a file system with huge pages of 2 MiB in the text of mounts(5).
fn mounted(mounts: &str) -> Option<PathBuf> {
    let is_right = |options: &str| {
        let size = options.split(',').find_map(|o| o.strip_prefix("pagesize="));
        size.is_none_or(|size| size == "2M")
    };
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [_, place, "hugetlbfs", options, ..] if is_right(options) => Some(place.into()),
            _ => None,
        }
    })
}

fn mount() -> io::Result<()> {
    let kind = c"hugetlbfs";
    // SAFETY: all pointers are to constant C strings, which mount(2) only reads.
    let done = unsafe {
        libc::mount(
            kind.as_ptr(),
            MOUNT_POINT_C.as_ptr(),
            kind.as_ptr(),
            0,
            c"pagesize=2M,mode=0700".as_ptr().cast(),
        )
    };
    match done {
        0 => Ok(()),
        _ => {
            let error = io::Error::last_os_error();
            let text = format!("mounting hugetlbfs at {MOUNT_POINT}: {error}");
            Err(io::Error::new(error.kind(), text))
        }
    }
}

const MOUNT_POINT: &str = "/dev/hugepages";
const MOUNT_POINT_C: &CStr = c"/dev/hugepages";

/// Asks the kernel to reserve huge pages until `pages` of them are free.
fn reserve(pages: usize) -> io::Result<()> {
    let directory = Path::new(POOL);
    let number = |file: &str| -> io::Result<usize> {
        let path = directory.join(file);
        let text = fs::read_to_string(&path).map_err(|error| at(&path, &error))?;
        let number = text.trim().parse();
        number.map_err(|_| at(&path, &io::Error::new(io::ErrorKind::InvalidData, text)))
    };
    let (total, free) = (number("nr_hugepages")?, number("free_hugepages")?);
    let reserved = number("resv_hugepages")?;
    let usable = free.saturating_sub(reserved);
    if usable >= pages {
        return Ok(());
    }
    let wanted = total + pages - usable;
    let path = directory.join("nr_hugepages");
    fs::write(&path, wanted.to_string()).map_err(|error| at(&path, &error))?;
    let got = number("nr_hugepages")?;
    if got >= wanted {
        return Ok(());
    }
    let text = format!(
        "{pages} free huge pages of 2 MiB are needed; the kernel found {}: reserve them at boot \
         (hugepages={wanted})",
        got + usable - total.min(got)
    );
    Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
}

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn at(path: impl AsRef<Path>, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("{}: {error}", path.as_ref().display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_huge_pages_of_2_mib_is_found() {
        let mounts = "proc /proc proc rw 0 0\n\
                      hugetlbfs /huge1g hugetlbfs rw,pagesize=1024M 0 0\n\
                      hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n";
        assert_eq!(mounted(mounts), Some("/dev/hugepages".into()));
        let bare = "none /mnt/huge hugetlbfs rw 0 0\n";
        assert_eq!(mounted(bare), Some("/mnt/huge".into()));
        assert_eq!(mounted("hugetlbfs /huge tmpfs rw 0 0\n"), None);
    }

    #[test]
    fn odd_sizes_are_refused_before_anything_is_made() {
        for bytes in [0, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES + PAGE_BYTES] {
            let error = huge_page_file("carina-test-size", bytes).unwrap_err();
            assert!(error.to_string().contains("multiple of 2097152"), "{error}");
        }
    }
}
