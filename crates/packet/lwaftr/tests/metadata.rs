//! Frames with metadata beside their bytes (VLAN tag, pending checksum), as ports with offloads
//! deliver them.

use std::sync::Arc;

use carina_frame::{Checksum, Frame, Pool, PoolConfig, Segmentation};
use carina_lwaftr::aftr::Aftr;
use carina_time::Instant;

use crate::harness::*;

fn tried(tags: [Option<u16>; 2]) -> (Aftr, Pool) {
    let case = Case::plain();
    let loaded = case.loaded(tags);
    let pool = Pool::new(PoolConfig {
        frames: 64,
        frame_bytes: 2048,
    })
    .unwrap();
    let queue = &loaded.config.instances[0].queues[0];
    let table = Arc::new(loaded.table);
    let aftr = Aftr::new(&loaded.config, queue, table, case.rules, pool.clone()).unwrap();
    (aftr, pool)
}

fn left(aftr: &mut Aftr) -> Vec<Vec<u8>> {
    let frames = aftr.outputs().internal.drain(..);
    frames.map(|frame: Frame| frame.bytes().to_vec()).collect()
}

#[test]
fn tag_and_checksum_beside_the_bytes_count() {
    let packet = udp((HOST, 53), (WHOLE, 5), b"answer");
    let (mut aftr, pool) = tried([Some(7), None]);
    for (tag, is_stick, count) in [
        (7, false, 1),
        (7, true, 1),
        (8, false, 0),
        (0x2007, false, 1),
    ] {
        let mut frame = pool.frame_of(&frame4(&packet)).unwrap();
        // The checksum field holds the sum of the pseudo header, as an offload expects.
        let pseudo = ones_sum(&[&packet[12..20], &[0, 17], &packet[24..26]].concat()) as u16;
        frame.bytes_mut()[40..42].copy_from_slice(&pseudo.to_be_bytes());
        frame.set_checksum(Some(Checksum {
            start: 34,
            offset: 6,
        }));
        frame.set_vlan(Some(tag));
        if is_stick {
            aftr.handle_stick(frame, Instant::ZERO)
        } else {
            aftr.handle_external(frame, Instant::ZERO)
        }
        let frames = left(&mut aftr);
        assert_eq!(frames.len(), count, "tag {tag}");
        for frame in frames {
            assert_eq!(into(&frame, BR_WHOLE, B4_WHOLE).payload, packet[20..]);
        }
    }
    assert_eq!(counter(aftr.counters(), "drop-wrong-vlan-packets"), 1);
}

#[test]
fn frame_that_is_still_to_be_cut_is_dropped() {
    let (mut aftr, pool) = tried([None, None]);
    let packet = udp((HOST, 53), (WHOLE, 5), b"answer");
    let mut frame = pool.frame_of(&frame4(&packet)).unwrap();
    frame.set_segmentation(Some(Segmentation::default()));
    aftr.handle_external(frame, Instant::ZERO);
    assert_eq!(left(&mut aftr), Vec::<Vec<u8>>::new());
    assert_eq!(counter(aftr.counters(), "drop-unfinished-packets"), 1);
}
