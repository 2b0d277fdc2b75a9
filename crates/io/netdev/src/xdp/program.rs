//! The BPF program that redirects frames to sockets: six instruction words, attached to an
//! interface until the value is dropped.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A map from queues to sockets, and the attached program that uses it.
#[derive(Debug)]
pub(super) struct Program {
    _link: OwnedFd,
    map: OwnedFd,
}

impl Program {
    /// Attaches the program to an interface: at the driver, or at the generic hook.
    pub(super) fn attach(interface: u32, is_native: bool) -> io::Result<Program> {
        let map = MapCreate {
            kind: MAP_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries: QUEUES_MAX,
            flags: 0,
            pad: [0; 11],
        };
        let map = call(MAP_CREATE, &map)?;
        let program = load(PROGRAM_XDP, &instructions(map.as_raw_fd()))?;
        let link = LinkCreate {
            program: program.as_raw_fd() as u32,
            interface,
            kind: ATTACH_XDP,
            flags: if is_native { NATIVE } else { GENERIC },
            pad: [0; 6],
        };
        let link = call(LINK_CREATE, &link)?;
        Ok(Program { _link: link, map })
    }

    /// Redirects the frames of a queue to a socket.
    pub(super) fn direct(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let update = MapUpdate {
            map: self.map.as_raw_fd() as u32,
            pad: 0,
            key: (&raw const queue).addr() as u64,
            value: (&raw const value).addr() as u64,
            flags: 0,
            more: [0; 4],
        };
        // SAFETY: the attributes and what they point to are locals that live during the call.
        let result = unsafe {
            let bytes = size_of::<MapUpdate>();
            libc::syscall(libc::SYS_bpf, MAP_UPDATE, &raw const update, bytes)
        };
        match result {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Loads a program of a kind (`enum bpf_prog_type`) into the kernel, which verifies it.
///
/// # Errors
/// The kernel has no BPF, refuses the program, or this process may not load programs.
pub(crate) fn load(kind: u32, code: &[u64]) -> io::Result<OwnedFd> {
    let licence = c"GPL";
    let load = ProgramLoad {
        kind,
        instructions: code.len() as u32,
        code: code.as_ptr().addr() as u64,
        licence: licence.as_ptr().addr() as u64,
        pad: [0; 5],
    };
    call(PROGRAM_LOAD, &load)
}

/// Encodes an instruction in its 8 bytes: code, registers (to, from), offset, constant.
pub(crate) fn encode(code: u8, to: u8, from: u8, offset: u16, constant: u32) -> u64 {
    u64::from(code)
        | u64::from(to | from << 4) << 8
        | u64::from(offset) << 16
        | u64::from(constant) << 32
}

/// `return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS)`.
fn instructions(map: i32) -> [u64; 6] {
    [
        encode(LOAD_WORD, 2, 1, CONTEXT_QUEUE, 0),
        encode(LOAD_CONSTANT, 1, IS_MAP, 0, map as u32),
        0,
        encode(MOVE, 3, 0, 0, XDP_PASS),
        encode(CALL, 0, 0, 0, REDIRECT_MAP),
        encode(EXIT, 0, 0, 0, 0),
    ]
}

/// Calls bpf(2) with a command that creates a descriptor.
fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a plain structure of that size, longer than what the kernel reads
    // and zero behind it; what they point to lives in the caller.
    let fd = unsafe {
        let at = std::ptr::from_ref(attributes);
        libc::syscall(libc::SYS_bpf, command, at, size_of::<T>())
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    pad: [u32; 11],
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
    more: [u64; 4],
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    pad: [u64; 5],
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
    pad: [u64; 6],
}

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_XSKMAP: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;
/// Largest number of queues of an interface.
pub(super) const QUEUES_MAX: u32 = 256;

const LOAD_WORD: u8 = 0x61;
const LOAD_CONSTANT: u8 = 0x18;
const MOVE: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Value of the source register that marks the constant as the descriptor of a map.
const IS_MAP: u8 = 1;
/// Offset of the queue's number in the context of a program.
const CONTEXT_QUEUE: u16 = 16;
const REDIRECT_MAP: u32 = 51;
const XDP_PASS: u32 = 2;
