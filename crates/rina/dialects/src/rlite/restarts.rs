//! A member that begins anew: M_START of `/mgmt/enrollment` from a neighbour through another N-1
//! flow. One that only adds an N-1 flow says `/mgmt/lowerflow`.
//!
//! rlite has nothing that tells one life of an IPCP from the next. What is there:
//!
//! | address in M_START | life | flows with it |
//! |---|---|---|
//! | none, and it had another than 1 | a new one | end at once |
//! | the one that it had, and a new life has that, too | by its first lower flow | see below |
//! | anything else | the same | stay |
//!
//! The sequence number of its lower flow to this member goes on in the same life, and counts from 1
//! in a new one.

use alloc::vec::Vec;

use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;

use super::n1::{FormerLife, STEP_TIMEOUT, Stage};
use super::{ADDRESS_OF_NEW, Rlite};
use crate::interop::link_state::LinkReport;

/// The life of an IPCP that enrolls, compared with that of the member of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Same,
    New,
    Unclear,
}

impl Rlite {
    /// The IPCP `peer` enrolls over `n1`, where it says that it has the address `asked`: ends what
    /// is left of its former life.
    pub(super) fn end_former_life(
        &mut self,
        now: Instant,
        n1: N1Port,
        peer: &str,
        asked: u64,
        dt: &mut dyn DataTransfer,
    ) {
        let life = self.life_of(peer, asked);
        let others = self.n1s.iter();
        let others = others.filter(|(other, flow)| **other != n1 && flow.neighbour() == Some(peer));
        let others: Vec<(N1Port, Instant)> =
            others.map(|(other, flow)| (*other, flow.since)).collect();
        let is_recent = |(_, since): &(N1Port, Instant)| now < *since + STEP_TIMEOUT;
        if life != Life::New && others.iter().any(is_recent) {
            // Each of the two has asked the other, over an N-1 flow of its own.
            return self.log.count("enrollments-crossed");
        }
        for (other, _) in others {
            self.log.count("n1-superseded");
            self.supersede_n1(now, other, n1, dt);
        }
        match life {
            Life::Same => {}
            Life::New => self.end_flows_with(now, peer, now, dt),
            Life::Unclear => {
                let key = (peer.into(), self.own.clone());
                let seq = self.links.get(now, &key).map(|report| report.seq);
                if let Some(flow) = self.n1s.get_mut(&n1) {
                    flow.former_life = seq.map(|seq| FormerLife { seq, until: now });
                }
            }
        }
    }

    fn life_of(&self, peer: &str, asked: u64) -> Life {
        let known = self.members.get(peer).map(|member| member.address);
        let is_new = asked == 0 || asked == ADDRESS_OF_NEW;
        match known {
            Some(known) if is_new && asked != known => Life::New,
            Some(known) if asked == known && (is_new || !self.policies.assigns()) => Life::Unclear,
            _ => Life::Same,
        }
    }

    /// Gives an N-1 flow back whose neighbour has enrolled over `instead`.
    fn supersede_n1(
        &mut self,
        now: Instant,
        n1: N1Port,
        instead: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let reason = "it enrolls again over another N-1 flow";
        self.neighbour_down(now, n1, reason, dt);
        let dif = self.n1s.get(&instead).map(|flow| flow.props.dif.clone());
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        flow.stage = Stage::Leaving;
        flow.at = None;
        let props = flow.props.clone();
        let reason = reason.into();
        self.log.push(Event::DropN1 { n1, reason });
        // In the same N-1 DIF the new one does as well.
        if dif.is_none_or(|dif| dif != props.dif) {
            self.want_n1(now, &props);
        }
    }

    /// The neighbour behind `n1` reports its lower flow to this member.
    pub(super) fn judge_life(
        &mut self,
        now: Instant,
        n1: N1Port,
        report: &LinkReport,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1).filter(|_| report.is_up) else {
            return;
        };
        if let Some(former) = flow.former_life.take()
            && report.seq <= former.seq
        {
            let peer = flow.peer.clone();
            self.end_flows_with(now, &peer, former.until, dt);
        }
    }

    /// Ends the flows with a member that are older than its present life, without a message: the
    /// port-ids there are those of other flows by now.
    fn end_flows_with(
        &mut self,
        now: Instant,
        peer: &str,
        until: Instant,
        dt: &mut dyn DataTransfer,
    ) {
        if let Some(address) = self.address_of(peer) {
            let ended = self.flows.forget_member(now, address, until, dt);
            for _ in 0..ended {
                self.log.count("flows-of-former-life");
            }
        }
    }
}
