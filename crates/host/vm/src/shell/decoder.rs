//! Decodes the messages of the guest's agent from a stream of bytes. It does no I/O.

use super::base64;
use crate::command::Stream;

/// A message that the guest's agent has sent over the command port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The answer to a `PING`.
    Pong {
        /// The identifier of the `PING`.
        id: String,
    },
    /// A command has ended.
    Ended {
        /// Identifier with which the host sent the command.
        id: String,
        /// Exit status with which the guest's shell ended the command.
        status: i32,
        /// Standard output, at most [`OUTPUT_BYTES_MAX`] bytes.
        output: Vec<u8>,
        /// Standard error, at most [`OUTPUT_BYTES_MAX`] bytes.
        error: Vec<u8>,
    },
    /// The agent can send the output of a command while the command runs. An agent of an earlier
    /// version never sends this message.
    Able {
        /// The identifier of the `ABLE`.
        id: String,
    },
    /// A piece of the output of a command that streams.
    Piece {
        /// Identifier of the command that wrote the output.
        id: String,
        /// Standard output or standard error.
        stream: Stream,
        /// The bytes; they fit on one line of the port.
        bytes: Vec<u8>,
    },
    /// A command that streams has ended; all of its output came before.
    Done {
        /// Identifier of the command that has ended.
        id: String,
        /// Exit status with which the guest's shell ended the command.
        status: i32,
    },
    /// The guest did not receive the complete text of a command, and ran nothing.
    Lost {
        /// Identifier of the command that the guest did not run.
        id: String,
    },
}

impl Message {
    /// The identifier of the request.
    pub fn id(&self) -> &str {
        match self {
            Message::Pong { id }
            | Message::Ended { id, .. }
            | Message::Able { id }
            | Message::Piece { id, .. }
            | Message::Done { id, .. }
            | Message::Lost { id } => id,
        }
    }
}

/// Assembles lines into messages. Invalid lines are ignored.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    overlong: bool,
    answer: Option<Answer>,
}

#[derive(Debug)]
struct Answer {
    id: String,
    status: i32,
    output: Vec<u8>,
    error: Vec<u8>,
    in_error: bool,
}

impl Decoder {
    /// Creates a decoder that expects the start of a message.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Takes the next bytes. Returns the messages that they complete.
    #[must_use]
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.overlong |= self.line.len() >= LINE_BYTES_MAX;
                if !self.overlong {
                    self.line.push(byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if !std::mem::take(&mut self.overlong)
                && let Ok(line) = std::str::from_utf8(&line)
            {
                messages.extend(self.line(line.trim_end_matches('\r')));
            }
        }
        messages
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        // A line of base64 never begins with `=`.
        if let (Some(text), Some(answer)) = (line.strip_prefix('='), &mut self.answer) {
            answer.output = format!("{text}\n").into_bytes();
            return None;
        }
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        if let Some(message) = of_stream(&words) {
            return Some(message);
        }
        match (&words[..], &mut self.answer) {
            (["PONG", id], _) => {
                return Some(Message::Pong {
                    id: (*id).to_owned(),
                });
            }
            (["BEGIN", id, status], _) => {
                // The guest has restarted, so its unfinished answer is dropped.
                self.answer = status.parse().ok().map(|status| Answer {
                    id: (*id).to_owned(),
                    status,
                    output: Vec::new(),
                    error: Vec::new(),
                    in_error: false,
                });
            }
            (["ERROR", id], Some(answer)) if *id == answer.id => answer.in_error = true,
            (["END", id], Some(answer)) if *id == answer.id => {
                let Answer {
                    id,
                    status,
                    output,
                    error,
                    ..
                } = self.answer.take()?;
                return Some(Message::Ended {
                    id,
                    status,
                    output,
                    error,
                });
            }
            ([data], Some(answer)) => {
                let into = if answer.in_error {
                    &mut answer.error
                } else {
                    &mut answer.output
                };
                if let Some(bytes) = base64::decode(data) {
                    let room = OUTPUT_BYTES_MAX - into.len();
                    into.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
            }
            _ => {}
        }
        None
    }
}

/// The message in a line about a command that streams; `None` for other lines.
fn of_stream(words: &[&str]) -> Option<Message> {
    let piece = |id: &str, stream, data: &str| {
        Some(Message::Piece {
            id: id.to_owned(),
            stream,
            bytes: base64::decode(data)?,
        })
    };
    match words {
        ["OUT", id, data] => piece(id, Stream::Stdout, data),
        ["ERR", id, data] => piece(id, Stream::Stderr, data),
        ["DONE", id, status] => Some(Message::Done {
            id: (*id).to_owned(),
            status: status.parse().ok()?,
        }),
        ["ABLE", id, "stream"] => Some(Message::Able {
            id: (*id).to_owned(),
        }),
        ["LOST", id] => Some(Message::Lost {
            id: (*id).to_owned(),
        }),
        _ => None,
    }
}

/// Largest size of an output in bytes; the rest is cut off.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Longest line in bytes. busybox writes 76 characters of base64 per line; marker lines are
/// shorter.
const LINE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(id: &str, status: i32, output: &[u8], error: &[u8]) -> Message {
        let (output, error) = (output.to_vec(), error.to_vec());
        Message::Ended {
            id: id.into(),
            status,
            output,
            error,
        }
    }

