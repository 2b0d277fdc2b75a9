//! A guest and its disk over one connection between two agents.
//!
//! ```text
//!   source                                     destination
//!     | -- pieces of the disk and the guest --> |   each with the number of its stream
//!     | <-------------- answers of the disk --- |   pieces
//! ```
//!
//! The stream of the disk is NBD in both directions, of which the agents read nothing. Each stream
//! ends with an empty piece. The destination ends its answers before it writes its next message,
//! also if it refuses the node: a source that reads the end before it has ended the disk itself
//! reads the reason next.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{GuestWire, PIECE, read_piece, write_piece};

/// How the relay of a guest and its disk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relayed {
    /// Both streams were sent to their ends.
    Whole,
    /// The destination has ended the disk. Its reason is the next message.
    Refused,
}

/// Sends what QEMU writes to its ends of two sockets, until both are closed, and passes answers to
/// the socket of the disk. Waits for answers until `until`, because the disk may be silent for
/// long.
///
/// # Errors
/// The connection breaks or times out.
pub(crate) fn send_both(
    guest: &UnixStream,
    disk: &UnixStream,
    wire: &mut GuestWire,
    until: Instant,
) -> io::Result<Relayed> {
    let writer = Mutex::new(&mut wire.writer);
    let sending = Sending::default();
    let send = |from: &UnixStream, stream: u8| {
        let sent = send_stream(from, stream, &writer, &sending);
        if sent.is_err() {
            // QEMU learns of it.
            close(guest);
            close(disk);
        }
        sent
    };
    let mut patient = Patient {
        reader: &mut wire.reader,
        sending: &sending,
        until,
    };
    std::thread::scope(|scope| {
        let of_guest = scope.spawn(|| send(guest, GUEST));
        let of_disk = scope.spawn(|| send(disk, DISK));
        let answered = take_answers(&mut patient, disk);
        let is_early = !sending.ends_soon();
        if answered.is_err() || is_early {
            // QEMU cannot send the guest without its disk.
            close(guest);
        }
        close(disk);
        let ended = || Err(io::Error::other("the relay of the guest has ended"));
        let of_disk = of_disk.join().unwrap_or_else(|_| ended());
        let of_guest = of_guest.join().unwrap_or_else(|_| ended());
        answered.and(of_disk).and(of_guest)?;
        Ok(if is_early {
            Relayed::Refused
        } else {
            Relayed::Whole
        })
    })
}

fn send_stream(
    mut from: &UnixStream,
    stream: u8,
    writer: &Mutex<&mut Box<dyn Write + Send>>,
    sending: &Sending,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        let length = match from.read(&mut buffer) {
            // QEMU has closed its end without reading all.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            read => read?,
        };
        if stream == DISK {
            sending.has_sent(length);
        }
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(&[stream])?;
        write_piece(&mut **writer, &buffer[..length])?;
        writer.flush()?;
        if length == 0 {
            return Ok(());
        }
    }
}

/// How far the stream of the disk is at the source.
#[derive(Default)]
struct Sending {
    /// Whether QEMU has ended the stream.
    has_ended: AtomicBool,
    /// Since when the destination has not answered; `None` if it need not.
    asked: Mutex<Option<Instant>>,
}

impl Sending {
    fn has_sent(&self, length: usize) {
        if length == 0 {
            self.has_ended.store(true, Ordering::Release);
        } else {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.get_or_insert_with(Instant::now);
        }
    }

    /// Whether QEMU has ended the stream. If so, the destination may have noticed it first.
    fn ends_soon(&self) -> bool {
        let deadline = Instant::now() + LOOK;
        while !self.has_ended.load(Ordering::Acquire) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        self.has_ended.load(Ordering::Acquire)
    }

    fn has_answer(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether the destination owes an answer for too long. Writes of the guest wait for it.
    fn is_stuck(&self) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some_and(|asked| asked.elapsed() > STUCK)
    }
}

