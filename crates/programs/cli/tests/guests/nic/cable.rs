//! The cables of network cards: each is a UDP socket of this process, a frame a datagram.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_vm::Backend;

use crate::house::SOON;

/// The end of a card's cable.
pub(super) struct Cable {
    pub socket: UdpSocket,
    pub card: SocketAddr,
}

impl Cable {
    pub(super) fn new() -> Cable {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let timeout = Some(Duration::from_millis(50));
        socket.set_read_timeout(timeout).unwrap();
        // An address of the loopback network of its own, which no other process is given before
        // QEMU takes it.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let [_, b, c, d] = (std::process::id() << 9 | count).to_be_bytes();
        let card = SocketAddr::from(([127, b | 0x80, c, d], 7000));
        Cable { socket, card }
    }

    pub(super) fn backend(&self) -> Backend {
        let own = self.socket.local_addr().unwrap();
        Backend::Other(format!("socket,udp={own},localaddr={}", self.card))
    }

    pub(super) fn send(&self, frame: &[u8]) {
        self.socket.send_to(frame, self.card).unwrap();
    }

    pub(super) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = [0; 16_384];
        let len = self.socket.recv(&mut frame).ok()?;
        Some(frame[..len].to_vec())
    }

    /// The next frame that a test has sent; the guest's kernel says things too.
    fn receive_own(&self) -> Option<Vec<u8>> {
        self.receive_of(u16::from_be_bytes(OWN_TYPE))
    }

    /// The next frame of this Ethertype.
    pub(super) fn receive_of(&self, ethertype: u16) -> Option<Vec<u8>> {
        let begin = Instant::now();
        while begin.elapsed() < SOON {
            let is_it = |frame: &Vec<u8>| frame[12..14] == ethertype.to_be_bytes();
            let frame = self.receive().filter(is_it);
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    /// Takes what comes until nothing does for a while; returns how many frames it were.
    pub(super) fn drain(&self) -> usize {
        self.drain_for(Duration::from_millis(500))
    }

    /// The same, until nothing comes for so long.
    pub(super) fn drain_for(&self, silence: Duration) -> usize {
        let (mut came, mut quiet) = (0, Instant::now());
        while quiet.elapsed() < silence {
            if self.receive().is_some() {
                came += 1;
                quiet = Instant::now();
            }
        }
        came
    }
}

/// Ethertype of local experiments. (IEEE 802)
const OWN_TYPE: [u8; 2] = [0x88, 0xb5];

/// Frames from this number on are of a flood: some of it may come late.
pub(super) const FLOOD: u32 = 1 << 20;

/// A frame of this number, of as many bytes as an MTU of 1500 allows or fewer.
pub(super) fn frame(number: u32) -> Vec<u8> {
    frame_of(number, 60 + number as usize * 37 % 1454)
}

/// A frame of this number, of as many bytes as an MTU of 9000 allows or fewer.
fn jumbo_frame(number: u32) -> Vec<u8> {
    frame_of(number, 9014 - number as usize * 137 % 8954)
}

fn frame_of(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8]);
    frame[12..14].copy_from_slice(&OWN_TYPE);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends frames into one cable and has each come out of another, whole and in order. At most a few
/// are on their way, so that no queue outside of the guest overflows.
pub(super) fn cross(from: &Cable, to: &Cable, count: u32) {
    cross_within(32, from, to, count, frame);
}

/// The same with long frames, of which queues outside of the guest hold fewer.
pub(super) fn cross_long(from: &Cable, to: &Cable, count: u32) {
    cross_within(6, from, to, count, jumbo_frame);
}

fn cross_within(window: u32, from: &Cable, to: &Cable, count: u32, make: fn(u32) -> Vec<u8>) {
    let mut sent = 0;
    for expected in 0..count {
        while sent < count && sent < expected + window {
            from.send(&make(sent));
            sent += 1;
        }
        let is_of_flood = |frame: &Vec<u8>| frame[14..18] >= FLOOD.to_be_bytes()[..];
        let came = loop {
            match to.receive_own() {
                Some(frame) if is_of_flood(&frame) => {}
                came => break came,
            }
        };
        assert!(
            came.as_ref() == Some(&make(expected)),
            "frame {expected} of {count}: {:?} bytes",
            came.map(|frame| frame.len())
        );
    }
}

/// A station at the end of a cable: answers ARP and pings at any address, and sends the packets of
/// `carina blast` back.
pub(super) struct Station {
    is_over: Arc<AtomicBool>,
    sent_back: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Station {
    pub(super) fn at(cable: &Cable) -> Station {
        let cable = Cable {
            socket: cable.socket.try_clone().unwrap(),
            card: cable.card,
        };
        let (is_over, sent_back) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, back) = (Arc::clone(&is_over), Arc::clone(&sent_back));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let Some(mut frame) = cable.receive() else {
                    continue;
                };
                if answer(&mut frame) {
                    cable.send(&frame);
                    back.fetch_add(u64::from(frame[23] == UDP), Ordering::Relaxed);
                }
            }
        });
        Station {
            is_over,
            sent_back,
            thread: Some(thread),
        }
    }

    pub(super) fn sent_back(&self) -> u64 {
        self.sent_back.load(Ordering::Relaxed)
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

const UDP: u8 = 17;
const ICMP: u8 = 1;
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// Makes an answer of a frame, if it wants one.
fn answer(frame: &mut [u8]) -> bool {
    let asker: [u8; 6] = frame[6..12].try_into().unwrap();
    match (&frame[12..14], frame.get(20..24)) {
        // An ARP request.
        ([8, 6], Some([0, 1, ..])) => {
            let (sender, target): ([u8; 10], [u8; 4]) = (
                frame[22..32].try_into().unwrap(),
                frame[38..42].try_into().unwrap(),
            );
            frame[21] = 2;
            frame[22..28].copy_from_slice(&STATION);
            frame[28..32].copy_from_slice(&target);
            frame[32..42].copy_from_slice(&sender);
        }
        ([8, 0], Some([.., ICMP])) if frame[34] == 8 => {
            let (source, target): ([u8; 4], [u8; 4]) = (
                frame[26..30].try_into().unwrap(),
                frame[30..34].try_into().unwrap(),
            );
            frame[26..30].copy_from_slice(&target);
            frame[30..34].copy_from_slice(&source);
            frame[34] = 0;
            // What the type loses the checksum gains, in ones' complement.
            let (sum, carry) = u16::from_be_bytes([frame[36], frame[37]]).overflowing_add(0x800);
            frame[36..38].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
        ([8, 0], Some([.., UDP])) => return frame[26..28] == [198, 18],
        _ => return false,
    }
    frame[..6].copy_from_slice(&asker);
    frame[6..12].copy_from_slice(&STATION);
    true
}
