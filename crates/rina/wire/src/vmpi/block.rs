//! The header of a block, which is the content of one virtqueue buffer of VMPI.
//!
//! ```text
//!  0                  4                  8                  12                 16
//! +------------------+------------------+------------------+------------------+----------
//! | "VMPI"           | version: u32 = 1 | epoch: u32       | seen: u32        | records
//! +------------------+------------------+------------------+------------------+----------
//! ```

/// Length of the header of a block, in bytes.
pub const BLOCK_HEADER_BYTES: usize = 16;

/// Version of blocks and of the records in them.
pub const BLOCK_VERSION: u32 = 1;

const MAGIC: [u8; 4] = *b"VMPI";

/// The header of a block: the epoch of the sender, and the epoch of the receiver for which the
/// block is meant. Integers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHeader {
    /// Epoch of the sender: a random number that it draws when it starts; 0 when it leaves.
    pub epoch: u32,
    /// Epoch of the receiver that the sender has seen; 0 when it has seen none.
    pub seen: u32,
}

/// Why a buffer does not start with a valid block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockError {
    /// The buffer contains no block; perhaps a frame of a network driver.
    Foreign,
    /// The block has this other version.
    Version(u32),
}

impl BlockHeader {
    /// Decodes the header of a block.
    ///
    /// # Errors
    /// The bytes are not a block, or have another version.
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

    /// Encodes the header as the first bytes of a block.
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
