//! N-1 flows, and the neighbours at their other ends.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port, N1Properties};
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;

use super::Irati;
use super::n1::{Failure, N1, Peer, RETRY_SOON, STEP_TIMEOUT, Stage, WantedN1};
use super::objects;

/// Number of consecutive attempts to enroll after which enrollment counts as failed.
const ATTEMPTS: u32 = 3;
/// Pause after a refusal, or after [`ATTEMPTS`] failed attempts.
const RETRY_LATER: Duration = Duration::from_secs(30);
/// Time for the last message to be sent before an N-1 flow is returned.
const RELEASE_GRACE: Duration = Duration::from_millis(500);
/// Number of keep-alives that may stay unanswered.
const MISSED_MAX: u32 = 3;
/// First pause before a lost N-1 flow is requested again.
const WANTED_FIRST: Duration = Duration::from_secs(1);
/// Longest pause before a lost N-1 flow is requested again.
const WANTED_MAX: Duration = Duration::from_secs(30);
/// Largest number of lost N-1 flows that are requested again.
const WANTED_N1S_MAX: usize = 256;

impl Irati {
    pub(super) fn n1_up(
        &mut self,
        now: Instant,
        n1: N1Port,
        props: N1Properties,
        dt: &mut dyn DataTransfer,
    ) {
        if self.n1s.contains_key(&n1) {
            self.n1_down(now, n1, "the N-1 flow came up again", dt);
        }
        if !self.configure(now, dt) {
            return;
        }
        dt.add_n1(n1, &props);
        self.wanted_n1s
            .remove(&(props.dif.clone(), props.remote.clone()));
        // A flow that this side requested is meant to be used.
        self.has_left &= !props.is_initiator;
        let starts = !self.is_member || props.is_initiator;
        self.n1s.insert(n1, N1::new(now, props));
        if starts && !self.has_left {
            self.initiate(now, n1, dt);
        }
    }

    pub(super) fn n1_down(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let reason = format!("the N-1 flow ended: {reason}");
        let is_joining = flow.stage.is_joining() && !self.is_member;
        self.disconnect(now, n1, &reason, false, dt);
        let Some(gone) = self.n1s.remove(&n1) else {
            return;
        };
        dt.remove_n1(now, n1);
        if is_joining {
            self.log.push(Event::EnrollFailed { n1, reason });
        }
        let N1Properties {
            dif,
            remote,
            is_initiator,
            ..
        } = gone.props;
        let is_wanted = is_initiator && gone.detaching.is_none();
        if is_wanted
            && !self.has_left
            && !remote.is_empty()
            && self.wanted_n1s.len() < WANTED_N1S_MAX
        {
            let wanted_n1s = WantedN1 {
                at: now + WANTED_FIRST,
                pause: WANTED_FIRST,
            };
            self.wanted_n1s.insert((dif, remote), wanted_n1s);
        }
    }

    /// Enrolls through this N-1 flow, whatever its state.
    pub(super) fn enroll_through(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        self.has_left = false;
        let Some(flow) = self.n1s.get_mut(&n1) else {
            let text = format!("there is no N-1 flow {}", n1.0);
            return self.log.notice("enroll", &text);
        };
        flow.failure_reported = false;
        // If nothing has arrived for the time of a step, attempts continue to count, so that the
        // N-1 flow is returned after the last one.
        if now.since(flow.heard) < STEP_TIMEOUT {
            flow.attempts = 0;
        }
        if matches!(flow.stage, Stage::Idle) {
            self.initiate(now, n1, dt);
        }
    }

