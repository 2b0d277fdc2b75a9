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
use carina_ipcp::{Config as IpcpConfig, DifConfig, Event as Told, N1Port, N1Properties};
use carina_protect::Tools;
use carina_shims::{Command, NewNormal, NormalShim};

use crate::core::Core;
use crate::ends::{End, Live, Owner, Stage, Wiring};
use crate::flows::ANSWER_SLACK;
use crate::ipcps::{Carrier, Registrant};
use crate::rules::Action;

mod auth;
mod newdif;
mod told;

pub use newdif::NewDif;

/// What a normal IPCP is about.
pub struct Membership {
    /// What it was made from.
    pub made_from: NewDif,
    /// The DIF's configuration, once it is known.
    pub config: Option<DifConfig>,
    phase: Phase,
    needs: Vec<Need>,
    uses: BTreeMap<u32, Use>,
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
}

impl Membership {
    fn new(made_from: NewDif, now: Instant) -> Membership {
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
            phase: Phase::Joining,
            needs,
            uses: BTreeMap::new(),
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

    fn free_n1(&self) -> N1Port {
        let mut free = 0;
        for n1 in self.uses.keys() {
            if *n1 != free {
                break;
            }
            free += 1;
        }
        N1Port(free)
    }

    /// An attempt to join has failed.
    fn note_failure(&mut self, reason: String) {
        if matches!(self.phase, Phase::Joining) {
            self.failures += 1;
            self.last_error = Some(reason);
        }
    }

    /// What it does or waits for, in words.
    fn step(&self) -> String {
        match &self.phase {
            Phase::Enrolled { .. } => "a member".to_owned(),
            Phase::Left(reason) => format!("left: {reason}"),
            Phase::Joining if self.made_from.role == DifRole::Create => "starting".to_owned(),
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
        let mut neighbours: Vec<AppName> = self
            .uses
            .values()
            .filter_map(|n1| n1.neighbour.clone())
            .collect();
        neighbours.sort();
        neighbours.dedup();
        MemberInfo {
            role: self.made_from.role,
            over: self.made_from.over.clone(),
            state,
            step: self.step(),
            failures: self.failures,
            last_error: self.last_error.clone(),
            address,
            neighbours,
            n1: used.chain(wanted).collect(),
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
        }
    }

    /// It came to nothing; another attempt follows after a pause.
    fn put_off(&mut self, reason: &str, now: Instant) {
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
        let config = IpcpConfig {
            name: own.into(),
            dif: new.name.as_str().to_owned(),
            dif_config: new.dif_config(authentication),
        };
        let tools = Tools::new(credentials);
        check_config(&config, &tools).map_err(wrong)?;
        let seed = random_seed();
        self.plane.send(Command::AddNormal(Box::new(NewNormal {
            ipcp: id,
            config,
            tools: Box::new(tools),
            seed,
        })));
        let shim = NormalShim::new(id, self.plane.commands());
        if new.role == DifRole::Create {
            shim.order(carina_ipcp::Command::Bootstrap);
        }
        let dif = new.name.clone();
        self.add_ipcp(id, name, dif, Carrier::Normal(shim), None);
        if let Some(ipcp) = self.ipcps.get_mut(&id) {
            ipcp.member = Some(Membership::new(new, Instant::now()));
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
        let stem = newdif::local_stem(&format!("{}.{}", new.name, self.name));
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

    /// Ends all members of a DIF in this system.
    ///
    /// # Errors
    /// There is none.
    pub fn leave_dif(&mut self, name: &str) -> Result<(), ErrorBody> {
        let is_member = |id: &IpcpId| {
            let ipcp = &self.ipcps[id];
            ipcp.member.is_some() && ipcp.dif.as_str() == name
        };
        let members: Vec<IpcpId> = self.made.iter().copied().filter(is_member).collect();
        if members.is_empty() {
            let what = format!("this system has no member of a normal DIF {name:?}");
            return Err(ErrorBody::new(ErrorCode::NotFound, what));
        }
        for id in members {
            self.remove_ipcp(id, "it left the DIF by command");
        }
        Ok(())
    }

    /// Asks for N-1 flows whose time has come.
    pub fn tend_members(&mut self, now: Instant) {
        for id in self.made.clone() {
            while let Some((at, dif, remote)) = self.due_need(id, now) {
                let asked = self.allocate_n1(id, at, &dif, &remote);
                if let Err(error) = asked
                    && let Some(member) = self.member_mut(id)
                {
                    let reason = format!("N-1 flow to {remote} in {dif}: {}", error.message);
                    if let Some(need) = member.needs.get_mut(at) {
                        need.put_off(&reason, now);
                    }
                    member.note_failure(reason);
                }
            }
        }
    }

    fn due_need(&self, id: IpcpId, now: Instant) -> Option<(usize, DifName, AppName)> {
        let member = self.ipcps.get(&id)?.member.as_ref()?;
        let mut needs = member.needs.iter().enumerate();
        let is_due = |(_, need): &(usize, &Need)| need.n1.is_none() && need.due <= now;
        let (at, need) = needs.find(is_due)?;
        Some((at, need.dif.clone(), need.remote.clone()))
    }

    /// When an N-1 flow is to be asked for next.
    pub fn member_deadline(&self) -> Option<Instant> {
        self.ipcps
            .values()
            .filter_map(|ipcp| ipcp.member.as_ref())
            .flat_map(|member| &member.needs)
            .filter(|need| need.n1.is_none())
            .map(|need| need.due)
            .min()
    }

    pub(super) fn member_mut(&mut self, id: IpcpId) -> Option<&mut Membership> {
        self.ipcps.get_mut(&id)?.member.as_mut()
    }

    /// Asks for an N-1 flow as any application would.
    fn allocate_n1(
        &mut self,
        upper: IpcpId,
        need: usize,
        dif: &DifName,
        remote: &AppName,
    ) -> Result<(), ErrorBody> {
        let uid = rustix::process::geteuid().as_raw();
        let spec = FlowSpec::unreliable();
        let candidates = self.candidates(uid, remote, Some(dif), &spec)?;
        let gone = || ErrorBody::new(ErrorCode::NotFound, "the IPCP is gone");
        let local = app_name(&self.ipcps.get(&upper).ok_or_else(gone)?.name);
        let port = self.free_port();
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms) + ANSWER_SLACK;
        let mut refusal = None;
        for ipcp in candidates {
            let member = self.member_mut(upper).ok_or_else(gone)?;
            let n1 = member.free_n1();
            member
                .uses
                .insert(n1.0, Use::new(dif.clone(), remote.clone(), port, true));
            if let Some(need) = member.needs.get_mut(need) {
                need.n1 = Some(n1);
            }
            let stage = Stage::Asked {
                conn: None,
                until,
                plug: None,
            };
            let end = n1_end(
                ipcp,
                upper,
                n1,
                (local.clone(), remote.clone()),
                spec,
                stage,
            );
            match self.ask(port, end) {
                Ok(()) => {
                    self.deadlines.insert((until, port));
                    self.pump(ipcp);
                    return Ok(());
                }
                Err(error) => {
                    refusal = Some(error);
                    if let Some(member) = self.member_mut(upper) {
                        member.uses.remove(&n1.0);
                        if let Some(need) = member.needs.get_mut(need) {
                            need.n1 = None;
                        }
                    }
                }
            }
        }
        Err(refusal.unwrap_or_else(|| crate::flows::unknown_name(remote, Some(dif))))
    }

    /// Somebody asks for a flow to a member of this system: it becomes an N-1 flow.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn accept_n1(
        &mut self,
        upper: IpcpId,
        ipcp: IpcpId,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: FlowSpec,
    ) -> Result<(), String> {
        let dif = self.ipcps.get(&ipcp).map(|ipcp| ipcp.dif.clone());
        let dif = dif.ok_or("the IPCP is gone")?;
        let member = self.member_mut(upper).ok_or("the IPCP called is gone")?;
        if member.uses.len() >= N1_FLOWS_MAX {
            return Err(format!(
                "it has {N1_FLOWS_MAX} N-1 flows; that is the limit"
            ));
        }
        let n1 = member.free_n1();
        member
            .uses
            .insert(n1.0, Use::new(dif, remote.clone(), port, false));
        let stage = Stage::Accepted { answer: None };
        let names = (local.clone(), remote.clone());
        let end = n1_end(ipcp, upper, n1, names, spec, stage);
        self.ends.insert(port, end);
        self.accept(port).map_err(|error| {
            self.drop_end(port);
            if let Some(member) = self.member_mut(upper) {
                member.uses.remove(&n1.0);
            }
            error.message
        })
    }

    /// An N-1 flow is allocated, and its IPCP may use it.
    pub fn n1_is_there(&mut self, port: PortId, wiring: Wiring, is_initiator: bool) {
        let Some(end) = self.ends.get_mut(&port) else {
            return;
        };
        let Owner::Ipcp(upper, n1) = end.owner else {
            return;
        };
        if let Some(until) = end.until() {
            self.deadlines.remove(&(until, port));
        }
        end.stage = Stage::Up(Live {
            tether: None,
            channel: None,
            wiring,
            told: false,
            peer_graceful: false,
        });
        let (lower, remote) = (end.ipcp, end.remote.clone());
        let shown = format!("{} to {}", end.local, end.remote);
        let Some(below) = self.ipcps.get(&lower) else {
            return;
        };
        let offered = below.carrier.shim_ref().offered();
        // What a normal DIF gives depends on the cube, and an N-1 flow asks for nothing.
        let is_reliable = below.member.is_none() && offered.loss == 0 && offered.gap == 0;
        let props = N1Properties {
            dif: below.dif.as_str().to_owned(),
            remote: remote.into(),
            sdu_max: 0,
            is_reliable: is_reliable && offered.in_order,
            is_exposed: below.is_exposed(),
            is_initiator,
            cost: 1,
        };
        let shown = format!("{shown} in {}", below.dif);
        self.journal.note(EventKind::FlowAllocated, port, shown);
        let ipcp = upper;
        self.plane.send(Command::N1Up { ipcp, n1, props });
        if let Some(n1) = self
            .member_mut(upper)
            .and_then(|member| member.uses.get_mut(&n1.0))
        {
            n1.is_up = true;
        }
    }

    /// An N-1 flow has ended or did not come about.
    pub fn n1_ended(&mut self, upper: IpcpId, n1: N1Port, reason: &str) {
        let now = Instant::now();
        let Some(member) = self.member_mut(upper) else {
            return;
        };
        let Some(used) = member.uses.remove(&n1.0) else {
            return;
        };
        let reason = match used.is_up {
            true => format!(
                "N-1 flow to {} in {} ended: {reason}",
                used.remote, used.dif
            ),
            false => format!("N-1 flow to {} in {}: {reason}", used.remote, used.dif),
        };
        if let Some(need) = member.needs.iter_mut().find(|need| need.n1 == Some(n1)) {
            need.put_off(&reason, now);
        } else if used.is_initiator && !used.is_dropped && !matches!(member.phase, Phase::Left(_)) {
            let mut need = Need::new(used.dif, used.remote, now);
            need.put_off(&reason, now);
            member.needs.push(need);
        }
        member.note_failure(reason);
    }

    /// Asks again at once for N-1 flows through an IPCP that has news.
    pub fn hurry_members(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.get(&below).map(|ipcp| ipcp.dif.clone()) else {
            return;
        };
        let now = Instant::now();
        let members = self
            .ipcps
            .values_mut()
            .filter_map(|ipcp| ipcp.member.as_mut());
        for need in members.flat_map(|member| member.needs.iter_mut()) {
            if need.dif == dif && need.n1.is_none() {
                need.due = need.due.min(now);
            }
        }
    }

    /// Registers the members that stand over the DIF of a new IPCP.
    pub fn register_members_in(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.get(&below).map(|ipcp| ipcp.dif.clone()) else {
            return;
        };
        for id in self.made.clone() {
            let member = self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref());
            if member.is_some_and(|member| member.is_enrolled() && member.is_over(&dif)) {
                self.register_member(id, below);
            }
        }
        self.hurry_members(below);
    }

    /// Registers a member in every IPCP of its N-1 DIFs.
    fn register_below(&mut self, id: IpcpId) {
        for below in self.made.clone() {
            let Some(dif) = self.ipcps.get(&below).map(|ipcp| ipcp.dif.clone()) else {
                continue;
            };
            let member = self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref());
            if member.is_some_and(|member| member.is_over(&dif)) {
                self.register_member(id, below);
            }
        }
    }

