//! Sends echo requests from many namespaces, all by one thread.
//!
//! ```text
//!   asks --> fresh: at most 16, so that replies are read at once and round trips are exact
//!              |  no reply to the first request
//!              v
//!            silent: asked again, at growing intervals, until the deadline
//! ```

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, bind, ipproto, recv, sendto, socket,
};

use super::{Asks, PAUSE, PAUSE_MAX, fresh_number, reply_to, request};
use crate::error::{Attempt, Error, Result};
use crate::namespace;

/// An echo request to be sent from inside a namespace.
#[derive(Clone, Debug)]
pub(crate) struct EchoRequest {
    /// Name of the namespace.
    pub namespace: String,
    /// Address of the sender.
    pub own: Ipv4Addr,
    /// Address that is to answer.
    pub peer: Ipv4Addr,
    /// How often the echo request is sent.
    pub asks: Asks,
}

/// Sends one echo request as [`echo_all`] does. Returns the round trip.
///
/// # Errors
/// The namespace cannot be entered, or no reply comes within `limit`.
pub(crate) fn echo(ask: EchoRequest, limit: Duration) -> Result<Duration> {
    let mut round_trip = Err(Error::Ended("the probe"));
    echo_all(&[ask], limit, || false, |_, outcome| round_trip = outcome);
    round_trip
}

/// Sends echo requests until each has a reply, or has waited for `limit`. Calls `answered` with the
/// place of each in `asks` and its round trip, or why it has none. If `is_cancelled`, the remaining
/// ones end with [`Error::Cancelled`].
pub(crate) fn echo_all(
    asks: &[EchoRequest],
    limit: Duration,
    is_cancelled: impl Fn() -> bool + Send,
    mut answered: impl FnMut(usize, Result<Duration>) + Send,
) {
    if asks.is_empty() {
        return;
    }
    // The thread enters the namespaces one after the other, and ends in the last one. Its sockets
    // stay in the namespaces where they were made.
    std::thread::scope(|scope| {
        scope.spawn(move || run(asks, limit, &is_cancelled, &mut answered));
    });
}

fn run(
    asks: &[EchoRequest],
    limit: Duration,
    is_cancelled: &dyn Fn() -> bool,
    answered: &mut dyn FnMut(usize, Result<Duration>),
) {
    let mut waiting: Vec<Asked<'_>> = Vec::new();
    let mut next = asks.iter().enumerate();
    let mut is_over = false;
    while !is_over || !waiting.is_empty() {
        if is_cancelled() {
            for echo in &waiting {
                answered(echo.place, Err(Error::Cancelled));
            }
            next.for_each(|(place, _)| answered(place, Err(Error::Cancelled)));
            return;
        }
        let mut fresh = waiting
            .iter()
            .filter(|candidate| candidate.sent.len() == 1)
            .count();
        while fresh < FRESH_MAX && waiting.len() < WAITING_MAX && !is_over {
            match next
                .next()
                .map(|(place, ask)| (place, Asked::begin(place, ask, limit)))
            {
                Some((_, Ok(asked))) => {
                    waiting.push(asked);
                    fresh += 1;
                }
                Some((place, Err(error))) => answered(place, Err(error)),
                None => is_over = true,
            }
        }
        let now = Instant::now();
        waiting.retain_mut(|echo| match echo.ask_again(now, limit) {
            None => true,
            Some(outcome) => {
                answered(echo.place, outcome);
                false
            }
        });
        let until = waiting.iter().map(|echo| echo.again).min();
        let wait = until.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(Instant::now())
        });
        let ready = ready(&waiting, wait.max(LEAST_WAIT));
        let mut ready = ready.into_iter();
        waiting.retain_mut(|echo| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            match echo.read() {
                None => true,
                Some(round_trip) => {
                    answered(echo.place, Ok(round_trip));
                    false
                }
            }
        });
    }
}

/// Waits until a reply may be read. Returns for each socket whether that is so.
fn ready(waiting: &[Asked<'_>], wait: Duration) -> Vec<bool> {
    if waiting.is_empty() {
        return Vec::new();
    }
    let sockets = waiting.iter();
    let mut all: Vec<PollFd<'_>> = sockets
        .map(|socket| PollFd::new(&socket.socket, PollFlags::IN))
        .collect();
    let limit = Timespec::try_from(wait).ok();
    // After a signal or an error, sockets are asked again.
    let _ = poll(&mut all, limit.as_ref());
    all.iter()
        .map(|polled| !polled.revents().is_empty())
        .collect()
}

/// An echo request that waits for its reply.
struct Asked<'a> {
    place: usize,
    ask: &'a EchoRequest,
    socket: OwnedFd,
    number: u16,
    /// When each request was sent.
    sent: Vec<Instant>,
    /// The shortest round trip so far. Requests that wait for ARP are all sent at the same time,
    /// after the first one has waited.
    least: Option<Duration>,
    pause: Duration,
    /// When to send the next request.
    again: Instant,
    deadline: Instant,
}

