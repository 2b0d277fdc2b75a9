//! Which queue of a TUN device gets a packet of the kernel: a BPF program chooses by addresses and
//! ports, so that packets of one connection stay in one queue, and in order.
//!
//! The program is a socket filter whose result, modulo the number of queues, is the queue. (Linux,
//! `drivers/net/tun.c`) Fragments are chosen by their addresses alone.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::xdp::program::{encode, load};

/// Attaches the program to a TUN device. The kernel removes the program with the device.
///
/// # Errors
/// The kernel does not permit the program.
pub(crate) fn steer_by_flow(device: BorrowedFd<'_>) -> io::Result<()> {
    let program = load(SOCKET_FILTER, &instructions())?;
    let program: libc::c_int = program.as_raw_fd();
    // SAFETY: the argument is a local descriptor number, which the kernel reads.
    let result = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            libc::TUNSETSTEERINGEBPF as _,
            &raw const program,
        )
    };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The program: it hashes the addresses and ports of an IP packet. Offsets count from the first
/// byte of the IP header (RFC 791 §3.1, RFC 8200 §3).
fn instructions() -> Vec<u64> {
    let op = |code: u8, to: u8, from: u8, constant: u32| encode(code, to, from, 0, constant);
    let jump = |code: u8, over: usize, value: u32| encode(code, LOADED, 0, over as u16, value);
    let get = |code: u8, at: u32| op(code, LOADED, 0, at);
    let mix_in = op(XOR, HASH, LOADED, 0);
    let mut v4 = vec![
        get(LOAD_WORD, 12),
        op(MOVE, HASH, LOADED, 0),
        get(LOAD_WORD, 16),
        mix_in,
        // A fragment has no ports: it is mixed at once. The offset is set below.
        get(LOAD_HALF, 6),
        op(AND_CONSTANT, LOADED, 0, 0x3fff),
        0,
        get(LOAD_BYTE, 9),
        op(AND_CONSTANT, TRANSPORT, 0, 15),
        op(SHIFT_LEFT, TRANSPORT, 0, 2),
        0,
    ];
    let mut v6 = vec![get(LOAD_WORD, 8), op(MOVE, HASH, LOADED, 0)];
    for at in (12..40).step_by(4) {
        v6.extend([get(LOAD_WORD, at), mix_in]);
    }
    v6.extend([get(LOAD_BYTE, 6), op(MOVE_CONSTANT, TRANSPORT, 0, 40)]);
    let ports = [
        jump(IF_EQUAL, 1, TCP),
        jump(IF_OTHER, 2, UDP),
        op(LOAD_WORD_AT, LOADED, TRANSPORT, 0),
        mix_in,
    ];
    let fragment = 6;
    let to_end = v4.len() - fragment - 1 + v6.len() + ports.len();
    v4[fragment] = jump(IF_OTHER, to_end, 0);
    let last = v4.len() - 1;
    v4[last] = jump(ALWAYS, v6.len(), 0);
    let start = [
        op(MOVE, CONTEXT, ARGUMENT, 0),
        get(LOAD_BYTE, 0),
        op(MOVE, TRANSPORT, LOADED, 0),
        op(SHIFT_RIGHT, LOADED, 0, 4),
        jump(IF_EQUAL, v4.len(), 6),
    ];
    // Every bit of the addresses and ports has an effect on the lowest bit of the result.
    let end = [
        op(MOVE, LOADED, HASH, 0),
        op(SHIFT_RIGHT_32, LOADED, 0, 16),
        op(XOR, LOADED, HASH, 0),
        op(MULTIPLY_32, LOADED, 0, GOLDEN),
        op(SHIFT_RIGHT_32, LOADED, 0, 16),
        op(EXIT, 0, 0, 0),
    ];
    [&start[..], &v4, &v6, &ports, &end].concat()
}

/// Kind of the program: `BPF_PROG_TYPE_SOCKET_FILTER`.
const SOCKET_FILTER: u32 = 1;

/// The register of loaded bytes, and of the result.
const LOADED: u8 = 0;
const ARGUMENT: u8 = 1;
/// The register in which instructions that load bytes expect the packet.
const CONTEXT: u8 = 6;
const HASH: u8 = 7;
/// The first byte of the packet, later the offset of the transport header.
const TRANSPORT: u8 = 8;

const LOAD_WORD: u8 = 0x20;
const LOAD_HALF: u8 = 0x28;
const LOAD_BYTE: u8 = 0x30;
/// Loads a word at the offset in a register.
const LOAD_WORD_AT: u8 = 0x40;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const XOR: u8 = 0xaf;
const AND_CONSTANT: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const SHIFT_RIGHT: u8 = 0x77;
const SHIFT_RIGHT_32: u8 = 0x74;
const MULTIPLY_32: u8 = 0x24;
const ALWAYS: u8 = 0x05;
const IF_EQUAL: u8 = 0x15;
const IF_OTHER: u8 = 0x55;
const EXIT: u8 = 0x95;

const TCP: u32 = 6;
const UDP: u32 = 17;
/// 2^32 divided by the golden ratio, as in Knuth's multiplicative hash.
const GOLDEN: u32 = 0x9e37_79b1;
