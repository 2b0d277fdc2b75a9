//! Commitment: turns a reserved part into one that hosts make.

use carina_time::Instant;

use crate::host_part::EndPart;
use crate::message::{FromPip, PartKey, TunnelEnd};
use crate::store::{Outcome, Store, StoreError};
use crate::store_copy::to_value;

use super::books::Made;
use super::{Pip, Step, far_ends};

impl<S: Store> Pip<S> {
    /// Makes a part that is reserved, on a VNP's `Commit`.
    pub(super) fn commit(
        &mut self,
        now: Instant,
        vnp: &str,
        key: PartKey,
        far: &[(EndPart, TunnelEnd)],
    ) -> Result<Step, StoreError> {
        let made = self.books.made(key.vnet);
        if self.is_of_another(vnp, key.vnet) || made.is_some_and(|made| made.round > key.round) {
            self.count("commitment that is late or of another's network");
            return Ok(Step::Done);
        }
        if made.is_some_and(|made| made.round == key.round && !made.is_leaving) {
            self.tell(vnp, FromPip::Committed { key });
            return Ok(Step::Done);
        }
        let held = self
            .books
            .held(key.vnet)
            .filter(|held| held.round == key.round);
        let Some(held) = held.filter(|_| !made.is_some_and(|made| made.is_leaving)) else {
            if !self.books.is_current(&mut self.store, now, key.vnet)? {
                return Ok(Step::Again);
            }
            self.tell(vnp, FromPip::Lapsed { key });
            return Ok(Step::Done);
        };
        let known = (&self.ground, &self.books);
        if let Err(reason) = far_ends::check(known, key.vnet, &held.laid, far) {
            self.count("commitment with far ends that cannot be");
            self.tell(vnp, FromPip::Refused { key, reason });
            return Ok(Step::Done);
        }
        let mut previous = made.map_or_else(Vec::new, |made| made.previous.clone());
        previous.extend(made.map(|made| made.laid.clone()));
        let then = Made {
            vnp: vnp.to_owned(),
            round: key.round,
            laid: held.laid.clone(),
            far: far.to_vec(),
            expires_ms: (now + self.timing.lease).as_millis(),
            is_leaving: false,
            previous,
            moves: 0,
            moving: None,
            moved: None,
            untold: None,
        };
        let write = self.books.change(key.vnet, false);
        let write = write.put(self.books.made_key(key.vnet), to_value(&then));
        let write = write.delete(self.books.held_key(key.vnet));
        if self.store.commit(now, &write)? == Outcome::Conflict {
            return Ok(Step::Again);
        }
        self.tell(vnp, FromPip::Committed { key });
        self.books.refresh(&mut self.store, now, &self.ground)?;
        self.order(now, key.vnet);
        Ok(Step::Done)
    }
}
