//! Sends 1000 ICMP echo requests (RFC 792) per second to a node, to measure how many frames are
//! lost, and for how long.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, bind, ipproto, recv, sendto, socket,
};

use crate::error::{Attempt, Error, Result};
use crate::namespace;
use crate::probe::{fresh_number, reply_to, request};

/// A running stream of echo requests. It ends after two minutes at the latest.
#[derive(Debug)]
pub struct EchoStream {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Echoes>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_enough: AtomicBool,
    answered: AtomicU64,
}

/// How many echo requests of a stream were answered, and the longest gap between replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echoes {
    /// Number of echo requests sent.
    pub sent: u64,
    /// Number of requests that were answered; duplicate replies count once.
    pub answered: u64,
    /// The longest time between two successive replies.
    pub gap: Duration,
}

impl EchoStream {
    /// Begins to send echo requests from `own` to `peer` inside a namespace. Returns after the
    /// first reply, or after a short time without one.
    ///
    /// # Errors
    /// The namespace cannot be entered, or a socket cannot be opened.
    pub fn begin(namespace: &str, own: Ipv4Addr, peer: Ipv4Addr) -> Result<EchoStream> {
        let shared = Arc::new(Shared::default());
        let (namespace, runs) = (namespace.to_owned(), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("echos".into());
        let thread = thread.spawn(move || {
            namespace::enter(&namespace)?;
            run(own, peer, &runs)
        });
        let stream = EchoStream {
            shared,
            thread: thread.attempt("starting a thread")?,
        };
        let deadline = Instant::now() + FIRST;
        while stream.shared.answered.load(Ordering::Relaxed) == 0
            && Instant::now() < deadline
            && !stream.thread.is_finished()
        {
            std::thread::sleep(EVERY);
        }
        Ok(stream)
    }

    /// Continues for `moment`, so that the end of a gap is seen, then ends the stream and waits for
    /// the last replies.
    ///
    /// # Errors
    /// The socket failed.
    pub fn end(self, moment: Duration) -> Result<Echoes> {
        std::thread::sleep(moment);
        self.shared.is_enough.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or(Err(Error::Ended("the stream of echos")))
    }
}

fn run(own: Ipv4Addr, peer: Ipv4Addr, shared: &Shared) -> Result<Echoes> {
    let what = || format!("asking {peer} for echos from {own}");
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
    let socket = socket.attempt(what())?;
    bind(&socket, &SocketAddrV4::new(own, 0)).attempt(what())?;
    let number = fresh_number();
    let began = Instant::now();
    let mut echoes = Echoes::default();
    let mut is_answered: Vec<bool> = Vec::new();
    let mut last = None;
    let mut ends: Option<Instant> = None;
    let mut buffer = [0; 512];
    loop {
        let now = Instant::now();
        if ends.is_none() && shared.is_enough.load(Ordering::Relaxed) {
            ends = Some(now + LAST);
            // Time without a reply at the end also counts as a gap.
            let since = last.unwrap_or(began);
            echoes.gap = echoes.gap.max(now.duration_since(since));
        }
        if ends.is_some_and(|ends| now >= ends || echoes.answered == echoes.sent) {
            return Ok(echoes);
        }
        // A thread that was delayed catches up on only a few requests.
        let due = u64::try_from(now.duration_since(began).as_millis()).unwrap_or(u64::MAX);
        let is_due = ends.is_none() && due > echoes.sent && echoes.sent < SENT_MAX;
        if is_due {
            let sequence = echoes.sent as u16;
            let to = SocketAddrV4::new(peer, 0);
            // A request that does not fit into a full queue counts as lost.
            let _ = sendto(
                &socket,
                &request(number, sequence),
                SendFlags::DONTWAIT,
                &to,
            );
            echoes.sent += 1;
            is_answered.push(false);
        }
        while let Ok((length, _)) = recv(&socket, &mut buffer, RecvFlags::DONTWAIT) {
            let Some(sequence) = reply_to(&buffer[..length], peer, number) else {
                continue;
            };
            let Some(place) = place_of(sequence, echoes.sent) else {
                continue;
            };
            let is_first = is_answered
                .get_mut(place)
                .is_some_and(|is_done| !std::mem::replace(is_done, true));
            if is_first {
                let now = Instant::now();
                let gap = last.map_or(Duration::ZERO, |last| now.duration_since(last));
                echoes.gap = echoes.gap.max(gap);
                last = Some(now);
                echoes.answered += 1;
                shared.answered.store(echoes.answered, Ordering::Relaxed);
            }
        }
        if !is_due {
            std::thread::sleep(EVERY / 4);
        }
    }
}

/// Index of the request with this sequence number among the last `sent` ones; sequence numbers wrap
/// around after 65,536.
fn place_of(sequence: u16, sent: u64) -> Option<usize> {
    let last = sent.checked_sub(1)?;
    let back = (last as u16).wrapping_sub(sequence);
    usize::try_from(last.checked_sub(u64::from(back))?).ok()
}

/// Time between two requests.
const EVERY: Duration = Duration::from_millis(1);
/// Longest time to wait for the first reply.
const FIRST: Duration = Duration::from_secs(2);
/// Longest time to wait for the last replies.
const LAST: Duration = Duration::from_secs(1);
/// Largest number of requests of a stream: two minutes.
const SENT_MAX: u64 = 120_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echos_are_found_by_the_ends_of_their_numbers() {
        assert_eq!(place_of(0, 0), None);
        assert_eq!(place_of(0, 1), Some(0));
        assert_eq!(place_of(1, 1), None);
        assert_eq!(place_of(3, 65_540), Some(65_539));
        assert_eq!(place_of(4, 65_540), Some(4));
    }
}
