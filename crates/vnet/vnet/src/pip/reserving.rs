//! Reservation: checks a part, places it, and writes it to the store on a lease.

use carina_embed::Residual;
use carina_time::Instant;

use super::books::Held;
use super::placing::{self, Keeping, Laid, Placement, Unplaced};
use super::{Pip, ROUND_MAX, Step, hosting};
use crate::host_part::VnetId;
use crate::message::{FromPip, PartKey, PartRequest, Reason, ReasonCode};
use crate::store::{Outcome, Store, StoreError};
use crate::store_copy::to_value;

impl<S: Store> Pip<S> {
    /// Reserves a part or answers why not. Repeating the request renews the lease of the
    /// reservation.
    pub(super) fn reserve(
        &mut self,
        now: Instant,
        vnp: &str,
        key: PartKey,
        part: &PartRequest,
    ) -> Result<Step, StoreError> {
        let made = self.books.made(key.vnet);
        let held = self.books.held(key.vnet);
        let rounds = [made.map(|made| made.round), held.map(|held| held.round)];
        if self.is_of_another(vnp, key.vnet)
            || rounds.iter().flatten().any(|round| *round > key.round)
        {
            self.count("reservation that is late or of another's network");
            return Ok(Step::Done);
        }
        if made.is_some_and(|made| made.round == key.round && !made.is_leaving) {
            self.tell(vnp, FromPip::Committed { key });
            return Ok(Step::Done);
        }
        let conflict = made.and_then(|made| {
            if made.is_leaving {
                Some("the previous network of this name is being removed")
            } else {
                made.moving
                    .as_ref()
                    .map(|_| "a node of the network is moving")
            }
        });
        if let Some(words) = conflict {
            let reason = Reason::new(ReasonCode::Conflict, words);
            self.tell(vnp, FromPip::Refused { key, reason });
            return Ok(Step::Done);
        }
        if key.round > ROUND_MAX {
            let words = format!("round {}: must be at most {ROUND_MAX}", key.round);
            let reason = Reason::new(ReasonCode::Impossible, words);
            self.tell(vnp, FromPip::Refused { key, reason });
            return Ok(Step::Done);
        }
        if let Some(held) = held.filter(|held| held.round == key.round) {
            let ends = hosting::offered(&held.laid.part, &held.laid.placement);
            if let Some(lease) = self.books.lease(key.vnet) {
                self.store.renew(now, lease)?;
            }
            self.tell(vnp, FromPip::Offered { key, ends });
            return Ok(Step::Done);
        }
        self.hold(now, vnp, key, part)
    }

    fn hold(
        &mut self,
        now: Instant,
        vnp: &str,
        key: PartKey,
        part: &PartRequest,
    ) -> Result<Step, StoreError> {
        if let Err(error) = part.check() {
            let words = format!("the part: {error}");
            let reason = Reason::new(ReasonCode::Impossible, words);
            self.tell(vnp, FromPip::Refused { key, reason });
            return Ok(Step::Done);
        }
        let placement = match self.place(now, key.vnet, part) {
            Ok(placement) => placement,
            Err(reason) => {
                self.tell(vnp, FromPip::Refused { key, reason });
                return Ok(Step::Done);
            }
        };
        let held = Held {
            vnp: vnp.to_owned(),
            round: key.round,
            laid: Laid {
                part: part.clone(),
                placement,
            },
        };
        let lease = self.store.grant(now, self.timing.hold)?;
        let write = self.books.change(key.vnet, true);
        let write = write.put_leased(self.books.held_key(key.vnet), to_value(&held), lease);
        match self.store.commit(now, &write) {
            Ok(Outcome::Done(_)) => {
                let ends = hosting::offered(&held.laid.part, &held.laid.placement);
                self.tell(vnp, FromPip::Offered { key, ends });
                Ok(Step::Done)
            }
            Ok(Outcome::Conflict) => {
                self.store.revoke(now, lease)?;
                Ok(Step::Again)
            }
            Err(StoreError::Full(_)) => {
                // The store's error text stays with the provider.
                self.count("the store is full");
                let words = "the provider cannot store the reservation: its store is full";
                let reason = Reason::new(ReasonCode::Insufficient, words);
                self.tell(vnp, FromPip::Refused { key, reason });
                Ok(Step::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// Places a part. The error says why it cannot be placed: no host can ever make it, resources
    /// do not suffice, or the presence of some hosts is not known yet.
    fn place(
        &mut self,
        now: Instant,
        vnet: VnetId,
        part: &PartRequest,
    ) -> Result<Placement, Reason> {
        let drained = self.drained_hosts();
        let keeping = Keeping {
            before: self.books.made(vnet).map(|made| &made.laid),
            drained: &drained,
            limits: &self.limits,
        };
        if let Some(reason) = placing::unfit(&self.ground, part, &keeping) {
            return Err(reason);
        }
        let place = |free: &Residual| {
            let taken = self.books.taken(vnet);
            placing::place(&self.ground, free, part, &keeping, taken)
        };
        let free = self.free(now, Some(vnet));
        match place(&free) {
            Ok(placement) => return Ok(placement),
            Err(Unplaced::Because(reason)) => return Err(reason),
            Err(Unplaced::NoRoom) => {}
        }
        if !self.awaits_hosts(now) {
            return Err(self.why_not(now, vnet, &free, part));
        }
        let hoped = self.free_as_hoped(now, Some(vnet));
        match place(&hoped) {
            Ok(_) => {
                let words =
                    "not all hosts of the provider have reported yet; the request is repeated";
                Err(Reason::new(ReasonCode::Unreachable, words))
            }
            Err(Unplaced::Because(reason)) => Err(reason),
            Err(Unplaced::NoRoom) => Err(self.why_not(now, vnet, &hoped, part)),
        }
    }

    /// The reason why a part does not fit, cached for a while.
    fn why_not(
        &mut self,
        now: Instant,
        vnet: VnetId,
        free: &Residual,
        part: &PartRequest,
    ) -> Reason {
        if let Some(reason) = self.reason_cache.reason(now, vnet, part) {
            return reason;
        }
        let drained = self.drained_hosts();
        let before = self.books.made(vnet).map(|made| &made.laid);
        let keeping = Keeping {
            before,
            drained: &drained,
            limits: &self.limits,
        };
        let reason = placing::why_not(&self.ground, free, part, &keeping);
        self.reason_cache
            .keep(now, vnet, part.clone(), reason.clone());
        reason
    }
}
