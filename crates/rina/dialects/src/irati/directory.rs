//! Messages of the directory: entries are sent to all neighbours as they change, and all of them
//! now and then, since nothing is repeated when a PDU is lost.
//!
//! Entries have no versions (their sequence number is always 0), and the end of one does not say
//! whose it was. So:
//!
//! - The end of an entry counts for holders that are reached through the neighbour that sent it,
//!   and that the neighbour does not name within a quarter of a second: the entries of all holders
//!   that it still knows follow every end.
//! - For a while after an entry has ended, only the neighbour that leads to its holder can bring it
//!   back. Its end is sent to others that still have it, unless it comes back within five seconds.
//! - An entry that says that this member has an application that it does not have is ended by it.

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

/// Entries in a message.
const ENTRIES_MAX: usize = 15;
/// Bytes of a message that are not its entries.
const FRAME_BYTES: usize = 128;
/// Ends that are remembered, and for how long.
const ENDED_MAX: usize = 4_096;
const ENDED_TIME: Duration = Duration::from_secs(180);
/// How long the entries may take that follow the end of another one of the same name.
const FOLLOW_TIME: Duration = Duration::from_millis(250);
/// How long an entry that another still has may take to come back from its holder.
const DOUBT_TIME: Duration = Duration::from_secs(5);

/// Bounds of the table. Ends are kept here instead: there are no versions.
pub(super) const LIMITS: Limits = Limits {
    entries: 65_536,
    hold: Duration::ZERO,
};

/// An entry that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    until: Instant,
    /// Neighbours that still have it, and when its end is sent to them.
    doubt: Option<(Instant, BTreeSet<N1Port>)>,
}

/// Entries that have ended, by application and holder.
pub(super) type AllEnded = BTreeMap<(String, u64), Ended>;

/// Entries of which a neighbour may have meant the end: when they end, unless it names them again.
pub(super) type Questioned = BTreeMap<(String, u64), (Instant, N1Port)>;

impl Irati {
    pub(super) fn register(&mut self, now: Instant, name: &str, dt: &mut dyn DataTransfer) {
        if self.directory.register(name).is_some() {
            let entry = (name.to_string(), self.address);
            self.send_entries(now, alloc::vec![entry], None, dt);
        }
        // Entries are disseminated without an answer: no member can refuse one.
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

    /// Tells all neighbours but one of entries.
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

    /// Tells all neighbours but one that an entry has ended.
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

    /// Tells a neighbour that an entry has ended, and which holders the application still has: the
    /// neighbour takes the end as that of every holder to which this member leads.
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

    /// All entries, except those of the neighbour itself.
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

    /// Whether the way to a member leads through this N-1 flow.
    fn leads_to(&self, n1: N1Port, address: u64) -> bool {
        let Some(flow) = self.n1s.get(&n1) else {
            return false;
        };
        let route = self.topology.routes.get(&address);
        flow.peer.address == address
            || route.is_some_and(|(next, _)| next.contains(&flow.peer.address))
    }

    /// Entries of a neighbour.
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
            if self.is_doubtful(now, n1, &name, entry.address) {
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

    /// Whether an entry has ended a while ago, and the neighbour that has it still does not lead
    /// to its holder.
    fn is_doubtful(&mut self, now: Instant, n1: N1Port, name: &str, holder: u64) -> bool {
        if self.leads_to(n1, holder) {
            return false;
        }
        let Some(ended) = self.ended.get_mut(&(name.to_string(), holder)) else {
            return false;
        };
        let doubt = ended
            .doubt
            .get_or_insert_with(|| (now + DOUBT_TIME, BTreeSet::new()));
        doubt.1.insert(n1);
        self.log.count("entries-doubted");
        true
    }

    /// A neighbour says that an entry has ended.
    pub(super) fn on_entry_ended(
        &mut self,
        now: Instant,
        n1: N1Port,
        key: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let is_meant = |name: &str| Naming::of(name).key() == key;
        // It may have meant another holder; if not, the neighbour has to know better.
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

    /// Ends the entries that a neighbour has not named again.
    fn end_questioned(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let due = self.questioned.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<((String, u64), N1Port)> =
            due.map(|(entry, (_, n1))| (entry.clone(), *n1)).collect();
        let mut names = BTreeSet::new();
        for ((name, holder), n1) in due {
            self.questioned.remove(&(name.clone(), holder));
            // The way to the holder may lead elsewhere by now.
            if !self.leads_to(n1, holder) {
                continue;
            }
            self.directory.withdraw(now, &name, &holder, 0);
            names.insert((name.clone(), n1));
            if self.ended.len() < ENDED_MAX {
                let ended = Ended {
                    until: now + ENDED_TIME,
                    doubt: None,
                };
                self.ended.insert((name, holder), ended);
            }
        }
        for (name, n1) in names {
            self.send_end(now, &name, Some(n1), dt);
        }
    }

    /// When something of the directory is due.
    pub(super) fn directory_due(&self) -> Option<Instant> {
        let ended = self.ended.values();
        let ended = ended.map(|one| one.doubt.as_ref().map_or(one.until, |(at, _)| *at));
        ended
            .chain(self.questioned.values().map(|(at, _)| *at))
            .min()
    }

    pub(super) fn directory_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.end_questioned(now, dt);
        let mut told = Vec::new();
        self.ended.retain(|(name, _), ended| {
            if let Some((_, n1s)) = ended.doubt.take_if(|(at, _)| *at <= now) {
                told.extend(n1s.into_iter().map(|n1| (n1, name.clone())));
            }
            now < ended.until || ended.doubt.is_some()
        });
        for (n1, name) in told {
            if self.n1s.get(&n1).is_some_and(super::n1::N1::is_up) {
                self.send_end_to(now, n1, &name, dt);
            }
        }
    }

    /// Tells of applications that can be reached from here on, or cannot any more.
    pub(super) fn directory_changes(&mut self) {
        if !self.is_member {
            return;
        }
        let (own, routes) = (self.address, &self.topology.routes);
        let is_there = |holder: &u64| *holder == own || routes.contains_key(holder);
        let changes: Vec<Event> = self.directory.changes(&is_there);
        for event in changes {
            self.log.push(event);
        }
    }
}
