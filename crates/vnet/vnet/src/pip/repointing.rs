//! Links to other providers whose ends move with a node.
//!
//! Before a node moves, its provider asks the providers at the other ends of its links, through the
//! VNP; when it has moved, it tells them. The tag of a link does not change. Agreeing does not bind
//! the other provider: the provider of a link's end alone decides where that end is, and the other
//! provider always follows.

use std::collections::BTreeMap;

use carina_time::Instant;

use crate::host_part::{EndPart, VnetId};
use crate::message::{
    FromPip, PartEnd, PartKey, PartRequest, Reason, ReasonCode, Repoint, RepointAnswer, TunnelEnd,
};
use crate::store::{Outcome, Store, StoreError};

use super::books::{Made, round_of};
use super::moves::MoveOutcome;
use super::{Pip, Step, far_ends, hosting};

/// The ends, at a node, of links that leave the part.
pub(super) fn outer_ends(part: &PartRequest, node: &str) -> Vec<EndPart> {
    let links = part.links.iter().filter(|link| link.border().is_some());
    let ends = links.flat_map(|link| &link.ends);
    ends.filter_map(|end| match end {
        PartEnd::Node(end) if end.node == node => Some(end.clone()),
        _ => None,
    })
    .collect()
}

impl<S: Store> Pip<S> {
    /// If it is due, asks the other providers whether a node may move, or tells them that it has
    /// moved.
    pub(super) fn tell_beyond(&mut self, now: Instant, vnet: VnetId) {
        let made = self.books.made(vnet).filter(|made| !made.is_leaving);
        let Some(made) = made else { return };
        let asked = made
            .undecided()
            .filter(|undecided| !undecided.awaits.is_empty());
        let (number, is_decided, named, placement) = match (asked, &made.untold) {
            (_, Some(untold)) => (untold.number, true, &untold.ends, &made.laid.placement),
            (Some(moving), _) => (moving.number, false, &moving.awaits, &moving.placement),
            (None, None) => return,
        };
        let known = self.told_beyond.get(&vnet);
        let is_due = known.is_none_or(|(of, was_decided, at)| {
            (*of, *was_decided) != (number, is_decided) || *at + self.timing.repeat <= now
        });
        if !is_due {
            return;
        }
        let mut ends = hosting::offered(&made.laid.part, placement);
        ends.retain(|(near, _)| named.contains(near));
        let (vnp, round) = (made.vnp.clone(), made.round);
        self.told_beyond.insert(vnet, (number, is_decided, now));
        let message = FromPip::Repoint(Repoint {
            key: PartKey { vnet, round },
            number,
            is_decided,
            ends,
        });
        self.tell(&vnp, message);
    }

    /// Processes another provider's `Repoint`: answers whether links of a part may lead to another
    /// host, or makes them lead there.
    pub(super) fn repoint(
        &mut self,
        now: Instant,
        vnp: &str,
        wanted: &Repoint,
    ) -> Result<Step, StoreError> {
        let Some(made) = self.part_of(vnp, wanted.key) else {
            self.count("link that leads elsewhere, of a part that is not there");
            return Ok(Step::Done);
        };
        let led = led(made, &wanted.ends);
        let Some(far) = led else {
            let words = "it has no such link";
            let reason = Reason::new(ReasonCode::Impossible, words);
            self.answer_repoint(vnp, wanted, Some(reason));
            return Ok(Step::Done);
        };
        let known = (&self.ground, &self.books);
        if let Err(reason) = far_ends::check(known, wanted.key.vnet, &made.laid, &far) {
            self.count("link that is to lead to ends that cannot be");
            self.answer_repoint(vnp, wanted, Some(reason));
            return Ok(Step::Done);
        }
        if !wanted.is_decided {
            let conflict = |words: &str| Some(Reason::new(ReasonCode::Conflict, words));
            let refusal = match (self.books.held(wanted.key.vnet), made.is_still()) {
                (Some(_), _) => conflict("the network is being changed"),
                (None, false) => conflict("a node at the other end of a link moves, too"),
                (None, true) => None,
            };
            self.answer_repoint(vnp, wanted, refusal);
            return Ok(Step::Done);
        }
        if far == made.far {
            self.answer_repoint(vnp, wanted, None);
            return Ok(Step::Done);
        }
        if made.moving.as_ref().is_some_and(|moving| moving.is_decided) {
            // The generation must not change until the node runs at its destination. The VNP
            // repeats the message.
            return Ok(Step::Done);
        }
        self.lead(now, vnp, wanted, far)
    }

