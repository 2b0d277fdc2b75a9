//! A cache of recently computed reasons, for requests that are repeated.

use std::collections::BTreeMap;

use carina_time::{Duration, Instant};

use crate::host_part::VnetId;
use crate::message::Reason;

/// Caches why a network's request did not fit. Computing the reason takes some 10 to 100 times as
/// long as detecting that the request does not fit. A waiting request is repeated every few
/// seconds, and gets the cached reason for [`ReasonCache::KEPT`].
#[derive(Clone, Debug)]
pub(crate) struct ReasonCache<T> {
    known: BTreeMap<VnetId, (Instant, T, Reason)>,
}

impl<T: PartialEq> ReasonCache<T> {
    /// How long a cached reason is valid.
    pub(crate) const KEPT: Duration = Duration::from_secs(30);

    pub(crate) fn new() -> ReasonCache<T> {
        let known = BTreeMap::new();
        ReasonCache { known }
    }

    /// The cached reason for a network; `None` if there is no reason, if it has expired, or if it
    /// was for a request other than `asked`.
    pub(crate) fn reason(&self, now: Instant, vnet: VnetId, asked: &T) -> Option<Reason> {
        let (since, known, reason) = self.known.get(&vnet)?;
        let is_same = known == asked && now < *since + Self::KEPT;
        is_same.then(|| reason.clone())
    }

    /// Stores the reason for request `asked` of a network.
    pub(crate) fn keep(&mut self, now: Instant, vnet: VnetId, asked: T, reason: Reason) {
        self.known.insert(vnet, (now, asked, reason));
    }

    /// Removes the cached reasons that have expired.
    pub(crate) fn tidy(&mut self, now: Instant) {
        self.known
            .retain(|_, (since, ..)| now < *since + Self::KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ReasonCode;

    #[test]
    fn reason_is_kept_for_a_while_for_the_same_question() {
        let mut cache = ReasonCache::new();
        let (now, vnet) = (Instant::from_secs(100), VnetId::new(1));
        let reason = Reason::new(ReasonCode::Insufficient, "no room");
        cache.keep(now, vnet, "a", reason.clone());
        let soon = now + Duration::from_secs(29);
        assert_eq!(cache.reason(soon, vnet, &"a"), Some(reason));
        assert_eq!(cache.reason(soon, vnet, &"b"), None);
        assert_eq!(cache.reason(soon, VnetId::new(2), &"a"), None);
        let later = now + ReasonCache::<&str>::KEPT;
        assert_eq!(cache.reason(later, vnet, &"a"), None);
        cache.tidy(later);
        assert!(cache.known.is_empty());
    }
}