/// Passes answers to the disk until their end. After QEMU has closed its end, they are dropped.
fn take_answers(reader: &mut dyn Read, mut disk: &UnixStream) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut is_open = true;
    loop {
        read_piece(reader, PIECE, &mut buffer)?;
        if buffer.is_empty() {
            return Ok(());
        }
        is_open = is_open && disk.write_all(&buffer).is_ok();
    }
}

/// Passes received pieces to QEMU's sockets of the guest and of the disk, until both have ended,
/// and returns answers of the disk. When this returns, the end of the answers was sent, unless the
/// connection has failed.
///
/// # Errors
/// The connection breaks or times out, or QEMU accepts no more.
pub(crate) fn take_both(
    wire: &mut GuestWire,
    guest: &UnixStream,
    disk: &UnixStream,
) -> io::Result<()> {
    let (reader, writer) = (&mut wire.reader, &mut wire.writer);
    disk.set_read_timeout(Some(LOOK))?;
    for socket in [guest, disk] {
        socket.set_write_timeout(Some(STUCK))?;
    }
    let until = OnceLock::new();
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| send_answers(disk, writer, &until));
        let taken = take_streams(reader, guest, disk);
        if taken.is_err() {
            close(disk);
        }
        until.get_or_init(|| Instant::now() + STUCK);
        let ended = || Err(io::Error::other("the relay of the disk has ended"));
        let answered = answers.join().unwrap_or_else(|_| ended());
        taken.and(answered)
    })
}

fn take_streams(reader: &mut dyn Read, guest: &UnixStream, disk: &UnixStream) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut is_open = [true; 2];
    while is_open != [false; 2] {
        let mut stream = [0];
        reader.read_exact(&mut stream)?;
        read_piece(reader, PIECE, &mut buffer)?;
        let mut to = match stream[0] {
            GUEST if is_open[0] => guest,
            DISK if is_open[1] => disk,
            other => {
                let what =
                    format!("a piece of stream {other}: there is no such stream, or it has ended");
                return Err(io::Error::other(what));
            }
        };
        if buffer.is_empty() {
            is_open[usize::from(stream[0])] = false;
            // QEMU may have closed its end already.
            let _ = to.shutdown(Shutdown::Write);
        } else {
            to.write_all(&buffer)?;
        }
    }
    Ok(())
}

/// Sends answers of the disk until QEMU closes its end, which it must do before `until`, once that
/// is set.
fn send_answers(
    mut disk: &UnixStream,
    writer: &mut dyn Write,
    until: &OnceLock<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let is_late = || until.get().is_some_and(|until| Instant::now() >= *until);
    loop {
        let length = match disk.read(&mut buffer) {
            Err(error) if is_for_time(&error) && !is_late() => continue,
            Err(_) => 0,
            Ok(length) => length,
        };
        write_piece(writer, &buffer[..length])?;
        writer.flush()?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn close(socket: &UnixStream) {
    // It may be closed already.
    let _ = socket.shutdown(Shutdown::Both);
}

/// Reads on after a timeout, until an instant, unless an answer is missing.
struct Patient<'a> {
    reader: &'a mut dyn Read,
    sending: &'a Sending,
    until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(buffer) {
                Err(error)
                    if is_for_time(&error)
                        && Instant::now() < self.until
                        && !self.sending.is_stuck() => {}
                read => {
                    self.sending.has_answer();
                    return read;
                }
            }
        }
    }
}

