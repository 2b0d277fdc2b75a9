//! Messages of the directory. Changed entries are sent to all neighbours at once. All entries are
//! sent periodically, because a lost PDU is not repeated.
//!
//! Entries have no versions (their sequence number is always 0), and the message that ends an entry
//! does not name the holder. Therefore:
//!
//! - The end of an entry applies to the holders that are reached through the neighbour that sent
//!   it, except those that the neighbour names within a quarter of a second. After every end, a
//!   member sends the entries of all holders that it still knows.
//! - For a while after its end, only the neighbour on the route to the holder can restore an entry.
//!   To neighbours that still announce it, the end is sent again after five seconds, unless the
//!   entry was restored.
//! - A member ends an entry that wrongly claims an application at it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};
use carina_wire::check_name;

use super::Irati;
use super::objects::{self, class};
use super::values::{self, DirectoryEntries, DirectoryEntry, Naming};
use crate::interop::directory::{Limits, MergeOutcome};

/// Largest number of entries in a message.
const ENTRIES_MAX: usize = 15;
/// Bytes of a message besides its entries.
const FRAME_BYTES: usize = 128;
/// Largest number of ended entries that are remembered.
const ENDED_MAX: usize = 4_096;
/// Time for which an ended entry of the directory is remembered.
const ENDED_TIME: Duration = Duration::from_secs(180);
/// How long the other entries of a name may take to arrive after an end.
const FOLLOW_TIME: Duration = Duration::from_millis(250);
/// How long an ended entry that a neighbour still announces may take to be restored by its holder.
const RESTORE_TIME: Duration = Duration::from_secs(5);

/// Limits of the table. Ended entries are stored here, not in the table, because they have no
/// versions.
pub(super) const LIMITS: Limits = Limits {
    entries: 65_536,
    hold: Duration::ZERO,
};

/// An entry that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    until: Instant,
    /// Neighbours that still announce the entry, and when its end is sent to them.
    announcers: Option<(Instant, BTreeSet<N1Port>)>,
}

/// Entries that have ended, by application and holder.
pub(super) type AllEnded = BTreeMap<(String, u64), Ended>;

/// Entries that an end may apply to: the time at which they end unless the neighbour names them
/// again, and that neighbour's N-1 flow.
pub(super) type Questioned = BTreeMap<(String, u64), (Instant, N1Port)>;

impl Irati {
    pub(super) fn register(&mut self, now: Instant, name: &str, dt: &mut dyn DataTransfer) {
        if self.directory.register(name).is_some() {
            let entry = (name.to_string(), self.address);
            self.send_entries(now, alloc::vec![entry], None, dt);
        }
        // Entries are flooded without acknowledgement, so no member can refuse one.
        self.log.push(Event::Registered {
            name: name.to_string(),
            result: Ok(()),
        });
    }

    pub(super) fn unregister(&mut self, now: Instant, name: &str, dt: &mut dyn DataTransfer) {
        if self.directory.unregister(now, name).is_some() {
            self.log.trace(|| TraceEvent::NameUnregistered { name });
            self.send_end(now, name, None, dt);
        }
    }

    /// Sends entries to all neighbours except one.
    fn send_entries(
        &mut self,
        now: Instant,
        entries: Vec<(String, u64)>,
        except: Option<N1Port>,
        dt: &mut dyn DataTransfer,
    ) {
        for n1 in self.update_recipients() {
            if Some(n1) != except {
                self.send_entries_to(now, n1, entries.clone(), dt);
            }
        }
    }