impl Asked<'_> {
    /// Opens a socket in the namespace, and sends the first request.
    fn begin(place: usize, ask: &EchoRequest, limit: Duration) -> Result<Asked<'_>> {
        let what = || format!("probing {} from {}", ask.peer, ask.own);
        namespace::enter(&ask.namespace)?;
        let icmp = Some(ipproto::ICMP);
        let socket = socket(AddressFamily::INET, SocketType::RAW, icmp).attempt(what())?;
        bind(&socket, &SocketAddrV4::new(ask.own, 0)).attempt(what())?;
        let now = Instant::now();
        let mut asked = Asked {
            place,
            ask,
            socket,
            number: fresh_number(),
            sent: Vec::new(),
            least: None,
            pause: match ask.asks {
                Asks::Once => limit,
                Asks::Again => PAUSE,
            },
            again: now,
            deadline: now + limit,
        };
        asked.send(now);
        Ok(asked)
    }

    fn send(&mut self, now: Instant) {
        let Ok(sequence) = u16::try_from(self.sent.len()) else {
            return;
        };
        self.sent.push(now);
        let to = SocketAddrV4::new(self.ask.peer, 0);
        // The route may be missing for a moment; the deadline decides.
        let message = request(self.number, sequence);
        let _ = sendto(&self.socket, &message, SendFlags::DONTWAIT, &to);
        self.again = self.deadline.min(now + self.pause);
        self.pause = PAUSE_MAX.min(2 * self.pause);
    }

    /// Sends the next request if its time has come. Returns the outcome if there is one by then: a
    /// reply to an earlier request, or the end of the time.
    fn ask_again(&mut self, now: Instant, limit: Duration) -> Option<Result<Duration>> {
        if now < self.again {
            return None;
        }
        if let Some(least) = self.least {
            return Some(Ok(least));
        }
        if now >= self.deadline {
            let (peer, own) = (self.ask.peer, self.ask.own);
            let what = format!("{peer} did not answer an echo from {own}");
            return Some(Err(Error::Timeout { what, limit }));
        }
        self.send(now);
        None
    }

    /// Reads the packets that have arrived. Returns the round trip if one of them replies to the
    /// last request.
    fn read(&mut self) -> Option<Duration> {
        for _ in 0..READS_MAX {
            let mut buffer = [0; 512];
            let (length, _) = recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT).ok()?;
            let answered = reply_to(&buffer[..length], self.ask.peer, self.number);
            let Some((which, at)) = answered
                .and_then(|answered| Some((answered, self.sent.get(usize::from(answered))?)))
            else {
                continue;
            };
            let elapsed = at.elapsed();
            let least = self.least.map_or(elapsed, |least| elapsed.min(least));
            self.least = Some(least);
            if usize::from(which) + 1 == self.sent.len() {
                return Some(least);
            }
        }
        None
    }
}

/// Largest number of requests whose first reply is awaited at the same time.
const FRESH_MAX: usize = 16;
/// Largest number of sockets that are open at the same time.
const WAITING_MAX: usize = 512;
/// Least time between two rounds without a reply.
const LEAST_WAIT: Duration = Duration::from_millis(2);
/// Largest number of packets that are read from a socket at once; a node may send any number.
const READS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use carina_namespaces::Namespace;

    use super::*;

    #[test]
    fn those_that_answer_do_not_wait_for_those_that_do_not() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: namespaces of this host need root");
            return;
        }
        let name = format!("cv-together-{}", std::process::id());
        let namespace = Namespace::new(&name).unwrap();
        namespace.ip(&["link", "set", "lo", "up"]).unwrap();
        let ask = |namespace: &str, last| EchoRequest {
            namespace: namespace.to_owned(),
            own: Ipv4Addr::LOCALHOST,
            // Only addresses of 127.0.0.0/8 have a route.
            peer: Ipv4Addr::new(if last == 0 { 192 } else { 127 }, 0, 0, last),
            asks: Asks::Again,
        };
        let mut asks: Vec<EchoRequest> = (1..=100).map(|last| ask(&name, last)).collect();
        asks.extend([ask(&name, 0), ask("cv-absent", 1)]);
        let mut outcomes: Vec<Option<Result<Duration>>> = asks.iter().map(|_| None).collect();
        let mut order = Vec::new();
        let limit = Duration::from_secs(2);
        echo_all(
            &asks,
            limit,
            || false,
            |place, outcome| {
                order.push(place);
                outcomes[place] = Some(outcome);
            },
        );
        assert_eq!(order.len(), asks.len());
        assert_eq!(order.last(), Some(&100));
        for (place, outcome) in outcomes.into_iter().enumerate() {
            let outcome = outcome.unwrap();
            match place {
                100 => assert!(outcome.unwrap_err().to_string().contains("did not answer")),
                101 => assert!(outcome.unwrap_err().to_string().contains("cv-absent")),
                _ => drop(outcome.unwrap()),
            }
        }
        let mut cancelled = 0;
        echo_all(
            &asks,
            limit,
            || true,
            |_, outcome| {
                assert!(matches!(outcome, Err(Error::Cancelled)));
                cancelled += 1;
            },
        );
        assert_eq!(cancelled, asks.len());
    }
}