    /// Registers a member's name and, unless another member has it, its DIF's.
    fn register_member(&mut self, id: IpcpId, below: IpcpId) {
        let Some(ipcp) = self.ipcps.get(&id) else {
            return;
        };
        let (own, dif_name) = (app_name(&ipcp.name), ipcp.dif.as_str().to_owned());
        let Ok(dif_name) = AppName::new(dif_name) else {
            return;
        };
        for name in [own.clone(), dif_name] {
            match self.ipcps.get(&below).and_then(|at| at.names.get(&name)) {
                None => {}
                Some(Registrant::Ipcp(_)) => continue,
                Some(Registrant::App(_)) => {
                    let what = format!("an application has taken the name {name} below");
                    self.journal.note(EventKind::Notice, &own, what);
                    continue;
                }
            }
            if let Err(refusal) = self.register_in(below, Registrant::Ipcp(id), &name) {
                self.journal
                    .note(EventKind::Notice, &own, refusal.to_string());
            }
        }
    }

    /// Takes a member's names and N-1 flows away; another member of this system takes over the
    /// DIF's name.
    pub fn leave_below(&mut self, id: IpcpId) {
        let Some(ipcp) = self.ipcps.get(&id).filter(|ipcp| ipcp.member.is_some()) else {
            return;
        };
        let dif = ipcp.dif.clone();
        let ports: Vec<PortId> = ipcp
            .member
            .iter()
            .flat_map(|member| member.uses.values().map(|n1| n1.port))
            .collect();
        self.withdraw_names(id);
        // The app on the data plane says its goodbyes and lets go of its N-1 flows itself.
        for port in ports {
            let Some(end) = self.drop_end(port) else {
                continue;
            };
            let below = self.ipcps.get_mut(&end.ipcp).map(|ipcp| &mut ipcp.carrier);
            if !matches!(end.stage, Stage::Up(_))
                && let Some(Carrier::Loopback(shim)) = below
            {
                carina_shims::Shim::deallocate(shim, port, "the IPCP that asked is gone");
                self.pump(end.ipcp);
            }
        }
        for other in self.made.clone() {
            let is_twin = |ipcp: &crate::ipcps::Ipcp| {
                ipcp.dif == dif && ipcp.member.as_ref().is_some_and(Membership::is_enrolled)
            };
            if other != id && self.ipcps.get(&other).is_some_and(is_twin) {
                self.register_below(other);
            }
        }
    }

