//! Detects that a neighbour has restarted: it sends M_START of `/mgmt/enrollment` through another
//! N-1 flow. A neighbour that only adds an N-1 flow sends M_START of `/mgmt/lowerflow`.
//!
//! rlite has no incarnation number. A restart is recognized by:
//!
//! | address in M_START | incarnation | flows with the neighbour |
//! |---|---|---|
//! | none, and it had another than 1 | a new one | end at once |
//! | its former one, which a restart would keep | decided by its lower flow | see below |
//! | anything else | the same | stay |
//!
//! Within one incarnation the sequence number of the neighbour's lower flow to this member
//! continues; a new incarnation counts from 1.

use alloc::vec::Vec;

use carina_ipcp::api::{Event, N1Port};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::Instant;

use super::n1::{FormerLife, STEP_TIMEOUT, Stage};
use super::{ADDRESS_OF_NEW, Rlite};
use crate::interop::link_state::LinkReport;

/// The incarnation of an IPCP that enrolls, compared with that of the neighbour of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Same,
    New,
    Unclear,
}

impl Rlite {
    /// Handles the enrollment of the IPCP `peer` over `n1`, in which it claims the address `asked`:
    /// ends what is left of its former incarnation.
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
            // Both have connected to each other at the same time, each over an N-1 flow of its own.
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

    /// Gives up an N-1 flow whose neighbour has enrolled over `instead`.
    fn supersede_n1(
        &mut self,
        now: Instant,
        n1: N1Port,
        instead: N1Port,
        dt: &mut dyn DataTransfer,
    ) {
        let reason = "the neighbour enrolls again over another N-1 flow";
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
        // In the same N-1 DIF, the new flow replaces the old one.
        if dif.is_none_or(|dif| dif != props.dif) {
            self.want_n1(now, &props);
        }
    }

    /// Decides from the neighbour's report of its lower flow to this member whether it has
    /// restarted.
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

    /// Ends the flows with a member that are older than its present incarnation, without a message:
    /// their port-ids may belong to other flows there by now.
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
