//! The checks of a world without faults: all members agree about their DIF and their routes are
//! shortest paths, every flow has kept its promise or both ends know that it failed, and no state
//! is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::{FlowOwner, Link, SlotId};
use crate::rib::RibError;
use crate::session::{Session, State};
use crate::topology::{Edges, distances};
use crate::view::View;
use crate::world::World;

/// What all members of a DIF should know. Members are identified by their index.
struct Truth {
    names: Vec<String>,
    apps: BTreeSet<String>,
    edges: Edges,
    /// Number of hops from each member to each other one; `None` if there is no path.
    far: Vec<Vec<Option<u64>>>,
}

/// A difference between what a member knows and the truth.
#[derive(Debug)]
enum Disagreement {
    Rib(RibError),
    OtherAddresses(BTreeMap<String, u64>),
    SharedAddress(BTreeMap<String, u64>),
    NoRoute {
        dst: u64,
        hops: u64,
    },
    /// The next hop is not on a shortest path. `rest` is the distance from the next hop.
    Detour {
        dst: u64,
        hops: u64,
        next: u64,
        rest: Option<u64>,
    },
    /// Names, applications or links differ, in the form in which they are printed.
    Sees {
        what: &'static str,
        missing: String,
        extra: String,
    },
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rib(error) => error.fmt(f),
            Self::OtherAddresses(members) => write!(f, "knows other addresses: {members:?}"),
            Self::SharedAddress(members) => {
                write!(f, "knows two members with one address: {members:?}")
            }
            Self::NoRoute { dst, hops } => write!(f, "has no route to {dst}, {hops} hops away"),
            Self::Detour {
                dst,
                hops,
                next,
                rest,
            } => write!(
                f,
                "sends PDUs for {dst}, {hops} hops away, to {next}, {rest:?} hops away"
            ),
            Self::Sees {
                what,
                missing,
                extra,
            } => write!(
                f,
                "sees other {what} than there are: missing {missing}, too many {extra}"
            ),
        }
    }
}

impl World {
    /// Checks that all members of a DIF agree, and that their routes are shortest paths.
    pub fn check_dif(&mut self, dif: &str) {
        let slots: Vec<SlotId> = self.slots_of(dif).collect();
        let is_counted = |slot: &SlotId| {
            let state = &self.slots[slot.0];
            state.instance.is_some() && state.is_wanted
        };
        let live: Vec<SlotId> = slots.into_iter().filter(is_counted).collect();
        let truth = self.truth(&live);
        // Views are read one at a time: all together would be as large as the simulated members.
        let mut first = None;
        for (at, slot) in live.iter().enumerate() {
            let seen = self.view(*slot);
            let checked = seen.map_err(Disagreement::Rib).and_then(|view| {
                truth.check_view(&view)?;
                truth.check_table(at, &view)?;
                if first.get_or_insert_with(|| view.members.clone()) == &view.members {
                    Ok(())
                } else {
                    Err(Disagreement::OtherAddresses(view.members))
                }
            });
            if let Err(wrong) = checked {
                let text = format!("{} {wrong}", self.name(*slot));
                return self.fail(text);
            }
        }
    }

