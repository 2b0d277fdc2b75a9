//! Dissemination of RIB updates: changed entries are sent to neighbours in slices, all entries to a
//! new neighbour, and this member's own entries again every 30 s.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode, Value};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};

use super::n1::{N1, Stage};
use super::objects::{class, name};
use super::values::{
    Candidate, Candidates, DirectoryEntries, DirectoryEntry, LowerFlow, LowerFlows, SLICE, value,
};
use super::{RULES, Rlite};
use crate::interop::link_state::{Key, LinkReport};
use crate::interop::names::Name;

/// Largest number of N-1 DIFs of a member that are sent and stored.
pub(super) const LOWER_DIFS_MAX: usize = 16;

/// Number of refreshes after which one half of the neighbours, alternately, gets all entries. A
/// lost entry would not be sent again otherwise, because members forward only news.
const ROUNDS_PER_TURN: usize = 2;

/// How long after the loss of an N-1 flow this member announces itself again.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(2);

/// Shortest time between two announcements.
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(500);

impl Rlite {
    /// One N-1 flow of every neighbour except the one behind `but`.
    pub(super) fn neighbours_but(&self, but: Option<N1Port>) -> Vec<N1Port> {
        let except = but.and_then(|n1| self.n1s.get(&n1)?.neighbour());
        let mut seen = Vec::new();
        let mut n1s = Vec::new();
        for (n1, flow) in &self.n1s {
            if let Some(name) = flow.neighbour()
                && Some(name) != except
                && !seen.contains(&name)
            {
                seen.push(name);
                n1s.push(*n1);
            }
        }
        n1s
    }

