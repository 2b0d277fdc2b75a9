//! How a cable treats PDUs: loss, duplication, damage, delay, and a queue.

use carina_random::Random;

/// How a link treats PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Time that each PDU takes to cross the link, in ns, in addition to waiting and sending.
    pub delay_ns: u64,
    /// Largest random additional delay of each PDU, in ns. It does not change the order of PDUs.
    pub jitter_ns: u64,
    /// Rate in bits per second; 0 for no limit.
    pub rate_bps: u64,
    /// Bytes that may wait on a link with a rate.
    pub queue_bytes: u64,
    /// Whether a full queue makes the sender wait; otherwise it drops the PDU.
    pub is_blocking: bool,
    /// Share of lost PDUs, in 1/10000.
    pub loss: u32,
    /// Share of duplicated PDUs, in 1/10000.
    pub duplication: u32,
    /// Share of PDUs that later ones overtake, in 1/10000.
    pub reorder: u32,
    /// Share of damaged PDUs, in which a few bits change, in 1/10000.
    pub corruption: u32,
    /// Longest PDU in bytes.
    pub mtu: usize,
}

impl Profile {
    /// A link that only delays PDUs, by a millisecond.
    #[must_use]
    pub const fn clean() -> Profile {
        Profile {
            delay_ns: 1_000_000,
            jitter_ns: 0,
            rate_bps: 0,
            queue_bytes: 0,
            is_blocking: true,
            loss: 0,
            duplication: 0,
            reorder: 0,
            corruption: 0,
            mtu: 1_500,
        }
    }

    /// Whether the link can lose or damage a PDU: by chance, or because its queue is full.
    #[must_use]
    pub fn drops(&self) -> bool {
        self.loss + self.corruption > 0 || self.rate_bps > 0 && !self.is_blocking
    }

    /// Whether every PDU arrives once, undamaged and in order.
    #[must_use]
    pub fn is_reliable(&self) -> bool {
        let may_drop = self.rate_bps > 0 && !self.is_blocking;
        self.loss + self.duplication + self.reorder + self.corruption == 0 && !may_drop
    }
}

/// What has happened to the PDUs that were sent in one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of PDUs that were put on the link in this direction.
    pub pdus: u64,
    /// Bytes in the PDUs sent.
    pub bytes: u64,
    /// PDUs lost by chance or because the link was down.
    pub lost: u64,
    /// PDUs lost because the queue was full.
    pub overflowed: u64,
    /// Number of PDUs that arrived twice.
    pub doubled: u64,
    /// Copies of PDUs that arrived damaged.
    pub corrupted: u64,
    /// PDUs that were delayed so that later ones overtake them.
    pub reordered: u64,
}

/// One direction of a link: when it is free again, and what has happened to its PDUs.
#[derive(Clone, Debug, Default)]
pub struct Pipe {
    /// Time in ns at which the last bit so far has been sent.
    busy_until: u64,
    /// Arrival time in ns of the last PDU that keeps the order.
    last_arrival: u64,
    tally: Tally,
}

/// PDUs that arrive, each with its arrival time in ns.
pub type Arrivals = Vec<(u64, Vec<u8>)>;

impl Pipe {
    /// Bytes that wait to be sent, at `now`.
    #[must_use]
    pub fn backlog(&self, now: u64, profile: &Profile) -> u64 {
        let wait = u128::from(self.busy_until.saturating_sub(now));
        (wait * u128::from(profile.rate_bps) / 8 / 1_000_000_000) as u64
    }

    /// Time at which there is room for `len` bytes; `now` if there is room already.
    #[must_use]
    pub fn room_at(&self, now: u64, len: usize, profile: &Profile) -> u64 {
        if profile.rate_bps == 0 || !profile.is_blocking {
            return now;
        }
        let excess = (self.backlog(now, profile) + len as u64).saturating_sub(profile.queue_bytes);
        if excess == 0 || self.busy_until <= now {
            now
        } else {
            now + serialization_ns(excess, profile.rate_bps).max(1)
        }
    }

    /// Sends a PDU over the link at virtual time `now`. Appends each copy that arrives, with its
    /// arrival time, to `out`; a lost PDU appends nothing.
    pub fn put(
        &mut self,
        now: u64,
        pdu: Vec<u8>,
        profile: &Profile,
        random: &mut Random,
        out: &mut Arrivals,
    ) {
        self.tally.pdus += 1;
        self.tally.bytes += pdu.len() as u64;
        if profile.rate_bps > 0 {
            let is_full = self.backlog(now, profile) + pdu.len() as u64 > profile.queue_bytes;
            if !profile.is_blocking && is_full && self.busy_until > now {
                self.tally.overflowed += 1;
                return;
            }
            let start = self.busy_until.max(now);
            self.busy_until = start + serialization_ns(pdu.len() as u64, profile.rate_bps);
        }
        if random.chance(profile.loss) {
            self.tally.lost += 1;
            return;
        }
        let copies = if random.chance(profile.duplication) {
            self.tally.doubled += 1;
            2
        } else {
            1
        };
        for _ in 0..copies {
            let at = self.arrival(now, profile, random);
            let mut pdu = pdu.clone();
            if random.chance(profile.corruption) && !pdu.is_empty() {
                self.tally.corrupted += 1;
                damage(&mut pdu, random);
            }
            out.push((at, pdu));
        }
    }