    /// Starts the exchange, unless the IPCP at the other end is already a neighbour.
    pub(super) fn initiate(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.n1s.get(&n1).filter(|flow| flow.detaching.is_none()) else {
            return;
        };
        let remote = flow.display_name().to_string();
        let is_known = self.n1_of(&remote).is_some();
        // An IPCP that joins through two flows at once would count as two neighbours for a while.
        let is_busy = !self.is_member
            && self
                .n1s
                .iter()
                .any(|(other, flow)| *other != n1 && flow.stage.is_joining());
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if is_known || is_busy {
            flow.retry_at = Some(now + if is_known { RETRY_LATER } else { STEP_TIMEOUT });
            flow.deferred_since = if is_known {
                None
            } else {
                flow.deferred_since.or(Some(now))
            };
            return;
        }
        (flow.retry_at, flow.deferred_since) = (None, None);
        flow.peer = Peer::default();
        if let Err(error) = dt.carries(n1) {
            return self.give_up(now, n1, &error.to_string(), Failure::ForGood);
        }
        self.connect(now, n1, dt);
    }

    /// The N-1 flow through which the IPCP `name` is a neighbour.
    pub(super) fn n1_of(&self, name: &str) -> Option<N1Port> {
        let by_name = |(_, flow): &(&N1Port, &N1)| flow.is_up() && flow.peer.name == name;
        self.n1s.iter().find(by_name).map(|(n1, _)| *n1)
    }

    /// The N-1 flow through which the member with this address is a neighbour.
    pub(super) fn n1_to(&self, address: u64) -> Option<N1Port> {
        let by_address = |(_, flow): &(&N1Port, &N1)| flow.is_up() && flow.peer.address == address;
        self.n1s.iter().find(by_address).map(|(n1, _)| *n1)
    }

    /// The N-1 flows that lead to neighbours.
    pub(super) fn up(&self) -> Vec<N1Port> {
        let up = self.n1s.iter().filter(|(_, flow)| flow.is_up());
        up.map(|(n1, _)| *n1).collect()
    }

    /// The N-1 flows to which changes are sent: those of neighbours, and those of joining IPCPs
    /// that have received the state so far.
    pub(super) fn update_recipients(&self) -> Vec<N1Port> {
        let hears = |stage: &Stage| {
            matches!(
                stage,
                Stage::Up | Stage::Stopping { .. } | Stage::Confirming { .. }
            )
        };
        let all = self.n1s.iter().filter(|(_, flow)| hears(&flow.stage));
        all.map(|(n1, _)| *n1).collect()
    }

    /// Sends a message through an N-1 flow.
    pub(super) fn send(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let bytes = objects::RULES.encode(message);
        if bytes.len() > dt.management_max() {
            return self.log.discard(&self.own.clone(), "message-too-long");
        }
        dt.send_management(now, Target::N1(n1), &bytes);
    }

    /// Makes the IPCP at the other end of an N-1 flow a neighbour.
    pub(super) fn neighbour_up(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let watch = self.watch_interval();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        // A member that was admitted has received the directory before.
        let has_joined = flow.stage.is_joining();
        flow.stage = Stage::Up;
        (flow.attempts, flow.missed, flow.failure_reported) = (0, 0, false);
        (flow.retry_at, flow.pending_connect, flow.suspect_until) = (None, None, None);
        (flow.watch_at, flow.has_answered) = (now + watch.unwrap_or_default(), false);
        let peer = flow.peer.clone();
        self.log.push(Event::NeighbourUp {
            name: peer.name.clone(),
            address: Address(peer.address),
            n1,
        });
        self.learn_address(now, &peer.name, peer.address);
        self.link_changed(now, &peer, dt);
        self.queue_all_links(now, n1);
        if has_joined {
            self.send_directory(now, n1, dt);
        }
    }

    /// Tells data transfer and the other members through which N-1 flows an IPCP is a neighbour
    /// now. That is usually one, but more if several were requested before any of them led there.
    fn link_changed(&mut self, now: Instant, peer: &Peer, dt: &mut dyn DataTransfer) {
        let leads = |flow: &N1| flow.is_up() && flow.peer.address == peer.address;
        let by_cost = self.n1s.iter().filter(|(_, flow)| leads(flow));
        let mut by_cost: Vec<(u32, N1Port)> = by_cost
            .map(|(n1, flow)| (flow.props.cost.max(1), *n1))
            .collect();
        by_cost.sort_unstable();
        let n1s: Vec<N1Port> = by_cost.iter().map(|(_, n1)| *n1).collect();
        dt.set_neighbour(now, Address(peer.address), &n1s);
        self.report_link(now, &peer.name, by_cost.first().map(|(cost, _)| *cost));
    }

