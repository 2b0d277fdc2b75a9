//! The front end: a process that drives the rings of a back end without a virtual machine between.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use carina_sys::{EventFd, send_with_fds};
use rustix::net::{RecvFlags, recv};

use crate::features::PROTOCOL_FEATURES;

/// A connection to a back end whose rings run. They stop when it is dropped.
#[derive(Debug)]
pub struct FrontEnd {
    socket: UnixStream,
    kicks: Vec<EventFd>,
}

/// What a front end shares, and wants.
#[derive(Clone, Copy, Debug)]
pub struct FrontEndConfig<'a> {
    /// Features of virtio that must be offered.
    pub features: u64,
    /// A file that is the guest's memory.
    pub memory: BorrowedFd<'a>,
    /// Its first address, as rings and descriptors have it.
    pub first: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its rings.
    pub rings: &'a [RingPlace],
}

/// Where a split ring lies, in addresses of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Number of descriptors.
    pub size: u16,
    /// The descriptors.
    pub descriptors: u64,
    /// The available ring.
    pub driver: u64,
    /// The used ring.
    pub device: u64,
}

impl FrontEnd {
    /// Connects to the back end that listens at a path, and starts its rings, for all of which it
    /// signals `call`. Waits for it 200 ms at most in each step.
    ///
    /// # Errors
    /// No process listens, or what listens is no back end, or does not offer the features.
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
        // An answer comes after all that was said before is done.
        front_end.ask(GET_FEATURES)?;
        Ok(front_end)
    }

    /// Whether the back end is there still. A system call.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0; 1];
        !matches!(recv(&self.socket, &mut byte[..], flags), Ok((0, _)))
    }

    /// Tells the back end to look at a ring.
    ///
    /// # Panics
    /// When there is no such ring.
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

    /// Sends a message whose body is these words.
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

    /// Sends a message without a body, and returns the number that comes back.
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
        // In the order of bytes of this machine, which is little endian.
        Ok(low | high << 32)
    }
}

/// How long a back end may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Flags of a message.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;

// vhost-user, "Front-end message types".
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
