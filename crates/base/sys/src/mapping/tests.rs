//! Tests of mappings: mirrored data, files that are cut short, and bounds.

use std::os::fd::AsFd;

use super::*;
use crate::Memory;

#[test]
fn mirrored_data_reads_the_same_at_both_places() {
    let memory = Memory::anonymous("mirror", 3 * PAGE_BYTES).unwrap();
    let data = 2 * PAGE_BYTES;
    let mapping = Mapping::mirrored(memory.as_fd(), 0, PAGE_BYTES, data).unwrap();
    assert_eq!(mapping.len(), PAGE_BYTES + 2 * data);
    // A write across the boundary changes the end and the start of the data.
    mapping.write(PAGE_BYTES + data - 3, b"abcdef");
    let mut bytes = [0; 3];
    mapping.read(PAGE_BYTES, &mut bytes);
    assert_eq!(&bytes, b"def");
    let plain = memory.map().unwrap();
    plain.read(3 * PAGE_BYTES - 3, &mut bytes);
    assert_eq!(&bytes, b"abc");
}

#[test]
fn mirrored_data_behind_a_page_begins_at_a_huge_page() {
    let memory = Memory::anonymous("behind", 3 * PAGE_BYTES).unwrap();
    let data = 2 * PAGE_BYTES;
    let mapping = Mapping::mirrored_behind_page(memory.as_fd(), PAGE_BYTES as u64, data).unwrap();
    let begin = mapping.as_ptr().wrapping_add(PAGE_BYTES);
    assert_eq!(begin.align_offset(HUGE_PAGE_BYTES), 0);
    mapping.write(PAGE_BYTES + data - 3, b"abcdef");
    mapping.write(0, b"head");
    let mut all = vec![0; 3 * PAGE_BYTES];
    memory.map().unwrap().read(0, &mut all);
    assert_eq!(&all[PAGE_BYTES..PAGE_BYTES + 3], b"def");
    assert_eq!(&all[3 * PAGE_BYTES - 3..], b"abc");
    assert_eq!(&all[..4], [0; 4], "the page in front is not of the file");
}

#[test]
fn memory_of_a_peer_is_mapped_from_any_byte_and_cannot_shrink() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("peer", flags).unwrap();
    ftruncate(&fd, 3 * PAGE_BYTES as u64).unwrap();
    let (mapping, at) = Mapping::of_peer(fd.as_fd(), 5000, 6000).unwrap();
    mapping.write(at, b"seen");
    let all = Mapping::shared(fd.as_fd(), 0, 3 * PAGE_BYTES).unwrap();
    let mut bytes = [0; 4];
    all.read(5000, &mut bytes);
    assert_eq!(&bytes, b"seen");
    assert!(ftruncate(&fd, PAGE_BYTES as u64).is_err());
    for (offset, len) in [(0, 3 * PAGE_BYTES as u64 + 1), (5, 0), (u64::MAX, 2)] {
        assert!(Mapping::of_peer(fd.as_fd(), offset, len).is_err());
    }
    let socket = crate::socketpair_seqpacket().unwrap().0;
    assert!(Mapping::of_peer(socket.as_fd(), 0, 1).is_err());
}

#[test]
fn page_behind_the_end_of_a_file_that_was_cut_short_is_zeros() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let new = || {
        let fd = memfd_create("cut", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 4 * PAGE_BYTES as u64).unwrap();
        fd
    };
    let (fd, other) = (new(), new());
    let mapping = Mapping::shared(fd.as_fd(), 0, 4 * PAGE_BYTES).unwrap();
    let kept = Mapping::shared(other.as_fd(), 0, 4 * PAGE_BYTES).unwrap();
    mapping.write(PAGE_BYTES, b"there");
    assert!(!mapping.is_lost());
    ftruncate(&fd, 0).unwrap();
    let mut bytes = [1; 5];
    mapping.read(PAGE_BYTES, &mut bytes);
    assert_eq!(bytes, [0; 5]);
    assert!(mapping.is_lost() && !kept.is_lost());
    // Each page separately, by reads and by writes.
    mapping.write(3 * PAGE_BYTES - 2, b"seam");
    let mut bytes = [0; 4];
    mapping.read(3 * PAGE_BYTES - 2, &mut bytes);
    assert_eq!(&bytes, b"seam");
    kept.write(0, b"goes on");
    assert!(!kept.is_lost());
}

