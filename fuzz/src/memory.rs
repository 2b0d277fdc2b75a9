//! What a guest writes into shared memory.

use std::os::fd::AsFd;
use std::sync::Arc;

use carina_ring::{Consumer, HEADER_BYTES, Producer, RingMap, WakeMode, region_bytes};
use carina_sys::Memory;
use carina_vmpi::hl::{Config, Endpoint, Event, Rx, Side};
use carina_vmpi::ll::xen;
use carina_wire::vmpi::{
    BLOCK_HEADER_BYTES, BUNDLE_HEADER_BYTES, BlockHeader, BundleHeader, Control,
};

const CAPACITY: usize = 4096;
const TAIL: usize = 0x080;

/// A ring whose producer is the fuzzer: tail from the first eight bytes, then data; the consumer
/// reads until the ring is empty or corrupt, and each piece must lie in the ring.
pub fn ring_consumer(data: &[u8]) {
    let Some((tail, data)) = data.split_first_chunk::<8>() else {
        return;
    };
    let memory = Memory::anonymous("fuzz", region_bytes(CAPACITY)).expect("memory for a ring");
    let map = Arc::new(RingMap::map(memory.as_fd(), 0, CAPACITY).expect("a mapping of it"));
    map.init();
    let mut consumer = Consumer::fresh(map, WakeMode::Fence);
    let peer = memory.map().expect("the peer's mapping");
    for (index, word) in data.chunks(8).take(CAPACITY / 8).enumerate() {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        let at = HEADER_BYTES + index * 8;
        peer.atomic_u64(at).store(
            u64::from_le_bytes(bytes),
            std::sync::atomic::Ordering::Relaxed,
        );
    }
    let tail = u64::from_le_bytes(*tail);
    peer.atomic_u64(TAIL)
        .store(tail, std::sync::atomic::Ordering::Release);
    let mut taken = 0;
    while let Ok(Some(lease)) = consumer.next() {
        taken += lease.cost();
        assert!(
            lease.len() <= CAPACITY - 8,
            "a piece of {} bytes",
            lease.len()
        );
        assert_eq!(lease.to_vec().len(), lease.len());
    }
    assert!(
        taken <= CAPACITY as u64,
        "{taken} bytes out of a ring of {CAPACITY}"
    );
    let _ = consumer.release();
}

/// A block of a virtqueue and its records, which arrive in portions: a header of 16 bytes, then
/// `words u8, words` of each portion. What decodes encodes to the same bytes; pieces lie in the
/// pipe.
pub fn vmpi_block(data: &[u8]) {
    let Some((header, mut data)) = data.split_first_chunk::<BLOCK_HEADER_BYTES>() else {
        return;
    };
    if let Ok(block) = BlockHeader::decode(*header) {
        assert_eq!(block.encode(), *header, "{block:?}");
    }
    let memory = Memory::anonymous("fuzz", CAPACITY).expect("memory for a pipe");
    let map = RingMap::with_own_header(memory.as_fd(), 0, CAPACITY).expect("a mapping of it");
    let map = Arc::new(map);
    let mut producer = Producer::fresh(Arc::clone(&map), WakeMode::Fence);
    let mut consumer = Consumer::of_stream(map, WakeMode::Fence);
    let peer = memory.map().expect("the peer's mapping");
    while let Some((words, rest)) = data.split_first() {
        let (portion, rest) = rest.split_at(rest.len().min(8 * usize::from(*words)));
        data = rest;
        let portion = &portion[..portion.len() & !7];
        for (number, byte) in portion.iter().enumerate() {
            let at = (producer.committed() as usize + number) % CAPACITY;
            peer.write(at, &[*byte]);
        }
        let Ok(stretch) = producer.stretch(portion.len()) else {
            return;
        };
        stretch.commit(portion.len());
        let _ = producer.publish();
        loop {
            match consumer.next() {
                Ok(Some(lease)) => assert!(lease.to_vec().len() <= CAPACITY - 8),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let _ = consumer.release();
    }
}

/// The stream of a xenstore, in portions: `bytes u8, bytes` of each. Whole messages come out, each
/// within its limits; a value that is an address of a region is written as it was read.
pub fn xenstore(mut data: &[u8]) {
    let mut decoder = xen::Decoder::default();
    while let Some((&bytes, rest)) = data.split_first() {
        let portion;
        (portion, data) = rest.split_at(usize::from(bytes).min(rest.len()));
        decoder.push(portion);
        loop {
            match decoder.take() {
                Ok(Some(message)) => {
                    assert!(message.payload.len() <= xen::PAYLOAD_BYTES_MAX);
                    for text in message.strings() {
                        if let Ok(address) = text.parse::<xen::Address>() {
                            assert_eq!(address.to_string().parse(), Ok(address), "{text}");
                        }
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// Control messages of the VMPI: what decodes encodes to the same bytes.
pub fn vmpi_control(data: &[u8]) {
    if let Ok(message) = Control::decode(data) {
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        assert_eq!(encoded, data, "{message:?}");
    }
}

/// A whole endpoint of VMPI-HL whose peer is the fuzzer. Records are `length u8, bytes`: the first
/// four are the header. The first incoming flow of each batch is accepted, so that data and credit
/// are reached.
pub fn vmpi_endpoint(mut data: &[u8]) {
    let config = Config::new(Side::Host, "fuzz", 64 * 1024);
    let channels_max = usize::from(config.channels_max);
    let mut endpoint = Endpoint::new(config).expect("a name that is allowed");
    endpoint.link_up(carina_time::Instant::ZERO);
    let mut control = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let record;
        (record, data) = rest.split_at(usize::from(length).min(rest.len()));
        let Some((header, payload)) = record.split_first_chunk::<4>() else {
            continue;
        };
        if BundleHeader::is_in(*header) {
            let behind = payload.get(BUNDLE_HEADER_BYTES - header.len()..);
            let bytes = behind.map_or(record.len(), <[u8]>::len);
            let longest = behind.and_then(|bundle| bundle.first()).copied();
            let bundle = endpoint.on_bundle(
                record.first_chunk().copied(),
                bytes,
                longest.map(usize::from),
            );
            if bundle.is_err() {
                assert!(!endpoint.is_up(), "a violation ends the link");
                return;
            }
            continue;
        }
        let handled = match endpoint.on_rx(*header, record.len()) {
            Ok(Rx::Control) => endpoint.handle_control(payload).is_ok(),
            Ok(Rx::Deliver { channel, .. }) => {
                endpoint.consumed(channel, payload.len() as u64);
                true
            }
            Ok(Rx::Discard) => true,
            Err(_) => false,
        };
        let mut events = 0;
        while let Some(event) = endpoint.poll_event() {
            events += 1;
            assert!(events <= 4 * channels_max + 1024, "events without end");
            if let Event::Incoming { channel, .. } = event {
                let _ = endpoint.respond(channel, Ok(64 * 1024));
            }
        }
        let mut messages = 0;
        while endpoint.poll_control(&mut control) {
            messages += 1;
            assert!(
                messages <= 4 * channels_max + 1024,
                "control messages without end"
            );
            Control::decode(&control).expect("what is sent can be decoded");
        }
        if !handled {
            assert!(!endpoint.is_up(), "a violation ends the link");
            return;
        }
    }
}
