//! The state of a member of a normal DIF: its specification, the progress of joining, and its N-1
//! flows, wanted and allocated.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use carina_api::control::{DifRole, MemberInfo, MemberState, N1Info, N1State};
use carina_api::{AppName, DifName, PortId};
use carina_dataplane::NormalBuilder;
use carina_ipcp::{DifConfig, N1Dif, N1Port};
use carina_wire::dif::Dialect;

use crate::member_spec::{MemberSpec, name_below};

/// The membership of a normal IPCP in its DIF.
pub(crate) struct Membership {
    /// The specification of the member.
    pub made_from: MemberSpec,
    /// The DIF's configuration; `None` until the member is enrolled.
    pub config: Option<DifConfig>,
    pub dialect: Dialect,
    /// The configuration with which the member's IPCP starts. `None` until its longest PDU is
    /// known, and for a member that gets its configuration at enrollment.
    pub given: Option<DifConfig>,
    /// Name of the N-1 DIF of which this system is not a member yet.
    pub deferred: Option<DeferredStart>,
    pub phase: Phase,
    pub wanted_n1: Vec<WantedN1>,
    /// N-1 DIFs that the member does not use, because their longest SDU is shorter than the DIF's
    /// longest PDU. Each has a text for the user, with both lengths.
    pub unusable: BTreeMap<DifName, String>,
    pub n1_flows: BTreeMap<u32, N1Flow>,
    /// The number to try first for the next N-1 flow.
    pub next_n1: u32,
    /// The N-1 DIFs that the node sent last to the IPCP, for its RIB.
    pub published_n1_difs: Vec<N1Dif>,
    pub failures: u32,
    pub last_error: Option<String>,
}

pub(crate) enum Phase {
    Joining,
    Enrolled { address: u64 },
    Left(String),
}

/// An N-1 flow that the member wants.
pub(crate) struct WantedN1 {
    pub dif: DifName,
    pub remote: AppName,
    pub failures: u32,
    /// Time at which the flow must be requested, while `n1` is `None`.
    pub due: Instant,
    pub n1: Option<N1Port>,
    pub reason: Option<String>,
    /// Whether the last attempt was refused for a lasting reason.
    pub is_final: bool,
}

/// An N-1 flow that is allocated or requested.
pub(crate) struct N1Flow {
    pub dif: DifName,
    pub remote: AppName,
    pub port: PortId,
    pub is_initiator: bool,
    pub is_up: bool,
    /// Whether this member ends the flow itself, so that the end does not cause a request for
    /// another one.
    pub is_dropped: bool,
    pub neighbour: Option<AppName>,
    /// Time since which the flow leads to no neighbour.
    pub unused_since: Instant,
    /// Why the enrollment over the flow failed; `None` if it has not failed.
    pub failure: Option<String>,
    /// Whether another attempt fails again until a configuration is changed.
    pub is_final: bool,
}

impl Membership {
    pub(crate) fn new(made_from: MemberSpec, dialect: Dialect, now: Instant) -> Membership {
        let wanted_n1 = match made_from.role {
            DifRole::Create => Vec::new(),
            DifRole::Join => {
                let remote = made_from.first_contact();
                let wanted = |dif: &DifName| WantedN1::new(dif.clone(), remote.clone(), now);
                made_from.over.iter().map(wanted).collect()
            }
        };
        Membership {
            made_from,
            config: None,
            dialect,
            given: None,
            deferred: None,
            phase: Phase::Joining,
            wanted_n1,
            unusable: BTreeMap::new(),
            n1_flows: BTreeMap::new(),
            next_n1: 0,
            published_n1_difs: Vec::new(),
            failures: 0,
            last_error: None,
        }
    }

    pub(crate) fn is_enrolled(&self) -> bool {
        matches!(self.phase, Phase::Enrolled { .. })
    }

    /// True when this DIF is one of the member's N-1 DIFs.
    pub(crate) fn is_over(&self, dif: &DifName) -> bool {
        self.made_from.over.contains(dif)
    }

