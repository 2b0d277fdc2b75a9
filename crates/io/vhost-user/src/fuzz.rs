//! Fuzz targets: front ends that send arbitrary messages.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carina_sys::{EventFd, Mapping, Memory, send_with_fds};

use crate::device::Device;
use crate::features::{
    EVENT_IDX, INDIRECT_DESC, LOG_ALL, PROTOCOL_FEATURES, RING_PACKED, VERSION_1, net,
};
use crate::kicks::Kicks;
use crate::progress::Progress;
use crate::protocol::{Connection, Outcome};
use crate::shared::{Offer, Shared};

/// What a fuzzer's script achieved: how many messages and chains were accepted, and whether the
/// front end was cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Number of messages that the back end accepted.
    pub handled: usize,
    /// Whether the back end refused a message, which ends the connection.
    pub is_refused: bool,
    /// Number of chains that the data path took from the rings.
    pub chains: usize,
    /// Whether the front end was disconnected because of the contents of a ring.
    pub is_faulty: bool,
}

/// Runs a script against the protocol and the device, in the roles of the control thread and the
/// data path. Then runs a correct front end, which must be served.
///
/// A step begins with a byte:
///
/// | byte | the step |
/// |---|---|
/// | 0 to 0x7f | message of that number, modulo 64: its deviations, its numbers |
/// | 0x80 to 0xbf | bytes that the guest writes into its memory: where, how many, which |
/// | above | the data path visits the rings |
///
/// # Panics
/// A correct front end is not served afterwards. This is the error that a fuzzer looks for.
#[must_use]
pub fn messages(script: &[u8]) -> Played {
    let stage = Stage::new();
    let played = stage.play(&stage.steps(&mut Script(script)));
    stage.device().reset();
    // A ring continues at the position in its memory, which the script has overwritten.
    stage.mapping.write(0, &vec![0; BYTES]);
    let next = stage.play(&stage.steps(&mut Script(&correct())));
    assert_eq!(
        (next.is_refused, next.is_faulty, next.chains),
        (false, false, 1)
    );
    stage.device().reset();
    played
}

/// Returns a script of a correct front end: a split ring from the guest, with one chain.
#[must_use]
pub fn correct() -> Vec<u8> {
    let mut script = Vec::new();
    // GET_FEATURES, GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, SET_OWNER, SET_FEATURES.
    script.extend([1, 0, 15, 0, 16, 0, 8, 3, 0, 2, 0, SPECIAL | 7]);
    // SET_MEM_TABLE with all of the memory.
    script.extend([5, ONE_FD, GUEST_FD, 1, AT_GUEST, SPECIAL, AT_USER, 0]);
    // For ring 1: NUM 16, BASE 0, ADDR, KICK, CALL, ENABLE.
    script.extend([8, 0, 1, 16, 10, 0, 1, 0, 9, 0, 1, 0]);
    script.extend([AT_USER, AT_USER | 2, AT_USER | 1, 0]);
    script.extend([12, ONE_FD, EVENT_FD, 1, 13, ONE_FD, EVENT_FD, 1]);
    script.extend([18, 0, 1, 1]);
    // The first descriptor: 16 bytes at 0x4000 of the memory. The available ring: head 0, index 1.
    script.extend([0x80, 0, 0, 12, 0, 0x40, 0, 0x40, 0, 0, 0, 0, 16, 0, 0, 0]);
    script.extend([0x80, 0, 4, 6, 0, 0, 1, 0, 0, 0, 0xff]);
    script
}

/// State that the front end and the back end share.
struct Stage {
    shared: Arc<Shared>,
    guest: Memory,
    mapping: Mapping,
    short: Memory,
    null: OwnedFd,
}

enum Step {
    Message(Vec<u8>, Vec<OwnedFd>),
    Poke(usize, Vec<u8>),
    Visit,
}

