//! Address assignment: how an enroller assigns an address, who knows about it, and how a conflict
//! ends.
//!
//! An enroller draws an address and proposes it to its neighbours (M_CREATE `aareq`). A member that
//! knows the address to be in use objects (M_DELETE `aareq`). In use are the addresses in the table
//! of allocations, each with the member that assigned it, and the addresses of members.
//!
//! An assignment has no sequence number. If it were still spreading while the objection to it
//! spreads, each would be news after the other, forever. So for some seconds after an objection, a
//! member ignores the assignment.

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

/// How long a copy of an assignment or record may arrive late.
const LATE_COPY_TIME: Duration = Duration::from_secs(5);

/// How long a replaced address is remembered: until all members have received the later ones.
const OUTDATED_TIME: Duration = Duration::from_secs(600);

/// Largest number of replaced addresses that are remembered for one member.
const OUTDATED_MAX: usize = 4;

/// An address of a member that was replaced or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutdatedAddress {
    address: u64,
    at: Instant,
    /// The record was withdrawn. If its member announces itself, the same record returns.
    is_withdrawn: bool,
}

impl Rlite {
    /// The address that the IPCP `name` keeps at enrollment, if any: the address that this member
    /// has recorded for it, or else `asked`, unless another member has it. `asked` is the address
    /// that the IPCP claims; an IPCP without an address claims 1.
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

    /// True when a member other than `name` has this address.
    fn is_taken(&self, address: u64, name: &str) -> bool {
        let own = self.own_address() == Some(address) && name != self.own;
        own || self
            .members
            .iter()
            .any(|(other, member)| other != name && member.address == address)
    }

    /// True when an address is valid and no member is known to have it.
    pub(super) fn check_free(&self, address: u64) -> bool {
        address != 0 && address <= self.last_address() && !self.is_taken(address, "")
    }

    /// The highest usable address: it must fit in the PCI and in the signed 32 bits of A-DATA.
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

    /// Checks an address that an enroller assigned to this IPCP.
    ///
    /// # Errors
    /// The address is 0 or too large.
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

    /// Draws an address that no member is known to have, from the lowest ones: four times as many
    /// as have been assigned.
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
            // The range grows if no free address is found in it.
            let end = (end << (round / 8)).clamp(2, last.saturating_add(1));
            let address = 1 + self.random.below(end - 1);
            if !taken.contains(&address) {
                return Some(address);
            }
        }
        None
    }

    /// Proposes an address to all neighbours. Returns false if this member has no neighbours.
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

    /// Removes an assignment from the table, because of an objection.
    fn withdraw_allocation(&mut self, now: Instant, address: u64, requestor: &str) {
        self.allocated_addresses.remove(&address);
        self.objected_addresses
            .retain(|_, at| now < *at + LATE_COPY_TIME);
        if self.objected_addresses.len() < MEMBERS_MAX {
            let key = (address, requestor.to_string());
            self.objected_addresses.insert(key, now);
        }
    }

    /// True when an assignment may be a late copy from before an objection to it.
    fn was_objected(&self, now: Instant, address: u64, requestor: &str) -> bool {
        let key = (address, requestor.to_string());
        let at = self.objected_addresses.get(&key);
        at.is_some_and(|at| now < *at + LATE_COPY_TIME)
    }

    /// Records which member assigned an address. Returns true if that was not known.
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

    /// Handles `aareq`: a member proposes an address, or objects to one.
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
                // This member's own proposal has come back to it.
            } else if is_conflict {
                let objection = address_request(Opcode::Delete, &requestor, address);
                self.send_request(now, n1, objection, dt);
            } else if self.record_allocation(address, &requestor) {
                let onward = address_request(Opcode::Create, &requestor, address);
                self.send_to_neighbours(now, Some(n1), &onward, dt);
            }
        } else if self.allocated_addresses.get(&address) == Some(&requestor) {
            if requestor == self.own {
                // An address that a member already uses is kept.
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

    /// Handles `aa_entries`: addresses that were assigned.
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
            // Entries do not show which of two was first, so the known one stays.
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

    /// Sends entries of the table of allocations to some neighbours.
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

    /// All entries of the table of allocations.
    pub(super) fn all_addresses(&self) -> Vec<AddressEntry> {
        let all = self.allocated_addresses.iter();
        all.map(|(address, requestor)| AddressEntry {
            requestor: Some(requestor.clone()),
            address: Some(*address),
        })
        .collect()
    }

    /// Stores a member's record, which the neighbour `by` has sent or, without `by`, this member
    /// has made. Returns true if the record is news; then send it to the other neighbours.
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

    /// Removes a member's record. Returns false if there is no such record.
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

    /// True when the neighbour `by` sends an outdated address of a member. Records have no sequence
    /// numbers, so two addresses of one member would spread forever, each as news after the other.
    /// A record spreads from its author from neighbour to neighbour, so the neighbour that is
    /// nearer to the author has the later one.
    fn is_outdated(&self, now: Instant, name: &str, address: u64, by: &str) -> bool {
        let outdated = self.outdated.get(name).into_iter().flatten();
        let Some(old) = outdated.rev().find(|old| old.address == address) else {
            return false;
        };
        if old.is_withdrawn && !self.members.contains_key(name) {
            return now < old.at + HOLD_TIME;
        }
        let is_late_copy = now < old.at + LATE_COPY_TIME;
        is_late_copy || by != name && self.is_off_path(by, name)
    }

    /// True when a neighbour is not a next hop to a member. A member with this member's own address
    /// has no route to decide by; then any other address counts as better.
    fn is_off_path(&self, neighbour: &str, name: &str) -> bool {
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

    /// Forgets replaced addresses that can no longer be spreading.
    pub(super) fn forget_outdated(&mut self, now: Instant) {
        self.outdated.retain(|_, outdated| {
            outdated.retain(|old| now < old.at + OUTDATED_TIME);
            !outdated.is_empty()
        });
    }

    /// Removes members that have no lower flow and no N-1 flow to this member.
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

    /// Resolves an address conflict: of two members with the same address, the one with the lower
    /// name takes another.
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

    /// Changes this member's address and announces that. Flows are bound to the addresses of their
    /// ends, so this member's flows end.
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
    /// Updates the N-1 DIFs of a record with an unchanged address. While a member gets its N-1
    /// flows, many versions of this list spread, and nothing shows which is the latest. So lists
    /// from others only add to it, and no version can spread forever. Returns true if N-1 DIFs were
    /// added.
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

/// Makes the message about a proposed address.
fn address_request(opcode: Opcode, requestor: &str, address: u64) -> Message {
    let entry = AddressEntry {
        requestor: Some(requestor.to_string()),
        address: Some(address),
    };
    Message::object(opcode, class::ADDRESS_WANTED, name::ADDRESSES).with_value(value(&entry))
}

/// Requestor and address of an entry; `None` if either is invalid.
fn parts(entry: AddressEntry) -> Option<(String, u64)> {
    let requestor = entry.requestor.filter(|name| is_name(name))?;
    let address = entry.address.filter(|address| *address != 0)?;
    Some((requestor, address))
}
