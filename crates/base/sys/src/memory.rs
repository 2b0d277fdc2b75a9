//! Memory that processes share: memfds and tmpfs files.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals,
    fcntl_get_seals, fstat, ftruncate, memfd_create, open,
};

use crate::{Mapping, PAGE_BYTES};

/// Memory of a fixed size that processes can share, not yet mapped: a memfd or a file.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    bytes: usize,
}

impl Memory {
    /// Creates a memfd of `bytes` zeros, sealed so that no holder can change its size.
    ///
    /// # Errors
    /// `InvalidInput` if `bytes` is 0 or not a multiple of [`PAGE_BYTES`]; the kernel's refusal.
    pub fn anonymous(name: &str, bytes: usize) -> io::Result<Self> {
        check_bytes(bytes)?;
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { fd, bytes })
    }

    /// Opens or creates the file `path` (mode 0600) of exactly `bytes`. Its blocks are allocated,
    /// so that a full file system is an error here and not a lost page later. The contents of an
    /// existing file are kept. The caller must remove the file.
    ///
    /// # Errors
    /// `InvalidInput` as in [`Memory::anonymous`]; `InvalidData` if the file exists with another
    /// size; the kernel's refusal.
    pub fn file(path: &Path, bytes: usize) -> io::Result<Self> {
        check_bytes(bytes)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd =
            open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| at(path, error.into()))?;
        match size_of_file(&fd)? {
            0 => ftruncate(&fd, bytes as u64).map_err(|error| at(path, error.into()))?,
            size if size == bytes as u64 => {}
            size => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: has {size} bytes, should have {bytes}", path.display()),
                ));
            }
        }
        fallocate(&fd, FallocateFlags::empty(), 0, bytes as u64)
            .map_err(|error| at(path, error.into()))?;
        Ok(Self { fd, bytes })
    }

    /// Wraps a memfd received from an untrusted peer; [`Memory::map`] maps it. Seals the memfd
    /// against changes of size, then checks that its size is exactly `bytes`.
    ///
    /// # Errors
    /// `InvalidData` if the descriptor is not a memfd, cannot be sealed against changes of size, is
    /// sealed against writing, or has another size. `InvalidInput` if `bytes` is 0 or not a
    /// multiple of the page size.
    pub fn from_fd(fd: OwnedFd, bytes: usize) -> io::Result<Self> {
        check_bytes(bytes)?;
        let fixed = SealFlags::SHRINK | SealFlags::GROW;
        let seals = fcntl_get_seals(&fd)
            .map_err(|error| refused(format!("descriptor is no memfd: {error}")))?;
        if !seals.contains(fixed) {
            fcntl_add_seals(&fd, fixed)
                .map_err(|error| refused(format!("memfd of the peer cannot be sealed: {error}")))?;
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(refused(
                "memfd of the peer is sealed against writing".into(),
            ));
        }
        let size = size_of_file(&fd)?;
        if size != bytes as u64 {
            return Err(refused(format!(
                "memfd has {size} bytes, should have {bytes}"
            )));
        }
        Ok(Self { fd, bytes })
    }

    /// Returns the size of the memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps the whole memory, readable and writable.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn map(&self) -> io::Result<Mapping> {
        Mapping::shared(self.fd.as_fd(), 0, self.bytes)
    }

    /// Converts the value into its file descriptor, to pass it to another process.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Makes a second descriptor of the same memory.
    ///
    /// # Errors
    /// The kernel's refusal, usually because the process has too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            bytes: self.bytes,
        })
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn check_bytes(bytes: usize) -> io::Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("memory of {bytes} bytes: must be a positive multiple of {PAGE_BYTES}"),
        ));
    }
    Ok(())
}

fn size_of_file(fd: &OwnedFd) -> io::Result<u64> {
    Ok(fstat(fd)?.st_size as u64)
}

fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_cannot_change_its_size() {
        let memory = Memory::anonymous("carina-test", 8192).unwrap();
        assert!(ftruncate(&memory, 4096).is_err());
        assert!(ftruncate(&memory, 16384).is_err());
        assert_eq!(memory.bytes(), 8192);
    }

    #[test]
    fn unsealed_memfd_of_a_peer_is_sealed_on_arrival() {
        let fd = memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 4096).unwrap();
        let peers = fd.try_clone().unwrap();
        let _memory = Memory::from_fd(fd, 4096).unwrap();
        assert!(ftruncate(&peers, 0).is_err());
    }

    /// A peer can make a hole in memory that is sealed, but nothing else.
    #[test]
    fn hole_in_sealed_memory_of_a_peer_is_zeros_and_not_lost() {
        let fd = memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 8192).unwrap();
        let peers = fd.try_clone().unwrap();
        let mapping = Memory::from_fd(fd, 8192).unwrap().map().unwrap();
        mapping.write(4000, &[7; 200]);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&peers, hole, 0, 8192).unwrap();
        let mut bytes = [1; 200];
        mapping.read(4000, &mut bytes);
        assert_eq!(bytes, [0; 200]);
        mapping.write(4000, &[7; 200]);
        assert!(!mapping.is_lost());
    }

    #[test]
    fn wrong_memory_of_a_peer_is_refused() {
        let small = Memory::anonymous("small", 4096).unwrap();
        assert!(Memory::from_fd(small.into_fd(), 8192).is_err());
        let unsealable = memfd_create("unsealable", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&unsealable, 4096).unwrap();
        assert!(Memory::from_fd(unsealable, 4096).is_err());
        let socket = crate::socketpair_seqpacket().unwrap().0;
        assert!(Memory::from_fd(socket, 4096).is_err());
        assert!(Memory::anonymous("odd", 5000).is_err());
    }

    #[test]
    fn file_memory_outlives_its_first_owner() {
        let path = std::env::temp_dir().join(format!("carina-memory-{}", std::process::id()));
        Memory::file(&path, 4096)
            .unwrap()
            .map()
            .unwrap()
            .write(100, b"kept");
        let mut bytes = [0; 4];
        Memory::file(&path, 4096)
            .unwrap()
            .map()
            .unwrap()
            .read(100, &mut bytes);
        assert_eq!(&bytes, b"kept");
        let error = Memory::file(&path, 8192).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        std::fs::remove_file(&path).unwrap();
    }
}