    fn send_entries_to(
        &mut self,
        now: Instant,
        n1: N1Port,
        entries: Vec<(String, u64)>,
        dt: &mut dyn DataTransfer,
    ) {
        if !self.is_member {
            return;
        }
        let entry = |(name, address): (String, u64)| DirectoryEntry {
            name: Some(Naming::of(&name)),
            address,
            seq: 0,
        };
        let entries: Vec<DirectoryEntry> = entries.into_iter().map(entry).collect();
        let room = dt.management_max().saturating_sub(FRAME_BYTES);
        for part in super::parts(entries, ENTRIES_MAX, room) {
            let value = DirectoryEntries { all: part };
            let message =
                objects::request(Opcode::Create, class::DIRECTORY, objects::DIRECTORY, &value);
            self.send(now, n1, &message, dt);
        }
    }

    /// Sends the end of an entry to all neighbours except one.
    fn send_end(
        &mut self,
        now: Instant,
        name: &str,
        except: Option<N1Port>,
        dt: &mut dyn DataTransfer,
    ) {
        for n1 in self.update_recipients() {
            if Some(n1) != except {
                self.send_end_to(now, n1, name, dt);
            }
        }
    }

    /// Sends the end of an entry to a neighbour, and then the entries of the holders that the
    /// application still has: the neighbour applies the end to every holder that it reaches through
    /// this member.
    fn send_end_to(&mut self, now: Instant, n1: N1Port, name: &str, dt: &mut dyn DataTransfer) {
        let entry = objects::directory_entry(&Naming::of(name));
        let message = Message::object(Opcode::Delete, class::DIRECTORY_ENTRY, &entry);
        self.send(now, n1, &message, dt);
        let peer = self.n1s.get(&n1).map_or(0, |flow| flow.peer.address);
        let holders = self.directory.holders(name).into_iter();
        let others = holders.filter(|holder| *holder != peer);
        let others: Vec<(String, u64)> = others.map(|at| (name.to_string(), at)).collect();
        self.send_entries_to(now, n1, others, dt);
    }

    /// Sends all entries to a neighbour, except those of the neighbour itself.
    pub(super) fn send_directory(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let peer = self.n1s.get(&n1).map_or(0, |flow| flow.peer.address);
        let own = self.directory.registered();
        let own = own.map(|(name, _)| (name.to_string(), self.address));
        let others = self.directory.others();
        let others = others.filter(|(_, holder, _)| **holder != peer);
        let others = others.map(|(name, holder, _)| (name.to_string(), *holder));
        let entries = own.chain(others).collect();
        self.send_entries_to(now, n1, entries, dt);
    }

    /// True when the route to a member leads through this N-1 flow.
    fn leads_to(&self, n1: N1Port, address: u64) -> bool {
        let Some(flow) = self.n1s.get(&n1) else {
            return false;
        };
        let route = self.topology.routes.get(&address);
        flow.peer.address == address
            || route.is_some_and(|(next, _)| next.contains(&flow.peer.address))
    }

    /// Handles entries of a neighbour.
    pub(super) fn on_entries(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Ok(entries) = values::read::<DirectoryEntries>(message) else {
            return self.discard(n1, "entries-unreadable");
        };
        let mut news = Vec::new();
        for entry in entries.all {
            let name = entry.name.map(|name| name.text()).unwrap_or_default();
            if check_name(&name).is_err() || entry.address == 0 {
                self.discard(n1, "entry-unsound");
                continue;
            }
            if self.is_stale(now, n1, &name, entry.address) {
                continue;
            }
            if self.leads_to(n1, entry.address) {
                self.questioned.remove(&(name.clone(), entry.address));
            }
            let is_kept = self.keep_lost(now, entry.address);
            match self.directory.insert(now, &name, entry.address, 0) {
                MergeOutcome::New => {
                    self.ended.remove(&(name.clone(), entry.address));
                    news.push((name, entry.address));
                }
                MergeOutcome::Same if is_kept => news.push((name, entry.address)),
                MergeOutcome::Same | MergeOutcome::Old => {}
                MergeOutcome::Corrected => {
                    self.log.count("entries-corrected");
                    self.send_end(now, &name, None, dt);
                }
                MergeOutcome::Full => self.discard(n1, "directory-full"),
            }
        }
        if !news.is_empty() {
            self.send_entries(now, news, Some(n1), dt);
        }
    }