#[test]
fn both_places_of_mirrored_data_survive_a_cut() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let fd = memfd_create("cut", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, 2 * PAGE_BYTES as u64).unwrap();
    let mapping = Mapping::mirrored(fd.as_fd(), 0, PAGE_BYTES, PAGE_BYTES).unwrap();
    ftruncate(&fd, 0).unwrap();
    mapping.write(0, &[7; 3 * PAGE_BYTES]);
    assert!(mapping.is_lost());
}

#[test]
fn entry_of_a_mapping_that_ended_marks_no_other() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    for _ in 0..200 {
        let fd = memfd_create("cut", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, PAGE_BYTES as u64).unwrap();
        let mapping = Mapping::shared(fd.as_fd(), 0, PAGE_BYTES).unwrap();
        assert!(!mapping.is_lost());
        ftruncate(&fd, 0).unwrap();
        mapping.write(0, b"x");
        assert!(mapping.is_lost());
    }
}

#[test]
fn words_are_shared_between_mappings() {
    let memory = Memory::anonymous("words", PAGE_BYTES).unwrap();
    let (a, b) = (memory.map().unwrap(), memory.map().unwrap());
    a.atomic_u64(8)
        .store(0x1122_3344_5566_7788, Ordering::Relaxed);
    assert_eq!(b.atomic_u32(8).load(Ordering::Relaxed), 0x5566_7788);
}

#[test]
fn a_page_of_zeros_lies_before_memory_of_another_layout() {
    let memory = Memory::anonymous("behind", 2 * PAGE_BYTES).unwrap();
    memory.map().unwrap().write(0, b"start");
    let mapping = Mapping::behind_page(memory.as_fd(), 2 * PAGE_BYTES).unwrap();
    assert_eq!(mapping.len(), 3 * PAGE_BYTES);
    let mut bytes = [1; 5];
    mapping.read(PAGE_BYTES, &mut bytes);
    assert_eq!(&bytes, b"start");
    mapping.write(0, b"page");
    mapping.read(PAGE_BYTES - 5, &mut bytes);
    assert_eq!(bytes, [0; 5]);
}

#[test]
fn private_memory_begins_at_a_huge_page_and_is_zero() {
    let (mapping, _) = Mapping::private(3 * HUGE_PAGE_BYTES - 5).unwrap();
    assert_eq!(mapping.len(), 3 * HUGE_PAGE_BYTES);
    assert_eq!(mapping.as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
    for at in [0, mapping.len() - 8] {
        assert_eq!(mapping.atomic_u64(at).load(Ordering::Relaxed), 0);
        mapping.atomic_u64(at).store(7, Ordering::Relaxed);
    }
    assert!(Mapping::private(0).is_err() && Mapping::private(usize::MAX).is_err());
}

#[test]
fn mapping_beyond_the_file_is_refused() {
    let memory = Memory::anonymous("short", PAGE_BYTES).unwrap();
    assert!(Mapping::shared(memory.as_fd(), 0, 2 * PAGE_BYTES).is_err());
    assert!(Mapping::shared(memory.as_fd(), 4096, PAGE_BYTES).is_err());
    assert!(Mapping::shared(memory.as_fd(), 100, PAGE_BYTES).is_err());
    assert!(Mapping::mirrored(memory.as_fd(), 0, PAGE_BYTES, PAGE_BYTES).is_err());
}

#[test]
#[should_panic(expected = "outside a mapping")]
fn read_outside_panics() {
    let mapping = Memory::anonymous("panic", PAGE_BYTES)
        .unwrap()
        .map()
        .unwrap();
    mapping.read(PAGE_BYTES - 1, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "word of 8 bytes")]
fn unaligned_word_panics() {
    let mapping = Memory::anonymous("panic", PAGE_BYTES)
        .unwrap()
        .map()
        .unwrap();
    let _ = mapping.atomic_u64(4);
}
