//! When a worker precedes the programs that receive its packets.

use std::time::{Duration, Instant};

use carina_sys::{SchedulePeriod, precede_others};

/// The precedence of a worker's thread, while a stream of packets arrives on one processor.
///
/// The kernel wakes the program that reads a connection as soon as the worker writes a packet of
/// it. On one processor that program would interrupt the worker, read this packet and sleep: two
/// process switches and an acknowledgement for each packet. The sender would see a slow receiver
/// and send short packets. A worker with precedence first writes all packets that have arrived.
///
/// While packets leave, the worker has no precedence: the program that sends should not be
/// interrupted after each packet.
#[derive(Debug)]
pub(super) struct Precedence {
    stream: Stream,
    held: Option<SchedulePeriod>,
}

/// Whether a stream of packets arrives.
#[derive(Debug)]
struct Stream {
    /// Whether precedence has a use, and the system has not refused it.
    may_precede: bool,
    /// When the stream ends, unless more arrives; `None` before the first.
    until: Option<Instant>,
    /// Whether the worker precedes others.
    precedes: bool,
}

impl Precedence {
    /// The precedence of a thread that may run on `cpus` processors.
    pub(super) fn new(cpus: usize) -> Precedence {
        Precedence {
            stream: Stream::new(cpus),
            held: None,
        }
    }

    /// Notes that the worker gave so many bytes to the kernel in its turn at the time `now`, and
    /// takes or gives up precedence.
    pub(super) fn note_received(&mut self, bytes: u64, now: Instant) {
        if let Some(wanted) = self.stream.change(bytes, now) {
            self.held = wanted.then(precede_others).flatten();
            self.stream.set_precedes(wanted, self.held.is_some());
        }
    }
}

impl Stream {
    fn new(cpus: usize) -> Stream {
        Stream {
            may_precede: cpus <= 1,
            until: None,
            precedes: false,
        }
    }

    /// Whether the worker must precede others from now on, or must no longer; `None` for no change.
    /// The caller reports the outcome by [`Stream::set_precedes`].
    fn change(&mut self, bytes: u64, now: Instant) -> Option<bool> {
        if bytes >= STREAM_BYTES && self.may_precede {
            self.until = Some(now + STREAM_TIME);
        }
        let is_stream = self.until.is_some_and(|until| now < until);
        (is_stream != self.precedes).then_some(is_stream)
    }

    /// Reports whether the worker now precedes others as `wanted`. If the system has refused
    /// precedence, it is not asked again.
    fn set_precedes(&mut self, wanted: bool, has_precedence: bool) {
        self.precedes = has_precedence;
        if wanted && !has_precedence {
            self.may_precede = false;
            self.until = None;
        }
    }
}

/// Least number of bytes of a turn that belongs to a stream.
const STREAM_BYTES: u64 = 16 << 10;
/// A stream ends when no turn had as many bytes for this long.
const STREAM_TIME: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_precedes_while_a_stream_arrives() {
        let (mut stream, begin) = (Stream::new(1), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(stream.change(STREAM_BYTES - 1, at(0)), None);
        assert_eq!(stream.change(STREAM_BYTES, at(1)), Some(true));
        stream.set_precedes(true, true);
        assert_eq!(stream.change(STREAM_BYTES, at(15)), None);
        assert_eq!(stream.change(60, at(34)), None);
        assert_eq!(stream.change(60, at(35)), Some(false));
        stream.set_precedes(false, false);
        assert_eq!(stream.change(60, at(36)), None);
        assert_eq!(stream.change(STREAM_BYTES, at(37)), Some(true));
    }

    #[test]
    fn refused_precedence_is_not_asked_for_again() {
        let (mut stream, now) = (Stream::new(1), Instant::now());
        assert_eq!(stream.change(STREAM_BYTES, now), Some(true));
        stream.set_precedes(true, false);
        assert_eq!(stream.change(STREAM_BYTES, now), None);
    }

    #[test]
    fn with_several_processors_no_worker_precedes() {
        assert_eq!(Stream::new(2).change(1 << 20, Instant::now()), None);
    }
}