    /// Ends the connection over an N-1 flow in any state; with `releases`, sends M_RELEASE.
    pub(super) fn disconnect(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        releases: bool,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let stage = core::mem::replace(&mut flow.stage, Stage::Idle);
        flow.pending_links.clear();
        (flow.suspect_until, flow.pending_connect) = (None, None);
        // The side that requested the N-1 flow tries again later.
        if flow.props.is_initiator {
            flow.retry_at.get_or_insert(now + RETRY_LATER);
        }
        let peer = flow.peer.clone();
        if releases && !matches!(stage, Stage::Idle) {
            self.send(now, n1, &Message::new(Opcode::Release), dt);
        }
        if !matches!(stage, Stage::Up) {
            return;
        }
        self.link_changed(now, &peer, dt);
        self.log.count("neighbours-lost");
        self.log.push(Event::NeighbourDown {
            name: peer.name,
            n1,
            reason: reason.to_string(),
        });
    }

    /// Gives an N-1 flow up: releases its neighbour, then returns the flow.
    pub(super) fn detach_n1(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.disconnect(now, n1, reason, true, dt);
        if let Some(flow) = self.n1s.get_mut(&n1)
            && flow.detaching.is_none()
        {
            (flow.retry_at, flow.deferred_since) = (None, None);
            flow.detaching = Some((Some(now + RELEASE_GRACE), reason.to_string()));
            // Another N-1 flow to the same neighbour may be idle because it was not needed so far.
            for flow in self.n1s.values_mut() {
                flow.retry_at = flow.retry_at.map(|at| at.min(now + RETRY_SOON));
            }
            self.initiate_deferred(now);
        }
    }

    /// Ends a failed attempt of this side.
    pub(super) fn attempt_failed(
        &mut self,
        now: Instant,
        n1: N1Port,
        reason: &str,
        failure: Failure,
        dt: &mut dyn DataTransfer,
    ) {
        let called = self
            .n1s
            .get_mut(&n1)
            .and_then(|flow| flow.pending_connect.take());
        let is_broken = failure == Failure::Broken;
        self.disconnect(now, n1, reason, is_broken, dt);
        self.reset_address(dt);
        self.log.count("attempts-failed");
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.attempts += 1;
        let is_silent = now.since(flow.heard) >= u64::from(ATTEMPTS) * STEP_TIMEOUT;
        if flow.attempts < ATTEMPTS && is_broken {
            flow.retry_at = Some(now + RETRY_SOON);
        } else {
            self.give_up(now, n1, reason, failure);
            if is_silent {
                // The other end may have ended without notice; a new N-1 flow would show that.
                let reason = reason.to_string();
                self.log.push(Event::DropN1 { n1, reason });
            }
        }
        if let Some(message) = called {
            self.on_connect(now, n1, &message, dt);
        }
        self.initiate_deferred(now);
    }

    /// Starts the attempt that has been deferred longest, so that no N-1 flow is held up by the
    /// refusals on others.
    pub(super) fn initiate_deferred(&mut self, now: Instant) {
        let flows = self.n1s.values_mut();
        let waits =
            |flow: &&mut N1| flow.deferred_since.is_some() && matches!(flow.stage, Stage::Idle);
        if let Some(flow) = flows.filter(waits).min_by_key(|flow| flow.deferred_since) {
            flow.retry_at = Some(now);
        }
    }

    /// Ends a series of failed attempts over an N-1 flow. Others follow at long intervals.
    fn give_up(&mut self, now: Instant, n1: N1Port, reason: &str, failure: Failure) {
        let is_member = self.is_member;
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.attempts = 0;
        flow.retry_at = Some(now + RETRY_LATER);
        let is_news = !core::mem::replace(&mut flow.failure_reported, true);
        let reason = reason.to_string();
        if failure == Failure::ForGood && !is_member {
            self.log.push(Event::EnrollRefused { n1, reason });
        } else if is_news {
            self.log.push(Event::EnrollFailed { n1, reason });
        }
    }

