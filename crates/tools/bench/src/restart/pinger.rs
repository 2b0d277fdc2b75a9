//! Sends pings at a fixed rate, and records when answers arrive (RFC 792).

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};

use crate::error::{Attempt, Error, Result};

/// Sends a ping every [`EVERY`], until it is ended or dropped.
pub(super) struct Pinger {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    socket: OwnedFd,
    to: Ipv4Addr,
    /// When set, the sending thread sends no more pings.
    is_quiet: AtomicBool,
    is_over: AtomicBool,
    sent: AtomicU64,
    /// Arrival times of the answers.
    answers: Mutex<Vec<Instant>>,
}

impl Pinger {
    /// Starts to ping. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn start(to: Ipv4Addr) -> Result<Pinger> {
        let icmp = Some(ipproto::ICMP);
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, icmp);
        let shared = Arc::new(Shared {
            socket: socket
                .map_err(std::io::Error::from)
                .attempt("a raw socket of ICMP (CAP_NET_RAW)")?,
            to,
            is_quiet: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answers: Mutex::new(Vec::new()),
        });
        let start = |work: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || work(&shared))
        };
        let threads = vec![start(Shared::send), start(Shared::receive)];
        Ok(Pinger { shared, threads })
    }

    /// Waits until nearly all pings in an interval of [`STEADY`] are answered.
    ///
    /// # Errors
    /// They are not within `limit`.
    pub(super) fn wait_until_steady(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            let (sent, answers) = self.counts();
            std::thread::sleep(STEADY);
            let (sent, answers) = (self.counts().0 - sent, self.counts().1 - answers);
            if answers * 10 >= sent * 9 && answers > 0 {
                return Ok(());
            }
        }
        let to = self.shared.to;
        Err(Error::NoAnswer(format!("{to} does not answer pings")))
    }

    /// Ends the pings. Returns the number of pings without an answer, and the longest time between
    /// two answers.
    ///
    /// # Errors
    /// Fewer than two answers arrived.
    pub(super) fn end(mut self) -> Result<(u64, Duration)> {
        self.shared.is_quiet.store(true, Ordering::Relaxed);
        std::thread::sleep(LAST_ANSWER);
        self.stop();
        let answers = self.shared.answers();
        let gaps = answers.windows(2).map(|pair| pair[1] - pair[0]);
        let gap = gaps.max();
        let gap = gap.ok_or_else(|| Error::NoAnswer(format!("{}: no answers", self.shared.to)))?;
        let sent = self.shared.sent.load(Ordering::Relaxed);
        Ok((sent.saturating_sub(answers.len() as u64), gap))
    }

    fn counts(&self) -> (u64, u64) {
        let sent = self.shared.sent.load(Ordering::Relaxed);
        (sent, self.shared.answers().len() as u64)
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn answers(&self) -> std::sync::MutexGuard<'_, Vec<Instant>> {
        let lock = self.answers.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn send(&self) {
        let to = SocketAddrV4::new(self.to, 0);
        let mut next = Instant::now();
        while !self.is_over() {
            if !self.is_quiet.load(Ordering::Relaxed) {
                let number = self.sent.fetch_add(1, Ordering::Relaxed) as u16;
                // A ping that the kernel refuses counts as lost: the interface has no carrier.
                let _ = sendto(&self.socket, &request(number), SendFlags::empty(), &to);
            }
            next += EVERY;
            // After a pause of this thread, the missed pings are not sent.
            next = next.max(Instant::now());
            std::thread::sleep(next - Instant::now().min(next));
        }
    }

    fn receive(&self) {
        let mut bytes = [0; 256];
        let slice = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        while !self.is_over() {
            let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
            if !matches!(poll(&mut ready, Some(&slice)), Ok(1)) {
                continue;
            }
            let now = Instant::now();
            if let Ok((len, _)) = recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT)
                && is_answer(&bytes[..len], self.to)
            {
                self.answers().push(now);
            }
        }
    }
}

/// An echo request of 64 bytes.
fn request(number: u16) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 8;
    bytes[4..6].copy_from_slice(&identifier().to_be_bytes());
    bytes[6..8].copy_from_slice(&number.to_be_bytes());
    let (words, _) = bytes.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    bytes
}

/// Whether an IPv4 packet is the answer to one of these pings.
fn is_answer(packet: &[u8], from: Ipv4Addr) -> bool {
    let header = packet
        .first()
        .map_or(0, |first| usize::from(first & 15) * 4);
    let Some(icmp) = packet.get(header..).filter(|icmp| icmp.len() == 64) else {
        return false;
    };
    packet.get(12..16) == Some(&from.octets()[..])
        && icmp[0] == 0
        && icmp[4..6] == identifier().to_be_bytes()
}

/// The identifier by which the pings of this process are recognised.
fn identifier() -> u16 {
    std::process::id() as u16
}

/// Time between two pings.
const EVERY: Duration = Duration::from_millis(1);

/// How long pings must be answered until the guest counts as reachable.
const STEADY: Duration = Duration::from_millis(300);

/// How long the last answer may take.
const LAST_ANSWER: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_checksum_and_answers_are_known() {
        let mut bytes = request(7);
        let (words, _) = bytes.as_chunks::<2>();
        let sum: u32 = words
            .iter()
            .map(|word| u32::from(u16::from_be_bytes(*word)))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        let from = Ipv4Addr::new(10, 0, 0, 2);
        let mut packet = vec![0x45; 20];
        packet[12..16].copy_from_slice(&from.octets());
        assert!(!is_answer(&[&packet[..], &bytes].concat(), from));
        bytes[0] = 0;
        packet.extend(bytes);
        assert!(is_answer(&packet, from));
        assert!(!is_answer(&packet, Ipv4Addr::new(10, 0, 0, 3)));
        assert!(!is_answer(&packet[..30], from) && !is_answer(&[], from));
    }
}
