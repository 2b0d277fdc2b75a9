//! Members of normal DIFs in this system: how they are made, their N-1 flows, what they say.
//!
//! ```text
//!             create: bootstrap                      leave, or told to go
//!   (made) ------------------------> Enrolled -----------------------------> Left
//!      \   join                      ^     |
//!       +-------> Joining -----------+     | an N-1 flow ends: asked for again,
//!                  |  ^   enrolled         +  with growing pauses
//!                  +--+ N-1 flow or enrollment failed: again, with growing pauses
//! ```
//!
//! A member is registered under its own name and, so that others find somebody to ask, under the
//! name of its DIF in each of its N-1 DIFs while it is enrolled.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carina_api::control::{
    DifCreate, DifRole, EventKind, LinkState, MemberInfo, MemberState, N1Info, N1State,
};
use carina_api::ipc::Mode;
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, IpcpId, LocalName, PortId};
use carina_dataplane::{Command, NormalBuilder, NormalIpcp};
use carina_ipcp::{DifConfig, Event as Told, N1Dif, N1Port, N1Properties};
use carina_protect::Tools;
use carina_wire::dif::Dialect;

use crate::core::Core;
use crate::ends::{End, Live, Owner, Stage, Wiring};
use crate::flows::ANSWER_SLACK;
use crate::ipcps::{Carrier, Registrant};
use crate::rules::Action;

mod auth;
mod below;
mod dialect;
mod extending;
mod judging;
mod n1;
mod names;
mod newdif;
mod retracting;
mod told;

use self::below::Waiting;

pub use dialect::on_the_wire;
pub use judging::{judge_auth, judge_member};
pub use newdif::NewDif;

/// What a normal IPCP is about.
pub struct Membership {
    /// What it was made from.
    pub made_from: NewDif,
    /// The DIF's configuration, once it is known.
    pub config: Option<DifConfig>,
    dialect: Dialect,
    /// What the first member was given, its longest PDU settled.
    given: Option<DifConfig>,
    /// It has not begun.
    waiting: Option<Waiting>,
    phase: Phase,
    needs: Vec<Need>,
    /// N-1 DIFs that do not carry the DIF's longest PDU, and why.
    unfit: BTreeMap<DifName, String>,
    uses: BTreeMap<u32, Use>,
    /// The number to try first for the next of them.
    next_n1: u32,
    /// What the IPCP knows of its N-1 DIFs.
    told_n1_difs: Vec<N1Dif>,
    failures: u32,
    last_error: Option<String>,
}

enum Phase {
    Joining,
    Enrolled { address: u64 },
    Left(String),
}

/// An N-1 flow that is wanted.
struct Need {
    dif: DifName,
    remote: AppName,
    failures: u32,
    /// When to ask for it, unless it is asked for.
    due: Instant,
    n1: Option<N1Port>,
    reason: Option<String>,
    /// The last attempt was refused for a reason that stays.
    is_final: bool,
}

/// An N-1 flow that is there, or asked for.
struct Use {
    dif: DifName,
    remote: AppName,
    port: PortId,
    is_initiator: bool,
    is_up: bool,
    /// The IPCP itself lets it go.
    is_dropped: bool,
    neighbour: Option<AppName>,
    /// Why nobody was enrolled through it.
    failure: Option<String>,
    /// That is a reason that stays.
    is_final: bool,
}

impl Membership {
    fn new(made_from: NewDif, dialect: Dialect, now: Instant) -> Membership {
        let needs = match made_from.role {
            DifRole::Create => Vec::new(),
            DifRole::Join => {
                let remote = made_from.first_contact();
                let need = |dif: &DifName| Need::new(dif.clone(), remote.clone(), now);
                made_from.over.iter().map(need).collect()
            }
        };
        Membership {
            made_from,
            config: None,
            dialect,
            given: None,
            waiting: None,
            phase: Phase::Joining,
            needs,
            unfit: BTreeMap::new(),
            uses: BTreeMap::new(),
            next_n1: 0,
            told_n1_difs: Vec::new(),
            failures: 0,
            last_error: None,
        }
    }

