//! A physical infrastructure provider (PIP): reserves parts of networks for VNPs, and has agents
//! make them.
//!
//! The state machine does no I/O. It receives messages and the time, writes to a store, and returns
//! messages. Everything that must survive the process is in the store, so that the process may end
//! at any point, and several processes may serve one provider: transactions of the store detect
//! conflicts between their reservations.
//!
//! ```text
//!           Reserve            Commit              Release, or the lease ends
//!  (nothing) -----> held -----------------> made -----------------------> leaving
//!      ^             | Cancel, or the lease  ^ |  orders are repeated until   |
//!      +-------------+ of the store ends     +-+  every host matches its part |
//!      +----------------------------------------- every host has removed it --+
//! ```
//!
//! A reservation (`held`) is on a lease of the store, and expires even without the provider. A part
//! that is made stays as long as its VNP renews it. A changed part is reserved beside the old one;
//! the hosts account for both until they have released the old one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use carina_embed::HostId;
use carina_time::Instant;

use crate::host_part::VnetId;
use crate::message::{FromAgent, FromPip, PartKey, PartRequest, PartStatus, ToAgent, ToPip};
use crate::reason_cache::ReasonCache;
use crate::store::{Outcome, Store, StoreError};
use crate::store_copy::to_value;
use crate::timing::Timing;

use self::books::{Books, MOVES_BITS, Made};
use self::inventory::{Ground, Inventory, InventoryError};
use self::placing::Limits;

pub use self::books::round_of;
pub use self::draining::NodeAway;
pub use self::moves::MoveOutcome;
pub use self::moving::Neighbour;

mod advertising;
mod books;
mod committing;
mod draining;
mod far_ends;
mod hosting;
mod inside;
pub mod inventory;
mod moves;
mod moving;
mod orders;
mod placing;
mod presence;
mod renewing;
mod repointing;
mod reserving;
mod view;

pub use self::view::{
    GroundLinkView, HostView, LinkView, NodeView, PartState, PartView, PipView, Share,
};

/// The state machine of a provider (PIP). `S` is its store.
#[derive(Debug)]
pub struct Pip<S> {
    ground: Ground,
    books: Books,
    store: S,
    timing: Timing,
    /// When this process began. For a while after that, hosts that have not reported yet count as
    /// unknown, not as gone.
    began: Option<Instant>,
    /// The last report of each host, and when it came.
    reports: BTreeMap<HostId, (Instant, Arc<FromAgent>)>,
    /// The limits that each host has reported.
    limits: Limits,
    /// The last status that was sent to the VNP for each part; a new one is sent when it differs.
    told: BTreeMap<VnetId, PartStatus>,
    /// The last order of each network to each host: the generation, whether to make it (else to
    /// remove it), and when it was sent.
    ordered: BTreeMap<(VnetId, String), (u64, bool, Instant)>,
    /// For each network, the last message about a move to the other providers: the move's number,
    /// whether it was decided, and when it was sent.
    told_beyond: BTreeMap<VnetId, (u64, bool, Instant)>,
    /// For each move, by number: the time before which its `Send` order is not repeated.
    sends: BTreeMap<u64, Instant>,
    /// Cached reasons why parts did not fit.
    reason_cache: ReasonCache<PartRequest>,
    /// Hosts whose last report matched the PIP's orders, each with [`Books::changes_at`] at that
    /// time.
    quiet: BTreeMap<HostId, u64>,
    outputs: VecDeque<Output>,
    /// Lines about failures on hosts, for the provider's log.
    notes: VecDeque<String>,
    discarded: BTreeMap<&'static str, u64>,
    next_check: Instant,
}

/// A message that the state machine wants to be sent, with its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A message to a VNP.
    ToVnp {
        /// Name of the VNP.
        vnp: String,
        /// The message to send to the VNP.
        message: FromPip,
    },
    /// A message to the agent of a host.
    ToAgent {
        /// Name of the host.
        host: String,
        /// The message to send to the host's agent.
        message: ToAgent,
    },
}

/// Whether an operation is complete, or must be repeated because another process wrote to the store
/// in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    Again,
}

