//! A fuzz target: a script of bytes drives both ends of a ring against a faulty peer.
//!
//! Each step is one operation byte and its operands. The script acts as the peer through a second
//! mapping of the same memory. Tests replay the scripts in `corpus/`, with seeded mutations.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carina_sys::{Mapping, Memory};

use crate::{
    Consumer, HEADER_BYTES, Lease, Producer, RingMap, WakeMode, record_cost, region_bytes,
};

const CAPACITY: usize = 4096;
const TAIL: usize = 0x080;
const CONSUMER_ARMED: usize = 0x100;
const HEAD: usize = 0x180;
const PRODUCER_ARMED: usize = 0x200;
const PRODUCER_WANT: usize = 0x208;

/// Plays one script of the fuzzer. The consumer reads a ring whose producer is the script, and the
/// producer writes a ring whose consumer is the script.
///
/// # Panics
/// One of the ends exceeds a bound that it must keep whatever the peer does.
pub fn fuzz_consumer(script: &[u8]) {
    let (in_map, lies_in) = ring();
    let (out_map, lies_out) = ring();
    let mut ends = Ends {
        rx: Consumer::fresh(in_map, WakeMode::Fence),
        tx: Producer::fresh(out_map, WakeMode::Fence),
        lies_in,
        lies_out,
        held: Vec::new(),
        seen: vec![0; CAPACITY],
    };
    let mut script = Script(script);
    while let Some(operation) = script.byte() {
        ends.step(operation, &mut script);
        ends.check();
    }
}

fn ring() -> (Arc<RingMap>, Mapping) {
    let memory =
        Memory::anonymous("fuzz", region_bytes(CAPACITY)).expect("two pages of memory exist");
    let map = RingMap::map(memory.as_fd(), 0, CAPACITY).expect("the capacity is valid");
    map.init();
    (Arc::new(map), memory.map().expect("the memory maps"))
}

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number of up to `N` bytes; zero when the script ends.
    fn number<const N: usize>(&mut self) -> u64 {
        let mut bytes = [0; 8];
        for byte in bytes.iter_mut().take(N) {
            *byte = self.byte().unwrap_or(0);
        }
        u64::from_le_bytes(bytes)
    }
}

struct Ends {
    rx: Consumer,
    tx: Producer,
    lies_in: Mapping,
    lies_out: Mapping,
    held: Vec<Lease>,
    seen: Vec<u8>,
}

