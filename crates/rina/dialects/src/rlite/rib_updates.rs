//! RIB updates from neighbours: lower flows, members, registrations. News is forwarded to the other
//! neighbours.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};
use carina_wire::check_name;

use super::dissemination::directory_entry;
use super::n1::Stage;
use super::objects::{class, name};
use super::values::{
    Candidate, Candidates, DirectoryEntries, DirectoryEntry, ENTRIES_MAX, LowerFlow, LowerFlows,
    is_name, value_of,
};
use super::{Member, Rlite};
use crate::interop::directory;
use crate::interop::link_state::{Key, LinkReport, MergeOutcome};
use crate::interop::names::Name;

impl Rlite {
    /// Handles M_CREATE or M_DELETE of entries.
    pub(super) fn on_entries(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if matches!(self.n1s[&n1].stage, Stage::Stopping) {
            // The M_STOP_R of the peer was lost: an IPCP that sends entries is a member.
            self.enrollee_is_up(now, n1, dt);
        }
        if self.n1s[&n1].neighbour().is_none() {
            let peer = self.peer_name(n1);
            return self.log.discard(&peer, "entries-of-no-neighbour");
        }
        match (message.name.as_str(), message.class.as_str()) {
            (name::ROUTING, class::ROUTING) => self.on_links(now, n1, message, dt),
            (name::NEIGHBOURS, class::NEIGHBOURS) => self.on_members(now, n1, message, dt),
            (name::DIRECTORY, class::DIRECTORY) => self.on_directory(now, n1, message, dt),
            (name::ADDRESSES, class::ADDRESSES) => self.on_addresses(now, n1, message, dt),
            (name::ADDRESSES, class::ADDRESS_WANTED) => {
                self.on_address_request(now, n1, message, dt);
            }
            _ => {
                let peer = self.peer_name(n1);
                self.log.discard(&peer, "object");
            }
        }
    }

    fn on_links(&mut self, now: Instant, n1: N1Port, message: &Message, dt: &mut dyn DataTransfer) {
        let peer = self.peer_name(n1);
        let list = value_of::<LowerFlows>(message);
        let Some(LowerFlows { entries }) = list.filter(|list| list.entries.len() <= ENTRIES_MAX)
        else {
            return self.log.discard(&peer, "lower-flows-malformed");
        };
        let (mut news, mut corrected) = (Vec::new(), Vec::new());
        for entry in entries {
            let Some((key, mut report)) = link_of(entry) else {
                self.log.discard(&peer, "lower-flow-malformed");
                continue;
            };
            let is_end = message.opcode == Opcode::Delete;
            report.is_up &= !is_end;
            if is_end && key.0 != self.own {
                if self.links.withdraw(now, &key, report.seq) {
                    news.push(key);
                }
                continue;
            }
            if key.0 == peer {
                self.links.forget_end(&key);
                if key.1 == self.own {
                    self.judge_life(now, n1, &report, dt);
                }
            }
            match self.links.insert(now, key.clone(), report) {
                MergeOutcome::New => news.push(key),
                MergeOutcome::Corrected => corrected.push(key),
                MergeOutcome::Full => self.log.discard(&peer, "lower-flows-too-many"),
                MergeOutcome::Same | MergeOutcome::Old => {}
            }
        }
        let onward = self.neighbours_but(Some(n1));
        self.send_links(now, &news, &onward, dt);
        let all = self.neighbours_but(None);
        self.send_links(now, &corrected, &all, dt);
    }

    fn on_members(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = self.peer_name(n1);
        let list = value_of::<Candidates>(message);
        let Some(Candidates { entries }) = list.filter(|list| list.entries.len() <= ENTRIES_MAX)
        else {
            return self.log.discard(&peer, "members-malformed");
        };
        let mut news: Vec<Candidate> = Vec::new();
        let mut is_withdrawn = false;
        for entry in entries {
            let Some((name, member)) = member_of(entry.clone()) else {
                self.log.discard(&peer, "member-malformed");
                continue;
            };
            is_withdrawn |= name == self.own && message.opcode == Opcode::Delete;
            // A neighbour's record, and this member's own, are accepted only from their member
            // itself.
            if name == self.own || name != peer && self.is_neighbour(&name) {
                continue;
            }
            let is_news = match message.opcode {
                Opcode::Delete => name != peer && self.remove_member(now, &name),
                _ => self.set_member(now, &name, member, Some(&peer)),
            };
            if is_news {
                news.push(entry);
            }
        }
        let onward = self.neighbours_but(Some(n1));
        self.send_members(now, message.opcode, &news, &onward, dt);
        if is_withdrawn {
            // A member that has lost this one as a neighbour withdrew its record.
            self.announce_self(now, dt);
        }
    }

