//! Address assignment: which member has which address, which assigned it, and how a conflict ends.
//!
//! An enroller draws an address and asks its neighbours (M_CREATE `aareq`); a member that knows
//! that it is taken objects (M_DELETE `aareq`). Assigned are: the addresses in the table of
//! allocations, each with the member that gave it out, and the addresses of members.
//!
//! An assignment has no sequence number. One that goes round while the objection to it goes round
//! as well would be news behind the objection, and the objection news behind it, for ever: a
//! member refuses an assignment for some seconds after the objection.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::config::DifConfig;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;

use super::dissemination::LOWER_DIFS_MAX;
use super::error::AddressOutside;
use super::objects::{class, name};
use super::values::{AddressEntries, AddressEntry, ENTRIES_MAX, is_name, value, value_of};
use super::{HOLD_TIME, MEMBERS_MAX, Member, Rlite};

/// How long a copy of a record may be late.
const LATE_COPY_TIME: Duration = Duration::from_secs(5);

/// How long an address that was replaced is remembered: until all members have had everything
/// since.
const OUTDATED_TIME: Duration = Duration::from_secs(600);

/// Addresses of one member that are remembered so.
const OUTDATED_MAX: usize = 4;

/// An address in a member's record that was replaced or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutdatedAddress {
    address: u64,
    at: Instant,
    /// The record was taken back: it comes again unchanged when its member announces itself.
    is_withdrawn: bool,
}

impl Rlite {
    /// The address that an IPCP keeps: its own when it is known here or no other has it. `asked`
    /// is what it says; 1 is what an IPCP says that has none.
    pub(super) fn retained_address(&self, name: &str, asked: u64) -> Option<u64> {
        let known = self.members.get(name).map(|member| member.address);
        if known.is_some_and(|address| !self.is_taken(address, name)) {
            return known;
        }
        let is_free = asked != 0 && asked <= self.last_address() && !self.is_taken(asked, name);
        let may_keep = asked != super::ADDRESS_OF_NEW || !self.policies.assigns();
        let is_promised = self.allocated_addresses.contains_key(&asked);
        (is_free && may_keep && !is_promised).then_some(asked)
    }

    /// Whether another member than `name` has an address.
    fn is_taken(&self, address: u64, name: &str) -> bool {
        let own = self.own_address() == Some(address) && name != self.own;
        own || self
            .members
            .iter()
            .any(|(other, member)| other != name && member.address == address)
    }

    /// Whether an address is valid and no member is known to have it.
    pub(super) fn check_free(&self, address: u64) -> bool {
        address != 0 && address <= self.last_address() && !self.is_taken(address, "")
    }

    /// The highest address that the PCI has room for; A-DATA writes them as 32 bits with sign.
    fn last_address(&self) -> u64 {
        let bytes = self
            .member
            .as_ref()
            .map_or(4, |member| member.config.widths.address);
        let in_pci = match bytes {
            1 => u64::from(u8::MAX),
            2 => u64::from(u16::MAX),
            _ => u64::from(u32::MAX),
        };
        in_pci.min(i32::MAX as u64)
    }