    /// Makes no further attempts over this N-1 flow.
    pub(super) fn stop_retrying(&mut self, n1: N1Port) {
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.retry_at = None;
        }
    }

    /// Interval of keep-alives; `None` for no keep-alives.
    fn watch_interval(&self) -> Option<Duration> {
        let ms = u64::from(self.config.keepalive_ms);
        (ms > 0).then_some(Duration::from_millis(ms))
    }

    pub(super) fn neighbours_due(&self) -> Option<Instant> {
        let watches = self.watch_interval().is_some();
        let flows = self.n1s.values().filter_map(|flow| flow.due(watches));
        let wanted_n1s = self.wanted_n1s.values().map(|wanted_n1s| wanted_n1s.at);
        flows.chain(wanted_n1s).min()
    }

    pub(super) fn neighbours_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let watch = self.watch_interval();
        let due: Vec<N1Port> = self
            .n1s
            .iter()
            .filter(|(_, flow)| flow.due(watch.is_some()).is_some_and(|at| at <= now))
            .map(|(n1, _)| *n1)
            .collect();
        for n1 in due {
            self.n1_timeout(now, n1, watch, dt);
        }
        let mut wanted = Vec::new();
        for ((dif, remote), wanted_n1s) in &mut self.wanted_n1s {
            if wanted_n1s.at <= now {
                wanted_n1s.pause = (2 * wanted_n1s.pause).min(WANTED_MAX);
                wanted_n1s.at = now + wanted_n1s.pause;
                wanted.push((dif.clone(), remote.clone()));
            }
        }
        for (dif, remote) in wanted {
            self.log.push(Event::NeedN1 { dif, remote });
        }
    }

    fn n1_timeout(
        &mut self,
        now: Instant,
        n1: N1Port,
        watch: Option<Duration>,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if let Some((at, reason)) = &mut flow.detaching {
            *at = None;
            let reason = reason.clone();
            return self.log.push(Event::DropN1 { n1, reason });
        }
        if let Some(step) = flow.stage.step().filter(|_| flow.until <= now) {
            let reason = format!(
                "{step} did not come within {} seconds",
                STEP_TIMEOUT.as_secs()
            );
            if flow.stage.is_joining() {
                return self.attempt_failed(now, n1, &reason, Failure::Broken, dt);
            }
            self.log.count("admissions-failed");
            let text = format!(
                "{:?} did not finish its enrollment: {reason}",
                flow.display_name()
            );
            self.log.notice("admission", &text);
            return self.disconnect(now, n1, &reason, true, dt);
        }
        if flow.suspect_until.is_some_and(|at| at <= now) {
            let reason = "the neighbour has restarted";
            return self.disconnect(now, n1, reason, false, dt);
        }
        if flow.retry_at.is_some_and(|at| at <= now) {
            flow.retry_at = None;
            if matches!(flow.stage, Stage::Idle) && !self.has_left {
                return self.initiate(now, n1, dt);
            }
        }
        let Some(watch) = watch else { return };
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if !flow.is_up() || flow.watch_at > now {
            return;
        }
        flow.watch_at = now + watch;
        flow.missed += 1;
        let doubled = self
            .unresponsive
            .get(&flow.peer.name)
            .copied()
            .unwrap_or_default();
        if flow.missed > MISSED_MAX << doubled {
            return self.on_missed_keepalive(now, n1, dt);
        }
        self.send_keepalive(now, n1, dt);
    }

    /// Neighbours by name, each with the N-1 flow that leads to it.
    pub(super) fn neighbours(&self) -> BTreeMap<&str, (N1Port, &N1)> {
        let up = self.n1s.iter().filter(|(_, flow)| flow.is_up());
        up.map(|(n1, flow)| (flow.peer.name.as_str(), (*n1, flow)))
            .collect()
    }
}
