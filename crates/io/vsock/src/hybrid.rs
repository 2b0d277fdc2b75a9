//! The handshake by which a program of the host reaches a guest's port through a Unix socket, as in
//! Firecracker's document "Using the Firecracker Virtio-vsock Device" and in Cloud Hypervisor.
//!
//! ```text
//!  host -> guest:  connect PATH, send "CONNECT 22\n", receive "OK 1073741824\n", then the stream
//!  guest -> host:  the VMM connects to PATH_22; the stream begins at once
//! ```

use std::path::{Path, PathBuf};

/// Longest line of the handshake in bytes, its line feed included.
pub const LINE_BYTES_MAX: usize = 32;

/// Why a line is not part of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// No line feed within [`LINE_BYTES_MAX`] bytes.
    #[error("no line feed within {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The line begins with another word.
    #[error("the line does not begin with the word of its side, CONNECT or OK")]
    Word,
    /// The line does not end with a port in decimal digits.
    #[error("the line does not end with a port from 0 to 4294967295")]
    Port,
}

/// Returns the line with which a program of the host asks for a port of the guest.
#[must_use]
pub fn connect_line(port: u32) -> String {
    format!("CONNECT {port}\n")
}

/// Returns the line with which the VMM answers: the guest has accepted, and `port` is the port of
/// the host's end.
#[must_use]
pub fn ok_line(port: u32) -> String {
    format!("OK {port}\n")
}

/// Reads the line of [`connect_line`] at the start of `bytes`. Returns the port and the length of
/// the line; `None` if more bytes are needed.
///
/// # Errors
/// [`LineError`].
pub fn parse_connect(bytes: &[u8]) -> Result<Option<(u32, usize)>, LineError> {
    // Firecracker also accepts lower case.
    parse(bytes, "CONNECT")
}

/// Reads the line of [`ok_line`] at the start of `bytes`, like [`parse_connect`].
///
/// # Errors
/// [`LineError`].
pub fn parse_ok(bytes: &[u8]) -> Result<Option<(u32, usize)>, LineError> {
    parse(bytes, "OK")
}

/// Returns the path of the Unix socket on which a program of the host accepts what the guest
/// connects to `port`.
#[must_use]
pub fn port_path(path: &Path, port: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("_{port}"));
    name.into()
}

fn parse(bytes: &[u8], word: &str) -> Result<Option<(u32, usize)>, LineError> {
    let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|b| *b == b'\n') else {
        if bytes.len() < LINE_BYTES_MAX {
            return Ok(None);
        }
        return Err(LineError::TooLong);
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| LineError::Word)?;
    let (first, port) = line.split_once(' ').ok_or(LineError::Word)?;
    if !first.eq_ignore_ascii_case(word) {
        return Err(LineError::Word);
    }
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if !is_number {
        return Err(LineError::Port);
    }
    let port = port.parse().map_err(|_| LineError::Port)?;
    Ok(Some((port, end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_and_the_stream_behind_them_stays() {
        for port in [0, 22, u32::MAX] {
            let line = connect_line(port) + "SSH-2.0";
            assert_eq!(
                parse_connect(line.as_bytes()),
                Ok(Some((port, line.len() - 7)))
            );
            assert_eq!(parse_ok(ok_line(port).as_bytes()).unwrap().unwrap().0, port);
        }
        assert_eq!(parse_connect(b"CONNECT 2"), Ok(None));
        assert_eq!(parse_connect(b"connect 7\n"), Ok(Some((7, 10))));
        assert_eq!(port_path(Path::new("/run/v"), 52), Path::new("/run/v_52"));
    }

    #[test]
    fn lines_that_lie_are_refused() {
        for (line, error) in [
            (&b"GET / HTTP/1.1\n"[..], LineError::Word),
            (b"CONNECT\n", LineError::Word),
            (b"\xff\xff 1\n", LineError::Word),
            (b"CONNECT 4294967296\n", LineError::Port),
            (b"CONNECT +1\n", LineError::Port),
            (b"CONNECT 1 \n", LineError::Port),
            (b"CONNECT \n", LineError::Port),
            (&[b'C'; 32], LineError::TooLong),
        ] {
            assert_eq!(parse_connect(line), Err(error), "{line:?}");
        }
        assert_eq!(parse_ok(b"CONNECT 1\n"), Err(LineError::Word));
    }
}
