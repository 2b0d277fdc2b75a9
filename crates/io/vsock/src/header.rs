//! The header of a virtio-vsock packet. (VIRTIO 1.2 §5.10.6)
//!
//! ```text
//!  0         8         16        20        24    28     30   32      36          40        44
//! +---------+---------+---------+---------+-----+------+----+-------+-----------+---------+
//! | src cid | dst cid | srcport | dstport | len | type | op | flags | buf_alloc | fwd_cnt |
//! +---------+---------+---------+---------+-----+------+----+-------+-----------+---------+
//! ```

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 44;

/// The context id of the host. (VIRTIO 1.2 §5.10.4)
pub const HOST_CID: u64 = 2;

/// Flag of [`Op::Shutdown`]: the sender receives no more data.
pub const SHUTDOWN_RECEIVE: u32 = 1;

/// Flag of [`Op::Shutdown`]: the sender sends no more data.
pub const SHUTDOWN_SEND: u32 = 2;

/// The type of stream sockets, the only one that this device offers. (VIRTIO 1.2 §5.10.6)
const STREAM: u16 = 1;

/// What a packet asks for. (VIRTIO 1.2 §5.10.6)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens a connection.
    Request,
    /// Accepts a connection.
    Response,
    /// Ends a connection at once, or refuses it.
    Reset,
    /// Announces that the sender stops to send, to receive, or both.
    Shutdown,
    /// Carries data.
    Data,
    /// Carries the sender's credit, which every packet carries.
    CreditUpdate,
    /// Asks for a [`Op::CreditUpdate`].
    CreditRequest,
}

const OPS: [Op; 7] = [
    Op::Request,
    Op::Response,
    Op::Reset,
    Op::Shutdown,
    Op::Data,
    Op::CreditUpdate,
    Op::CreditRequest,
];

/// The header of a packet of a stream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Context id of the sender.
    pub source_cid: u64,
    /// Context id of the receiver.
    pub destination_cid: u64,
    /// Port of the sender.
    pub source_port: u32,
    /// Port of the receiver.
    pub destination_port: u32,
    /// Number of bytes of data behind the header.
    pub len: u32,
    /// Operation that the sender of the packet requests.
    pub op: Op,
    /// Flags of [`Op::Shutdown`].
    pub flags: u32,
    /// Size of the sender's receive buffer in bytes.
    pub buffer_bytes: u32,
    /// Number of bytes that the sender's receive buffer has passed on since the connection began,
    /// modulo 2^32.
    pub forwarded: u32,
}

/// Why bytes are not the header of a packet of a stream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The packet has fewer than [`HEADER_BYTES`] bytes.
    #[error("packet of {bytes} bytes: the header has {HEADER_BYTES}")]
    Short {
        /// Length of the packet in bytes.
        bytes: usize,
    },
    /// The packet belongs to a connection of another type than stream.
    #[error("socket type {0}: the device offers streams (1) only")]
    Type(u16),
    /// The operation has no meaning.
    #[error("operation {0}: must be 1 to 7")]
    Op(u16),
}

impl Header {
    /// Decodes the first bytes of a packet.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
        let short = HeaderError::Short { bytes: bytes.len() };
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(short)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if half(28) != STREAM {
            return Err(HeaderError::Type(half(28)));
        }
        let op = usize::from(half(30))
            .checked_sub(1)
            .and_then(|at| OPS.get(at));
        Ok(Header {
            source_cid: long(0),
            destination_cid: long(8),
            source_port: word(16),
            destination_port: word(20),
            len: word(24),
            op: *op.ok_or(HeaderError::Op(half(30)))?,
            flags: word(32),
            buffer_bytes: word(36),
            forwarded: word(40),
        })
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let op = OPS.iter().position(|op| *op == self.op).unwrap_or_default() as u16 + 1;
        bytes[0..8].copy_from_slice(&self.source_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.destination_cid.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.source_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.destination_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..30].copy_from_slice(&STREAM.to_le_bytes());
        bytes[30..32].copy_from_slice(&op.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buffer_bytes.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.forwarded.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_reads_back_at_the_offsets_of_the_specification() {
        for (number, op) in (1..).zip(OPS) {
            let header = Header {
                source_cid: 3,
                destination_cid: HOST_CID,
                source_port: 0x0102_0304,
                destination_port: 1110,
                len: 5,
                op,
                flags: SHUTDOWN_RECEIVE,
                buffer_bytes: 1 << 18,
                forwarded: u32::MAX,
            };
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes), Ok(header));
            assert_eq!(bytes[16..20], [4, 3, 2, 1]);
            assert_eq!(bytes[28..32], [1, 0, number, 0]);
        }
    }

    #[test]
    fn packets_that_lie_are_refused() {
        let short = Header::decode(&[0; 43]);
        assert_eq!(short, Err(HeaderError::Short { bytes: 43 }));
        let mut bytes = [0; HEADER_BYTES];
        assert_eq!(Header::decode(&bytes), Err(HeaderError::Type(0)));
        bytes[28] = 1;
        for op in [0, 8, 255] {
            bytes[30] = op;
            let refused = Header::decode(&bytes);
            assert_eq!(refused, Err(HeaderError::Op(u16::from(op))));
        }
    }
}
