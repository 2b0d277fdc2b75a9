//! Renewals: a VNP names the parts that it wants to keep.

use std::collections::BTreeMap;

use carina_time::Instant;

use super::books::Made;
use super::{Output, Pip, Step};
use crate::host_part::VnetId;
use crate::message::{FromPip, PartKey};
use crate::store::{Store, StoreError};

impl<S: Store> Pip<S> {
    pub(super) fn is_advertising_to(&self, to: &str) -> bool {
        matches!(
            self.outputs.back(),
            Some(Output::ToVnp { vnp, message: FromPip::Advertisement(_) }) if vnp == to
        )
    }

    pub(super) fn renew(
        &mut self,
        now: Instant,
        vnp: &str,
        keys: &[PartKey],
    ) -> Result<Step, StoreError> {
        let named: BTreeMap<VnetId, u64> = keys.iter().map(|key| (key.vnet, key.round)).collect();
        let mut unknown = 0;
        for key in keys {
            let made = self.books.made(key.vnet).filter(|made| made.vnp == vnp);
            match made.filter(|made| !made.is_leaving && made.round >= key.round) {
                Some(made) if made.round > key.round => {}
                Some(made) => {
                    let expires_ms = (now + self.timing.lease).as_millis();
                    let third = self.timing.lease.as_millis() / 3;
                    if made.expires_ms + third < expires_ms {
                        let then = Made {
                            expires_ms,
                            ..made.clone()
                        };
                        self.books.rewrite(&mut self.store, now, key.vnet, &then)?;
                    }
                    self.tell_status(now, key.vnet, true);
                }
                // Each unknown part costs a read of the store; the VNP names the rest again later.
                None if unknown == UNKNOWN_MAX => self.count("renewal of an unknown part"),
                None => {
                    unknown += 1;
                    // If the books are out of date, nothing is sent; the VNP asks again.
                    if self.books.is_current(&mut self.store, now, key.vnet)? {
                        self.tell(vnp, FromPip::Lapsed { key: *key });
                    }
                }
            }
        }
        let all = self.books.all_made();
        let own = all.filter(|(_, made)| made.vnp == vnp && !made.is_leaving);
        let unnamed = own.filter(|(vnet, _)| !named.contains_key(vnet));
        let round = |(vnet, made): (VnetId, &Made)| PartKey {
            vnet,
            round: made.round,
        };
        let unnamed: Vec<PartKey> = unnamed.map(round).collect();
        for key in unnamed {
            self.tell(vnp, FromPip::Held { key });
        }
        Ok(Step::Done)
    }
}

/// Unknown parts of one renewal that are checked in the store; further ones are ignored.
const UNKNOWN_MAX: u32 = 256;
