//! A front end: it drives the rings of a back end in another process, without a virtual machine.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use carina_sys::{EventFd, send_with_fds};
use rustix::net::{RecvFlags, recv};

use crate::features::PROTOCOL_FEATURES;

/// A connection to a vhost-user back end whose rings are running. Dropping it stops the rings.
#[derive(Debug)]
pub struct FrontEnd {
    socket: UnixStream,
    kicks: Vec<EventFd>,
}

/// The memory and rings that a front end shares, and the features that it requires.
#[derive(Clone, Copy, Debug)]
pub struct FrontEndConfig<'a> {
    /// Virtio features that the back end must offer, and that the front end accepts.
    pub features: u64,
    /// The file whose contents serve as the guest's memory.
    pub memory: BorrowedFd<'a>,
    /// First address of the guest's memory, as rings and descriptors use it.
    pub first: u64,
    /// Size of the guest's memory in bytes.
    pub bytes: u64,
    /// Places of the rings in the guest's memory.
    pub rings: &'a [RingPlace],
}

/// Addresses of the three parts of a split ring in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Number of descriptors of the ring, a power of two.
    pub size: u16,
    /// Address of the ring's descriptor table.
    pub descriptors: u64,
    /// Address of the ring's available ring.
    pub driver: u64,
    /// Address of the ring's used ring.
    pub device: u64,
}

impl FrontEnd {
    /// Connects to the back end that listens on the socket `path`, and starts its rings. The back
    /// end signals `call` for all of them. Each step waits at most 200 ms for the back end.
    ///
    /// # Errors
    /// No process listens, or the process that listens is not a vhost-user back end, or it does not
    /// offer the features.
    pub fn connect(
        path: &Path,
        config: &FrontEndConfig<'_>,
        call: &EventFd,
    ) -> io::Result<FrontEnd> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let kicks = config.rings.iter().map(|_| EventFd::new());
        let mut front_end = FrontEnd {
            kicks: kicks.collect::<io::Result<_>>()?,
            socket,
        };
        front_end.negotiate(config)?;
        for (index, ring) in config.rings.iter().enumerate() {
            front_end.start(index, ring, call)?;
        }
        // The back end answers this only after it has processed all earlier messages.
        front_end.ask(GET_FEATURES)?;
        Ok(front_end)
    }

    /// Whether the back end is still connected. It takes a system call.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0; 1];
        !matches!(recv(&self.socket, &mut byte[..], flags), Ok((0, _)))
    }

    /// Notifies the back end of new buffers in a ring.
    ///
    /// # Panics
    /// There is no such ring.
    pub fn kick(&self, ring: usize) {
        self.kicks[ring].signal();
    }

    fn negotiate(&mut self, config: &FrontEndConfig<'_>) -> io::Result<()> {
        let wanted = config.features | PROTOCOL_FEATURES;
        let offered = self.ask(GET_FEATURES)?;
        if wanted & !offered != 0 {
            let text = format!("the back end offers features {offered:#x}, not {wanted:#x}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        self.ask(GET_PROTOCOL_FEATURES)?;
        self.say(SET_PROTOCOL_FEATURES, &[0], &[])?;
        self.say(SET_OWNER, &[], &[])?;
        self.say(SET_FEATURES, &[wanted], &[])?;
        let &FrontEndConfig { first, bytes, .. } = config;
        self.say(
            SET_MEM_TABLE,
            &[1, first, bytes, first, 0],
            &[config.memory],
        )
    }

    fn start(&mut self, index: usize, ring: &RingPlace, call: &EventFd) -> io::Result<()> {
        let number = index as u64;
        let state = |value: u16| number | u64::from(value) << 32;
        self.say(SET_VRING_NUM, &[state(ring.size)], &[])?;
        self.say(SET_VRING_BASE, &[state(0)], &[])?;
        let address = [number, ring.descriptors, ring.device, ring.driver, 0];
        self.say(SET_VRING_ADDR, &address, &[])?;
        let (kick, call) = (self.kicks[index].try_clone()?, call.try_clone()?);
        let (kick, call) = (kick.into_fd(), call.into_fd());
        self.say(SET_VRING_CALL, &[number], &[call.as_fd()])?;
        self.say(SET_VRING_KICK, &[number], &[kick.as_fd()])?;
        self.say(SET_VRING_ENABLE, &[state(1)], &[])
    }

    /// Sends a message whose body consists of these words.
    fn say(&mut self, request: u32, body: &[u64], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut message = [request, VERSION, 8 * body.len() as u32]
            .map(u32::to_ne_bytes)
            .concat();
        message.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        if fds.is_empty() {
            return self.socket.write_all(&message);
        }
        send_with_fds(&self.socket, &message, fds)
    }

    /// Sends a message without a body. Returns the number in the answer.
    fn ask(&mut self, request: u32) -> io::Result<u64> {
        self.say(request, &[], &[])?;
        let mut reply = [0; 20];
        self.socket.read_exact(&mut reply)?;
        let (words, _) = reply.as_chunks::<4>();
        let [answers, flags, bytes, low, high] = [0, 1, 2, 3, 4].map(|at| words[at]);
        let head = [answers, flags, bytes].map(u32::from_ne_bytes);
        if head != [request, VERSION | REPLY, 8] {
            let text = format!("the back end answers {head:x?} to message {request}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let [low, high] = [low, high].map(u32::from_ne_bytes).map(u64::from);
        // In this machine's byte order, which is little endian.
        Ok(low | high << 32)
    }
}

/// How long to wait for an answer of the back end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Flags of a message: the version of the protocol.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;

// Numbers of messages. (vhost-user, "Front-end message types")
const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