    fn is_enrolled(&self) -> bool {
        matches!(self.phase, Phase::Enrolled { .. })
    }

    /// Whether this DIF is one of its N-1 DIFs.
    pub fn is_over(&self, dif: &DifName) -> bool {
        self.made_from.over.contains(dif)
    }

    /// How a member of this DIF is called in the DIFs below.
    fn name_below(&self, member: &AppName) -> AppName {
        dialect::name_below(self.made_from.dialect, member)
    }

    /// What it stands on, as its RIB shows it.
    fn n1_difs(&self) -> Vec<N1Dif> {
        let of = |dif: &DifName| {
            let wanted = self.needs.iter();
            let wanted = wanted.filter(|need| need.dif == *dif && need.n1.is_none());
            let reason = |need: &Need| need.reason.clone().unwrap_or_default();
            N1Dif {
                name: dif.as_str().to_owned(),
                wanted: wanted
                    .map(|need| (need.remote.as_str().to_owned(), reason(need)))
                    .collect(),
                refused: self.unfit.get(dif).cloned(),
            }
        };
        self.made_from.over.iter().map(of).collect()
    }

    /// A number for an N-1 flow. They take turns, so that a late word about one that has ended is
    /// not taken for one about the next; they stay small, because they are indices.
    fn free_n1(&mut self) -> N1Port {
        let turns = (2 * self.uses.len()).max(N1_TURNS_MIN) as u32;
        loop {
            let free = self.next_n1 % turns;
            self.next_n1 = free + 1;
            if !self.uses.contains_key(&free) {
                return N1Port(free);
            }
        }
    }

    /// An attempt to join has failed.
    fn note_failure(&mut self, reason: String) {
        if matches!(self.phase, Phase::Joining) {
            self.failures += 1;
            self.last_error = Some(reason);
        }
    }

    /// Whether it was refused wherever it has asked, for reasons that stay.
    pub fn is_refused(&self) -> bool {
        let is_joining = matches!(self.phase, Phase::Joining) && self.waiting.is_none();
        let has_asked = !self.needs.is_empty() || !self.unfit.is_empty();
        is_joining && has_asked && self.needs.iter().all(|need| need.is_final)
    }

    /// Why the last attempt to join failed.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// What it does or waits for, in words.
    fn step(&self) -> String {
        match &self.phase {
            Phase::Enrolled { .. } => "a member".to_owned(),
            Phase::Left(reason) => format!("left: {reason}"),
            Phase::Joining if self.made_from.role == DifRole::Create => match &self.waiting {
                Some(waiting) => {
                    format!("waiting until this system is a member of {}", waiting.dif)
                }
                None => "starting".to_owned(),
            },
            Phase::Joining if self.uses.values().any(|n1| n1.is_up) => "enrolling".to_owned(),
            Phase::Joining if !self.uses.is_empty() => "allocating an N-1 flow".to_owned(),
            Phase::Joining => "waiting to try again".to_owned(),
        }
    }

    /// For `control.sock`.
    pub fn info(&self) -> MemberInfo {
        let (state, address) = match self.phase {
            Phase::Joining => (MemberState::Joining, None),
            Phase::Enrolled { address } => (MemberState::Enrolled, Some(address)),
            Phase::Left(_) => (MemberState::Left, None),
        };
        let used = self.uses.values().map(|n1| N1Info {
            dif: n1.dif.clone(),
            remote: n1.remote.clone(),
            neighbour: n1.neighbour.clone(),
            port: Some(n1.port),
            state: if n1.is_up {
                N1State::Up
            } else {
                N1State::Allocating
            },
            reason: None,
        });
        let wanted = self.needs.iter().filter(|need| need.n1.is_none());
        let wanted = wanted.map(|need| N1Info {
            dif: need.dif.clone(),
            remote: need.remote.clone(),
            neighbour: None,
            port: None,
            state: N1State::Wanted,
            reason: need.reason.clone(),
        });
        let unfit = self.unfit.iter().map(|(dif, what)| N1Info {
            dif: dif.clone(),
            remote: self.made_from.first_contact(),
            neighbour: None,
            port: None,
            state: N1State::Refused,
            reason: Some(what.clone()),
        });
        let mut neighbours: Vec<AppName> = self
            .uses
            .values()
            .filter_map(|n1| n1.neighbour.clone())
            .collect();
        neighbours.sort();
        neighbours.dedup();
        MemberInfo {
            role: self.made_from.role,
            dialect: self.made_from.dialect,
            over: self.made_from.over.clone(),
            state,
            step: self.step(),
            failures: self.failures,
            last_error: self.last_error.clone(),
            is_final: self.is_refused(),
            address,
            neighbours,
            n1: used.chain(wanted).chain(unfit).collect(),
        }
    }
}