fn is_for_time(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

const POLL: Duration = Duration::from_millis(5);
/// Interval for checks whether QEMU must have closed the disk.
const LOOK: Duration = Duration::from_secs(1);
/// How long QEMU may take to accept a piece, to close the disk after its end, and to answer. A
/// missing answer is noticed at the next timeout of the connection.
const STUCK: Duration = Duration::from_secs(30);
/// Numbers of the streams.
const GUEST: u8 = 0;
const DISK: u8 = 1;

#[cfg(test)]
mod tests {
    use super::super::{Reply, read, tests::pair, write};
    use super::*;

    fn until() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Reads `count` bytes and answers each with its successor.
    fn answers(mut disk: UnixStream, count: usize) {
        let mut bytes = vec![0; count];
        disk.read_exact(&mut bytes).unwrap();
        bytes
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_add(1));
        disk.write_all(&bytes).unwrap();
        assert_eq!(disk.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn guest_and_disk_pass_each_other() {
        let (mut near, mut far) = pair();
        let (mut guest, guest_near) = UnixStream::pair().unwrap();
        let (mut disk, disk_near) = UnixStream::pair().unwrap();
        let (guest_far, mut guest_there) = UnixStream::pair().unwrap();
        let (disk_far, disk_there) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let relayed = send_both(&guest_near, &disk_near, &mut near, until());
                assert_eq!(relayed.unwrap(), Relayed::Whole);
                assert_eq!(read::<Reply>(&mut near).unwrap(), Reply::Ready);
            });
            scope.spawn(|| {
                take_both(&mut far, &guest_far, &disk_far).unwrap();
                write(&mut far, &Reply::Ready).unwrap();
            });
            scope.spawn(|| answers(disk_there, 100_000));
            scope.spawn(|| {
                let mut come = Vec::new();
                guest_there.read_to_end(&mut come).unwrap();
                assert_eq!(come, sent);
            });
            let asked: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
            disk.write_all(&asked).unwrap();
            let mut answer = vec![0; asked.len()];
            disk.read_exact(&mut answer).unwrap();
            assert!(
                answer
                    .iter()
                    .zip(&asked)
                    .all(|(a, b)| *a == b.wrapping_add(1))
            );
            drop(disk);
            guest.write_all(&sent).unwrap();
            drop(guest);
        });
    }

    #[test]
    fn destination_that_loses_the_disk_says_why() {
        let (mut near, mut far) = pair();
        let (guest, guest_near) = UnixStream::pair().unwrap();
        let (mut disk, disk_near) = UnixStream::pair().unwrap();
        let (guest_far, guest_there) = UnixStream::pair().unwrap();
        let (disk_far, disk_there) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let relayed = send_both(&guest_near, &disk_near, &mut near, until());
                assert_eq!(relayed.unwrap(), Relayed::Refused);
                let reply = read::<Reply>(&mut near).unwrap();
                assert_eq!(reply, Reply::Refused("no room".to_owned()));
            });
            scope.spawn(|| {
                drop((guest_there, disk_there));
                let _ = take_both(&mut far, &guest_far, &disk_far);
                write(&mut far, &Reply::Refused("no room".to_owned())).unwrap();
            });
            // As a QEMU does whose disk was closed.
            assert_eq!(disk.read(&mut [0]).unwrap(), 0);
            drop(guest);
        });
    }

    #[test]
    fn missing_answer_is_noticed() {
        let sending = Sending::default();
        assert!(!sending.is_stuck());
        sending.has_sent(7);
        assert!(!sending.is_stuck());
        let long_ago = Instant::now().checked_sub(STUCK + LOOK).unwrap();
        *sending.asked.lock().unwrap() = Some(long_ago);
        sending.has_sent(7);
        assert!(sending.is_stuck());
        sending.has_answer();
        assert!(!sending.is_stuck());
    }

    #[test]
    fn pieces_of_unknown_streams_are_refused() {
        for bytes in [&[2, 0, 0, 0, 1, 0][..], &[1, 0, 0, 0, 0, 1, 0, 0, 0, 0]] {
            let (mut near, mut far) = pair();
            near.writer.write_all(bytes).unwrap();
            let (guest, _guest_there) = UnixStream::pair().unwrap();
            let (disk, _disk_there) = UnixStream::pair().unwrap();
            let error = take_both(&mut far, &guest, &disk).unwrap_err();
            assert!(error.to_string().contains("stream"), "{error}");
        }
    }
}