impl<S: Store> Pip<S> {
    /// A provider `name` with this inventory, which keeps its state in `store`.
    ///
    /// # Errors
    /// The inventory is inconsistent.
    pub fn new(
        name: &str,
        inventory: Inventory,
        store: S,
        timing: Timing,
    ) -> Result<Pip<S>, InventoryError> {
        let ground = Ground::new(inventory)?;
        Ok(Pip {
            books: Books::new(name, &ground),
            ground,
            store,
            timing,
            began: None,
            reports: BTreeMap::new(),
            limits: Limits::new(),
            told: BTreeMap::new(),
            ordered: BTreeMap::new(),
            told_beyond: BTreeMap::new(),
            sends: BTreeMap::new(),
            reason_cache: ReasonCache::new(),
            quiet: BTreeMap::new(),
            outputs: VecDeque::new(),
            notes: VecDeque::new(),
            discarded: BTreeMap::new(),
            next_check: Instant::ZERO,
        })
    }

    /// Processes a message of a VNP.
    pub fn handle_vnp(&mut self, now: Instant, vnp: &str, message: ToPip) {
        self.began.get_or_insert(now);
        for _ in 0..TRIES {
            match self.answer(now, vnp, &message) {
                Ok(Step::Done) => return,
                Ok(Step::Again) => {}
                Err(error) => return self.discard(&error),
            }
        }
        self.count("another provider process wrote each time");
    }

    /// Processes an agent's report.
    pub fn handle_agent(&mut self, now: Instant, report: impl Into<Arc<FromAgent>>) {
        self.began.get_or_insert(now);
        let report = report.into();
        let Some(host) = self.ground.host(&report.host) else {
            return self.count("report of a host that is not in the inventory");
        };
        let known = self.reports.get(&host);
        let is_same = |before: &Arc<FromAgent>| Arc::ptr_eq(before, &report) || *before == report;
        let is_known = known.is_some_and(|(at, before)| {
            is_same(before) && now.since(*at) < self.timing.silence_max
        });
        let before = self.reports.get(&host).map(|(_, before)| before);
        if !is_known {
            let failures = report.new_failures(before.map(|before| &**before));
            let lines = failures
                .into_iter()
                .map(|failure| format!("host {}: {failure}", report.host));
            self.notes.extend(lines);
            self.notes.truncate(NOTES_MAX);
        }
        if let Some(limits) = &report.limits
            && self.limits.get(&host) != Some(limits)
        {
            self.limits.insert(host, limits.clone());
        }
        self.reports.insert(host, (now, report));
        if let Err(error) = self.take_report(now, host, is_known) {
            self.discard(&error);
        }
    }

