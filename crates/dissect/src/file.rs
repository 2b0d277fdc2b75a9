//! Capture files: pcapng, and the older pcap.

use carina_wire::pcapng::{CaptureError, Item, Reader};

use super::{Classic, FileError};

/// Reads a file portion by portion.
pub enum AnyReader {
    /// pcapng.
    Blocks(Reader),
    /// The older kind.
    Classic(Classic),
}

impl AnyReader {
    /// A reader for a file with these first bytes, which must then be fed to it.
    pub fn of_file(begin: &[u8]) -> AnyReader {
        let magic = begin.first_chunk().copied();
        match magic.and_then(Classic::of_magic) {
            Some(classic) => AnyReader::Classic(classic),
            None => AnyReader::Blocks(Reader::new()),
        }
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        match self {
            AnyReader::Blocks(reader) => reader.feed(bytes),
            AnyReader::Classic(reader) => reader.feed(bytes),
        }
    }

    /// The next item; `None` when more bytes are needed.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn poll(&mut self) -> Result<Option<Item<'_>>, FileError> {
        match self {
            AnyReader::Blocks(reader) => reader.poll().map_err(wrong),
            AnyReader::Classic(reader) => reader.poll(),
        }
    }

    /// Bytes that are left: part of a block when the file ends here.
    pub fn rest(&self) -> usize {
        match self {
            AnyReader::Blocks(reader) => reader.rest(),
            AnyReader::Classic(reader) => reader.rest(),
        }
    }
}

fn wrong(error: CaptureError) -> FileError {
    match error {
        CaptureError::Foreign => FileError::Foreign(error),
        _ => FileError::Block(error),
    }
}
