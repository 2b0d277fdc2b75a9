//! Dissemination of RIB updates: entries are flooded to neighbours, and digests are compared with
//! theirs.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::Opcode;
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;

use super::Management;
use super::entries::{Entry, Kind, MergeOutcome};
use super::name_conflict::DisputeOutcome;
use super::neighbours::Stage;
use super::policies::DirectoryPolicy;
use super::schema::{self, Digests, Object};

/// Limit of the bytes of entries in one message.
const BATCH_BYTES: usize = 16_384;

/// Largest number of digests in one message.
const DIGESTS_MAX: usize = 100;

impl Management {
    /// Sends entries to all neighbours except the one from which they came.
    pub(super) fn flood(
        &mut self,
        now: Instant,
        entries: &[Entry],
        except: Option<N1Port>,
        dt: &mut dyn DataTransfer,
    ) {
        if entries.is_empty() {
            return;
        }
        let from = except
            .and_then(|n1| self.neighbour(n1))
            .map(|up| up.address);
        let mut to: Vec<N1Port> = self
            .neighbours()
            .into_iter()
            .filter(|(address, _)| Some(*address) != from)
            .filter_map(|(_, n1s)| n1s.first().copied())
            .collect();
        // An IPCP that is being admitted has received the entries so far and must not miss new
        // ones.
        let is_admitting = |n1: &&N1Port| {
            let up = self.n1s[*n1].up.as_ref();
            up.is_some_and(
                |up| matches!(up.stage, Stage::Admitting { address, .. } if address != 0),
            )
        };
        to.extend(
            self.n1s
                .keys()
                .filter(is_admitting)
                .filter(|n1| Some(**n1) != except),
        );
        for n1 in to {
            self.send_entries(now, n1, entries, dt);
        }
    }

    fn send_entries(
        &mut self,
        now: Instant,
        n1: N1Port,
        entries: &[Entry],
        dt: &mut dyn DataTransfer,
    ) {
        let size = |entry: &Entry| {
            64 + entry.key.origin.len()
                + entry.key.name.len()
                + entry.value.as_ref().map_or(0, Vec::len)
        };
        let mut rest = entries;
        while !rest.is_empty() {
            let mut bytes = 0;
            let count = rest
                .iter()
                .take_while(|entry| {
                    bytes += size(entry);
                    bytes <= BATCH_BYTES
                })
                .count()
                .max(1);
            let (batch, others) = rest.split_at(count);
            let value = Some(schema::encode_entries(batch));
            let message = schema::request(Opcode::Write, &Object::Entries, value);
            self.tell(now, n1, message, false, dt);
            rest = others;
        }
    }

    /// Sends all entries of this member to an IPCP that joins.
    pub(super) fn send_everything(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let entries = self.store.export(now);
        self.send_entries(now, n1, &entries, dt);
    }

    /// Handles entries from a neighbour. Returns false when they are malformed.
    pub(super) fn on_entries(
        &mut self,
        now: Instant,
        n1: N1Port,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(entries) = schema::decode_entries(bytes) else {
            return false;
        };
        let mut accepted = Vec::new();
        let mut outdated = Vec::new();
        let mut again = Vec::new();
        let mut cedes_name = false;
        for entry in entries {
            let key = entry.key.clone();
            let conflicting_member = self.conflicting_member(&entry);
            match self.store.merge(now, entry) {
                MergeOutcome::Accepted => accepted.push(self.store.as_entry(now, &key)),
                MergeOutcome::Known => {}
                MergeOutcome::Outdated => outdated.push(self.store.as_entry(now, &key)),
                MergeOutcome::Disputed => match self.resolve_dispute(now, &key, conflicting_member)
                {
                    DisputeOutcome::Again(entry) => again.push(entry),
                    DisputeOutcome::CedeName => cedes_name = true,
                    DisputeOutcome::Nothing => {}
                },
                MergeOutcome::Refused => self.log.count("entries-refused"),
            }
        }
        if !outdated.is_empty() {
            self.send_entries(now, n1, &outdated, dt);
        }
        self.flood(now, &accepted, Some(n1), dt);
        self.flood(now, &again, None, dt);
        if !accepted.is_empty() {
            self.entries_changed(now, &accepted, dt);
        }
        if cedes_name && self.leaving.is_none() {
            self.cede_name(now, dt);
        }
        true
    }