    fn withdraw_names(&mut self, id: IpcpId) {
        for below in self.made.clone() {
            let Some(at) = self.ipcps.get(&below) else {
                continue;
            };
            let own: Vec<AppName> = at
                .names
                .iter()
                .filter(|(_, who)| **who == Registrant::Ipcp(id))
                .map(|(name, _)| name.clone())
                .collect();
            for name in own {
                self.unregister_in(below, &name);
            }
        }
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
        }
    }
}

fn n1_end(
    ipcp: IpcpId,
    upper: IpcpId,
    n1: N1Port,
    (local, remote): (AppName, AppName),
    spec: FlowSpec,
    stage: Stage,
) -> End {
    End {
        ipcp,
        owner: Owner::Ipcp(upper, n1),
        local,
        remote,
        spec,
        uid: rustix::process::geteuid().as_raw(),
        pid: std::process::id() as i32,
        mode: Mode::Ring,
        membarrier: false,
        ring_bytes: carina_api::ipc::RING_BYTES_DEFAULT as usize,
        charge: 0,
        stage,
    }
}

/// Every name of an IPCP is one of an application.
fn app_name(name: &LocalName) -> AppName {
    AppName::new(name.as_str()).expect("LocalName allows less than AppName")
}

/// Checks policies and parameters before the data plane is bothered.
fn check_config(config: &IpcpConfig, tools: &Tools) -> Result<(), String> {
    let Some(dif_config) = &config.dif_config else {
        return Ok(());
    };
    let mut catalogue = carina_ipcp::Catalogue::standard();
    carina_ipcp::manage::describe(&mut catalogue);
    catalogue.describe_toolbox(tools);
    catalogue.check(dif_config)
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