    /// Checks leases and hosts. The caller calls it at the time of [`Pip::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.began.get_or_insert(now);
        if now < self.next_check {
            return;
        }
        self.next_check = now + self.timing.check_interval;
        if let Err(error) = self.check_parts(now) {
            self.discard(&error);
        }
    }

    /// When [`Pip::handle_timeout`] is due. Only that call changes the time.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.next_check
    }

    /// Removes and returns the next message to send; `None` if no message waits. Any `handle_*` may
    /// add messages.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Removes and returns the next line about a failure on a host, for the provider's log; `None`
    /// if no line waits. [`Pip::handle_agent`] adds such lines.
    #[must_use]
    pub fn poll_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    /// The VNP for which a part of a network is reserved or made. If the store does not answer, the
    /// result is as of the last successful read.
    pub fn owner(&mut self, now: Instant, vnet: VnetId) -> Option<&str> {
        let refreshed = self.books.refresh(&mut self.store, now, &self.ground);
        if let Err(error) = refreshed {
            self.discard(&error);
        }
        self.known_owner(vnet)
    }

    fn known_owner(&self, vnet: VnetId) -> Option<&str> {
        let made = self.books.made(vnet).map(|made| &made.vnp);
        let held = self.books.held(vnet).map(|held| &held.vnp);
        made.or(held).map(String::as_str)
    }

    /// Whether the inventory has a host of this name.
    #[must_use]
    pub fn has_host(&self, host: &str) -> bool {
        self.ground.host(host).is_some()
    }

    /// Number of discarded messages and failed operations, by reason.
    #[must_use]
    pub fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        &self.discarded
    }

    /// The hosts and links of which more is promised than exists, as text. Empty unless the
    /// inventory has shrunk.
    #[must_use]
    pub fn excess(&self) -> Vec<String> {
        self.books.excess(&self.ground)
    }

    fn answer(&mut self, now: Instant, vnp: &str, message: &ToPip) -> Result<Step, StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        match message {
            // The previous advertisement to this VNP is still waiting to be sent; it answers this
            // request, too.
            ToPip::Advertise if self.is_advertising_to(vnp) => Ok(Step::Done),
            ToPip::Advertise => {
                let free = self.free_as_hoped(now, None);
                let seen = advertising::advertise(&self.ground, &free);
                self.tell(vnp, FromPip::Advertisement(seen));
                Ok(Step::Done)
            }
            ToPip::Reserve { key, part } => self.reserve(now, vnp, *key, part),
            ToPip::Commit { key, far } => self.commit(now, vnp, *key, far),
            ToPip::Cancel { key } => self.release(now, vnp, *key, false),
            ToPip::Release { key } => self.release(now, vnp, *key, true),
            ToPip::Renew { keys } => self.renew(now, vnp, keys),
            ToPip::Repoint(wanted) => self.repoint(now, vnp, wanted),
            ToPip::RepointAnswer(answer) => self.take_repoint_answer(now, vnp, answer),
        }
    }

    /// Releases the reservation of a network, and with `all` also the part that is made, if their
    /// rounds are not after that of `key`.
    fn release(
        &mut self,
        now: Instant,
        vnp: &str,
        key: PartKey,
        all: bool,
    ) -> Result<Step, StoreError> {
        if self.is_of_another(vnp, key.vnet) {
            self.count("release of another's network");
            return Ok(Step::Done);
        }
        let is_old = |round: u64| round <= key.round;
        let held = self.books.held(key.vnet).filter(|held| is_old(held.round));
        let made = self
            .books
            .made(key.vnet)
            .filter(|made| all && is_old(made.round));
        let mut write = self.books.change(key.vnet, false);
        if held.is_some() {
            write = write.delete(self.books.held_key(key.vnet));
        }
        if let Some(made) = made.filter(|made| !made.is_leaving) {
            let leaving = Made {
                is_leaving: true,
                ..made.clone()
            };
            write = write.put(self.books.made_key(key.vnet), to_value(&leaving));
        }
        let is_gone = made.is_none();
        let is_kept = self
            .books
            .made(key.vnet)
            .is_some_and(|made| is_old(made.round));
        if self.store.commit(now, &write)? == Outcome::Conflict {
            return Ok(Step::Again);
        }
        if is_gone {
            self.tell(
                vnp,
                if is_kept {
                    FromPip::Cancelled { key }
                } else {
                    FromPip::Released { key }
                },
            );
            return Ok(Step::Done);
        }
        self.books.refresh(&mut self.store, now, &self.ground)?;
        self.order(now, key.vnet);
        self.finish_removal(now, key.vnet)?;
        Ok(Step::Done)
    }

    fn is_of_another(&self, vnp: &str, vnet: VnetId) -> bool {
        self.known_owner(vnet).is_some_and(|owner| owner != vnp)
    }

    fn tell(&mut self, vnp: &str, message: FromPip) {
        let vnp = vnp.to_owned();
        self.outputs.push_back(Output::ToVnp { vnp, message });
    }

    fn send(&mut self, host: &str, message: ToAgent) {
        let host = host.to_owned();
        self.outputs.push_back(Output::ToAgent { host, message });
    }

    fn discard(&mut self, error: &StoreError) {
        self.count(error.kind());
    }

    fn count(&mut self, reason: &'static str) {
        *self.discarded.entry(reason).or_default() += 1;
    }
}

/// Largest round: a generation has room for a round and a count of moves.
const ROUND_MAX: u64 = u64::MAX >> MOVES_BITS;
/// Lines about failures that are kept until the log reads them.
const NOTES_MAX: usize = 256;
/// How often a message is processed again because another process wrote to the store in between.
const TRIES: u32 = 5;
