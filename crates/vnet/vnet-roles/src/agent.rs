//! An agent of a PIP: it connects to the PIP's processes, reports to all of them, and carries out
//! their orders.

mod asks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_api::ErrorBody;
use carina_vnet::message::{FromAgent, ToAgent};

use self::asks::RequestFetcher;
use crate::calling::address::Address;
use crate::calling::connection::Callee;
use crate::calling::link::{Link, Listener};
use crate::identity::{Identity, Role};
use crate::inside::{Answer, NetworkRequest};
use crate::keys::Tls;
use crate::log::Log;
use crate::machine::{read, text};
use crate::mailbox::Mailbox;

/// Why a host cannot carry out an order of its PIP, for the host's log.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// A host on which an agent carries out the orders of its PIP.
pub trait Hosting: Send + Sync + 'static {
    /// Carries out an order of a PIP, or begins to.
    ///
    /// # Errors
    /// The host's own files cannot be written. The PIP repeats the order.
    fn tell(&self, message: &ToAgent) -> Result<(), HostError>;

    /// The report of everything that the host has and has removed.
    fn say(&self) -> FromAgent;

    /// Retries what the host could not do, if a retry is due.
    ///
    /// # Errors
    /// Those of [`Hosting::tell`].
    fn try_again(&self) -> Result<(), HostError> {
        Ok(())
    }

    /// Waits until the result of [`Hosting::say`] may have changed since change number `seen` (0 at
    /// first), at most for `wait`. Returns the number of the latest change.
    fn changed(&self, seen: u64, wait: Duration) -> u64;

    /// Carries out an operator's request to a node on this host.
    ///
    /// # Errors
    /// The request cannot be carried out; the text names nothing of the host.
    fn inside(&self, wanted: &NetworkRequest) -> Result<Answer, ErrorBody>;
}

/// An agent's connections with all processes of its PIP. Dropping it ends them.
#[derive(Debug)]
pub struct Service {
    has_ended: Arc<AtomicBool>,
    _fetchers: Vec<RequestFetcher>,
}

/// The connection with one process of the PIP.
struct Ear {
    link: Link,
    mailbox: Arc<Mailbox>,
    was_up: bool,
}

impl Service {
    /// Begins to serve a PIP, by connecting to all of its processes.
    ///
    /// # Errors
    /// The system cannot start threads.
    pub fn start(
        host: &Arc<impl Hosting>,
        tls: &Tls,
        pip: &str,
        addresses: &[Address],
        log: &Log,
    ) -> std::io::Result<Service> {
        let mut ears = Vec::new();
        let mut fetchers = Vec::new();
        for address in addresses {
            let callee = Callee {
                party: Identity {
                    role: Role::Pip,
                    name: pip.to_owned(),
                },
                address: address.clone(),
                tls: tls.clone(),
            };
            fetchers.push(RequestFetcher::start(
                Arc::clone(host),
                callee.clone(),
                log.clone(),
            )?);
            let mailbox = Arc::new(Mailbox::default());
            let listener = listener(Arc::clone(host), log.clone());
            let link = Link::start(callee, Arc::clone(&mailbox), listener, log.clone())?;
            ears.push(Ear {
                link,
                mailbox,
                was_up: false,
            });
        }
        let has_ended = Arc::new(AtomicBool::new(false));
        let (host, ends, log) = (Arc::clone(host), Arc::clone(&has_ended), log.clone());
        let thread = std::thread::Builder::new().name("report".to_owned());
        thread.spawn(move || report(&*host, &mut ears, &ends, &log))?;
        Ok(Service {
            has_ended,
            _fetchers: fetchers,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

fn listener(host: Arc<impl Hosting>, log: Log) -> Listener {
    Box::new(move |messages| {
        for message in read::<ToAgent>(messages)? {
            if let Err(error) = host.tell(&message) {
                log.say(format_args!("a request of the provider failed: {error}"));
            }
        }
        Ok(())
    })
}

/// Sends the host's report to the PIP's processes, whenever it changes and from time to time.
fn report(host: &impl Hosting, ears: &mut [Ear], has_ended: &AtomicBool, log: &Log) {
    let mut seen = 0;
    let mut before: Option<FromAgent> = None;
    let mut reported_at: Option<Instant> = None;
    while !has_ended.load(Ordering::Relaxed) {
        if let Err(error) = host.try_again() {
            log.say(format_args!(
                "a part of a network cannot be created: {error}"
            ));
        }
        let now = host.changed(seen, LOOK);
        let is_due = reported_at.is_none_or(|at| at.elapsed() >= REPORT);
        let is_new = now != seen;
        let came_up = ears.iter().any(|ear| ear.link.is_up() && !ear.was_up);
        if !(is_due || is_new || came_up) {
            continue;
        }
        (seen, reported_at) = (now, Some(Instant::now()));
        let words = host.say();
        for line in words.new_failures(before.as_ref()) {
            log.say(line);
        }
        let message = text(&words);
        before = Some(words);
        for ear in &mut *ears {
            ear.was_up = ear.link.is_up();
            if ear.was_up {
                ear.mailbox.replace(message.clone());
            }
        }
        // Changes that happen at about the same time go into one report.
        std::thread::sleep(PAUSE);
    }
}

/// Time between two reports if nothing changes.
const REPORT: Duration = Duration::from_secs(2);
/// Time between two checks whether a process of the PIP has become reachable.
const LOOK: Duration = Duration::from_millis(200);
/// Least time between two reports.
const PAUSE: Duration = Duration::from_millis(10);