    /// What these members of a DIF should know.
    fn truth(&self, live: &[SlotId]) -> Truth {
        let names: Vec<String> = live
            .iter()
            .map(|slot| self.name(*slot).to_owned())
            .collect();
        let index: BTreeMap<&str, usize> = names
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), at))
            .collect();
        let edges: Edges = live
            .iter()
            .map(|slot| {
                let near = self.neighbours(*slot);
                near.filter_map(|other| Some((*index.get(other)?, 1)))
                    .collect()
            })
            .collect();
        let apps = live.iter().flat_map(|slot| self.reachable(*slot));
        Truth {
            apps: apps.map(str::to_owned).collect(),
            far: (0..live.len()).map(|at| distances(&edges, at)).collect(),
            names,
            edges,
        }
    }

    /// Names that are registered in this slot's IPCP: applications, and IPCPs of higher DIFs.
    fn reachable(&self, slot: SlotId) -> Vec<&str> {
        let state = &self.slots[slot.0];
        let mut names: Vec<&str> = state.apps.iter().map(String::as_str).collect();
        for above in &self.systems[state.system.0].slots {
            let upper = &self.slots[above.0];
            let is_above = upper
                .attachments
                .iter()
                .any(|a| a.below == crate::model::Below::Ipcp(slot));
            if is_above && upper.instance.is_some() {
                names.push(&upper.config.name);
            }
        }
        names
    }

    /// Names of the IPCPs at the other ends of a slot's N-1 flows, without duplicates.
    fn neighbours(&self, slot: SlotId) -> impl Iterator<Item = &str> {
        let instance = self.slots[slot.0].instance.iter();
        let n1s = instance.flat_map(|instance| instance.n1s.iter().flatten());
        let names: BTreeSet<&str> = n1s.map(|n1| n1.remote.as_str()).collect();
        names.into_iter()
    }

    /// Why a session has not completed, although there were no faults; `None` if it has.
    #[must_use]
    pub fn probe_failed(&self, number: usize) -> Option<String> {
        let session = &self.sessions[number];
        let [caller, called] = session
            .ends
            .each_ref()
            .map(|end| end.as_ref().map(|end| &end.state));
        let is_over = matches!(
            (caller, called),
            (Some(State::Ended), Some(State::Over(true)))
        );
        let is_through = session
            .streams
            .iter()
            .all(|s| s.is_written() && s.is_complete());
        let progress = session
            .streams
            .each_ref()
            .map(crate::stream::Stream::progress);
        (!is_over || !is_through).then(|| format!("{caller:?}, {called:?}, {progress:?}"))
    }

    /// Whether a flow is slow but still makes progress. That is so if it is open at both ends with
    /// data left, and moved some in the last `stall` ns; or if one end has ended it, and that or
    /// the last SDU was less than `stall` ns ago. A path of twenty cables that each lose 3 % loses
    /// half of all PDUs, and then retransmission backs off.
    #[must_use]
    pub fn has_slow_flow(&self, stall: u64) -> bool {
        let is_recent = |at: u64| self.now().saturating_sub(at) < stall;
        self.sessions.iter().any(|session| {
            let is_open = |end: &Option<crate::session::End>| {
                end.as_ref().is_some_and(|end| end.state == State::Open)
            };
            match session.ends.each_ref().map(is_open) {
                [true, true] => is_recent(session.moved_at) && session.stuck().is_some(),
                [false, false] => false,
                // SDUs that were written before the end may still arrive, or the report of the end
                // is on its way.
                _ => {
                    let changed_at = session.notified_at.max(session.moved_at);
                    is_recent(changed_at) && !self.flow_ends.are_sent_once
                }
            }
        })
    }

    /// Checks that every session has kept its promise, or that both its ends know that it failed.
    pub fn check_sessions(&mut self) {
        let wrong: Vec<String> = self
            .sessions
            .iter()
            .enumerate()
            .filter_map(|(number, session)| {
                let was_heard = self.peace_since.is_some_and(|at| session.notified_at > at);
                let text = session.wrong(self.flow_ends.are_sent_once && !was_heard)?;
                let state = |end: &Option<crate::session::End>| {
                    end.as_ref().map(|end| (end.slot, end.state.clone()))
                };
                let ends = session.ends.each_ref().map(state);
                Some(format!("session {number}: {text}; {ends:?}"))
            })
            .collect();
        if let Some(first) = wrong.first() {
            let text = format!("{first} ({} sessions in all)", wrong.len());
            self.fail(text);
        }
    }

    /// Checks that no member keeps more state than its N-1 flows and its flows need.
    pub fn check_leaks(&mut self) {
        for index in 0..self.slots.len() {
            let slot = SlotId(index);
            let Some(instance) = self.instance(slot) else {
                continue;
            };
            let flows = instance.flows.len();
            let sessions = instance.flows.values();
            let open = sessions.filter(|owner| matches!(owner, FlowOwner::Session(..)));
            let open = open.count();
            let n1s = instance.n1_count();
            let burden = match self.burden(slot) {
                Ok(burden) => burden,
                Err(reason) => return self.fail(reason.to_string()),
            };
            let name = self.name(slot).to_owned();
            if open > 0 {
                self.fail(format!(
                    "{name}: {open} flows of applications are still there"
                ));
            } else if burden.flows != flows || burden.n1s != n1s {
                self.fail(format!(
                    "{name}: {flows} flows and {n1s} N-1 flows, but {burden:?}"
                ));
            } else if burden.connections > flows + n1s {
                self.fail(format!(
                    "{name}: connections without owner: {flows} flows, {n1s} N-1 flows, {burden:?}"
                ));
            } else if burden.queued > 0 {
                self.fail(format!("{name}: PDUs lie in queues: {burden:?}"));
            }
        }
    }

    /// Whether every IPCP that should be a member is one, and has all N-1 flows that were planned
    /// between systems that run.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.slots.iter().all(|slot| {
            let Some(instance) = &slot.instance else {
                return !self.systems[slot.system.0].is_up;
            };
            let is_met = |(link, to): (&Link, &crate::model::Attachment)| {
                matches!(link, Link::Up(_)) || !to.is_initiator || !self.lives(&to.remote)
            };
            let is_member = instance.address.is_some() || !slot.is_wanted;
            is_member && instance.links.iter().zip(&slot.attachments).all(is_met)
        })
    }

    fn lives(&self, name: &str) -> bool {
        let slot = self.names.get(name);
        slot.is_some_and(|slot| self.slots[slot.0].instance.is_some())
    }
}

