//! The messages of the ivshmem server protocol, version 0 (QEMU, "Device Specification for Inter-VM
//! shared memory device", section "ivshmem Client-Server protocol"): 64-bit little-endian integers,
//! some with a file descriptor.
//!
//! ```text
//! 0                      the protocol's version
//! VM_ID                  the client's own peer id
//! -1          + fd       the shared memory
//! PEER        + fd       a doorbell of a peer: one message per vector
//! VM_ID       + fd       a doorbell of the client itself: one message per vector
//! PEER                   without fd: the peer is gone (never sent: QEMU 7.2 may crash on it)
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use carina_sys::send_with_fds;

/// The ivshmem peer id of every VM. Ids must differ only within one QEMU, and each QEMU has its own
/// server.
pub(super) const VM_ID: u16 = 1;

/// The peer id of the first host's node that serves a QEMU. Each restarted node takes the next id.
pub(super) const HOST_ID_FIRST: u16 = 2;

const PROTOCOL_VERSION: i64 = 0;
const SHARED_MEMORY: i64 = -1;

/// Sends a QEMU that is new to this region everything it needs: the memory and both doorbells.
pub(super) fn send_welcome(
    socket: impl AsFd,
    memory: BorrowedFd<'_>,
    host_id: u16,
    host_doorbell: BorrowedFd<'_>,
    guest_doorbell: BorrowedFd<'_>,
) -> io::Result<()> {
    let socket = socket.as_fd();
    send(socket, PROTOCOL_VERSION, None)?;
    send(socket, i64::from(VM_ID), None)?;
    send(socket, SHARED_MEMORY, Some(memory))?;
    send(socket, i64::from(host_id), Some(host_doorbell))?;
    send(socket, i64::from(VM_ID), Some(guest_doorbell))
}

/// Sends a QEMU that already has the memory the doorbell of a new host and one more doorbell for
/// the VM. QEMU assigns the latter to the VM's next vector. An id that was used before crashes QEMU
/// 7.2. A doorbell beyond the last vector only makes QEMU print an error.
pub(super) fn send_new_host(
    socket: impl AsFd,
    host_id: u16,
    host_doorbell: BorrowedFd<'_>,
    guest_doorbell: BorrowedFd<'_>,
) -> io::Result<()> {
    let socket = socket.as_fd();
    send(socket, i64::from(host_id), Some(host_doorbell))?;
    send(socket, i64::from(VM_ID), Some(guest_doorbell))
}

fn send(socket: BorrowedFd<'_>, value: i64, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_with_fds(socket, &value.to_le_bytes(), fd.as_slice())
}
