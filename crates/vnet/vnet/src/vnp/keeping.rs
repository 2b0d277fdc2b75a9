//! Renews parts at providers, and releases parts that are not wanted.

use std::collections::BTreeMap;

use carina_time::Instant;

use super::Vnp;
use super::record::Step;
use crate::message::{PartKey, ToPip};
use crate::store::Store;

impl<S: Store> Vnp<S> {
    /// Sends each provider a renewal of all its parts.
    pub(super) fn renew(&mut self) {
        let mut keys: BTreeMap<String, Vec<PartKey>> = BTreeMap::new();
        for pip in &self.pips {
            keys.insert(pip.clone(), Vec::new());
        }
        for (vnet, record) in &self.records {
            if let (Some(live), false) = (&record.live, record.is_being_removed()) {
                let (vnet, round) = (*vnet, live.round);
                for pip in &live.pips {
                    let key = PartKey { vnet, round };
                    keys.entry(pip.clone()).or_default().push(key);
                }
            }
        }
        for (pip, keys) in keys {
            self.send(&pip, ToPip::Renew { keys });
        }
    }

    /// Processes a provider's report of a part that was not named: releases it, unless it is live
    /// or its network is just being changed.
    pub(super) fn judge_held(&mut self, now: Instant, pip: &str, key: PartKey) {
        if let Some(record) = self.records.get(&key.vnet) {
            let is_live = record
                .live
                .as_ref()
                .is_some_and(|live| live.round == key.round && live.pips.contains(pip));
            if is_live || !matches!(record.step, Step::Settled) {
                return;
            }
        }
        // Another process may have written the network since the last read. The provider reports
        // the part again.
        match self.is_current(now, key.vnet) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.discard(&error),
        }
        self.count("part that was not wanted");
        self.send(pip, ToPip::Release { key });
    }
}
