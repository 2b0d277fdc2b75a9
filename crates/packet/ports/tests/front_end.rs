//! A vhost-user front end in the test's own process. It sends messages as bytes, and uses its rings
//! through the driver side of `carina_vring`.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_sys::{EventFd, Mapping, Memory, send_with_fds};
use carina_vring::{
    AddressSpace, Completion, DriverBuffer, DriverRing, GuestMemory, PackedDriver, Region,
    RingConfig, SplitDriver,
};

use crate::traffic::PATIENCE;

pub(crate) const GET_FEATURES: u32 = 1;
pub(crate) const SET_FEATURES: u32 = 2;
pub(crate) const SET_OWNER: u32 = 3;
pub(crate) const SET_MEM_TABLE: u32 = 5;
pub(crate) const SET_VRING_NUM: u32 = 8;
pub(crate) const SET_VRING_ADDR: u32 = 9;
pub(crate) const SET_VRING_BASE: u32 = 10;
pub(crate) const GET_VRING_BASE: u32 = 11;
pub(crate) const SET_VRING_KICK: u32 = 12;
pub(crate) const SET_VRING_CALL: u32 = 13;
pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
pub(crate) const SET_VRING_ENABLE: u32 = 18;
pub(crate) const SEND_RARP: u32 = 19;
pub(crate) const NET_SET_MTU: u32 = 20;

/// VERSION_1, MRG_RXBUF and vhost-user's PROTOCOL_FEATURES.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 15 | 1 << 30;
pub(crate) const PACKED: u64 = 1 << 34;

/// Where the memory begins: its guest address, and its user address in the front end.
pub(crate) const GUEST: u64 = 0x4000_0000;
pub(crate) const USER: u64 = 0x7000_0000;
pub(crate) const BYTES: usize = 1 << 20;
pub(crate) const SIZE: u16 = 16;

/// Offsets of a ring's parts in the memory: descriptors, driver area, device area.
pub(crate) fn parts(ring: u64) -> [u64; 3] {
    [0, 0x2000, 0x3000].map(|part| ring * 0x4000 + part)
}

/// Offset of a buffer in the memory.
pub(crate) fn buffer(ring: u64, number: u64) -> u64 {
    0x1_0000 + ring * 0x4_0000 + number * 0x1000
}

/// Connects to a back end, and waits until it listens.
pub(crate) fn connected(path: &Path) -> UnixStream {
    let begin = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(socket) => return socket,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) struct FrontEnd {
    pub socket: UnixStream,
    pub memory: OwnedFd,
    pub mapping: Arc<Mapping>,
    pub rings: Vec<Box<dyn DriverRing>>,
    pub kicks: Vec<EventFd>,
    pub calls: Vec<EventFd>,
    pub features: u64,
}

impl FrontEnd {
    /// Connects, but sends no message yet.
    pub(crate) fn connect(path: &Path) -> FrontEnd {
        FrontEnd::over(connected(path))
    }

    /// Uses a connection that the back end made, but sends no message yet.
    pub(crate) fn over(socket: UnixStream) -> FrontEnd {
        let memory = Memory::anonymous("front-end", BYTES).unwrap();
        FrontEnd::with_memory(socket, memory.into_fd())
    }

    /// Uses an existing connection, and a file of [`BYTES`] bytes as the guest's memory. Sends no
    /// message yet.
    pub(crate) fn with_memory(socket: UnixStream, memory: OwnedFd) -> FrontEnd {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mapping = Arc::new(Mapping::shared(memory.as_fd(), 0, BYTES).unwrap());
        FrontEnd {
            socket,
            memory,
            mapping,
            rings: Vec::new(),
            kicks: Vec::new(),
            calls: Vec::new(),
            features: 0,
        }
    }

    /// Connects, and sets up the first pair of rings, both empty.
    pub(crate) fn running(path: &Path, features: u64) -> FrontEnd {
        FrontEnd::connect(path).set_up(features)
    }

    /// Sets up the first pair of rings.
    pub(crate) fn set_up(mut self, features: u64) -> FrontEnd {
        self.negotiate(features);
        for ring in 0..2 {
            self.add_ring(ring);
            self.start_ring(ring, 0);
        }
        // The back end answers only after it has handled all earlier messages.
        self.asks(GET_FEATURES);
        self
    }

    pub(crate) fn negotiate(&mut self, features: u64) {
        self.features = features;
        assert_eq!(self.asks(GET_FEATURES) & features, features);
        self.asks(GET_PROTOCOL_FEATURES);
        self.says_u64(SET_PROTOCOL_FEATURES, 1 << 3);
        self.says(SET_OWNER, &[], &[]);
        self.says_u64(SET_FEATURES, features);
        self.gives_memory(&[(GUEST, BYTES as u64, USER, 0)]);
    }

    /// Announces memory regions: guest address, bytes, user address, offset in the file.
    pub(crate) fn gives_memory(&mut self, regions: &[(u64, u64, u64, u64)]) {
        let mut body = (regions.len() as u32).to_ne_bytes().to_vec();
        body.extend([0; 4]);
        for (guest, bytes, user, offset) in regions {
            for word in [guest, bytes, user, offset] {
                body.extend(word.to_ne_bytes());
            }
        }
        let memory = self.memory.try_clone().unwrap();
        let fds: Vec<BorrowedFd<'_>> = regions.iter().map(|_| memory.as_fd()).collect();
        self.says(SET_MEM_TABLE, &body, &fds);
    }