impl Truth {
    fn check_view(&self, view: &View) -> Result<(), Disagreement> {
        let names: BTreeSet<&str> = self.names.iter().map(String::as_str).collect();
        let known: BTreeSet<&str> = view.members.keys().map(String::as_str).collect();
        differ("members", &names, &known)?;
        let addresses: BTreeSet<u64> = view.members.values().copied().collect();
        if addresses.len() != view.members.len() {
            return Err(Disagreement::SharedAddress(view.members.clone()));
        }
        differ("applications", &self.apps, &view.directory)?;
        let address = |at: usize| view.members.get(&self.names[at]).copied();
        let ends = self.edges.iter().enumerate();
        let ends = ends.flat_map(|(from, near)| near.iter().map(move |(to, _)| (from, *to)));
        let links: BTreeSet<(u64, u64)> = ends
            .filter_map(|(from, to)| Some((address(from)?, address(to)?)))
            .collect();
        differ("links", &links, &view.links)
    }

    /// Checks that every next hop of the member at index `at` is on a shortest path. If that holds
    /// for all members, no PDU can loop.
    fn check_table(&self, at: usize, view: &View) -> Result<(), Disagreement> {
        let addresses: Vec<Option<u64>> = self
            .names
            .iter()
            .map(|name| view.members.get(name).copied())
            .collect();
        let near: BTreeMap<u64, usize> = self.edges[at]
            .iter()
            .filter_map(|(next, _)| Some((addresses[*next]?, *next)))
            .collect();
        for (to, dst) in addresses.iter().enumerate() {
            let distance = self.far[at][to].filter(|_| at != to);
            let (Some(dst), Some(distance)) = (dst, distance) else {
                continue;
            };
            let hops = view.table.get(dst).map_or(&[][..], Vec::as_slice);
            if hops.is_empty() {
                return Err(Disagreement::NoRoute {
                    dst: *dst,
                    hops: distance,
                });
            }
            for hop in hops {
                let rest = near.get(hop).and_then(|next| self.far[*next][to]);
                if rest != Some(distance - 1) {
                    return Err(Disagreement::Detour {
                        dst: *dst,
                        hops: distance,
                        next: *hop,
                        rest,
                    });
                }
            }
        }
        Ok(())
    }
}

impl Session {
    /// What is wrong with the session once nothing changes any more; `None` if nothing is. With
    /// `are_ends_told_once`, one end may not have heard of the end from the other.
    fn wrong(&self, are_ends_told_once: bool) -> Option<String> {
        let [caller, called] = &self.ends;
        let caller = caller.as_ref().map(|end| &end.state);
        let called = called.as_ref().map(|end| &end.state);
        if self.strays > 0 && !are_ends_told_once {
            return Some("a called end was forgotten".into());
        }
        match (caller, called) {
            (Some(State::Requesting), _) => Some("the request was never answered".into()),
            (_, Some(State::Requesting)) => Some("the called side never got the request".into()),
            (Some(State::Open), Some(State::Open)) => self.stuck(),
            // An end that still has something to send must detect the end by itself.
            (Some(State::Open), None | Some(_)) if are_ends_told_once => self.waits(0),
            (Some(_), Some(State::Open)) if are_ends_told_once => self.waits(1),
            (Some(State::Open), None) => Some("open at one end only".into()),
            (Some(State::Open), Some(_)) | (Some(_), Some(State::Open)) => {
                Some("one end does not know that the flow is over".into())
            }
            _ => None,
        }
    }

    /// Why one end waits forever, although the other has ended; `None` if it does not wait.
    fn waits(&self, side: usize) -> Option<String> {
        let [written, bytes, ..] = self.streams[side].progress();
        let is_waiting = !self.streams[side].is_written();
        is_waiting.then(|| {
            format!("side {side} waits to write more than {written} SDUs, {bytes} bytes, to no other side")
        })
    }

    /// Why an open session makes no progress; `None` if it is complete.
    fn stuck(&self) -> Option<String> {
        for (side, stream) in self.streams.iter().enumerate() {
            let [written, bytes, got, got_bytes] = stream.progress();
            if !stream.is_written() {
                return Some(format!(
                    "side {side} is stuck after {written} SDUs, {bytes} bytes; {got} arrived"
                ));
            }
            if self.promise.loses_nothing && !stream.is_complete() {
                return Some(format!(
                    "of {written} SDUs, {bytes} bytes of side {side} only {got}, {got_bytes} bytes arrived"
                ));
            }
        }
        None
    }
}

fn differ<T: Ord + fmt::Debug>(
    what: &'static str,
    expected: &BTreeSet<T>,
    known: &BTreeSet<T>,
) -> Result<(), Disagreement> {
    if expected == known {
        return Ok(());
    }
    let missing: Vec<&T> = expected.difference(known).collect();
    let extra: Vec<&T> = known.difference(expected).collect();
    Err(Disagreement::Sees {
        what,
        missing: format!("{missing:?}"),
        extra: format!("{extra:?}"),
    })
}
