//! The marker by which `read` and `write` of the C library recognize the socket of a flow.
//!
//! The kernel stores the marker in socket options, so that it follows the descriptor through `dup`,
//! `fork` and `exec`. `c/flow_io.c` reads the marker and has a drawing of it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::flow::SocketFlow;

/// Sets the marker on a flow's socket before the socket is given to the C program.
pub(super) fn mark_flow_socket(flow: &SocketFlow) -> Result<(), Errno> {
    let socket = flow.socket.as_fd();
    let stream = if flow.info.spec.msg_boundaries {
        0
    } else {
        STREAM
    };
    let marker = MAGIC | stream | u64::from(sdu_max(flow)?);
    never_restart_waits(socket)?;
    set(socket, libc::SO_PEEK_OFF, &0_i32)?;
    // A kernel that stores only 32 bits loses the marker. `read` and `write` then treat the socket
    // like any other.
    set(socket, libc::SO_MAX_PACING_RATE, &marker)
}

/// The longest SDU of a flow in bytes; `EINVAL` when the descriptor is not a flow.
pub(super) fn sdu_max_of(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    let marker = get(fd, libc::SO_MAX_PACING_RATE)?;
    if marker & MAGIC_MASK != MAGIC {
        return Err(Errno::INVAL);
    }
    Ok((marker & SDU_MAX) as u32)
}

/// Makes every wait on a socket end with `EINTR` when a signal arrives, even with `SA_RESTART`. The
/// kernel does not restart waits that have a timeout, so the socket gets one of ten years.
pub(super) fn never_restart_waits(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let limit = libc::timeval {
        tv_sec: TEN_YEARS_S,
        tv_usec: 0,
    };
    set(socket, libc::SO_RCVTIMEO, &limit)?;
    set(socket, libc::SO_SNDTIMEO, &limit)
}

/// The longest SDU that the node promises, limited to what the socket can send in one message.
fn sdu_max(flow: &SocketFlow) -> Result<u32, Errno> {
    let buffer = rustix::net::sockopt::socket_send_buffer_size(&flow.socket)?;
    let fits = buffer.saturating_sub(KERNEL_RESERVE) as u64;
    let sdu_max = flow.info.sdu_max.min(fits).min(SDU_MAX);
    u32::try_from(sdu_max).map_err(|_| Errno::OVERFLOW)
}

fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> Result<(), Errno> {
    // SAFETY: `value` is valid for reads of the length given, and the call keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}

/// Reads a socket option of 64 bits; `EINVAL` if the kernel returns another size.
fn get(socket: BorrowedFd<'_>, option: libc::c_int) -> Result<u64, Errno> {
    let (mut value, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: `value` is valid for writes of `length` bytes, and the call keeps no pointer.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        Err(last_error())
    } else {
        Ok(value)
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The upper half of the marker: "RINA" in ASCII.
const MAGIC: u64 = 0x5249_4e41 << 32;
const MAGIC_MASK: u64 = 0xffff_ffff << 32;

/// Flag: the flow need not keep the boundaries of SDUs, so `write` may split a long write.
const STREAM: u64 = 1 << 31;

/// The bits of the marker that contain the longest SDU, in bytes.
const SDU_MAX: u64 = STREAM - 1;

const TEN_YEARS_S: libc::time_t = 10 * 365 * 24 * 3600;

/// Bytes of a socket's send buffer that the kernel uses itself for each message
/// (`unix_dgram_sendmsg`).
const KERNEL_RESERVE: usize = 32;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::link::FlowInfo;
    use carina_api::{FlowSpec, PortId};
    use carina_sys::socketpair_seqpacket;
    use std::os::fd::OwnedFd;

    /// A flow, and the socket of its other end.
    fn flow(sdu_max: u64) -> (SocketFlow, OwnedFd) {
        let (socket, other) = socketpair_seqpacket().unwrap();
        let flow = SocketFlow {
            socket,
            info: FlowInfo {
                port: PortId(1),
                local: "a".parse().unwrap(),
                remote: "b".parse().unwrap(),
                dif: "d".parse().unwrap(),
                spec: FlowSpec::unreliable(),
                sdu_max,
            },
        };
        (flow, other)
    }

    #[test]
    fn marker_gives_every_copy_the_largest_sdu() {
        let (flow, _other) = flow(1424);
        let copy = flow.socket.try_clone().unwrap();
        assert_eq!(sdu_max_of(copy.as_fd()), Err(Errno::INVAL));
        mark_flow_socket(&flow).unwrap();
        assert_eq!(sdu_max_of(copy.as_fd()), Ok(1424));
    }

    #[test]
    fn largest_sdu_fits_the_socket() {
        let (flow, _other) = flow(u64::MAX);
        mark_flow_socket(&flow).unwrap();
        let sdu_max = sdu_max_of(flow.socket.as_fd()).unwrap() as usize;
        let sdu = vec![0; sdu_max];
        assert_eq!(rustix::io::write(&flow.socket, &sdu), Ok(sdu_max));
    }
}