    fn on_directory(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = self.peer_name(n1);
        let list = value_of::<DirectoryEntries>(message);
        let list = list.filter(|list| list.entries.len() <= ENTRIES_MAX);
        let Some(DirectoryEntries { entries }) = list else {
            return self.log.discard(&peer, "directory-malformed");
        };
        let mut news: Vec<DirectoryEntry> = Vec::new();
        let mut corrected: Vec<String> = Vec::new();
        for entry in entries {
            let Some((app, holder, seq)) = registration_of(entry.clone()) else {
                self.log.discard(&peer, "directory-entry-malformed");
                continue;
            };
            if message.opcode == Opcode::Delete {
                if self.directory.withdraw(now, &app, &holder, seq) {
                    news.push(entry);
                }
                continue;
            }
            if holder == peer {
                self.directory.forget_end(&app, &holder);
            }
            match self.directory.insert(now, &app, holder, seq) {
                directory::MergeOutcome::New => news.push(entry),
                directory::MergeOutcome::Corrected => corrected.push(app),
                directory::MergeOutcome::Full => self.log.discard(&peer, "directory-full"),
                directory::MergeOutcome::Same | directory::MergeOutcome::Old => {}
            }
        }
        let onward = self.neighbours_but(Some(n1));
        self.send_directory(now, message.opcode, &news, &onward, dt);
        for app in corrected {
            self.send_registration(now, &app, dt);
        }
    }

    /// Sends the state of a registration at this member to all neighbours: present or withdrawn.
    fn send_registration(&mut self, now: Instant, app: &str, dt: &mut dyn DataTransfer) {
        let all = self.neighbours_but(None);
        let own = self.own.clone();
        let (opcode, seq) = match self.directory.seq(app, &own) {
            Some(seq) => (Opcode::Create, seq),
            None => (Opcode::Delete, directory::ANY_VERSION),
        };
        let entry = directory_entry(app, &own, seq);
        self.send_directory(now, opcode, &[entry], &all, dt);
    }

    /// Registers an application of this system.
    pub(super) fn register(&mut self, now: Instant, app: &str, dt: &mut dyn DataTransfer) {
        if let Err(error) = check_name(app) {
            self.log.notice("register", &error.to_string());
            return self.log.push(Event::Registered {
                name: app.to_string(),
                result: Err(error.to_string().into()),
            });
        }
        let is_new = self.directory.register(app).is_some();
        if is_new && self.member.is_some() {
            self.send_registration(now, app, dt);
        }
        // Entries are flooded without acknowledgement, so no member can refuse one.
        self.log.push(Event::Registered {
            name: app.to_string(),
            result: Ok(()),
        });
    }

    /// Withdraws the registration of `app`.
    pub(super) fn unregister(&mut self, now: Instant, app: &str, dt: &mut dyn DataTransfer) {
        let Some(seq) = self.directory.unregister(now, app) else {
            return;
        };
        self.log
            .trace(|| TraceEvent::NameUnregistered { name: app });
        let all = self.neighbours_but(None);
        let entry = directory_entry(app, &self.own, seq);
        self.send_directory(now, Opcode::Delete, &[entry], &all, dt);
    }
}

/// Converts an encoded lower flow; `None` if it is invalid.
fn link_of(entry: LowerFlow) -> Option<(Key, LinkReport)> {
    let local = entry.local.filter(|name| is_name(name))?;
    let remote = entry.remote.filter(|name| is_name(name))?;
    if local == remote {
        return None;
    }
    let report = LinkReport {
        cost: entry.cost.unwrap_or(1).max(1),
        seq: entry.seq.unwrap_or_default(),
        is_up: entry.state.unwrap_or(true),
        age: Duration::from_secs(entry.age.unwrap_or_default().into()),
    };
    Some(((local, remote), report))
}

/// Converts an encoded record of a member; `None` if it is invalid.
fn member_of(entry: Candidate) -> Option<(String, Member)> {
    let name = Name {
        ap: entry.name?,
        api: entry.instance.unwrap_or_default(),
        ..Name::default()
    };
    let name = name.to_string();
    let address = entry.address?;
    if !is_name(&name) || address == 0 || address > i32::MAX as u64 {
        return None;
    }
    let lower_difs = Rlite::note_lower_difs(entry.lower_difs);
    Some((
        name,
        Member {
            address,
            lower_difs,
        },
    ))
}

/// Converts an encoded registration; `None` if it is invalid.
fn registration_of(entry: DirectoryEntry) -> Option<(String, String, u64)> {
    let app = Name::from(entry.app?).to_string();
    let holder = entry.holder.filter(|name| is_name(name))?;
    check_name(&app).ok()?;
    Some((app, holder, entry.seq.unwrap_or_default()))
}