impl Need {
    fn new(dif: DifName, remote: AppName, due: Instant) -> Need {
        Need {
            dif,
            remote,
            failures: 0,
            due,
            n1: None,
            reason: None,
            is_final: false,
        }
    }

    /// It came to nothing; another attempt follows after a pause.
    fn put_off(&mut self, reason: &str, is_final: bool, now: Instant) {
        self.is_final = is_final;
        self.due = now + PAUSE_MIN * (1 << self.failures.min(PAUSE_DOUBLINGS));
        self.failures += 1;
        self.n1 = None;
        self.reason = Some(reason.to_owned());
    }
}

impl Core {
    /// Makes a member as asked by command.
    ///
    /// # Errors
    /// As of [`Core::create_member`], or the configuration of the DIF is no good.
    pub fn create_dif(&mut self, create: DifCreate) -> Result<IpcpId, ErrorBody> {
        let new =
            NewDif::try_from(create).map_err(|what| ErrorBody::new(ErrorCode::BadRequest, what))?;
        self.create_member(new)
    }

    /// Makes a normal IPCP that creates or joins a DIF.
    ///
    /// # Errors
    /// The name is taken, this system is in none of the N-1 DIFs, the rules forbid it, or the
    /// configuration is no good.
    pub fn create_member(&mut self, new: NewDif) -> Result<IpcpId, ErrorBody> {
        new.check()
            .map_err(|what| ErrorBody::new(ErrorCode::BadRequest, what))?;
        self.check_below(&new)?;
        let name = self.member_name(&new)?;
        let own = app_name(&name);
        for dif in &new.over {
            let uid = rustix::process::geteuid().as_raw();
            let is_allowed =
                |name: &str| self.rules.allow(uid, Action::Register, name, dif.as_str());
            if !is_allowed(own.as_str()) || !is_allowed(new.name.as_str()) {
                return Err(crate::apps::denied(uid, "register", &own, Some(dif)));
            }
        }
        let wrong =
            |what| ErrorBody::new(ErrorCode::BadRequest, format!("DIF {}: {what}", new.name));
        let (authentication, credentials) = auth::load(new.auth.as_deref()).map_err(wrong)?;
        let id = self.free_ipcp()?;
        // Before the data plane is bothered.
        let mut config = new.prepare(&own, authentication).map_err(wrong)?;
        let tools = Tools::new(credentials);
        let awaited = match &mut config.dif_config {
            Some(dif_config) => self.settle_max_pdu(&new, dif_config).map_err(wrong)?,
            None => None,
        };
        let mut member = Membership::new(new, config.dialect, Instant::now());
        let settled = |config: &DifConfig| config.max_pdu != 0;
        member.given = config.dif_config.clone().filter(settled);
        let seed = random_seed();
        let begun = Box::new(NormalBuilder {
            config,
            tools: Box::new(tools),
            seed,
        });
        match awaited {
            None => self.plane.add_ipcp(id, begun),
            Some(dif) => member.waiting = Some(Waiting { new: begun, dif }),
        }
        let mut shim = NormalIpcp::new(id, self.plane.commands());
        if member.waiting.is_none() {
            shim.begin();
        }
        if member.made_from.role == DifRole::Create && member.waiting.is_none() {
            shim.command(carina_ipcp::Command::Bootstrap);
        }
        let dif = member.made_from.name.clone();
        self.add_ipcp(id, name, dif, Carrier::Normal(shim), None);
        if let Some(ipcp) = self.ipcps.get_mut(&id) {
            ipcp.member = Some(member);
        }
        self.tend_members(Instant::now());
        Ok(id)
    }