impl Ends {
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        match operation % 18 {
            0 => self
                .lies_in
                .atomic_u64(TAIL)
                .store(script.number::<8>(), Relaxed),
            1 => {
                // Writes a plausible record: a header at the tail, and the tail moved behind the
                // record.
                let (len, flags) = (script.number::<2>(), script.number::<1>() & 1);
                let tail = self.lies_in.atomic_u64(TAIL).load(Relaxed);
                self.set_header(tail, len | flags << 32);
                let cost = 8 + len.next_multiple_of(8);
                self.lies_in
                    .atomic_u64(TAIL)
                    .store(tail.wrapping_add(cost), Relaxed);
            }
            2 => {
                let step = script.number::<2>();
                self.lies_in.atomic_u64(TAIL).fetch_add(step, Relaxed);
            }
            3 => {
                let (at, word) = (script.number::<2>(), script.number::<8>());
                self.set_header(at, word);
            }
            4 => {
                let word = script.number::<4>() as u32;
                self.lies_in.atomic_u32(PRODUCER_ARMED).store(word, Relaxed);
            }
            5 => self
                .lies_in
                .atomic_u64(PRODUCER_WANT)
                .store(script.number::<8>(), Relaxed),
            6 => {
                // Overwrites the words of the end under test, which the peer can write as well.
                let word = script.number::<8>();
                self.lies_in.atomic_u64(HEAD).store(word, Relaxed);
                self.lies_out.atomic_u64(TAIL).store(word, Relaxed);
            }
            // Operations above 127 were added later; the corpus uses the lower numbers with their
            // old meaning.
            7 if operation > 127 => {
                let (bytes, longest) = (script.number::<2>(), script.number::<2>());
                let taken = self.rx.next_sdus(bytes as usize, longest as usize);
                if let Ok(Some((lease, sdus))) = taken {
                    assert!(sdus.count >= 2 && u64::from(sdus.cost) <= bytes);
                    assert!(u64::from(sdus.longest) <= longest);
                    let mut bundle = lease.clone();
                    while let Some(sdu) = bundle.take_sdu() {
                        assert!(sdu.to_vec().len() <= sdus.longest as usize);
                    }
                    self.held.push(lease);
                }
            }
            7 => {
                if let Ok(Some(lease)) = self.rx.next() {
                    self.held.push(lease);
                }
            }
            8 if operation > 127 => {
                let mut buffer = vec![0; script.number::<2>() as usize];
                let before = self.rx.consumed();
                if let Some(len) = self.rx.take_sdu(&mut buffer) {
                    assert!(len <= buffer.len());
                    assert_eq!(self.rx.consumed(), before + record_cost(len) as u64);
                }
            }
            8 => {
                if self.rx.peek().is_ok_and(|piece| piece.is_some()) {
                    self.rx.skip();
                }
            }
            9 => {
                let _ = self.rx.release();
                self.held.clear();
            }
            10 => {
                let _ = self.rx.release_lazily();
            }
            11 => {
                if let Some(lease) = self.held.get(script.number::<1>() as usize) {
                    let _ = self.rx.release_upto(lease);
                }
            }
            12 => {
                if self.rx.arm() {
                    assert_eq!(self.rx.pending_bytes(), Ok(0), "sleeps beside a piece");
                }
                self.rx.disarm();
            }
            13 => {
                let armed = script.number::<4>() as u32;
                self.lies_out
                    .atomic_u64(HEAD)
                    .store(script.number::<8>(), Relaxed);
                self.lies_out
                    .atomic_u32(CONSUMER_ARMED)
                    .store(armed, Relaxed);
            }
            14 => {
                let step = script.number::<2>();
                self.lies_out.atomic_u64(HEAD).fetch_add(step, Relaxed);
            }
            15 if operation > 127 => {
                let sdu = vec![7; script.number::<2>() as usize];
                let before = self.tx.committed();
                if self.tx.push_sdu(&sdu) {
                    assert_eq!(self.tx.committed(), before + record_cost(sdu.len()) as u64);
                }
            }
            15 => self.send(script.number::<2>() as usize),
            16 => {
                let _ = self.tx.publish();
            }
            _ => {
                let bytes = script.number::<2>() as usize;
                if self.tx.arm_space(bytes) == Ok(true) {
                    let free = self.tx.free_bytes();
                    assert!(free.is_ok_and(|free| free < bytes), "sleeps beside room");
                }
            }
        }
    }

    /// Forwards held pieces, as a relay does.
    fn send(&mut self, extra: usize) {
        let lease = self.held.last();
        let len = extra + lease.map_or(0, Lease::len);
        let committed = self.tx.committed();
        if let Ok(mut slot) = self.tx.reserve(len) {
            if let Some(lease) = lease {
                slot.copy_from(lease, extra);
            }
            slot.commit(false);
            let cost = crate::record_cost(len) as u64;
            assert_eq!(self.tx.committed(), committed + cost);
        }
    }

    fn check(&mut self) {
        let capacity = CAPACITY as u64;
        assert!(
            self.rx.consumed() - self.rx.released() <= capacity,
            "read past the ring"
        );
        assert!(
            self.rx.pending_bytes().unwrap_or(0) <= capacity,
            "more pending than fits"
        );
        assert!(
            self.tx.free_bytes().unwrap_or(0) <= CAPACITY,
            "more room than the ring has"
        );
        for lease in &self.held {
            assert!(lease.cost() <= capacity, "a piece longer than the ring");
            assert_eq!(lease.copy_to(&mut self.seen), lease.len());
        }
    }

    fn set_header(&self, index: u64, word: u64) {
        let at = HEADER_BYTES + (index as usize & (CAPACITY - 8));
        self.lies_in.atomic_u64(at).store(word, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::fuzz_consumer;

    fn corpus() -> Vec<Vec<u8>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let mut paths: Vec<_> = std::fs::read_dir(&directory)
            .expect("the corpus is committed")
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        paths
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect()
    }

    /// xorshift64*: a repeatable generator, good enough to choose bytes.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
        }
    }

    #[test]
    fn committed_scripts_break_nothing() {
        let corpus = corpus();
        assert!(corpus.len() >= 10, "only {} scripts found", corpus.len());
        for script in corpus {
            fuzz_consumer(&script);
        }
    }

    #[test]
    fn mutated_scripts_break_nothing() {
        let corpus = corpus();
        let mut random = Random(0x5eed_0001);
        for _ in 0..4000 {
            let mut script = corpus[random.below(corpus.len())].clone();
            script.extend_from_slice(&corpus[random.below(corpus.len())]);
            for _ in 0..1 + random.below(8) {
                let at = random.below(script.len());
                match random.below(4) {
                    0 => script[at] = random.below(256) as u8,
                    1 => script[at] ^= 1 << random.below(8),
                    2 => script.insert(at, random.below(18) as u8),
                    _ => {
                        script.truncate(at + 1);
                    }
                }
            }
            fuzz_consumer(&script);
        }
    }

    #[test]
    fn random_scripts_break_nothing() {
        let mut random = Random(0x5eed_0002);
        for _ in 0..4000 {
            let script: Vec<u8> = (0..random.below(300))
                .map(|_| random.below(256) as u8)
                .collect();
            fuzz_consumer(&script);
        }
    }
}