impl Stage {
    fn new() -> Stage {
        let kicks = Arc::new(Kicks::new().expect("an epoll"));
        let offer = Offer {
            features: OFFERED,
            rings: RINGS,
            mtu_max: 9000,
            config: Some([3, 0, 0, 0, 0, 0, 0, 0]),
        };
        let guest = Memory::anonymous("fuzzed-guest", BYTES).expect("memory");
        let progress = Arc::new(Progress::in_memory(RINGS).expect("memory"));
        Stage {
            shared: Arc::new(Shared {
                offer,
                device: Mutex::new(Device::new(RINGS, progress, Arc::clone(&kicks))),
                changed: EventFd::new().expect("an eventfd"),
                kicks,
                stop: EventFd::new().expect("an eventfd"),
                counts: Default::default(),
            }),
            mapping: guest.map().expect("a mapping"),
            guest,
            short: Memory::anonymous("fuzzed-short", 4096).expect("memory"),
            null: File::open("/dev/null").expect("/dev/null").into(),
        }
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        let lock = self.shared.device.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn steps(&self, script: &mut Script<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(first) = script.next()
            && steps.len() < STEPS_MAX
        {
            steps.push(match first {
                0..=0x7f => self.message(u32::from(first & 0x3f), script),
                0x80..=0xbf => {
                    let at = usize::from(script.half());
                    let count = usize::from(script.byte() % 32);
                    let bytes: Vec<u8> = (0..count).map(|_| script.byte()).collect();
                    Step::Poke(at.min(BYTES - count), bytes)
                }
                _ => Step::Visit,
            });
        }
        steps
    }

    /// Builds a message. A byte selects its deviations from the protocol: 1 requests an
    /// acknowledgement, 2 sets another version, 4 marks a reply, 8 gives another size, which
    /// follows. Bits 4 to 6 are the number of its descriptors; a byte with their kinds follows.
    fn message(&self, request: u32, script: &mut Script<'_>) -> Step {
        let lies = script.byte();
        let version = if lies & 2 == 0 { 1 } else { 2 };
        let flags = version | u32::from(lies & 4) | u32::from(lies & 1) << 3;
        let false_size = (lies & 8 != 0).then(|| u32::from(script.byte()));
        let count = usize::from(lies >> 4 & 7);
        let kinds = if count > 0 { script.byte() } else { 0 };
        let fds = (0..count).map(|at| self.descriptor(kinds >> (2 * at.min(3))));
        let fds = fds.collect();
        let body = script.body(request);
        let size = false_size.unwrap_or(body.len() as u32);
        let header = [request, flags, size].map(u32::to_ne_bytes);
        Step::Message([header.as_flattened(), &body].concat(), fds)
    }

    fn descriptor(&self, kind: u8) -> OwnedFd {
        let copy = |memory: &Memory| Ok(memory.try_clone()?.into_fd());
        let made = match kind & 3 {
            GUEST_FD => copy(&self.guest),
            EVENT_FD => EventFd::new().map(EventFd::into_fd),
            2 => copy(&self.short),
            _ => self.null.try_clone(),
        };
        made.expect("a descriptor")
    }

    /// Sends all messages first, so that the handler never waits for one, then performs each step.
    fn play(&self, steps: &[Step]) -> Played {
        let (mut front, back) = UnixStream::pair().expect("a pair of sockets");
        front.set_nonblocking(true).expect("a socket");
        for step in steps {
            let Step::Message(bytes, fds) = step else {
                continue;
            };
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            let sent = if fds.is_empty() {
                front.write_all(bytes)
            } else {
                send_with_fds(&front, bytes, &fds)
            };
            if sent.is_err() {
                break;
            }
        }
        front.shutdown(Shutdown::Write).expect("a socket");
        let other = back.try_clone().expect("a socket");
        let connection = Connection::new(back, Arc::clone(&self.shared));
        let mut connection = connection.expect("a connection");
        self.device().connected(other);
        let mut played = Played::default();
        for step in steps {
            match step {
                Step::Message(..) => match connection.handle() {
                    Outcome::Handled => played.handled += 1,
                    Outcome::Closed => break,
                    Outcome::Refused(_) => {
                        played.is_refused = true;
                        break;
                    }
                },
                Step::Poke(at, bytes) => self.mapping.write(*at, bytes),
                Step::Visit => self.visit(&mut played),
            }
        }
        played
    }

    /// Visits the rings, as the data path does.
    fn visit(&self, played: &mut Played) {
        let mut device = self.device();
        let mut bytes = [0; 64];
        for index in 0..device.rings() {
            let Some(mut ring) = device.ring(index) else {
                continue;
            };
            let half = ring.half.any();
            let count = match half.take(8) {
                Ok(count) => count,
                Err(fault) => {
                    played.is_faulty = true;
                    device.cut_off(fault);
                    return;
                }
            };
            for chain in 0..count {
                let read = half.taken().read(chain, 0, &mut bytes);
                assert!(read <= half.taken().readable(chain));
                let written = half.taken().write(chain, 0, &bytes);
                half.complete(written as u32);
            }
            half.publish();
            let _ = half.arm();
            ring.signal();
            played.chains += count;
        }
    }
}

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number in a message: a small one, an address, one at a boundary, or any.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=0x7f => u64::from(small),
            at @ 0x80..=0xbf => GUEST + 1024 * u64::from(at & 0x3f),
            at @ 0xc0..=0xdf => USER + 1024 * u64::from(at & 0x1f),
            special @ 0xe0..=0xef => SPECIALS[usize::from(special & 0xf)],
            _ => u64::from_le_bytes([(); 8].map(|()| self.byte())),
        }
    }

    /// The body of a message, if messages of this number have one.
    fn body(&mut self, request: u32) -> Vec<u8> {
        let mut body = Vec::new();
        let fields: &[usize] = match request {
            2 | 7 | 12 | 13 | 14 | 16 | 19 | 20 | 39 => &[8],
            8 | 10 | 11 | 18 => &[4, 4],
            9 => &[4, 4, 8, 8, 8, 8],
            5 => {
                let count = self.byte();
                body.extend(u64::from(count).to_ne_bytes());
                &[[8; 4]; 9].as_flattened()[..4 * usize::from(count.min(9))]
            }
            6 => &[8, 8],
            31 | 32 => &[8, 8, 2, 2, 4],
            37 | 38 => &[8, 8, 8, 8, 8],
            24 | 25 | 42 => &[4, 4, 4],
            _ => &[],
        };
        for bytes in fields {
            body.extend_from_slice(&self.number().to_le_bytes()[..*bytes]);
        }
        body
    }
}

