//! Parses the lines that arrive on the serial port. Invalid lines are skipped.

use crate::base64;

/// A line that the host has sent. `id` is a name that the host chose: in `PING` and `ABLE` for this
/// request, in the other lines for one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// `PING id`: answer with `PONG id`.
    Ping(String),
    /// `TEXT id ESCAPED`: append these bytes, decoded from their escapes, to the shell text of
    /// command `id`. Several such lines can make up one text.
    Text(String, Vec<u8>),
    /// `RUN id`: run the text of command `id`, and send its whole output when it ends.
    Run(String),
    /// `ABLE id`: asks what the agent supports. The agent answers `ABLE id stream`; agents of
    /// earlier versions do not answer.
    Able(String),
    /// `STREAM id BYTES`: run the text of command `id`, and send its output while it runs: at most
    /// `BYTES` bytes, until a `MORE` allows further ones.
    Stream(String, u64),
    /// `MORE id BYTES`: send `BYTES` further bytes of the output of command `id`.
    More(String, u64),
    /// `KILL id`: end command `id`.
    Kill(String),
}

/// Splits received bytes into lines.
#[derive(Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
    is_overlong: bool,
}

impl Lines {
    /// Adds the next bytes, and returns the lines that they complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.is_overlong |= self.line.len() >= LINE_BYTES_MAX;
                if !self.is_overlong {
                    self.line.push(byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if !std::mem::take(&mut self.is_overlong) {
                lines.extend(std::str::from_utf8(&line).ok().and_then(line_of));
            }
        }
        lines
    }
}

fn line_of(line: &str) -> Option<Line> {
    let mut words = line.trim_end_matches('\r').splitn(3, ' ');
    let (verb, id) = (words.next()?, words.next()?);
    let is_id = |c: char| matches!(c, '0'..='9' | 'a'..='f' | '-');
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.chars().all(is_id) {
        return None;
    }
    let (id, rest) = (id.to_owned(), words.next());
    match (verb, rest) {
        ("PING", None) => Some(Line::Ping(id)),
        ("TEXT", rest) => Some(Line::Text(id, unescaped(rest.unwrap_or_default()))),
        ("RUN", None) => Some(Line::Run(id)),
        ("ABLE", None) => Some(Line::Able(id)),
        ("STREAM", Some(bytes)) => Some(Line::Stream(id, bytes.parse().ok()?)),
        ("MORE", Some(bytes)) => Some(Line::More(id, bytes.parse().ok()?)),
        ("KILL", None) => Some(Line::Kill(id)),
        _ => None,
    }
}

/// Decodes the escapes `\\`, `\n`, and `\0` with three octal digits.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'\\', [b'0', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &tail[4..];
            }
            (b'\\', [b'n', ..]) => {
                bytes.push(b'\n');
                rest = &tail[1..];
            }
            (b'\\', [b'\\', ..]) => {
                bytes.push(b'\\');
                rest = &tail[1..];
            }
            _ => bytes.push(byte),
        }
    }
    bytes
}

/// Encodes the answer to a command that has ended. An output of one line of plain text is sent as
/// it is, with `=` in front, because every byte costs an emulated guest tens of microseconds.
pub(crate) fn answer(id: &str, status: i32, output: &[u8], error: &[u8]) -> String {
    let output = match plain(output) {
        Some(line) => format!("={line}\n"),
        None => base64::encode_lines(output),
    };
    let error = base64::encode_lines(error);
    format!("\nBEGIN {id} {status}\n{output}ERROR {id}\n{error}END {id}\n")
}

/// Encodes a piece of a command's output, of at most [`PIECE_BYTES`] bytes, as a line. `verb` is
/// `OUT` or `ERR`.
pub(crate) fn piece(verb: &str, id: &str, bytes: &[u8]) -> String {
    let mut line = String::with_capacity(bytes.len() / 3 * 4 + 96);
    line.push_str(verb);
    line.push(' ');
    line.push_str(id);
    line.push(' ');
    base64::encode_into(&mut line, bytes);
    line.push('\n');
    line
}

/// Returns the line of an output that consists of one line of plain characters; otherwise `None`.
fn plain(output: &[u8]) -> Option<&str> {
    let line = output.strip_suffix(b"\n")?;
    let is_plain = line.len() <= PLAIN_BYTES_MAX
        && line
            .iter()
            .all(|candidate| (b' '..=b'~').contains(candidate));
    std::str::from_utf8(line).ok().filter(|_| is_plain)
}

/// Longest line accepted, in bytes. Lines of the host have at most some 3800.
const LINE_BYTES_MAX: usize = 8192;
const ID_BYTES_MAX: usize = 64;
/// Longest plain line sent, in bytes. The host accepts lines of 4096 bytes.
const PLAIN_BYTES_MAX: usize = 1000;
/// Largest number of bytes in a piece of output. With the verb and the id, its line then stays
/// below the 4096 bytes that the host accepts.
pub(crate) const PIECE_BYTES: usize = 2400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_however_they_are_cut() {
        let text =
            b"noise\nPING 1f-2\n\xffx\nTEXT 3 a\\nb\\\\\\0040\\0377\nRUN 3\nRUN x y\nPING G\n";
        let expected = [
            Line::Ping("1f-2".to_owned()),
            Line::Text("3".to_owned(), b"a\nb\\ \xff".to_vec()),
            Line::Run("3".to_owned()),
        ];
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut all = lines.feed(&text[..cut]);
            all.extend(lines.feed(&text[cut..]));
            assert_eq!(all, expected, "cut at {cut}");
        }
    }

    #[test]
    fn streams_are_begun_fed_and_ended() {
        let text = b"ABLE 1\nSTREAM 2 65536\nSTREAM 2\nSTREAM 2 x\nMORE 2 100\nMORE 2 -1\n\
            KILL 2\nKILL 2 now\n";
        let expected = [
            Line::Able("1".to_owned()),
            Line::Stream("2".to_owned(), 65_536),
            Line::More("2".to_owned(), 100),
            Line::Kill("2".to_owned()),
        ];
        assert_eq!(Lines::default().feed(text), expected);
    }

    #[test]
    fn longest_piece_is_a_line_that_the_host_takes() {
        let id = "f".repeat(ID_BYTES_MAX);
        assert!(piece("OUT", &id, &[0xff; PIECE_BYTES]).len() <= 4096);
        assert_eq!(piece("ERR", "1f", b"foo"), "ERR 1f Zm9v\n");
    }

    #[test]
    fn overlong_line_is_passed_over() {
        let mut lines = Lines::default();
        assert!(lines.feed(&[b'x'; 3 * LINE_BYTES_MAX]).is_empty());
        let after = lines.feed(b" tail\nPING 1\n");
        assert_eq!(after, [Line::Ping("1".to_owned())]);
    }

    #[test]
    fn one_plain_line_is_sent_unencoded() {
        let text = answer("1f", 0, b"time=1.5 ms\n", b"");
        assert_eq!(text, "\nBEGIN 1f 0\n=time=1.5 ms\nERROR 1f\nEND 1f\n");
        for output in [&b"no end"[..], b"two\nlines\n", b"\xc3\xa9\n", b"\t\n"] {
            assert_eq!(plain(output), None);
        }
        let text = answer("2", 7, b"no end", b"bad\n");
        assert_eq!(text, "\nBEGIN 2 7\nbm8gZW5k\nERROR 2\nYmFkCg==\nEND 2\n");
    }
}