    /// Makes an empty ring in the memory.
    pub(crate) fn add_ring(&mut self, ring: u64) {
        let whole = Arc::clone(&self.mapping);
        let region = Region::new(whole, 0, GUEST, USER, BYTES as u64).unwrap();
        let memory = GuestMemory::new(vec![region]).unwrap();
        let [descriptors, driver, device] = parts(ring).map(|part| GUEST + part);
        let config = RingConfig {
            size: SIZE,
            descriptors,
            driver,
            device,
            space: AddressSpace::Guest,
            has_event_index: false,
            has_indirect: false,
            is_in_order: false,
            position: 0,
        };
        self.rings.push(if self.features & PACKED != 0 {
            Box::new(PackedDriver::new(&memory, &config).unwrap())
        } else {
            Box::new(SplitDriver::new(&memory, &config).unwrap())
        });
    }

    /// Tells the back end where a ring is, and starts it.
    pub(crate) fn start_ring(&mut self, ring: u64, base: u32) {
        self.describe_ring(ring, base);
        let kick = EventFd::new().unwrap();
        let kick_fd = kick.try_clone().unwrap().into_fd();
        self.says(SET_VRING_KICK, &ring.to_ne_bytes(), &[kick_fd.as_fd()]);
        self.finish_ring(ring, kick);
    }

    /// Starts a ring that is never kicked: its SET_VRING_KICK carries no file descriptor.
    pub(crate) fn start_polled_ring(&mut self, ring: u64) {
        self.describe_ring(ring, 0);
        self.says_u64(SET_VRING_KICK, ring | 1 << 8);
        self.finish_ring(ring, EventFd::new().unwrap());
    }

    pub(crate) fn describe_ring(&mut self, ring: u64, base: u32) {
        let index = ring as u32;
        let base = if self.features & PACKED != 0 && base == 0 {
            0x8000_8000
        } else {
            base
        };
        self.says_state(SET_VRING_NUM, index, SIZE.into());
        self.says_state(SET_VRING_BASE, index, base);
        let [descriptors, driver, device] = parts(ring).map(|part| USER + part);
        let mut body = [index.to_ne_bytes(), [0; 4]].concat();
        for word in [descriptors, device, driver, 0] {
            body.extend(word.to_ne_bytes());
        }
        self.says(SET_VRING_ADDR, &body, &[]);
    }

    fn finish_ring(&mut self, ring: u64, kick: EventFd) {
        let call = EventFd::new().unwrap();
        let call_fd = call.try_clone().unwrap().into_fd();
        self.says(SET_VRING_CALL, &ring.to_ne_bytes(), &[call_fd.as_fd()]);
        self.says_state(SET_VRING_ENABLE, ring as u32, 1);
        self.kicks.push(kick);
        self.calls.push(call);
    }

    pub(crate) fn says(&mut self, request: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        let header = [request, 1, body.len() as u32].map(u32::to_ne_bytes);
        let header = header.as_flattened();
        if fds.is_empty() {
            self.socket.write_all(&[header, body].concat()).unwrap();
        } else {
            send_with_fds(&self.socket, &[header, body].concat(), fds).unwrap();
        }
    }

    pub(crate) fn says_u64(&mut self, request: u32, value: u64) {
        self.says(request, &value.to_ne_bytes(), &[]);
    }

    pub(crate) fn says_state(&mut self, request: u32, index: u32, value: u32) {
        let body = [index, value].map(u32::to_ne_bytes);
        self.says(request, body.as_flattened(), &[]);
    }

    /// Sends a message without a body, and returns the number in the answer.
    pub(crate) fn asks(&mut self, request: u32) -> u64 {
        self.says(request, &[], &[]);
        self.answer(request)
    }

    pub(crate) fn answer(&mut self, request: u32) -> u64 {
        let mut reply = [0; 20];
        self.socket.read_exact(&mut reply).unwrap();
        let word = |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4), word(8)), (request, 5, 8));
        u64::from_ne_bytes(reply[12..].try_into().unwrap())
    }

    /// The ring base in the answer to `GET_VRING_BASE`.
    pub(crate) fn asks_base(&mut self) -> u32 {
        (self.answer(GET_VRING_BASE) >> 32) as u32
    }

    /// Waits until the back end closes the connection; `true` once it has.
    pub(crate) fn is_cut_off(&mut self) -> bool {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).is_ok()
    }

    /// Sends a frame as the guest, with the header of a frame without offload work.
    pub(crate) fn sends(&mut self, number: u64, frame: &[u8]) {
        self.sends_with([0; 12], number, frame);
    }

    pub(crate) fn sends_with(&mut self, header: [u8; 12], number: u64, frame: &[u8]) {
        let at = buffer(1, number);
        self.mapping.write(at as usize, &[&header, frame].concat());
        let len = 12 + frame.len() as u32;
        self.rings[1]
            .add(&[DriverBuffer::readable(GUEST + at, len)])
            .unwrap();
        self.rings[1].publish();
        if self.rings[1].wants_kick() {
            self.kicks[1].signal();
        }
    }

    /// Offers the back end a buffer for a frame.
    pub(crate) fn gives_buffer(&mut self, number: u64, len: u32) -> u16 {
        let at = GUEST + buffer(0, number);
        let id = self.rings[0].add(&[DriverBuffer::writable(at, len)]);
        self.rings[0].publish();
        id.unwrap()
    }

    /// Waits for a descriptor chain that the back end returns.
    pub(crate) fn returned(&mut self, ring: usize) -> Completion {
        let begin = Instant::now();
        loop {
            if let Some(used) = self.rings[ring].poll().unwrap() {
                return used;
            }
            assert!(begin.elapsed() < PATIENCE, "ring {ring}: nothing came back");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub(crate) fn bytes(&self, number: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mapping.read(buffer(0, number) as usize, &mut bytes);
        bytes
    }
}
