//! A physical infrastructure provider (PIP): reserves parts of networks for VNPs, and has agents
//! make them.
//!
//! The state machine does no I/O. It receives messages and the time, writes to a store, and returns
//! messages. Everything that must survive the process is in the store, so that the process may end
//! at any point, and several processes may serve one provider: transactions of the store detect
//! conflicts between their reservations.
//! messages back. All that it must not forget is in the store, so that it may end at any point, and
//! several of them may serve one provider: what they promise is compared in the store.
//!
//! ```text
//!           Reserve            Commit              Release, or the lease ends
//!  (nothing) -----> held -----------------> made -----------------------> leaving
//!      ^             | Cancel, or the lease  ^ |  hosts get orders again until|
//!      +-------------+ of the store ends     +-+  they have what they should  |
//!      +----------------------------------------- every host has let go ------+
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
use crate::lately::Lately;
use crate::message::{FromAgent, FromPip, PartKey, PartRequest, PartStatus, ToAgent, ToPip};
use crate::mirror::to_value;
use crate::store::{Outcome, Store, StoreError};
use crate::timing::Timing;

use self::books::{Books, MOVES_BITS, Made};
use self::inventory::{Ground, Inventory, InventoryError};
use self::placing::Limits;

pub use self::draining::NodeAway;
pub use self::moving::{MoveOutcome, Neighbour, round_of};

mod advertising;
mod books;
mod committing;
mod draining;
mod far_ends;
mod hosting;
mod inside;
pub mod inventory;
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

/// The state machine of a provider.
#[derive(Debug)]
pub struct Pip<S> {
    ground: Ground,
    books: Books,
    store: S,
    timing: Timing,
    /// When it began: of hosts that have not reported since, nothing is known for a while.
    began: Option<Instant>,
    /// What hosts have said last, and when.
    reports: BTreeMap<HostId, (Instant, Arc<FromAgent>)>,
    /// What hosts have said that they can make.
    limits: Limits,
    /// What VNPs know of parts, so that they learn of changes.
    told: BTreeMap<VnetId, PartStatus>,
    /// The last order of each network to each host: up to which round, whether to make it, and
    /// when.
    ordered: BTreeMap<(VnetId, String), (u64, bool, Instant)>,
    /// The last word to providers beyond of each move, whether it was decided, and when.
    told_beyond: BTreeMap<VnetId, (u64, bool, Instant)>,
    /// Until when each move is not sent again, by number.
    sends: BTreeMap<u64, Instant>,
    /// Why parts were refused.
    lately: Lately<PartRequest>,
    /// Hosts that have said that they have all that they should, and [`Books::changes_at`] then.
    quiet: BTreeMap<HostId, u64>,
    outputs: VecDeque<Output>,
    /// What has failed on hosts, for those who run the provider.
    notes: VecDeque<String>,
    discarded: BTreeMap<&'static str, u64>,
    next_look: Instant,
}

/// What a provider sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To a VNP.
    ToVnp {
        /// Its name.
        vnp: String,
        /// The message.
        message: FromPip,
    },
    /// To the agent of a host.
    ToAgent {
        /// The host's name.
        host: String,
        /// The message.
        message: ToAgent,
    },
}

/// What has to be done again because another has written in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    Again,
}

impl<S: Store> Pip<S> {
    /// A provider of this name, with this inventory, which keeps its state in a store.
    ///
    /// # Errors
    /// The inventory contradicts itself.
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
            lately: Lately::new(),
            quiet: BTreeMap::new(),
            outputs: VecDeque::new(),
            notes: VecDeque::new(),
            discarded: BTreeMap::new(),
            next_look: Instant::ZERO,
        })
    }

    /// Takes a message of a VNP.
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

    /// Takes what an agent says.
    pub fn handle_agent(&mut self, now: Instant, said: impl Into<Arc<FromAgent>>) {
        self.began.get_or_insert(now);
        let said = said.into();
        let Some(host) = self.ground.host(&said.host) else {
            return self.count("report of a host that is not in the inventory");
        };
        let known = self.reports.get(&host);
        let is_same = |before: &Arc<FromAgent>| Arc::ptr_eq(before, &said) || *before == said;
        let is_known = known
            .is_some_and(|(at, before)| is_same(before) && now.since(*at) < self.timing.silence);
        let before = self.reports.get(&host).map(|(_, before)| before);
        if !is_known {
            let failures = said.new_failures(before.map(|it| &**it));
            let lines = failures
                .into_iter()
                .map(|it| format!("host {}: {it}", said.host));
            self.notes.extend(lines);
            self.notes.truncate(NOTES_MAX);
        }
        if let Some(limits) = &said.limits
            && self.limits.get(&host) != Some(limits)
        {
            self.limits.insert(host, limits.clone());
        }
        self.reports.insert(host, (now, said));
        if let Err(error) = self.take_report(now, host, is_known) {
            self.discard(&error);
        }
    }

    /// Looks after leases and hosts; to be called when [`Pip::poll_timeout`] says.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.began.get_or_insert(now);
        if now < self.next_look {
            return;
        }
        self.next_look = now + self.timing.look;
        if let Err(error) = self.look(now) {
            self.discard(&error);
        }
    }

    /// When [`Pip::handle_timeout`] is due. May change after that alone.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.next_look
    }

    /// The next message to send. May change after any `handle_*`.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The next line about what has failed on a host, for the log of the provider. May come after
    /// [`Pip::handle_agent`].
    #[must_use]
    pub fn poll_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    /// The VNP for which a part of a network is held or was made, as far as the store answers.
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

    /// What was discarded, by reason.
    #[must_use]
    pub fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        &self.discarded
    }

    /// Of what more is promised than there is, in words: nothing, unless the inventory shrank.
    #[must_use]
    pub fn excess(&self) -> Vec<String> {
        self.books.excess(&self.ground)
    }

    fn answer(&mut self, now: Instant, vnp: &str, message: &ToPip) -> Result<Step, StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        match message {
            // What the last answer says that was not fetched yet.
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

    /// Lets go what is held, and with `all` what was made, up to a round.
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
        let stays = self.books.made(key.vnet).is_some_and(|it| is_old(it.round));
        if self.store.commit(now, &write)? == Outcome::Conflict {
            return Ok(Step::Again);
        }
        if is_gone {
            self.tell(
                vnp,
                if stays {
                    FromPip::Cancelled { key }
                } else {
                    FromPip::Released { key }
                },
            );
            return Ok(Step::Done);
        }
        self.books.refresh(&mut self.store, now, &self.ground)?;
        self.order(now, key.vnet);
        self.settle(now, key.vnet)?;
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

/// Rounds share a generation with moves.
const ROUND_MAX: u64 = u64::MAX >> MOVES_BITS;
/// Lines about failures that wait for the log.
const NOTES_MAX: usize = 256;
/// How often a message is tried anew when another process has written in between.
const TRIES: u32 = 5;