    /// Sends a message to every neighbour except the one behind `but`. Returns the number of
    /// receivers.
    pub(super) fn send_to_neighbours(
        &mut self,
        now: Instant,
        but: Option<N1Port>,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> usize {
        let to = self.neighbours_but(but);
        for n1 in &to {
            self.send_request(now, *n1, message.clone(), dt);
        }
        to.len()
    }

    /// Sends entries in slices of at most ten that fit in one PDU.
    pub(super) fn disseminate<T>(
        &mut self,
        now: Instant,
        message: &Message,
        entries: &[T],
        list: &dyn Fn(&[T]) -> Value,
        to: &[N1Port],
        dt: &mut dyn DataTransfer,
    ) {
        if to.is_empty() {
            return;
        }
        let bytes_max = dt.management_max();
        let mut rest = entries;
        while !rest.is_empty() {
            let mut count = rest.len().min(SLICE);
            let mut whole = message.clone().with_value(list(&rest[..count]));
            // The invoke id is not known yet; its longest encoding is 5 bytes.
            whole.version = RULES.version;
            whole.invoke_id = i32::MAX;
            while count > 1 && RULES.encode(&whole).len() > bytes_max {
                count -= 1;
                whole.value = Some(list(&rest[..count]));
            }
            if RULES.encode(&whole).len() > bytes_max {
                self.log.count("entries-too-long");
            } else {
                for n1 in to {
                    self.send_request(now, *n1, whole.clone(), dt);
                }
            }
            rest = &rest[count..];
        }
    }

    /// Sets this member's report of its link to a neighbour. A change is sent to all neighbours.
    pub(super) fn report_link(
        &mut self,
        now: Instant,
        neighbour: &str,
        cost: Option<u32>,
        dt: &mut dyn DataTransfer,
    ) {
        if self.links.report(now, neighbour, cost) {
            let key = (self.own.clone(), neighbour.to_string());
            let to = self.neighbours_but(None);
            self.send_links(now, &[key], &to, dt);
        }
    }

    /// Sends lower flows by key: those that are up with M_CREATE, the others with M_DELETE.
    pub(super) fn send_links(
        &mut self,
        now: Instant,
        keys: &[Key],
        to: &[N1Port],
        dt: &mut dyn DataTransfer,
    ) {
        let known = |key: &Key| Some((key.clone(), self.links.get(now, key)?));
        let step = self.policies.age_step();
        let all: Vec<(Key, LinkReport)> = keys.iter().filter_map(known).collect();
        for (opcode, is_up) in [(Opcode::Create, true), (Opcode::Delete, false)] {
            let entries = all.iter().filter(|(_, report)| report.is_up == is_up);
            let entries: Vec<LowerFlow> = entries.map(|entry| lower_flow(entry, step)).collect();
            let message = Message::object(opcode, class::ROUTING, name::ROUTING);
            let list = |entries: &[LowerFlow]| {
                value(&LowerFlows {
                    entries: entries.to_vec(),
                })
            };
            self.disseminate(now, &message, &entries, &list, to, dt);
        }
    }

    /// Sends records of members.
    pub(super) fn send_members(
        &mut self,
        now: Instant,
        opcode: Opcode,
        entries: &[Candidate],
        to: &[N1Port],
        dt: &mut dyn DataTransfer,
    ) {
        let message = Message::object(opcode, class::NEIGHBOURS, name::NEIGHBOURS);
        let list = |entries: &[Candidate]| {
            value(&Candidates {
                entries: entries.to_vec(),
            })
        };
        self.disseminate(now, &message, entries, &list, to, dt);
    }

    /// Sends registrations.
    pub(super) fn send_directory(
        &mut self,
        now: Instant,
        opcode: Opcode,
        entries: &[DirectoryEntry],
        to: &[N1Port],
        dt: &mut dyn DataTransfer,
    ) {
        let message = Message::object(opcode, class::DIRECTORY, name::DIRECTORY);
        let list = |entries: &[DirectoryEntry]| {
            value(&DirectoryEntries {
                entries: entries.to_vec(),
            })
        };
        self.disseminate(now, &message, entries, &list, to, dt);
    }

    /// Sends all entries to one neighbour, except those about the neighbour itself.
    pub(super) fn send_full_rib(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(peer) = self.n1s[&n1].neighbour().map(String::from) else {
            return;
        };
        let to = [n1];
        let others = self.members.iter().filter(|(name, _)| **name != peer);
        let others =
            others.map(|(name, member)| candidate(name, member.address, member.lower_difs.clone()));
        let records: Vec<Candidate> = self.own_record().into_iter().chain(others).collect();
        self.send_members(now, Opcode::Create, &records, &to, dt);
        let links = self.links.iter(now);
        let links = links.filter(|((from, _), report)| *from != peer && report.is_up);
        let links: Vec<Key> = links.map(|(key, _)| key.clone()).collect();
        self.send_links(now, &links, &to, dt);
        let own = self.own_registrations();
        let others = self
            .directory
            .others()
            .filter(|(_, holder, _)| **holder != peer);
        let others = others.map(|(app, holder, seq)| directory_entry(app, holder, seq));
        let entries: Vec<DirectoryEntry> = own.into_iter().chain(others).collect();
        self.send_directory(now, Opcode::Create, &entries, &to, dt);
        let addresses = self.all_addresses();
        self.send_addresses(now, &addresses, &to, dt);
    }

    /// Sends the entries of this member again, for members that missed them, and so that the
    /// entries do not expire.
    pub(super) fn refresh(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        self.links.refresh(now);
        let to = self.neighbours_but(None);
        self.send_own_links(now, &to, dt);
        let entries = self.own_registrations();
        self.send_directory(now, Opcode::Create, &entries, &to, dt);
        self.send_own_record(now, dt);
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(ROUNDS_PER_TURN) {
            return;
        }
        let turn = self.rounds / ROUNDS_PER_TURN;
        let half = to.len().div_ceil(2);
        for n1 in to.iter().cycle().skip(turn % 2 * half).take(half) {
            self.send_full_rib(now, *n1, dt);
        }
    }

    /// Sends this member's record and lower flows to all neighbours, although they have not
    /// changed. A neighbour that loses an N-1 flow to this member removes them, even if another N-1
    /// flow remains, and withdraws them from other members. The neighbour may notice the loss later
    /// than this side, so the next refresh is scheduled soon.
    pub(super) fn announce_self(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if self.member.is_none() || self.has_left {
            return;
        }
        self.refresh_at = self.refresh_at.min(now + ANNOUNCE_AGAIN);
        if now < self.announce_next {
            return;
        }
        self.announce_next = now + ANNOUNCE_PAUSE;
        self.send_own_record(now, dt);
        let to = self.neighbours_but(None);
        self.send_own_links(now, &to, dt);
    }

    /// Sends this member's lower flows that are up.
    fn send_own_links(&mut self, now: Instant, to: &[N1Port], dt: &mut dyn DataTransfer) {
        let own = self.links.own(now).filter(|(_, report)| report.is_up);
        let own: Vec<Key> = own.map(|(key, _)| key.clone()).collect();
        self.send_links(now, &own, to, dt);
    }

    /// Sends this member's own record to all neighbours.
    pub(super) fn send_own_record(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let record: Vec<Candidate> = self.own_record().into_iter().collect();
        let to = self.neighbours_but(None);
        self.send_members(now, Opcode::Create, &record, &to, dt);
    }

    fn own_record(&self) -> Option<Candidate> {
        let mut difs: Vec<String> = Vec::new();
        let used = |flow: &&N1| !matches!(flow.stage, Stage::Leaving);
        for flow in self.n1s.values().filter(used) {
            if !difs.contains(&flow.props.dif) && difs.len() < LOWER_DIFS_MAX {
                difs.push(flow.props.dif.clone());
            }
        }
        Some(candidate(&self.own, self.own_address()?, difs))
    }

    fn own_registrations(&self) -> Vec<DirectoryEntry> {
        let own = self.directory.registered();
        own.map(|(app, seq)| directory_entry(app, &self.own, seq))
            .collect()
    }
}

fn lower_flow((key, report): &(Key, LinkReport), step: Duration) -> LowerFlow {
    let age = (report.age / step * step).as_secs();
    LowerFlow {
        local: Some(key.0.clone()),
        remote: Some(key.1.clone()),
        cost: Some(report.cost),
        seq: Some(report.seq),
        state: Some(report.is_up),
        age: Some(u32::try_from(age).unwrap_or(u32::MAX)),
    }
}

/// Makes a member's record for sending.
pub(super) fn candidate(name: &str, address: u64, lower_difs: Vec<String>) -> Candidate {
    let name = Name::of(name);
    Candidate {
        name: Some(name.ap),
        instance: Some(name.api),
        address: Some(address),
        lower_difs,
    }
}

/// Makes a registration for sending.
pub(super) fn directory_entry(app: &str, holder: &str, seq: u64) -> DirectoryEntry {
    DirectoryEntry {
        app: Some(Name::of(app).into()),
        holder: Some(holder.to_string()),
        seq: Some(seq),
    }
}
