//! Tests of frames and their pool: room, metadata, ownership of cells.

use std::collections::BTreeSet;
use std::thread;

use super::*;
use crate::metadata::SegmentationKind;
use crate::pool::{HEADROOM_BYTES, Pool, PoolConfig};

fn pool(frames: usize, frame_bytes: usize) -> Pool {
    Pool::new(PoolConfig {
        frames,
        frame_bytes,
    })
    .unwrap()
}

#[test]
fn headers_come_and_go_in_front_of_the_bytes() {
    let pool = pool(4, 100);
    let mut frame = pool.frame_of(b"payload").unwrap();
    assert_eq!(frame.headroom(), HEADROOM_BYTES);
    assert!(frame.prepend(b"head ") && frame.append(b" tail"));
    assert_eq!(frame.bytes(), b"head payload tail");
    frame.advance(5);
    frame.truncate(7);
    assert_eq!(frame.bytes(), b"payload");
    assert!(!frame.prepend(&[0; HEADROOM_BYTES + 1]));
    assert!(frame.prepend(&[1; HEADROOM_BYTES]));
    assert_eq!((frame.headroom(), frame.len()), (0, HEADROOM_BYTES + 7));
    let room = frame.len() + frame.tailroom();
    assert!(frame.set_len(room) && !frame.set_len(room + 1));
    assert_eq!(frame.tailroom(), 0);
    assert!(!frame.append(b"x"));
    frame.advance(usize::MAX);
    assert!(frame.is_empty());
}

#[test]
fn frame_is_reshaped_within_its_room() {
    let pool = pool(1, 100);
    let mut frame = pool.frame_of(b"payload").unwrap();
    let (headroom, room) = (frame.headroom(), frame.headroom() + 7 + frame.tailroom());
    assert!(frame.prepend(b"head "));
    assert!(frame.reshape(headroom, 3));
    assert_eq!((frame.bytes(), frame.headroom()), (&b"pay"[..], headroom));
    assert!(frame.reshape(headroom - 5, 12));
    assert_eq!(frame.bytes(), b"head payload");
    assert!(frame.reshape(0, room) && frame.reshape(room, 0));
    assert!(!frame.reshape(1, room) && !frame.reshape(room, 1));
    assert!(!frame.reshape(usize::MAX, 1) && !frame.reshape(1 << 16, 0));
    assert_eq!((frame.len(), frame.headroom()), (0, room));
    assert_eq!(frame.as_mut_ptr().cast_const(), frame.bytes().as_ptr());
}

#[test]
fn long_frames_lose_their_front_beyond_the_range_of_start() {
    let pool = pool(1, PoolConfig::FRAME_BYTES_MAX);
    let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    let mut frame = pool.frame_of(&bytes).unwrap();
    frame.advance(60_000);
    frame.advance(20_000);
    assert_eq!(frame.bytes(), &bytes[80_000..]);
}

#[test]
fn bytes_of_every_length_are_copied_whole() {
    let pool = pool(2, 300);
    let bytes: Vec<u8> = (0..300u32).map(|n| n as u8).collect();
    for len in 0..=300 {
        assert_eq!(pool.frame_of(&bytes[..len]).unwrap().bytes(), &bytes[..len]);
    }
    assert!(pool.frame_of(&[0; 301]).is_none());
}

#[test]
fn metadata_starts_unknown_and_is_copied() {
    let pool = pool(2, 64);
    let mut frame = pool.frame_of(b"x").unwrap();
    assert_eq!(frame.metadata(), Metadata::default());
    let all = Metadata {
        vlan: Some(5),
        checksum: Some(Checksum {
            start: 34,
            offset: 6,
        }),
        is_checksum_valid: true,
        segmentation: Some(Segmentation {
            kind: SegmentationKind::Udp,
            size: 1400,
            headers: 42,
        }),
        hash: Some(7),
        time: Some(Instant::from_secs(9)),
    };
    frame.set_metadata(&all);
    assert_eq!(pool.copy_of(&frame).unwrap().metadata(), all);
    frame.set_hash(None);
    assert_eq!(
        (frame.hash(), frame.vlan(), frame.len()),
        (None, Some(5), 1)
    );
    drop(frame);
    // The new frame has the same cell, but not its metadata.
    assert!(!pool.take().unwrap().has_metadata());
}

#[test]
fn pool_gives_each_cell_once_and_takes_it_back() {
    let pool = pool(3000, 64);
    let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!((frames.len(), pool.spare()), (3000, 0));
    let cells: BTreeSet<u32> = frames.iter().map(Frame::cell_index).collect();
    let places: BTreeSet<usize> = frames.iter().map(Frame::offset).collect();
    assert_eq!((cells.len(), places.len()), (3000, 3000));
    assert!(places.iter().all(|place| *place < pool.memory().1));
    drop(frames);
    assert_eq!(pool.spare(), 3000);
}

#[test]
fn frames_return_from_other_threads_and_after_their_pool() {
    let pool = pool(2000, 64);
    let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    let thread = thread::spawn(move || {
        assert!(frames.iter().all(Frame::is_empty));
        drop(frames);
    });
    thread.join().unwrap();
    assert_eq!(pool.spare(), 2000);
    let late = pool.frame_of(b"late").unwrap();
    drop(pool);
    let thread = thread::spawn(move || assert_eq!(late.bytes(), b"late"));
    thread.join().unwrap();
}

#[test]
fn figures_out_of_range_are_refused_by_name() {
    let error = |frames, frame_bytes| {
        let config = PoolConfig {
            frames,
            frame_bytes,
        };
        Pool::new(config).err().unwrap().to_string()
    };
    assert!(error(0, 64).contains("pool of 0 frames"));
    assert!(error(1, 63).contains("frames of 63 bytes"));
    assert!(error(1, 1 << 20).contains("131072"));
}