    /// The name of a member of this DIF in the N-1 DIFs.
    pub(crate) fn name_below(&self, member: &AppName) -> AppName {
        name_below(self.made_from.dialect, member)
    }

    /// The N-1 DIFs, for the member's RIB.
    pub(crate) fn n1_difs(&self) -> Vec<N1Dif> {
        let of = |dif: &DifName| {
            let wanted = self.wanted_n1.iter();
            let wanted = wanted.filter(|wanted| wanted.dif == *dif && wanted.n1.is_none());
            let reason = |wanted: &WantedN1| wanted.reason.clone().unwrap_or_default();
            N1Dif {
                name: dif.as_str().to_owned(),
                wanted: wanted
                    .map(|wanted| (wanted.remote.as_str().to_owned(), reason(wanted)))
                    .collect(),
                refused: self.unusable.get(dif).cloned(),
            }
        };
        self.made_from.over.iter().map(of).collect()
    }

    /// Returns a free number for an N-1 flow. Numbers are used in turn, so that a late message
    /// about a flow that has ended is not taken for one about the next flow. They stay small,
    /// because they are indices.
    pub(crate) fn free_n1(&mut self) -> N1Port {
        let turns = (2 * self.n1_flows.len()).max(N1_TURNS_MIN) as u32;
        loop {
            let free = self.next_n1 % turns;
            self.next_n1 = free + 1;
            if !self.n1_flows.contains_key(&free) {
                return N1Port(free);
            }
        }
    }

    /// Records that an attempt to join has failed.
    pub(crate) fn record_failure(&mut self, reason: String) {
        if matches!(self.phase, Phase::Joining) {
            self.failures += 1;
            self.last_error = Some(reason);
        }
    }

    /// True when every contact has refused the member for a lasting reason.
    pub(crate) fn is_refused(&self) -> bool {
        let is_joining = matches!(self.phase, Phase::Joining) && self.deferred.is_none();
        let has_asked = !self.wanted_n1.is_empty() || !self.unusable.is_empty();
        is_joining && has_asked && self.wanted_n1.iter().all(|wanted| wanted.is_final)
    }

    /// Why the last attempt to join failed.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The present step of joining, as text.
    pub(crate) fn step(&self) -> String {
        match &self.phase {
            Phase::Enrolled { .. } => "a member".to_owned(),
            Phase::Left(reason) => format!("left: {reason}"),
            Phase::Joining if self.made_from.role == DifRole::Create => match &self.deferred {
                Some(deferred) => {
                    format!("waiting until this system is a member of {}", deferred.dif)
                }
                None => "starting".to_owned(),
            },
            Phase::Joining if self.n1_flows.values().any(|n1| n1.is_up) => "enrolling".to_owned(),
            Phase::Joining if !self.n1_flows.is_empty() => "allocating an N-1 flow".to_owned(),
            Phase::Joining => "waiting to try again".to_owned(),
        }
    }

