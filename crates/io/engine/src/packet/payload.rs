//! The operations of protocol machines on a packet.

use carina_wire::Payload;

use super::{Body, HEAD_BYTES, Packet};
use crate::pool::Pool;

impl Payload for Packet {
    #[inline]
    fn len(&self) -> usize {
        Packet::len(self)
    }

    #[inline]
    fn copy_prefix(&self, to: &mut [u8]) -> usize {
        let cell = self.cell();
        let count = cell.len().min(to.len());
        let head = cell.head();
        let front = head.len().min(count);
        to[..front].copy_from_slice(&head[..front]);
        if count > front {
            cell.body.copy_to(&mut to[front..count]);
        }
        count
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        let cell = self.cell_mut();
        let front = cell.head().len().min(count);
        cell.start += front as u8;
        if count > front {
            cell.body.advance(count - front);
        }
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        let cell = self.cell_mut();
        let front = cell.head().len();
        if front <= len {
            return cell.body.truncate(len - front);
        }
        // The remaining bytes must end where a body would begin.
        let start = usize::from(cell.start);
        cell.head.copy_within(start..start + len, HEAD_BYTES - len);
        cell.start = (HEAD_BYTES - len) as u8;
        cell.body = Body::Empty;
    }

    #[inline]
    fn prepend(&mut self, header: &[u8]) -> bool {
        if usize::from(self.cell().start) < header.len()
            && (header.len() > HEAD_BYTES || !self.fold())
        {
            return false;
        }
        let cell = self.cell_mut();
        let end = usize::from(cell.start);
        let start = end - header.len();
        cell.head[start..end].copy_from_slice(header);
        cell.start = start as u8;
        true
    }

    fn share(&mut self) -> Option<Packet> {
        let cell = self.cell_mut();
        cell.body = match std::mem::replace(&mut cell.body, Body::Empty) {
            Body::Own(buffer) => Body::Shared(buffer.share()),
            other => other,
        };
        let body = match &cell.body {
            Body::Ring(lease) => Body::Ring(lease.clone()),
            Body::Shared(shared) => Body::Shared(shared.clone()),
            Body::Empty | Body::Own(_) => Body::Empty,
        };
        let mut twin = Packet::new(body, cell.more);
        let same = twin.cell_mut();
        same.bundle = cell.bundle;
        same.start = cell.start;
        let start = usize::from(cell.start);
        same.head[start..].copy_from_slice(&cell.head[start..]);
        Some(twin)
    }

    #[inline]
    fn keep(&mut self) -> bool {
        self.leave_ring(Pool::take_here)
    }

    fn append_to(&self, to: &mut Vec<u8>) {
        Packet::append_to(self, to);
    }

    fn from_vec(bytes: Vec<u8>) -> Option<Packet> {
        let mut buffer = Pool::take_here(bytes.len())?;
        carina_ring::copy_slice(&bytes, buffer.as_mut_slice());
        Some(Packet::from_buffer(buffer, false))
    }

    fn with_capacity(capacity: usize) -> Option<Packet> {
        let mut buffer = Pool::take_here(capacity)?;
        buffer.truncate(0);
        Some(Packet::from_buffer(buffer, false))
    }

    #[inline]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.growing(bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        true
    }

    #[inline]
    fn extend_with(&mut self, other: &Packet) -> bool {
        let Some(room) = self.growing(other.len()) else {
            return false;
        };
        Payload::copy_prefix(other, room);
        true
    }

    fn fit(&mut self) {
        let cell = self.cell_mut();
        let Body::Own(buffer) = &cell.body else {
            return;
        };
        if buffer.len() >= buffer.room() / 3 {
            return;
        }
        if let Some(mut less) = Pool::take_here(buffer.len()) {
            carina_ring::copy_slice(buffer.as_slice(), less.as_mut_slice());
            cell.body = Body::Own(less);
        }
    }
}