    /// Whether an address that was assigned to this IPCP is one that it can have.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check_assigned(
        &self,
        address: u64,
        config: &DifConfig,
    ) -> Result<(), AddressOutside> {
        let bits = 8 * u32::from(config.widths.address).min(8);
        let fits = bits >= 64 || address < 1 << bits;
        if address == 0 || !fits || address > i32::MAX as u64 {
            return Err(AddressOutside(address));
        }
        Ok(())
    }

    /// An address that no member is known to have, from the lowest few: four times as many as are
    /// given out.
    pub(super) fn draw_address(&mut self) -> Option<u64> {
        let own = self.own_address();
        let members = self.members.values().map(|member| member.address);
        let taken: BTreeSet<u64> = members
            .chain(own)
            .chain(self.allocated_addresses.keys().copied())
            .collect();
        let end = 4 * (self.allocated_addresses.len() as u64 + 1);
        let last = self.last_address();
        for round in 0..64_u64 {
            // A range in which nothing is free grows.
            let end = (end << (round / 8)).clamp(2, last.saturating_add(1));
            let address = 1 + self.random.below(end - 1);
            if !taken.contains(&address) {
                return Some(address);
            }
        }
        None
    }

    /// Asks all neighbours whether an address is free. False without neighbours.
    pub(super) fn propose_address(
        &mut self,
        now: Instant,
        address: u64,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let own = self.own.clone();
        self.record_allocation(address, &own);
        let message = address_request(Opcode::Create, &own, address);
        self.send_to_neighbours(now, None, &message, dt) > 0
    }

    /// Takes an assignment off the table because of an objection.
    fn withdraw_allocation(&mut self, now: Instant, address: u64, requestor: &str) {
        self.allocated_addresses.remove(&address);
        self.objected_addresses
            .retain(|_, at| now < *at + LATE_COPY_TIME);
        if self.objected_addresses.len() < MEMBERS_MAX {
            let key = (address, requestor.to_string());
            self.objected_addresses.insert(key, now);
        }
    }

    /// Whether an assignment may be a copy that is later than the objection to it.
    fn was_objected(&self, now: Instant, address: u64, requestor: &str) -> bool {
        let key = (address, requestor.to_string());
        let at = self.objected_addresses.get(&key);
        at.is_some_and(|at| now < *at + LATE_COPY_TIME)
    }

    /// Remembers which member assigned an address. Returns whether that is news.
    fn record_allocation(&mut self, address: u64, requestor: &str) -> bool {
        if self
            .allocated_addresses
            .get(&address)
            .is_some_and(|by| by == requestor)
        {
            return false;
        }
        if self.allocated_addresses.len() >= MEMBERS_MAX {
            let members = self.members.values().map(|member| member.address);
            let used: BTreeSet<u64> = members.chain(self.own_address()).collect();
            self.allocated_addresses
                .retain(|address, _| used.contains(address));
            if self.allocated_addresses.len() >= MEMBERS_MAX {
                return false;
            }
        }
        self.allocated_addresses
            .insert(address, requestor.to_string());
        true
    }

    /// `aareq`: a member proposes an address, or objects to one.
    pub(super) fn on_address_request(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let entry = value_of::<AddressEntry>(message);
        let Some((requestor, address)) = entry.and_then(parts) else {
            let peer = self.peer_name(n1);
            return self.log.discard(&peer, "address-malformed");
        };
        if message.opcode == Opcode::Create {
            let given = self.allocated_addresses.get(&address);
            let is_conflict = given.is_some_and(|by| *by != requestor)
                || given.is_none() && self.is_taken(address, "");
            if requestor == self.own || self.was_objected(now, address, &requestor) {
                // It has come round.
            } else if is_conflict {
                let objection = address_request(Opcode::Delete, &requestor, address);
                self.send_request(now, n1, objection, dt);
            } else if self.record_allocation(address, &requestor) {
                let onward = address_request(Opcode::Create, &requestor, address);
                self.send_to_neighbours(now, Some(n1), &onward, dt);
            }
        } else if self.allocated_addresses.get(&address) == Some(&requestor) {
            if requestor == self.own {
                // An address that is in use stays.
                if !self.is_taken(address, "") {
                    self.withdraw_allocation(now, address, &requestor);
                    self.log.count("addresses-objected");
                    self.on_objection(now, address, dt);
                }
            } else {
                self.withdraw_allocation(now, address, &requestor);
                let onward = address_request(Opcode::Delete, &requestor, address);
                self.send_to_neighbours(now, Some(n1), &onward, dt);
            }
        }
    }

    /// `aa_entries`: addresses that were given out.
    pub(super) fn on_addresses(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = self.peer_name(n1);
        let Some(AddressEntries { entries }) = value_of(message) else {
            return self.log.discard(&peer, "addresses-malformed");
        };
        if entries.len() > ENTRIES_MAX || message.opcode != Opcode::Create {
            return self.log.discard(&peer, "addresses-malformed");
        }
        let mut news = Vec::new();
        for entry in entries {
            let Some((requestor, address)) = parts(entry.clone()) else {
                self.log.discard(&peer, "address-malformed");
                continue;
            };
            // The entry does not say which of two was first: the one that is known stays.
            if !self.allocated_addresses.contains_key(&address)
                && !self.was_objected(now, address, &requestor)
                && self.record_allocation(address, &requestor)
            {
                news.push(entry);
            }
        }
        let onward = self.neighbours_but(Some(n1));
        self.send_addresses(now, &news, &onward, dt);
    }

    /// Entries of the table of allocations to some neighbours.
    pub(super) fn send_addresses(
        &mut self,
        now: Instant,
        entries: &[AddressEntry],
        to: &[N1Port],
        dt: &mut dyn DataTransfer,
    ) {
        let message = Message::object(Opcode::Create, class::ADDRESSES, name::ADDRESSES);
        let list = |entries: &[AddressEntry]| {
            value(&AddressEntries {
                entries: entries.to_vec(),
            })
        };
        self.disseminate(now, &message, entries, &list, to, dt);
    }

    /// The whole table of allocations.
    pub(super) fn all_addresses(&self) -> Vec<AddressEntry> {
        let all = self.allocated_addresses.iter();
        all.map(|(address, requestor)| AddressEntry {
            requestor: Some(requestor.clone()),
            address: Some(*address),
        })
        .collect()
    }

    /// Takes a member's record from the neighbour `by`, or one made here. Returns whether it is
    /// news: to be sent to the other neighbours.
    pub(super) fn set_member(
        &mut self,
        now: Instant,
        name: &str,
        told: Member,
        by: Option<&str>,
    ) -> bool {
        if let Some(known) = self.members.get_mut(name)
            && known.address == told.address
        {
            return known.learn(told.lower_difs, by == Some(name));
        }
        if by.is_some_and(|by| self.is_outdated(now, name, told.address, by)) {
            self.log.count("members-outdated");
            return false;
        }
        if !self.members.contains_key(name) && self.members.len() >= MEMBERS_MAX {
            self.evict_unreferenced(now);
            if self.members.len() >= MEMBERS_MAX {
                self.log.count("members-too-many");
                return false;
            }
        }
        let address = told.address;
        if let Some(outdated) = self.outdated.get_mut(name) {
            outdated.retain(|old| old.address != address);
        }
        if let Some(old) = self.members.insert(name.to_string(), told) {
            self.note_outdated(now, name, old.address, false);
        }
        self.are_routes_stale = true;
        true
    }

    /// A member's record is taken back.
    pub(super) fn remove_member(&mut self, now: Instant, name: &str) -> bool {
        let Some(old) = self.members.remove(name) else {
            return false;
        };
        self.note_outdated(now, name, old.address, true);
        self.are_routes_stale = true;
        true
    }

    /// Remembers an address that a member had.
    fn note_outdated(&mut self, now: Instant, name: &str, address: u64, is_withdrawn: bool) {
        let outdated = self.outdated.entry(name.to_string()).or_default();
        if outdated.len() >= OUTDATED_MAX {
            outdated.remove(0);
        }
        outdated.push(OutdatedAddress {
            address,
            at: now,
            is_withdrawn,
        });
    }

    /// Whether the neighbour `by` sends an address of a member that was replaced. Records have no
    /// sequence numbers, so that two addresses that go round would be news to everybody for ever.
    /// A record comes from its author from neighbour to neighbour: the nearer one has the later
    /// one.
    fn is_outdated(&self, now: Instant, name: &str, address: u64, by: &str) -> bool {
        let outdated = self.outdated.get(name).into_iter().flatten();
        let Some(old) = outdated.rev().find(|old| old.address == address) else {
            return false;
        };
        if old.is_withdrawn && !self.members.contains_key(name) {
            return now < old.at + HOLD_TIME;
        }
        let is_late_copy = now < old.at + LATE_COPY_TIME;
        is_late_copy || by != name && self.is_off_the_way(by, name)
    }

    /// Whether a neighbour is no next hop to a member. One with the address of this member has no
    /// route by which to tell, and any other address is better.
    fn is_off_the_way(&self, neighbour: &str, name: &str) -> bool {
        let mut routes = self.routes.iter();
        match routes.find(|reach| reach.name == name) {
            Some(reach) => {
                let address = self.address_of(neighbour).map(Address);
                address.is_none_or(|address| !reach.route.next.contains(&address))
            }
            None => {
                let known = self.members.get(name).map(|known| known.address);
                known.is_none() || known != self.own_address()
            }
        }
    }

    /// Forgets addresses in records that do not go round any more.
    pub(super) fn forget_outdated(&mut self, now: Instant) {
        self.outdated.retain(|_, outdated| {
            outdated.retain(|old| now < old.at + OUTDATED_TIME);
            !outdated.is_empty()
        });
    }

    /// Forgets members that are in no lower flow.
    fn evict_unreferenced(&mut self, now: Instant) {
        let mut seen = BTreeSet::new();
        for ((from, to), _) in self.links.iter(now) {
            seen.insert(from.clone());
            seen.insert(to.clone());
        }
        let connected = self.n1s.values().map(|flow| flow.peer.clone());
        seen.extend(connected);
        self.members.retain(|name, _| seen.contains(name));
    }

    /// Two members have the same address: the one with the lower name takes another.
    pub(super) fn resolve_conflict(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let Some(own) = self.own_address() else {
            return;
        };
        let other = self
            .members
            .iter()
            .find(|(name, member)| member.address == own && self.own < **name);
        let Some((other, _)) = other else {
            return;
        };
        let text = format!("{other} has address {own} too: this member takes another");
        self.log.notice("conflict", &text);
        self.log.trace(|| TraceEvent::AddressConflict {
            name: other,
            address: Address(own),
        });
        if let Some(address) = self.draw_address() {
            let requestor = self.own.clone();
            self.record_allocation(address, &requestor);
            self.change_address(now, address, dt);
            let entry = AddressEntry {
                requestor: Some(requestor),
                address: Some(address),
            };
            let all = self.neighbours_but(None);
            self.send_addresses(now, &[entry], &all, dt);
        }
    }

    /// This member has another address from here on, and says so. A flow is between two addresses:
    /// those of this member end.
    pub(super) fn change_address(&mut self, now: Instant, address: u64, dt: &mut dyn DataTransfer) {
        self.log.count("addresses-changed");
        let reason = format!("{} has another address now", self.own);
        self.flows.end_all(now, &reason, true, dt);
        self.send_flow_messages(now, dt);
        self.take_address(address, dt);
        self.send_own_record(now, dt);
    }
}