/// The features that are offered, as for a network device.
const OFFERED: u64 =
    VERSION_1 | net::MRG_RXBUF | net::MTU | EVENT_IDX | INDIRECT_DESC | RING_PACKED;
const BASIC: u64 = VERSION_1 | net::MRG_RXBUF | PROTOCOL_FEATURES;
const RINGS: usize = 4;

/// Size of the guest's memory, and its first address in the guest and in the front end.
const BYTES: usize = 64 << 10;
const GUEST: u64 = 0x4000_0000;
const USER: u64 = 0x7000_0000;

const SPECIALS: [u64; 16] = [
    BYTES as u64,
    BYTES as u64 / 2,
    BYTES as u64 + 1,
    1 << 32,
    u32::MAX as u64,
    u64::MAX,
    1 << 63,
    BASIC,
    BASIC | RING_PACKED,
    BASIC | EVENT_IDX | INDIRECT_DESC | LOG_ALL,
    BASIC & !PROTOCOL_FEATURES,
    0x8000,
    0x8000_8000,
    0x100,
    4096,
    0xffff,
];

/// Bytes of a script that select special numbers.
const AT_GUEST: u8 = 0x80;
const AT_USER: u8 = 0xc0;
const SPECIAL: u8 = 0xe0;
/// Marks a message with one descriptor; then the kinds of descriptors.
const ONE_FD: u8 = 0x10;
const GUEST_FD: u8 = 0;
const EVENT_FD: u8 = 1;

/// Largest number of steps, so that all messages and answers fit into the buffers of a socket.
const STEPS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correct_front_end_has_its_chain_taken() {
        let played = messages(&correct());
        assert_eq!(played.handled, 12);
        assert_eq!((played.chains, played.is_refused), (1, false));
    }

    #[test]
    fn table_of_missing_memory_is_refused() {
        let mut script = correct();
        // The table claims one byte more than the file has.
        let at = script
            .windows(3)
            .position(|pair| pair == [1, AT_GUEST, SPECIAL]);
        script[at.unwrap() + 2] = SPECIAL | 2;
        let played = messages(&script);
        assert!(played.is_refused && played.chains == 0, "{played:?}");
    }

    #[test]
    fn ring_with_a_wild_index_is_cut_off() {
        let mut script = correct();
        // Index 0x100 in a ring of 16.
        let end = script.len();
        script[end - 4] = 1;
        let played = messages(&script);
        assert!(played.is_faulty && played.chains == 0, "{played:?}");
    }
}
