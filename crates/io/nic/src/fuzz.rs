//! Fuzz targets: the fuzzer's bytes take the place of a device, or of a record on disk.

use std::sync::atomic::Ordering;

use crate::binding::Record;
use crate::dma::DmaMemory;
use crate::driver::Counts;
use crate::intel::{ReceiveRing, SendForm, SendRing};
use crate::virtio::has_capability;

const RING: u16 = 64;
const BUFFER: usize = 2048;

/// Runs the driver of an Intel device; the script writes descriptors into its rings between the
/// driver's calls. Returns how many frames were received.
///
/// # Panics
/// The driver breaks one of its guarantees.
pub fn rings(script: &[u8]) -> usize {
    let mut memory = DmaMemory::counted_from(1 << 32, 1 << 20).expect("memory");
    let receive = ReceiveRing::new(&mut memory, RING, BUFFER, 1 << 31);
    let send = SendRing::new(&mut memory, RING, BUFFER, SendForm::Advanced);
    let (mut receive, mut send) = (receive.expect("room"), send.expect("room"));
    receive.rewind(&memory);
    send.rewind(&memory);
    let place = |(address, _): (u64, u32)| memory.offset_of(address, 1024).expect("its memory");
    let descriptors = [place(receive.place()), place(send.place())];
    let (mut counts, mut received) = (Counts::default(), 0);
    let (words, _) = script.as_chunks::<10>();
    for [action, slot, word @ ..] in words {
        let (ring, half) = (usize::from(action & 1), usize::from(action >> 1 & 1));
        let at = descriptors[ring] + usize::from(slot % RING as u8) * 16 + half * 8;
        memory
            .word(at)
            .store(u64::from_le_bytes(*word), Ordering::Release);
        if action & 4 != 0 {
            let mut seen = 0;
            let looked = receive.receive(&memory, usize::MAX, &mut counts, |frame| {
                seen += 1;
                assert!(frame.len() <= BUFFER, "{} bytes of a buffer", frame.len());
                frame.copy_to(&mut [0; BUFFER][..frame.len()]);
                true
            });
            assert!(seen <= looked && looked <= usize::from(RING));
            assert!(receive.tail() < RING.into());
            received += seen;
        }
        if action & 8 != 0 {
            let room = send.room(&memory);
            assert_eq!(room + send.in_flight(), usize::from(RING) - 1);
            (0..room.min(usize::from(*slot))).for_each(|_| send.put(&memory, word));
            assert!(send.new_tail().is_none_or(|tail| tail < RING.into()));
        }
    }
    received
}

/// Parses the record of a device, writes it, and parses the result again.
///
/// # Panics
/// The two parsed records differ.
pub fn record(bytes: &[u8]) -> bool {
    let record = Record::read(&String::from_utf8_lossy(bytes));
    assert_eq!(Record::read(&record.text()), record);
    record.driver.is_some()
}

/// Parses the capabilities in a configuration space. Returns whether all four capabilities that a
/// virtio device needs are among them.
pub fn capabilities(config: &[u8]) -> bool {
    (1..=4).all(|kind| has_capability(config, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_that_completes_a_descriptor_has_a_frame_received() {
        let mut script = [0; 10];
        script[0] = 4 | 2;
        // Done, end of packet; 60 bytes.
        script[2..].copy_from_slice(&(3_u64 | 60 << 32).to_le_bytes());
        assert_eq!(rings(&script), 1);
        assert!(record(b"driver=e1000e\n"));
        assert!(!capabilities(&[0; 256]));
    }
}