impl Member {
    /// N-1 DIFs of a record with the same address. There are many versions of such a list while a
    /// member gets its N-1 flows, and nothing tells which is the latest: what others say only ever
    /// adds to it, so that no version can go round for ever. Returns whether it did.
    fn learn(&mut self, told: Vec<String>, is_own_word: bool) -> bool {
        let is_new = |dif: &String| !self.lower_difs.contains(dif);
        let mut new: Vec<String> = told.iter().filter(|dif| is_new(dif)).cloned().collect();
        if is_own_word {
            self.lower_difs = told;
        } else {
            new.truncate(LOWER_DIFS_MAX.saturating_sub(self.lower_difs.len()));
            self.lower_difs.extend_from_slice(&new);
        }
        !new.is_empty()
    }
}

/// A message about a proposed address.
fn address_request(opcode: Opcode, requestor: &str, address: u64) -> Message {
    let entry = AddressEntry {
        requestor: Some(requestor.to_string()),
        address: Some(address),
    };
    Message::object(opcode, class::ADDRESS_WANTED, name::ADDRESSES).with_value(value(&entry))
}

/// Requestor and address, if both are good.
fn parts(entry: AddressEntry) -> Option<(String, u64)> {
    let requestor = entry.requestor.filter(|name| is_name(name))?;
    let address = entry.address.filter(|address| *address != 0)?;
    Some((requestor, address))
}