    /// The state of the member for `control.sock`.
    pub(crate) fn info(&self) -> MemberInfo {
        let (state, address) = match self.phase {
            Phase::Joining => (MemberState::Joining, None),
            Phase::Enrolled { address } => (MemberState::Enrolled, Some(address)),
            Phase::Left(_) => (MemberState::Left, None),
        };
        let used = self.n1_flows.values().map(|n1| N1Info {
            dif: n1.dif.clone(),
            remote: n1.remote.clone(),
            neighbour: n1.neighbour.clone(),
            port: Some(n1.port),
            state: if n1.is_up {
                N1State::Up
            } else {
                N1State::Allocating
            },
            reason: n1.unused_reason(Instant::now()),
        });
        let wanted = self.wanted_n1.iter().filter(|wanted| wanted.n1.is_none());
        let wanted = wanted.map(|wanted| N1Info {
            dif: wanted.dif.clone(),
            remote: wanted.remote.clone(),
            neighbour: None,
            port: None,
            state: N1State::Wanted,
            reason: wanted.reason.clone(),
        });
        let unusable = self.unusable.iter().map(|(dif, what)| N1Info {
            dif: dif.clone(),
            remote: self.made_from.first_contact(),
            neighbour: None,
            port: None,
            state: N1State::Refused,
            reason: Some(what.clone()),
        });
        let mut neighbours: Vec<AppName> = self
            .n1_flows
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
            n1: used.chain(wanted).chain(unusable).collect(),
        }
    }

    /// Marks an N-1 flow as allocated. Returns why it is no longer of use, if the N-1 DIF was
    /// removed or proved too narrow in the meantime.
    pub(crate) fn activate(&mut self, n1: N1Port) -> Option<String> {
        let used = self.n1_flows.get_mut(&n1.0)?;
        used.is_up = true;
        used.unused_since = Instant::now();
        let pdu_size_conflict = self.unusable.get(&used.dif).filter(|_| used.is_initiator);
        let taken_away = used.is_dropped.then(|| RETRACTED.to_owned());
        taken_away.or_else(|| pdu_size_conflict.cloned())
    }

    /// True when the end of this N-1 flow is a reason to request another one.
    pub(crate) fn wants_another(&self, used: &N1Flow) -> bool {
        let has_left = matches!(self.phase, Phase::Left(_));
        let is_of_use = !used.is_dropped && !self.unusable.contains_key(&used.dif);
        used.is_initiator && is_of_use && !has_left
    }

    /// Records a refused attempt at once, before its N-1 flow has ended, so that the state does not
    /// show a permanent failure as a passing one.
    pub(crate) fn record_refusal(&mut self, n1: N1Port, reason: String, is_final: bool) {
        if let Some(wanted) = self
            .wanted_n1
            .iter_mut()
            .find(|wanted| wanted.n1 == Some(n1))
        {
            wanted.is_final = is_final;
        }
        self.record_failure(reason);
    }

    /// The DIF's configuration that is in force or, before that, the configuration with which the
    /// member's IPCP starts. `None` while neither is known.
    pub(crate) fn known_config(&self) -> Option<&DifConfig> {
        self.config.as_ref().or(self.given.as_ref())
    }

    /// Withdraws the wish for an N-1 flow if an existing flow serves as well: one to the same
    /// neighbour, which the neighbour requested, or one to any neighbour if the wish is for the
    /// DIF's name.
    pub(crate) fn drop_satisfied(&mut self) {
        let dif_name = self.made_from.name.as_str();
        let is_satisfied = |wanted: &WantedN1| {
            self.n1_flows.values().any(|used| {
                used.dif == wanted.dif
                    && used.neighbour.is_some()
                    && (wanted.remote.as_str() == dif_name || used.remote == wanted.remote)
            })
        };
        self.wanted_n1
            .retain(|wanted| wanted.n1.is_some() || !is_satisfied(wanted));
    }
}

impl WantedN1 {
    pub(crate) fn new(dif: DifName, remote: AppName, due: Instant) -> WantedN1 {
        WantedN1 {
            dif,
            remote,
            failures: 0,
            due,
            n1: None,
            reason: None,
            is_final: false,
        }
    }

    /// Records a failed attempt; the next one is due after a pause.
    pub(crate) fn postpone(&mut self, reason: &str, is_final: bool, now: Instant) {
        self.is_final = is_final;
        self.due = now + PAUSE_MIN * (1 << self.failures.min(PAUSE_DOUBLINGS));
        self.failures += 1;
        self.n1 = None;
        self.reason = Some(reason.to_owned());
    }
}

impl N1Flow {
    pub(crate) fn new(dif: DifName, remote: AppName, port: PortId, is_initiator: bool) -> N1Flow {
        N1Flow {
            dif,
            remote,
            port,
            is_initiator,
            is_up: false,
            is_dropped: false,
            neighbour: None,
            unused_since: Instant::now(),
            failure: None,
            is_final: false,
        }
    }

