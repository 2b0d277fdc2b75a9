//! The thread of a network: makes what is requested, checks nodes and links, and repairs them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use carina_vnet::message::MoveState;

use super::flaps::Flaps;
use super::{Again, Change, Host, LOOK, Outcome, Shared};
use crate::directory::{Record, VnetDir};
use crate::error::Error;
use crate::saved::Saved;
use crate::vnet::Vnet;

impl Shared {
    /// The loop of the network's thread: makes what is requested, and checks nodes and links in
    /// between, until it is stopped.
    pub(super) fn run(
        &self,
        dir: &VnetDir,
        first: Box<Change>,
        host: &Host,
        changes: &Receiver<Box<Change>>,
    ) {
        let Some((vnet, first)) = self.take_up(dir, first, host, changes) else {
            return;
        };
        self.lock().vnet = Some(Arc::clone(&vnet));
        let mut wanted = Some(first);
        let mut probed = Instant::now();
        let mut probed_far = Instant::now();
        let mut made = None;
        let mut again = Again::default();
        // The last error of looking after the links; each error is reported once.
        let mut trouble = None;
        let mut flaps = None;
        loop {
            if let Some(change) = wanted.take() {
                // Timetables do not interfere with a change.
                drop(flaps.take());
                if change.has_only_links {
                    // The change that follows makes what is missing, and reports errors.
                    let _ = vnet.make_links(&change.record.part);
                    continue;
                }
                match vnet.become_part(&change.record.part, change.discovery) {
                    Ok(()) => {
                        self.begin_timetables(&vnet, &change.record);
                        self.finish_change(dir, &change);
                        again = Again::default();
                        made = Some(Instant::now());
                    }
                    Err(error) => {
                        self.fail(&error);
                        again.later();
                        made = None;
                    }
                }
                flaps = self.follow_timetables(&vnet, &change.record);
                probed = Instant::now();
            }
            match changes.recv_timeout(self.pause(&vnet, made)) {
                Ok(change) => wanted = Some(change),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.look_after_links(&vnet, &mut trouble);
                    let has_ended = vnet.look_after_nodes();
                    let record = Arc::clone(&self.lock().record);
                    if self.is_due(&record, has_ended, &again) {
                        wanted = Some(Box::new(Change::new(record, Instant::now())));
                    } else if self.moves_on() {
                        // A paused node answers no probe, and the order that resumes it must not
                        // wait for a probe.
                        vnet.use_new_flows();
                    } else if has_ended || probed.elapsed() > PROBE_AGAIN {
                        // Links that do not answer are reported in the status.
                        let _ = vnet.probe(&record.part, PROBE);
                        (probed, probed_far) = (Instant::now(), Instant::now());
                    } else {
                        if probed_far.elapsed() > PROBE_FAR_AGAIN {
                            vnet.probe_far(&record.part);
                            probed_far = Instant::now();
                        }
                        vnet.probe_silent(&record.part);
                    }
                }
            }
        }
        drop(flaps);
        self.lock().vnet = None;
        if self.leaves.load(Ordering::Acquire) {
            leave(vnet);
        }
    }

    /// Keeps the name of the ports' namespace, and the paths of links. Reports an error, but the
    /// same error only once.
    fn look_after_links(&self, vnet: &Vnet, trouble: &mut Option<String>) {
        let looked = vnet.look_after_ports();
        let looked = looked.and_then(|()| vnet.look_after_paths());
        let now = looked.err().map(|looked| looked.to_string());
        if now != *trouble {
            *trouble = now;
            trouble
                .iter()
                .for_each(|text| self.progress.tell(text.as_str()));
        }
    }

    fn begin_timetables(&self, vnet: &Vnet, record: &Record) {
        if let Err(error) = vnet.begin_timetables(&record.part) {
            self.progress
                .tell(format!("a timetable begins again with the agent: {error}"));
        }
    }

    fn follow_timetables(&self, vnet: &Arc<Vnet>, record: &Arc<Record>) -> Option<Flaps> {
        let flaps = Flaps::begin(vnet, record, &self.progress);
        flaps.unwrap_or_else(|error| {
            self.progress
                .tell(format!("timetables are not followed: {error}"));
            None
        })
    }

    /// How long to wait until the next check. The time is short while a link that was just made has
    /// no answer from its other end, whose host is probably about to finish, too.
    fn pause(&self, vnet: &Vnet, made: Option<Instant>) -> Duration {
        let is_new = made.is_some_and(|made| made.elapsed() < NEW);
        let record = Arc::clone(&self.lock().record);
        if is_new && !vnet.silent(&record.part).is_empty() {
            SOON
        } else {
            LOOK_AFTER
        }
    }

    /// Whether a node is awaited or being sent. A node that already runs here does not count.
    fn moves_on(&self) -> bool {
        let moves = self.progress.moves();
        let mut states = moves.values();
        states.any(|state| {
            use MoveState::{Arrived, Awaited, Sending};
            matches!(state, Awaited {} | Arrived {} | Sending {})
        })
    }

    /// Takes over what exists of the network. If that fails, a network of a provider is retried
    /// until it succeeds.
    fn take_up(
        &self,
        dir: &VnetDir,
        mut first: Box<Change>,
        host: &Host,
        changes: &Receiver<Box<Change>>,
    ) -> Option<(Arc<Vnet>, Box<Change>)> {
        let mut again = Again::default();
        loop {
            let outside = (host.underlay.as_ref(), host.dif.as_ref());
            match Vnet::take_up(dir, &first.record, &host.images, outside, &self.progress) {
                Ok(vnet) => return Some((Arc::new(vnet), first)),
                Err(error) => self.fail(&error),
            }
            first.record.provider_vnet()?;
            again.later();
            match changes.recv_timeout(again.wait) {
                Ok(change) => first = change,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Whether a provider's network must be made again: it has failed some time ago, or nodes have
    /// ended. A network of an operator of this host is not: the operator sees the failure and
    /// decides.
    fn is_due(&self, record: &Record, has_ended: bool, again: &Again) -> bool {
        if record.provider_vnet().is_none() {
            return false;
        }
        let has_failed = matches!(self.lock().outcome, Outcome::Failed(..));
        has_ended || (has_failed && again.is_due())
    }

    fn finish_change(&self, dir: &VnetDir, change: &Change) {
        let mut state = self.lock();
        if state.record.part.generation != change.record.part.generation {
            // Another change is waiting; what was saved does not belong to it.
            drop(state);
            if let Err(error) = Saved::forget(dir) {
                self.progress.tell(error.to_string());
            }
            return;
        }
        Arc::make_mut(&mut state.record).is_settled = true;
        let written = dir.write(&state.record).and_then(|()| Saved::forget(dir));
        state.outcome = match written {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::from(&error),
        };
        let elapsed = change.began.elapsed();
        state.ready_after = Some(elapsed);
        drop(state);
        self.progress
            .tell(format!("network ready after {} ms", elapsed.as_millis()));
    }

    fn fail(&self, error: &Error) {
        self.lock().outcome = Outcome::from(error);
        self.progress.tell(format!("failed: {error}"));
        self.progress.ring();
    }
}

/// Leaves the nodes running: they would end with their values. Callers that still use the network
/// get time to finish.
fn leave(mut vnet: Arc<Vnet>) {
    let deadline = Instant::now() + LEAVE;
    while Instant::now() < deadline {
        match Arc::try_unwrap(vnet) {
            Ok(vnet) => return vnet.leave(),
            Err(shared) => vnet = shared,
        }
        std::thread::sleep(LOOK);
    }
}

/// How long callers may still use a network when its agent ends.
const LEAVE: Duration = Duration::from_secs(5);
/// How long after a link was made its other end is expected to answer soon, and the time between
/// checks meanwhile.
const NEW: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(100);
/// Time between two checks of nodes.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// Time between two probes of links.
const PROBE_AGAIN: Duration = Duration::from_secs(30);
/// Time between two probes of links to other hosts, whose loss this host does not notice otherwise.
const PROBE_FAR_AGAIN: Duration = Duration::from_secs(10);
/// How long the other end of a working link may take to answer.
const PROBE: Duration = Duration::from_secs(10);
