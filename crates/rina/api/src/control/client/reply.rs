//! Reads an HTTP/1.1 response (RFC 9112), its status and its body, within size limits.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;

/// Longest body that is accepted, in bytes.
pub(crate) const REPLY_BYTES_MAX: usize = 16 << 20;

/// Content type of an answer that is a stream: each line is a JSON document.
pub const LINES: &str = "application/x-ndjson";

/// Longest line of a stream, in bytes.
pub(crate) const STREAM_LINE_BYTES_MAX: usize = 256 << 10;

const BODY_BYTES: usize = 64 << 10;
const LINE_BYTES_MAX: u64 = 8192;
const HEADERS_MAX: usize = 64;

/// A body that is being read, with the bytes that remain.
struct Body<'a, R> {
    reader: &'a mut R,
    framing: Framing,
}

/// How the reader finds the end of a body: by its length, in chunks, or by the end of the
/// connection. Also counts the bytes that remain.
#[derive(Clone, Copy)]
enum Framing {
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

#[derive(Clone, Copy)]
enum Chunk {
    First,
    /// The reader is inside a chunk, of which this many bytes remain.
    Within(u64),
    Last,
}

/// The status and the headers of an answer, as far as the reader needs them.
struct Head {
    status: u16,
    framing: Framing,
    is_lines: bool,
}

/// How a server answered a request for a stream: with lines, or with a whole body.
#[derive(Debug)]
pub enum StreamReply {
    /// A stream of lines. All were passed to the caller, to the end of the stream or until the
    /// caller asked for no more.
    Lines,
    /// The status and the body of an answer that is not a stream: a refusal, or the answer of a
    /// server that does not stream.
    Whole(u16, Vec<u8>),
}

/// Reads a response and returns its status and body.
///
/// # Errors
/// The error of the connection, or `InvalidData` when the response is malformed or too large.
pub fn read_reply(reader: &mut impl BufRead) -> io::Result<(u16, Vec<u8>)> {
    let head = read_head(reader)?;
    Ok((head.status, read_body(reader, head.framing)?))
}

/// Reads an answer and, if it is a stream ([`LINES`]), calls `on_line` with each line, without the
/// end of the line. A stream may have any number of lines. Stops when `on_line` returns
/// [`ControlFlow::Break`].
///
/// # Errors
/// As of [`read_reply`]; a line is longer than `STREAM_LINE_BYTES_MAX`.
pub fn read_stream(
    reader: &mut impl BufRead,
    on_line: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<StreamReply> {
    let head = read_head(reader)?;
    let framing = head.framing;
    if !head.is_lines || !(200..300).contains(&head.status) {
        return Ok(StreamReply::Whole(head.status, read_body(reader, framing)?));
    }
    let mut body = BufReader::with_capacity(BODY_BYTES, Body { reader, framing });
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes_max = STREAM_LINE_BYTES_MAX as u64 + 1;
        { &mut body }.take(bytes_max).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(StreamReply::Lines);
        }
        if line.pop() != Some(b'\n') {
            return Err(if line.len() >= STREAM_LINE_BYTES_MAX {
                invalid(format!("a line beyond {STREAM_LINE_BYTES_MAX} bytes"))
            } else {
                io::ErrorKind::UnexpectedEof.into()
            });
        }
        if on_line(&line).is_break() {
            return Ok(StreamReply::Lines);
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Head> {
    let status_line = read_line(reader)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| status_line.strip_prefix("HTTP/1.0 "))
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse::<u16>().ok())
        .ok_or_else(|| invalid(format!("the status line {status_line:?}")))?;
    let framing = if status == 204 {
        Framing::Length(0)
    } else {
        Framing::UntilClose
    };
    let mut head = Head {
        status,
        framing,
        is_lines: false,
    };
    for _ in 0..HEADERS_MAX {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(head);
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| invalid(format!("the header {line:?}")))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let length = value
                .parse()
                .map_err(|_| invalid(format!("the length {value:?}")))?;
            head.framing = Framing::Length(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.framing = Framing::Chunked(Chunk::First);
        } else if name.eq_ignore_ascii_case("content-type") {
            head.is_lines = value == LINES;
        }
    }
    Err(invalid(format!("more than {HEADERS_MAX} headers")))
}

fn read_body(reader: &mut impl BufRead, framing: Framing) -> io::Result<Vec<u8>> {
    let too_long = || invalid(format!("a body beyond {REPLY_BYTES_MAX} bytes"));
    if matches!(framing, Framing::Length(length) if length > REPLY_BYTES_MAX as u64) {
        return Err(too_long());
    }
    let (mut bytes, bytes_max) = (Vec::new(), REPLY_BYTES_MAX as u64 + 1);
    Body { reader, framing }
        .take(bytes_max)
        .read_to_end(&mut bytes)?;
    if bytes.len() > REPLY_BYTES_MAX {
        return Err(too_long());
    }
    Ok(bytes)
}

impl<R: BufRead> Read for Body<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Framing::Chunked(Chunk::First | Chunk::Within(0)) = self.framing {
            self.begin_chunk()?;
        }
        let left = match &mut self.framing {
            Framing::UntilClose => return self.reader.read(buffer),
            Framing::Chunked(Chunk::Last) | Framing::Length(0) => return Ok(0),
            Framing::Chunked(Chunk::First) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Framing::Length(left) | Framing::Chunked(Chunk::Within(left)) => left,
        };
        let bytes_max = usize::try_from(*left).unwrap_or(usize::MAX);
        let bytes_max = bytes_max.min(buffer.len());
        let length = self.reader.read(&mut buffer[..bytes_max])?;
        if length == 0 && bytes_max > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left -= length as u64;
        Ok(length)
    }
}

impl<R: BufRead> Body<'_, R> {
    /// Reads the end of a chunk, if there was one, and the length of the next.
    fn begin_chunk(&mut self) -> io::Result<()> {
        let is_first = matches!(self.framing, Framing::Chunked(Chunk::First));
        if !is_first && !read_line(self.reader)?.is_empty() {
            return Err(invalid("a chunk longer than its length".into()));
        }
        let line = read_line(self.reader)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16)
            .map_err(|_| invalid(format!("the chunk length {digits:?}")))?;
        self.framing = Framing::Chunked(match length {
            0 => Chunk::Last,
            length => Chunk::Within(length),
        });
        Ok(())
    }
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