    /// Records that the flow no longer leads to a neighbour.
    pub(crate) fn lose_neighbour(&mut self) {
        (self.neighbour, self.unused_since) = (None, Instant::now());
    }

    /// For how long an allocated flow has led to no neighbour, as text.
    fn unused_reason(&self, now: Instant) -> Option<String> {
        let is_unused = self.is_up && self.neighbour.is_none();
        let seconds = now.saturating_duration_since(self.unused_since).as_secs();
        is_unused.then(|| format!("no neighbour for {seconds} s"))
    }
}

/// The start of a first member that waits for an N-1 DIF.
pub(crate) struct DeferredStart {
    pub new: Box<NormalBuilder>,
    /// Name of the N-1 DIF of which this system is not a member yet.
    pub dif: DifName,
}

/// Pause between the first and the second attempt.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The pause doubles up to this many times: to at most 6.4 s.
const PAUSE_DOUBLINGS: u32 = 7;

/// The smallest number of ids that N-1 flows use in turn.
const N1_TURNS_MIN: usize = 64;

/// Reason for the end of an N-1 flow whose DIF was removed from the member.
pub(crate) const RETRACTED: &str = "the member no longer uses this N-1 DIF";

#[cfg(test)]
mod tests {
    use super::*;

    fn joining(over: &[&str]) -> Membership {
        let name = |text: &str| DifName::new(text).unwrap();
        let json = serde_json::json!({"name": "net", "role": "join", "over": over});
        let new: MemberSpec = serde_json::from_value(json).unwrap();
        assert_eq!(new.name, name("net"));
        Membership::new(new, Dialect::Native, Instant::now())
    }

    fn wanted(member: &Membership) -> Vec<String> {
        let wanted_n1 = member.wanted_n1.iter();
        wanted_n1
            .map(|wanted| format!("{} in {}", wanted.remote, wanted.dif))
            .collect()
    }

    #[test]
    fn a_neighbour_that_asked_first_is_not_asked_in_turn() {
        let app = |text: &str| AppName::new(text).unwrap();
        let dif = |text: &str| DifName::new(text).unwrap();
        let mut member = joining(&["ab", "bc"]);
        member.drop_satisfied();
        assert_eq!(wanted(&member), ["net in ab", "net in bc"]);
        // An incoming N-1 flow is no neighbour yet: its initiator may turn out not to be a member.
        let asked = N1Flow::new(dif("bc"), app("net.c"), PortId(1), false);
        member.n1_flows.insert(0, asked);
        member.drop_satisfied();
        assert_eq!(wanted(&member).len(), 2);
        member.n1_flows.get_mut(&0).unwrap().neighbour = Some(app("net.c"));
        member.drop_satisfied();
        assert_eq!(wanted(&member), ["net in ab"]);
        // A wish for another neighbour, by its own name, remains.
        let now = Instant::now();
        for name in ["net.c", "net.d"] {
            member
                .wanted_n1
                .push(WantedN1::new(dif("bc"), app(name), now));
        }
        // A wish whose flow is already requested remains.
        member
            .wanted_n1
            .push(WantedN1::new(dif("bc"), app("net"), now));
        member.wanted_n1[3].n1 = Some(N1Port(1));
        member.drop_satisfied();
        assert_eq!(wanted(&member), ["net in ab", "net.d in bc", "net in bc"]);
    }

    #[test]
    fn a_refusal_is_for_good_from_the_moment_it_is_seen() {
        let mut member = joining(&["ab"]);
        member.wanted_n1[0].n1 = Some(N1Port(7));
        member.record_refusal(N1Port(7), "wrong password".to_owned(), true);
        assert_eq!((member.failures, member.is_refused()), (1, true));
        member.record_refusal(N1Port(7), "no answer".to_owned(), false);
        assert_eq!((member.failures, member.is_refused()), (2, false));
    }
}