    /// Writes the links' new far ends to the store, orders the hosts to use them, and answers.
    fn lead(
        &mut self,
        now: Instant,
        vnp: &str,
        wanted: &Repoint,
        far: Vec<(EndPart, TunnelEnd)>,
    ) -> Result<Step, StoreError> {
        let vnet = wanted.key.vnet;
        let Some(made) = self.books.made(vnet) else {
            return Ok(Step::Again);
        };
        let mut then = Made {
            far,
            moves: made.moves + 1,
            ..made.clone()
        };
        if round_of(then.generation()) != then.round {
            self.count("link that has led elsewhere too often");
            return Ok(Step::Done);
        }
        // A move of this part that is not decided ends here: its destination awaits an obsolete
        // generation.
        let reason = "a node of another provider moved, to which a link leads; try again";
        let ended = then.end_move(MoveOutcome::Stayed {
            reason: reason.to_owned(),
        });
        if self.books.rewrite(&mut self.store, now, vnet, &then)? == Outcome::Conflict {
            return Ok(Step::Again);
        }
        self.books.refresh(&mut self.store, now, &self.ground)?;
        self.order(now, vnet);
        let hosts = ended.into_iter().flat_map(|moved| [moved.from, moved.to]);
        hosts.for_each(|host| self.end_moves(&host));
        self.answer_repoint(vnp, wanted, None);
        Ok(Step::Done)
    }

    fn answer_repoint(&mut self, vnp: &str, wanted: &Repoint, refusal: Option<Reason>) {
        let ends = wanted.ends.iter().map(|(near, _)| near.clone());
        let message = FromPip::RepointAnswer(RepointAnswer {
            key: wanted.key,
            number: wanted.number,
            is_decided: wanted.is_decided,
            ends: ends.collect(),
            refusal,
        });
        self.tell(vnp, message);
    }

    /// Processes another provider's answer about a move.
    pub(super) fn take_repoint_answer(
        &mut self,
        now: Instant,
        vnp: &str,
        answer: &RepointAnswer,
    ) -> Result<Step, StoreError> {
        let (vnet, number) = (answer.key.vnet, answer.number);
        let Some(made) = self.part_of(vnp, answer.key) else {
            self.count("answer of a provider beyond that is late");
            return Ok(Step::Done);
        };
        let mut then = made.clone();
        let is_left = |end: &EndPart| !answer.ends.contains(end);
        let moving = then.moving.as_mut();
        let asked = moving.filter(|moving| moving.number == number && !moving.is_decided);
        let told = then
            .untold
            .as_mut()
            .filter(|untold| untold.number == number);
        match (answer.is_decided, asked, told, &answer.refusal) {
            (false, Some(_), _, Some(refusal)) => {
                let words = format!(
                    "the provider at the other end of a link does not agree: {}",
                    refusal.message
                );
                self.give_up_move(now, vnet, words)?;
                return Ok(Step::Done);
            }
            (false, Some(moving), _, None) => moving.awaits.retain(is_left),
            (true, _, Some(untold), None) => {
                untold.ends.retain(is_left);
                if untold.ends.is_empty() {
                    then.untold = None;
                }
            }
            _ => {
                self.count("answer of a provider beyond that is late");
                return Ok(Step::Done);
            }
        }
        if then == *made {
            return Ok(Step::Done);
        }
        if self.books.rewrite(&mut self.store, now, vnet, &then)? == Outcome::Conflict {
            return Ok(Step::Again);
        }
        self.books.refresh(&mut self.store, now, &self.ground)?;
        self.order(now, vnet);
        self.drive_move(now, vnet)?;
        Ok(Step::Done)
    }

    fn part_of(&self, vnp: &str, key: PartKey) -> Option<&Made> {
        let made = self.books.made(key.vnet);
        made.filter(|made| made.vnp == vnp && made.round == key.round && !made.is_leaving)
    }
}

/// The far ends of a part after `ends` have changed; `None` if the part has no such links.
fn led(made: &Made, ends: &[(EndPart, TunnelEnd)]) -> Option<Vec<(EndPart, TunnelEnd)>> {
    let mut far: BTreeMap<EndPart, TunnelEnd> = BTreeMap::new();
    for (near, far_end) in ends {
        far.insert(near.clone(), far_end.clone());
    }
    let known = |near: &EndPart| made.far.iter().any(|(end, _)| end == near);
    if !far.keys().all(known) {
        return None;
    }
    let all = made.far.iter().map(|(near, before)| {
        let far_end = far.remove(near).map(|far_end| TunnelEnd {
            tag: before.tag,
            ..far_end
        });
        (near.clone(), far_end.unwrap_or_else(|| before.clone()))
    });
    Some(all.collect())
}
