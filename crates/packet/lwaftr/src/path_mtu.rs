//! Path MTUs to B4s, where a path has a smaller MTU than the access network. (RFC 2473 §6.7, RFC
//! 8201)

use std::collections::HashMap;

use carina_time::{Duration, Instant};

use crate::config::Internal;

/// The known path MTUs, for at most [`PATHS_MAX`] B4s.
#[derive(Debug, Default)]
pub struct PathMtus {
    of: HashMap<[u8; 16], (usize, Instant)>,
}

/// Largest number of B4s that are stored; a further one replaces any of them.
pub const PATHS_MAX: usize = 65_536;

/// How long a path MTU stays valid after it was last reported. (RFC 8201 §4 recommends 10 minutes)
const TIME: Duration = Duration::from_secs(600);

impl PathMtus {
    /// Stores an MTU, in bytes, that a router on the path to `b4` has reported. Keeps the smaller
    /// of two reports. Ignores an MTU below the minimum of IPv6. (RFC 8201 §4)
    pub fn learn(&mut self, b4: [u8; 16], mtu: usize, now: Instant) {
        if mtu < usize::from(Internal::MTU_MIN) {
            return;
        }
        if self.of.len() >= PATHS_MAX
            && !self.of.contains_key(&b4)
            && let Some(any) = self.of.keys().next().copied()
        {
            self.of.remove(&any);
        }
        let (known, until) = self.of.entry(b4).or_insert((mtu, now + TIME));
        (*known, *until) = ((*known).min(mtu), now + TIME);
    }

    /// The path MTU to a B4 in bytes, if known.
    #[must_use]
    #[inline]
    pub fn of(&self, b4: &[u8; 16]) -> Option<usize> {
        if self.of.is_empty() {
            None
        } else {
            self.of.get(b4).map(|(mtu, _)| *mtu)
        }
    }

    /// Removes path MTUs that have expired.
    pub fn expire(&mut self, now: Instant) {
        self.of.retain(|_, (_, until)| *until > now);
    }

    /// Number of known path MTUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether no path MTU is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_are_few_and_are_forgotten() {
        let b4 = |number: u32| {
            let mut b4 = [0; 16];
            b4[..4].copy_from_slice(&number.to_be_bytes());
            b4
        };
        let mut known = PathMtus::default();
        let now = Instant::ZERO + Duration::from_secs(5);
        known.learn(b4(1), 1279, now);
        assert!(known.is_empty() && known.of(&b4(1)).is_none());
        known.learn(b4(1), 1400, now);
        known.learn(b4(1), 1450, now);
        assert_eq!(known.of(&b4(1)), Some(1400));
        for number in 0..PATHS_MAX as u32 + 100 {
            known.learn(b4(number), 1300, now);
        }
        assert_eq!(known.len(), PATHS_MAX);
        known.expire(now + Duration::from_secs(599));
        assert_eq!(known.len(), PATHS_MAX);
        known.expire(now + Duration::from_secs(600));
        assert!(known.is_empty());
    }
}
