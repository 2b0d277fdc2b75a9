//! What the guest has sent for one call, until the call reads it. Its size is bounded, whatever the
//! guest sends.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Message;
use crate::command::Stream;

/// A request to the guest's agent, with the part of the reply that has arrived so far.
#[derive(Debug)]
pub(super) struct Call {
    heard: Mutex<Heard>,
    came: Condvar,
}

/// What the guest has sent for a call and the call has not read yet.
#[derive(Debug)]
pub(super) struct Heard {
    /// When the guest last sent something for this call.
    pub(super) at: Instant,
    pub(super) has_pong: bool,
    pub(super) can_stream: bool,
    pub(super) is_lost: bool,
    /// Exit status, standard output and standard error of a command that does not stream; `None`
    /// while it runs.
    pub(super) ended: Option<(i32, Vec<u8>, Vec<u8>)>,
    /// Exit status of a command that streams; valid once all `pieces` are read. `None` while it
    /// runs.
    pub(super) done: Option<i32>,
    pieces: VecDeque<(Stream, Vec<u8>)>,
    /// Number of bytes in `pieces`.
    bytes: usize,
    /// Largest allowed number of bytes in `pieces`; 0 for a call that does not stream.
    room: usize,
    /// Whether the guest has sent more than `room` allows.
    pub(super) is_overrun: bool,
    pub(super) is_closed: bool,
    /// When the guest last got a `PING` for this call.
    pinged_at: Instant,
}

impl Call {
    /// Creates a call with room for `room` bytes of pieces.
    pub(super) fn new(room: usize) -> Call {
        let now = Instant::now();
        Call {
            heard: Mutex::new(Heard {
                at: now,
                has_pong: false,
                can_stream: false,
                is_lost: false,
                ended: None,
                done: None,
                pieces: VecDeque::new(),
                bytes: 0,
                room,
                is_overrun: false,
                is_closed: false,
                pinged_at: now,
            }),
            came: Condvar::new(),
        }
    }

    /// Stores a message of the guest for the call.
    pub(super) fn hear(&self, message: Message) {
        let mut heard = self.lock();
        heard.at = Instant::now();
        match message {
            Message::Pong { .. } => heard.has_pong = true,
            Message::Able { .. } => heard.can_stream = true,
            Message::Lost { .. } => heard.is_lost = true,
            Message::Ended {
                status,
                output,
                error,
                ..
            } => {
                heard.ended.get_or_insert((status, output, error));
            }
            Message::Done { status, .. } => {
                heard.done.get_or_insert(status);
            }
            Message::Piece { stream, bytes, .. } => heard.push(stream, bytes),
        }
        drop(heard);
        self.came.notify_all();
    }

    /// Records that the port is closed, and wakes the call.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_all();
    }

    /// Removes all pieces, and discards those that arrive from now on.
    pub(super) fn discard(&self) {
        let mut heard = self.lock();
        heard.pieces.clear();
        (heard.bytes, heard.room) = (0, 0);
    }

    /// Waits until `take` returns a value, which it reads from the bytes that have arrived; `None`
    /// after `limit`.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        mut take: impl FnMut(&mut Heard) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut heard = self.lock();
        loop {
            if let Some(taken) = take(&mut heard) {
                return Some(taken);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.came.wait_timeout(heard, left);
            heard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Time since the guest last sent something for this call.
    pub(super) fn time_since_output(&self) -> Duration {
        self.lock().at.elapsed()
    }

    /// Whether a `PING` is due that tells the guest that this call still waits. If so, the caller
    /// must send it: it counts as sent.
    pub(super) fn is_ping_due(&self, after: Duration) -> bool {
        let mut heard = self.lock();
        let is_due = heard.room > 0 && heard.pinged_at.elapsed() >= after;
        if is_due {
            heard.pinged_at = Instant::now();
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // Every critical section leaves it whole.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn push(&mut self, stream: Stream, bytes: Vec<u8>) {
        if self.room == 0 || bytes.is_empty() {
            return;
        }
        if self.bytes + bytes.len() > self.room {
            self.is_overrun = true;
            return;
        }
        self.bytes += bytes.len();
        match self.pieces.back_mut() {
            Some((last, all)) if *last == stream => all.extend_from_slice(&bytes),
            _ => self.pieces.push_back((stream, bytes)),
        }
    }

    /// Removes and returns the oldest piece.
    pub(super) fn pop(&mut self) -> Option<(Stream, Vec<u8>)> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.1.len();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: usize) -> Message {
        Message::Piece {
            id: "1".into(),
            stream: Stream::Stdout,
            bytes: vec![0; bytes],
        }
    }

    #[test]
    fn guest_that_sends_too_much_fills_no_memory() {
        let call = Call::new(1000);
        call.hear(piece(600));
        call.hear(piece(400));
        assert!(!call.lock().is_overrun);
        for _ in 0..100 {
            call.hear(piece(400));
        }
        assert!(call.lock().is_overrun);
        assert_eq!(call.lock().pop(), Some((Stream::Stdout, vec![0; 1000])));
        let other = Call::new(0);
        other.hear(piece(10));
        assert_eq!(other.lock().pop(), None);
    }

    #[test]
    fn first_answer_counts_and_others_are_dropped() {
        let call = Call::new(0);
        for status in [1, 2] {
            call.hear(Message::Ended {
                id: "1".into(),
                status,
                output: Vec::new(),
                error: Vec::new(),
            });
        }
        let status = call.wait(Duration::ZERO, |heard| heard.ended.take());
        assert_eq!(status.map(|status| status.0), Some(1));
    }
}
