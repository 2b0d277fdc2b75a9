//! The header in front of what a virtqueue's buffer carries.
//!
//! ```text
//!  0                  4                  8                  12                 16
//! +------------------+------------------+------------------+------------------+----------
//! | "VMPI"           | version: u32 = 1 | epoch: u32       | seen: u32        | records
//! +------------------+------------------+------------------+------------------+----------
//! ```

/// Bytes of the header.
pub const BLOCK_HEADER_BYTES: usize = 16;

/// The version of blocks and of what stands in them.
pub const BLOCK_VERSION: u32 = 1;

const MAGIC: [u8; 4] = *b"VMPI";

/// Who sends a block, and to whom it is addressed. Integers are little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHeader {
    /// The sender's epoch; 0: it leaves.
    pub epoch: u32,
    /// The epoch of the receiver that the sender answers; 0: none.
    pub seen: u32,
}

/// What a buffer begins with, if not with the header of a block of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockError {
    /// No block: perhaps a frame of a network driver.
    Foreign,
    /// A block of another version.
    Version(u32),
}

impl BlockHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// It is no block, or one of another version.
    pub fn decode(bytes: [u8; BLOCK_HEADER_BYTES]) -> Result<BlockHeader, BlockError> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        if words[0] != MAGIC {
            return Err(BlockError::Foreign);
        }
        match word(1) {
            BLOCK_VERSION => Ok(BlockHeader {
                epoch: word(2),
                seen: word(3),
            }),
            other => Err(BlockError::Version(other)),
        }
    }

    /// Encodes the header.
    pub fn encode(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        let (words, _) = bytes.as_chunks_mut::<4>();
        words[0] = MAGIC;
        words[1] = BLOCK_VERSION.to_le_bytes();
        words[2] = self.epoch.to_le_bytes();
        words[3] = self.seen.to_le_bytes();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_documented_bytes() {
        let header = BlockHeader {
            epoch: 0x0403_0201,
            seen: 0x0807_0605,
        };
        let bytes = *b"VMPI\x01\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!(header.encode(), bytes);
        assert_eq!(BlockHeader::decode(bytes), Ok(header));
    }

    #[test]
    fn frames_and_other_versions_have_errors_of_their_own() {
        let frame = *b"\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff";
        assert_eq!(BlockHeader::decode(frame), Err(BlockError::Foreign));
        let mut newer = BlockHeader::default().encode();
        newer[4] = 9;
        assert_eq!(BlockHeader::decode(newer), Err(BlockError::Version(9)));
    }
}