    /// Counts a PDU of `len` bytes as sent and as lost: the link is down.
    pub fn swallow(&mut self, len: usize) {
        self.tally.pdus += 1;
        self.tally.bytes += len as u64;
        self.tally.lost += 1;
    }

    /// What has happened so far to the PDUs of this direction.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn arrival(&mut self, now: u64, profile: &Profile, random: &mut Random) -> u64 {
        let left = self.busy_until.max(now);
        let at = left + profile.delay_ns + random.below(profile.jitter_ns + 1);
        if random.chance(profile.reorder) {
            self.tally.reordered += 1;
            return at + random.within(1, 3 * (profile.delay_ns + profile.jitter_ns) + 1);
        }
        self.last_arrival = self.last_arrival.max(at);
        self.last_arrival
    }
}

fn serialization_ns(bytes: u64, rate_bps: u64) -> u64 {
    (u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate_bps)) as u64
}

/// Damages a PDU: flips one to three bits, or cuts off the end.
fn damage(pdu: &mut Vec<u8>, random: &mut Random) {
    if random.chance(1_000) {
        pdu.truncate(random.index(pdu.len()));
        return;
    }
    // At most three bits: any CRC-32 detects that in a PDU of this length.
    let first = random.index(pdu.len());
    pdu[first] ^= 1 << random.below(8);
    for _ in 0..random.below(3) {
        let at = random.index(pdu.len());
        let bit = 1 << random.below(8);
        if at != first {
            pdu[at] ^= bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(profile: &Profile, count: u64) -> (Arrivals, Tally) {
        let (mut pipe, mut random) = (Pipe::default(), Random::new(5));
        let mut out = Vec::new();
        for number in 0..count {
            let pdu = number.to_be_bytes().to_vec();
            pipe.put(number * 1_000, pdu, profile, &mut random, &mut out);
        }
        (out, pipe.tally())
    }

    #[test]
    fn clean_link_keeps_everything_in_order() {
        let profile = Profile {
            jitter_ns: 50_000,
            ..Profile::clean()
        };
        let (out, tally) = run(&profile, 1_000);
        assert!(profile.is_reliable());
        assert_eq!((out.len(), tally.pdus, tally.bytes), (1_000, 1_000, 8_000));
        assert!(out.is_sorted());
    }

    #[test]
    fn faults_come_in_the_shares_that_were_asked_for() {
        let profile = Profile {
            loss: 1_000,
            duplication: 500,
            reorder: 500,
            corruption: 500,
            ..Profile::clean()
        };
        let (out, tally) = run(&profile, 10_000);
        assert!((800..1_200).contains(&tally.lost), "{tally:?}");
        assert!((350..650).contains(&tally.doubled), "{tally:?}");
        assert!((350..650).contains(&tally.corrupted), "{tally:?}");
        assert!((350..650).contains(&tally.reordered), "{tally:?}");
        assert_eq!(out.len() as u64, 10_000 - tally.lost + tally.doubled);
        assert!(!out.is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn rate_and_queue_are_kept() {
        let mut profile = Profile {
            rate_bps: 8_000_000,
            queue_bytes: 3_000,
            is_blocking: false,
            delay_ns: 0,
            ..Profile::clean()
        };
        let (mut pipe, mut random, mut out) = (Pipe::default(), Random::new(1), Vec::new());
        for _ in 0..5 {
            pipe.put(0, vec![0; 1_000], &profile, &mut random, &mut out);
        }
        let times: Vec<u64> = out.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [1_000_000, 2_000_000, 3_000_000]);
        assert_eq!(pipe.tally().overflowed, 2);
        profile.is_blocking = true;
        assert_eq!(pipe.room_at(0, 1_000, &profile), 1_000_000);
        assert_eq!(pipe.room_at(1_000_000, 1_000, &profile), 1_000_000);
    }

    #[test]
    fn damage_is_never_undone() {
        let mut random = Random::new(9);
        for len in 1..200 {
            let mut pdu = vec![0xa5; len];
            damage(&mut pdu, &mut random);
            assert_ne!(pdu, vec![0xa5; len]);
        }
    }
}