    /// Checks that the N-1 DIFs are there and that no DIF would stand upon itself.
    fn check_below(&self, new: &NewDif) -> Result<(), ErrorBody> {
        let is_other = |ipcp: &&crate::ipcps::Ipcp| ipcp.dif == new.name && ipcp.member.is_none();
        if let Some(shim) = self.ipcps.values().find(is_other) {
            let what = format!(
                "{} is the name of a DIF that is a shim's ({})",
                new.name, shim.name
            );
            return Err(ErrorBody::new(ErrorCode::Conflict, what));
        }
        for dif in &new.over {
            if !self.ipcps.values().any(|ipcp| ipcp.dif == *dif) {
                return Err(self.unknown_dif(dif));
            }
        }
        let (mut todo, mut seen) = (new.over.clone(), Vec::new());
        while let Some(dif) = todo.pop() {
            if dif == new.name {
                let what = format!("DIF {dif} would be its own N-1 DIF");
                return Err(ErrorBody::new(ErrorCode::BadRequest, what));
            }
            if !seen.contains(&dif) {
                let members = self.ipcps.values().filter(|ipcp| ipcp.dif == dif);
                todo.extend(
                    members
                        .filter_map(|ipcp| ipcp.member.as_ref())
                        .flat_map(|member| member.made_from.over.iter().cloned()),
                );
                seen.push(dif);
            }
        }
        Ok(())
    }

    /// The name asked for, or the first free one that tells DIF and system.
    fn member_name(&self, new: &NewDif) -> Result<LocalName, ErrorBody> {
        if let Some(name) = &new.ipcp {
            self.check_free(name)?;
            return Ok(name.clone());
        }
        let stem = new.usual_name(&self.name);
        let numbered = (2..).map(|number| format!("{stem}.{number}"));
        std::iter::once(stem.clone())
            .chain(numbered)
            .take(crate::ipcps::IPCPS_MAX)
            .filter_map(|name| LocalName::new(name).ok())
            .find(|name| self.ipcp_named(name.as_str()).is_none())
            .ok_or_else(|| {
                let what = format!("no name is free for a member of {}; give one", new.name);
                ErrorBody::new(ErrorCode::DuplicateName, what)
            })
    }

    /// Ends a member of a DIF in this system.
    ///
    /// # Errors
    /// There is none, or there are several and none is named.
    pub fn leave_dif(&mut self, name: &str, ipcp: Option<&str>) -> Result<(), ErrorBody> {
        let id = self.member_meant(name, ipcp)?;
        self.remove_ipcp(id, "it left the DIF by command");
        Ok(())
    }

    pub(super) fn member_mut(&mut self, id: IpcpId) -> Option<&mut Membership> {
        self.ipcps.get_mut(&id)?.member.as_mut()
    }
}

impl Use {
    fn new(dif: DifName, remote: AppName, port: PortId, is_initiator: bool) -> Use {
        Use {
            dif,
            remote,
            port,
            is_initiator,
            is_up: false,
            is_dropped: false,
            neighbour: None,
            failure: None,
            is_final: false,
        }
    }
}

/// Every name of an IPCP is one of an application.
fn app_name(name: &LocalName) -> AppName {
    AppName::new(name.as_str()).expect("LocalName allows less than AppName")
}

/// For everything in an IPCP that must not be guessed or the same twice.
fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Not before the kernel's pool is filled, at the very start of a system.
        _ => carina_sys::monotonic_ns(),
    }
}

/// Pause before the second attempt.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause is this many doublings of the shortest: 6.4 s.
const PAUSE_DOUBLINGS: u32 = 7;

/// N-1 flows of one member.
const N1_FLOWS_MAX: usize = 4096;

/// Numbers of N-1 flows that take turns at least.
const N1_TURNS_MIN: usize = 64;
