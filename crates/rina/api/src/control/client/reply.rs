//! Reads an HTTP/1.1 response (RFC 9112), its status and its body, within size limits.

use std::io::{self, BufRead, Read};

/// Longest body that is accepted, in bytes.
pub const REPLY_BYTES_MAX: usize = 16 << 20;

const LINE_BYTES_MAX: u64 = 8192;
const HEADERS_MAX: usize = 64;

/// How the reader finds the end of a body: by its length, in chunks, or by the end of the
/// connection.
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// Reads a response and returns its status and body.
///
/// # Errors
/// The error of the connection, or `InvalidData` when the response is malformed or too large.
pub fn read_reply(reader: &mut impl BufRead) -> io::Result<(u16, Vec<u8>)> {
    let status_line = read_line(reader)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| status_line.strip_prefix("HTTP/1.0 "))
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse::<u16>().ok())
        .ok_or_else(|| invalid(format!("the status line {status_line:?}")))?;
    let mut framing = if status == 204 {
        Framing::Length(0)
    } else {
        Framing::UntilClose
    };
    for _ in 0..HEADERS_MAX {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok((status, read_body(reader, framing)?));
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| invalid(format!("the header {line:?}")))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let length = value
                .parse()
                .map_err(|_| invalid(format!("the length {value:?}")))?;
            framing = Framing::Length(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        }
    }
    Err(invalid(format!("more than {HEADERS_MAX} headers")))
}

fn read_body(reader: &mut impl BufRead, framing: Framing) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    match framing {
        Framing::Length(length) => read_exactly(reader, length, &mut body)?,
        Framing::UntilClose => {
            reader
                .take(REPLY_BYTES_MAX as u64 + 1)
                .read_to_end(&mut body)?;
            if body.len() > REPLY_BYTES_MAX {
                return Err(invalid(format!("a body beyond {REPLY_BYTES_MAX} bytes")));
            }
        }
        Framing::Chunked => loop {
            let line = read_line(reader)?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = usize::from_str_radix(digits, 16)
                .map_err(|_| invalid(format!("the chunk length {digits:?}")))?;
            if length == 0 {
                break;
            }
            read_exactly(reader, length, &mut body)?;
            if !read_line(reader)?.is_empty() {
                return Err(invalid("a chunk longer than its length".into()));
            }
        },
    }
    Ok(body)
}

fn read_exactly(reader: &mut impl BufRead, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
    if length > REPLY_BYTES_MAX.saturating_sub(body.len()) {
        return Err(invalid(format!("a body beyond {REPLY_BYTES_MAX} bytes")));
    }
    let start = body.len();
    reader.take(length as u64).read_to_end(body)?;
    if body.len() - start != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Reads one line of the header and returns it without its line end.
///
/// # Errors
/// The connection fails, the line is too long, or it is not UTF-8.
pub(super) fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(if line.len() as u64 + 1 >= LINE_BYTES_MAX {
            invalid(format!("a line beyond {LINE_BYTES_MAX} bytes"))
        } else {
            io::ErrorKind::UnexpectedEof.into()
        });
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| invalid("a header that is not UTF-8".into()))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
