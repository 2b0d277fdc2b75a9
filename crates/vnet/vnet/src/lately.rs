//! Reasons that were worked out lately, for what is asked again and again.

use std::collections::BTreeMap;

use carina_time::{Duration, Instant};

use crate::host_part::VnetId;
use crate::message::Reason;

/// Why what was asked for a network did not fit. To find out takes some ten to some hundred times
/// as long as to find that it does not; one that waits is asked for every few seconds, and hears
/// the same reason for [`Lately::KEPT`].
#[derive(Clone, Debug)]
pub(crate) struct Lately<T> {
    known: BTreeMap<VnetId, (Instant, T, Reason)>,
}

impl<T: PartialEq> Lately<T> {
    /// How long a reason is not worked out anew.
    pub(crate) const KEPT: Duration = Duration::from_secs(30);

    pub(crate) fn new() -> Lately<T> {
        let known = BTreeMap::new();
        Lately { known }
    }

    /// The reason for what is asked for a network, if just this was asked lately.
    pub(crate) fn reason(&self, now: Instant, vnet: VnetId, asked: &T) -> Option<Reason> {
        let (since, known, reason) = self.known.get(&vnet)?;
        let is_same = known == asked && now < *since + Self::KEPT;
        is_same.then(|| reason.clone())
    }

    /// Keeps a reason for a while.
    pub(crate) fn keep(&mut self, now: Instant, vnet: VnetId, asked: T, reason: Reason) {
        self.known.insert(vnet, (now, asked, reason));
    }

    /// Forgets what is old.
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
        let mut lately = Lately::new();
        let (now, vnet) = (Instant::from_secs(100), VnetId::new(1));
        let reason = Reason::new(ReasonCode::Insufficient, "no room");
        lately.keep(now, vnet, "a", reason.clone());
        let soon = now + Duration::from_secs(29);
        assert_eq!(lately.reason(soon, vnet, &"a"), Some(reason));
        assert_eq!(lately.reason(soon, vnet, &"b"), None);
        assert_eq!(lately.reason(soon, VnetId::new(2), &"a"), None);
        let later = now + Lately::<&str>::KEPT;
        assert_eq!(lately.reason(later, vnet, &"a"), None);
        lately.tidy(later);
        assert!(lately.known.is_empty());
    }
}