    const ANSWER: &str = "\nBEGIN 1f 7\nZm9v\nYmFy\n\nERROR 1f\nZg==\n\nEND 1f\n";

    #[test]
    fn answer_is_understood_however_it_is_cut() {
        for cut in 0..ANSWER.len() {
            let mut decoder = Decoder::new();
            let (head, tail) = ANSWER.as_bytes().split_at(cut);
            let mut messages = decoder.feed(head);
            messages.extend(decoder.feed(tail));
            assert_eq!(messages, [ended("1f", 7, b"foobar", b"f")], "cut at {cut}");
        }
    }

    #[test]
    fn plain_text_lines_are_the_output() {
        let mut decoder = Decoder::new();
        let messages = decoder.feed(b"=lost\nBEGIN 1 0\n=time=1.5 ms\nERROR 1\n\nEND 1\n");
        assert_eq!(messages, [ended("1", 0, b"time=1.5 ms\n", b"")]);
    }

    #[test]
    fn pieces_come_between_answers() {
        let mut decoder = Decoder::new();
        let text = "ABLE 1 stream\nABLE 1 fly\nOUT 2 Zm9v\nERR 2 Zg==\nOUT 2 no!\nOUT 2\n\
                    BEGIN 1f 7\nDONE 2 x\nZm9vYmFy\nERROR 1f\nZg==\nEND 1f\nDONE 2 3\nLOST 4\n";
        let id = || "2".to_owned();
        let piece = |stream, bytes: &[u8]| Message::Piece {
            id: id(),
            stream,
            bytes: bytes.to_vec(),
        };
        assert_eq!(
            decoder.feed(text.as_bytes()),
            [
                Message::Able { id: "1".into() },
                piece(Stream::Stdout, b"foo"),
                piece(Stream::Stderr, b"f"),
                ended("1f", 7, b"foobar", b"f"),
                Message::Done {
                    id: id(),
                    status: 3
                },
                Message::Lost { id: "4".into() },
            ]
        );
    }

    #[test]
    fn noise_around_an_answer_is_passed_over() {
        let mut decoder = Decoder::new();
        let long = "x".repeat(100_000);
        let noise = format!("\u{0}garbage {long}\nEND 1f\nBEGIN x notanumber\n{ANSWER}PONG 2\n");
        let mut bytes = vec![0xff, 0xfe, b'\n'];
        bytes.extend(noise.as_bytes());
        let pong = Message::Pong { id: "2".into() };
        assert_eq!(
            decoder.feed(&bytes),
            [ended("1f", 7, b"foobar", b"f"), pong]
        );
    }

    #[test]
    fn answer_cut_short_by_a_reboot_is_superseded() {
        let mut decoder = Decoder::new();
        assert!(decoder.feed(b"BEGIN a 0\nZm9v\n").is_empty());
        assert_eq!(
            decoder.feed(ANSWER.as_bytes()),
            [ended("1f", 7, b"foobar", b"f")]
        );
    }

    #[test]
    fn endless_output_is_cut_off_at_its_limit() {
        let mut decoder = Decoder::new();
        let _ = decoder.feed(b"BEGIN a 0\n");
        let line = format!("{}\n", "A".repeat(4000));
        for _ in 0..OUTPUT_BYTES_MAX / 3000 + 10 {
            assert!(decoder.feed(line.as_bytes()).is_empty());
        }
        match &decoder.feed(b"ERROR a\nEND a\n")[..] {
            [Message::Ended { output, .. }] => assert_eq!(output.len(), OUTPUT_BYTES_MAX),
            other => panic!("{other:?}"),
        }
    }
}
