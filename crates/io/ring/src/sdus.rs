//! Several whole SDUs that lie one after the other in a ring, counted together.

use crate::map::RingMap;
use crate::{RECORD_HEADER_BYTES, record_cost};

/// Number and lengths of whole SDUs that lie one after the other in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sdus {
    /// Number of SDUs that lie one after the other.
    pub count: u32,
    /// Bytes of ring that the SDUs take, with record headers and padding.
    pub cost: u32,
    /// Sum of the SDUs' lengths in bytes, without headers.
    pub bytes: u32,
    /// Length of the longest SDU in bytes.
    pub longest: u32,
}

impl Sdus {
    /// Counts the SDUs in `bytes` bytes of the ring from index `start`, a multiple of 8. It stops
    /// at the first record that is longer than `len_max`, or is not a whole SDU in a single piece.
    pub(crate) fn at(map: &RingMap, start: u64, bytes: usize, len_max: usize) -> Sdus {
        let mut sdus = Sdus::default();
        let mut left = bytes;
        while left >= RECORD_HEADER_BYTES {
            let (len, flags) = map.record_header(start.wrapping_add((bytes - left) as u64));
            let cost = record_cost(len as usize);
            if flags != 0 || len as usize > len_max || cost > left {
                break;
            }
            left -= cost;
            sdus.count += 1;
            sdus.bytes += len;
            sdus.longest = sdus.longest.max(len);
        }
        sdus.cost = (bytes - left) as u32;
        sdus
    }

    /// Length of the SDU at an index. `None` if the record there is not a whole SDU, or does not
    /// lie in `bytes` bytes with its padding.
    #[inline]
    pub(crate) fn first(map: &RingMap, index: u64, bytes: usize) -> Option<u32> {
        let room = bytes.checked_sub(RECORD_HEADER_BYTES)?;
        let (len, flags) = map.record_header(index);
        // Neither MORE nor an undefined flag is set.
        (flags == 0 && (len as usize).next_multiple_of(8) <= room).then_some(len)
    }
}

#[cfg(not(feature = "loom"))]
#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use carina_sys::Memory;

    use super::*;
    use crate::producer::MORE;
    use crate::{Consumer, Producer, WakeMode, region_bytes};

    const CAPACITY: usize = 4096;

    fn ring() -> (Producer, Consumer) {
        let memory = Memory::anonymous("sdus", region_bytes(CAPACITY)).unwrap();
        let map = Arc::new(RingMap::map(memory.as_fd(), 0, CAPACITY).unwrap());
        map.init();
        (
            Producer::fresh(Arc::clone(&map), WakeMode::Fence),
            Consumer::fresh(map, WakeMode::Fence),
        )
    }

    fn put(producer: &mut Producer, sdus: &[(usize, bool)]) {
        for (len, more) in sdus {
            producer.push(&[&vec![*len as u8; *len]], *more).unwrap();
        }
        let _ = producer.publish();
    }

    #[test]
    fn sdus_are_taken_together_until_one_does_not_belong() {
        let (mut producer, mut consumer) = ring();
        // Repeated, so that the SDUs also cross the end of the ring.
        for _ in 0..200 {
            put(
                &mut producer,
                &[(5, false), (0, false), (17, false), (9, true), (300, false)],
            );
            let (mut lease, sdus) = consumer.next_sdus(CAPACITY, 100).unwrap().unwrap();
            let wanted = Sdus {
                count: 3,
                cost: 16 + 8 + 32,
                bytes: 22,
                longest: 17,
            };
            assert_eq!(sdus, wanted);
            assert_eq!(lease.sdus(), Some(wanted));
            assert_eq!(lease.end(), consumer.consumed());
            for len in [5, 0, 17] {
                assert_eq!(lease.take_sdu().unwrap().to_vec(), vec![len as u8; len]);
            }
            assert!(lease.take_sdu().is_none());
            // First a piece of a longer SDU, then an SDU that is too long.
            assert!(consumer.next_sdus(CAPACITY, 100).unwrap().is_none());
            assert!(consumer.next().unwrap().unwrap().more());
            assert!(consumer.next_sdus(CAPACITY, 100).unwrap().is_none());
            assert_eq!(consumer.next().unwrap().unwrap().len(), 300);
            assert!(consumer.next_sdus(CAPACITY, 100).unwrap().is_none());
            let _ = consumer.release();
        }
    }

    #[test]
    fn no_more_bytes_of_ring_are_taken_than_asked_for() {
        let (mut producer, mut consumer) = ring();
        put(&mut producer, &[(8, false); 6]);
        assert!(consumer.next_sdus(31, 8).unwrap().is_none());
        let (_, sdus) = consumer.next_sdus(63, 8).unwrap().unwrap();
        assert_eq!((sdus.count, sdus.cost), (3, 48));
        assert_eq!(consumer.next().unwrap().unwrap().len(), 8);
        assert_eq!(consumer.next_sdus(64, 8).unwrap().unwrap().1.count, 2);
    }

    #[test]
    fn records_that_lie_are_no_sdus() {
        let (mut producer, mut consumer) = ring();
        for (len, flags) in [(17, 0), (u32::MAX, 0), (8, 2), (8, MORE)] {
            // One valid SDU, then a header that is invalid.
            let mut bytes = [8_u32, 0, 1, 2, len, flags, 0, 0].map(u32::to_le_bytes);
            producer.push(&[bytes.as_flattened()], false).unwrap();
            let _ = producer.publish();
            let mut lease = consumer.next().unwrap().unwrap();
            assert_eq!(lease.sdus(), None);
            assert_eq!(lease.take_sdu().unwrap().len(), 8);
            assert!(lease.take_sdu().is_none());
            // An offset at which no record can begin.
            bytes[0] = 0_u32.to_le_bytes();
            let mut odd = consumer_of(&mut producer, &mut consumer, bytes.as_flattened());
            odd.advance(4);
            assert_eq!(odd.sdus(), None);
            assert!(odd.take_sdu().is_none());
            let _ = consumer.release();
        }
    }

    fn consumer_of(producer: &mut Producer, consumer: &mut Consumer, bytes: &[u8]) -> crate::Lease {
        producer.push(&[bytes], false).unwrap();
        let _ = producer.publish();
        consumer.next().unwrap().unwrap()
    }
}