    /// True when an entry has ended not long ago, and the neighbour that still announces it is not
    /// on the route to its holder.
    fn is_stale(&mut self, now: Instant, n1: N1Port, name: &str, holder: u64) -> bool {
        if self.leads_to(n1, holder) {
            return false;
        }
        let Some(ended) = self.ended.get_mut(&(name.to_string(), holder)) else {
            return false;
        };
        let announcers = ended
            .announcers
            .get_or_insert_with(|| (now + RESTORE_TIME, BTreeSet::new()));
        announcers.1.insert(n1);
        self.log.count("entries-doubted");
        true
    }

    /// Handles the end of an entry, sent by a neighbour.
    pub(super) fn on_entry_ended(
        &mut self,
        now: Instant,
        n1: N1Port,
        key: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let is_meant = |name: &str| Naming::of(name).key() == key;
        // The end may concern another holder; in any case the neighbour must get this member's
        // entry.
        let own = self.directory.registered().find(|(name, _)| is_meant(name));
        if let Some((name, _)) = own {
            let entry = (name.to_string(), self.address);
            self.send_entries_to(now, n1, alloc::vec![entry], dt);
        }
        let held: Vec<(String, u64)> = self
            .directory
            .others()
            .filter(|(name, holder, _)| is_meant(name) && self.leads_to(n1, **holder))
            .map(|(name, holder, _)| (name.to_string(), *holder))
            .collect();
        for entry in held {
            let until = now + FOLLOW_TIME;
            self.questioned.entry(entry).or_insert((until, n1));
        }
    }

    /// Ends the entries that a neighbour has not named again in time.
    fn end_questioned(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let due = self.questioned.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<((String, u64), N1Port)> =
            due.map(|(entry, (_, n1))| (entry.clone(), *n1)).collect();
        let mut names = BTreeSet::new();
        for ((name, holder), n1) in due {
            self.questioned.remove(&(name.clone(), holder));
            // The route to the holder may have changed.
            if !self.leads_to(n1, holder) {
                continue;
            }
            self.directory.withdraw(now, &name, &holder, 0);
            names.insert((name.clone(), n1));
            if self.ended.len() < ENDED_MAX {
                let ended = Ended {
                    until: now + ENDED_TIME,
                    announcers: None,
                };
                self.ended.insert((name, holder), ended);
            }
        }
        for (name, n1) in names {
            self.send_end(now, &name, Some(n1), dt);
        }
    }

    /// The next deadline of the directory.
    pub(super) fn directory_due(&self) -> Option<Instant> {
        let ended = self.ended.values();
        let ended = ended.map(|one| one.announcers.as_ref().map_or(one.until, |(at, _)| *at));
        ended
            .chain(self.questioned.values().map(|(at, _)| *at))
            .min()
    }

    pub(super) fn directory_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.end_questioned(now, dt);
        let mut told = Vec::new();
        self.ended.retain(|(name, _), ended| {
            if let Some((_, n1s)) = ended.announcers.take_if(|(at, _)| *at <= now) {
                told.extend(n1s.into_iter().map(|n1| (n1, name.clone())));
            }
            now < ended.until || ended.announcers.is_some()
        });
        for (n1, name) in told {
            if self.n1s.get(&n1).is_some_and(super::n1::N1::is_up) {
                self.send_end_to(now, n1, &name, dt);
            }
        }
    }

    /// Reports applications that became reachable or unreachable.
    pub(super) fn directory_changes(&mut self) {
        if !self.is_member {
            return;
        }
        let (own, routes) = (self.address, &self.topology.routes);
        let is_reachable = |holder: &u64| *holder == own || routes.contains_key(holder);
        let changes: Vec<Event> = self.directory.changes(&is_reachable);
        for event in changes {
            self.log.push(event);
        }
    }
}