    /// Updates other components after entries of other members were accepted.
    fn entries_changed(&mut self, now: Instant, entries: &[Entry], dt: &mut dyn DataTransfer) {
        let mut members = BTreeSet::new();
        let mut has_expelled = false;
        for Entry { key, .. } in entries {
            match key.kind {
                Kind::Application => self.directory.touch(&key.name),
                Kind::Member => drop(members.insert(key.origin.clone())),
                Kind::Expelled => has_expelled = true,
            }
        }
        if !members.is_empty() {
            match self.policies.directory {
                DirectoryPolicy::Replicated => {
                    let applications = members.iter().flat_map(|m| self.store.applications_of(m));
                    applications.for_each(|name| self.directory.touch(name));
                }
                // With other members, another member may be the home of any name.
                DirectoryPolicy::OnDemand { .. } => self.directory.is_stale = true,
            }
            self.update_neighbour_addresses(now, dt);
        }
        if self.member.is_none() {
            return;
        }
        if has_expelled {
            if self.is_expelled(&self.own.clone()) {
                return self.leave(now, "this member was expelled", dt);
            }
            self.drop_expelled_later(now);
        }
        if !members.is_empty() {
            if self.loses_address_to(&members) {
                self.take_new_address(now, dt);
            }
            self.update_flow_peers(now, &members, dt);
        }
    }

    /// True when one of these members has this member's address and a lower name.
    pub(super) fn loses_address_to(&self, members: &BTreeSet<String>) -> bool {
        let own = self.member.as_ref().map(|member| member.address);
        let mut lower = members.iter().take_while(|name| **name < self.own);
        lower.any(|name| own.is_some() && self.address_of(name) == own)
    }

    /// Sends digests to all neighbours.
    pub(super) fn compare_all(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        for n1s in self.neighbours().into_values() {
            if let Some(n1) = n1s.first() {
                self.compare_with(now, *n1, false, dt);
            }
        }
    }

    /// Sends digests of all origins to one neighbour.
    pub(super) fn compare_with(
        &mut self,
        now: Instant,
        n1: N1Port,
        is_answer: bool,
        dt: &mut dyn DataTransfer,
    ) {
        let digests: Vec<(String, u64)> = self
            .store
            .digests()
            .iter()
            .map(|(origin, hash)| (origin.clone(), *hash))
            .collect();
        let mut after = String::new();
        let mut rest = &digests[..];
        loop {
            let (some, others) = rest.split_at(rest.len().min(DIGESTS_MAX));
            let last = match some.last() {
                Some((origin, _)) if !others.is_empty() => origin.clone(),
                _ => String::new(),
            };
            let is_end = last.is_empty();
            let message = Digests {
                after: core::mem::replace(&mut after, last.clone()),
                last,
                is_answer,
                digests: some.to_vec(),
            };
            let value = Some(schema::encode_digests(message));
            let message = schema::request(Opcode::Write, &Object::Digests, value);
            self.tell(now, n1, message, false, dt);
            if is_end {
                return;
            }
            rest = others;
        }
    }

    /// Compares the digests of a neighbour with this member's. Sends the entries that the neighbour
    /// lacks, and own digests if this member lacks any. Returns false when the digests are
    /// malformed.
    pub(super) fn on_digests(
        &mut self,
        now: Instant,
        n1: N1Port,
        bytes: &[u8],
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(theirs) = schema::decode_digests(bytes) else {
            return false;
        };
        let is_spoken_of = |origin: &String| {
            *origin > theirs.after && (theirs.last.is_empty() || *origin <= theirs.last)
        };
        let ours: BTreeMap<String, u64> = self
            .store
            .digests()
            .iter()
            .filter(|(origin, _)| is_spoken_of(origin))
            .map(|(origin, hash)| (origin.clone(), *hash))
            .collect();
        let known: BTreeMap<&String, u64> = theirs
            .digests
            .iter()
            .map(|(origin, hash)| (origin, *hash))
            .collect();
        let mut entries = Vec::new();
        for (origin, hash) in &ours {
            if known.get(origin) != Some(hash) {
                entries.extend(self.store.export_of(now, origin));
            }
        }
        self.send_entries(now, n1, &entries, dt);
        let lacks = theirs
            .digests
            .iter()
            .any(|(origin, hash)| ours.get(origin) != Some(hash));
        if lacks && !theirs.is_answer {
            self.compare_with(now, n1, true, dt);
        }
        true
    }

    /// Sorted names of the visible members, this one included.
    pub(super) fn member_names(&self) -> Vec<String> {
        let visible = self.store.visible(Kind::Member);
        let mut names: Vec<String> = visible.map(|(origin, _, _)| origin.to_string()).collect();
        if !names.contains(&self.own) {
            names.push(self.own.clone());
            names.sort();
        }
        names
    }
}
