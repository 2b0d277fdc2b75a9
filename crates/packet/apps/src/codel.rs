//! CoDel: decides at the head of a queue which packets to drop or mark. (RFC 8289)
//!
//! CoDel measures how long each packet has waited. When that time has stayed above the target for
//! an interval, it drops the packet at the head, and then drops at a rate that rises until the time
//! is below the target again. A packet of an ECN-capable flow is marked instead. (RFC 3168 §5)

use std::collections::VecDeque;

use carina_time::{Duration, Instant};

/// A packet that a managed queue holds.
pub trait Packet {
    /// Length in bytes, which counts against the rate and the limits of the queue.
    fn bytes(&self) -> usize;

    /// Hash of the fields that identify the packet's flow.
    fn flow(&self) -> u32;

    /// Marks the packet with "congestion experienced". Returns false, and changes nothing, if its
    /// flow is not ECN-capable.
    fn mark_congestion(&mut self) -> bool;
}

/// Counts of packets that a managed queue dropped or marked since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets that were dropped because the queue was full.
    pub dropped_full: u64,
    /// Packets that CoDel dropped: they waited longer than the target, and so had all packets that
    /// left their flow's queue during the last interval.
    pub dropped_codel: u64,
    /// Packets that CoDel marked instead of dropping them, because their flow is ECN-capable.
    pub marked: u64,
}

/// How long packets may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelTimes {
    /// How long packets may wait in the queue all the time, without a drop.
    pub target: Duration,
    /// How long packets may wait longer than the target before CoDel acts: about the longest round
    /// trip of the flows.
    pub interval: Duration,
}

impl CodelTimes {
    /// The times for a link of this rate: 5 ms and 100 ms (RFC 8289 §4.4). At low rates the target
    /// is the time of one and a half full frames, because a queue with one frame is not too long;
    /// the interval grows as the target does.
    #[must_use]
    pub fn of_rate(bits_per_second: u64) -> CodelTimes {
        let frame_bits = FULL_FRAME_BYTES as u64 * 8;
        let frames_ns = frame_bits * 1_500_000_000 / bits_per_second.max(1);
        let target = Duration::from_nanos(frames_ns).max(TARGET);
        CodelTimes {
            target,
            interval: INTERVAL + (target - TARGET),
        }
    }
}

/// The packets of one flow, in order, with the state of CoDel.
#[derive(Debug)]
pub(crate) struct CodelQueue<P> {
    packets: VecDeque<(Instant, P)>,
    bytes: usize,
    /// When packets will have waited longer than the target for an interval; `None` while they do
    /// not.
    above_until: Option<Instant>,
    /// Time of the next drop, while `is_dropping`.
    drop_next: Instant,
    /// Number of drops since CoDel began to drop, and that number when it last began.
    count: u32,
    last_count: u32,
    is_dropping: bool,
}

impl<P> Default for CodelQueue<P> {
    fn default() -> CodelQueue<P> {
        CodelQueue {
            packets: VecDeque::new(),
            bytes: 0,
            above_until: None,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            is_dropping: false,
        }
    }
}

impl<P: Packet> CodelQueue<P> {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn push(&mut self, now: Instant, packet: P) {
        self.bytes += packet.bytes();
        self.packets.push_back((now, packet));
    }

    /// Length of the packet at the head; `None` if the queue is empty.
    pub(crate) fn front_bytes(&self) -> Option<usize> {
        self.packets.front().map(|(_, packet)| packet.bytes())
    }

    /// Takes the packet at the head, without CoDel.
    pub(crate) fn pop_front(&mut self) -> Option<(Instant, P)> {
        let (since, packet) = self.packets.pop_front()?;
        self.bytes -= packet.bytes();
        Some((since, packet))
    }

    /// Takes the next packet that CoDel lets pass. `longest` is the length of the longest packet
    /// that the link carries: CoDel never drops from a shorter queue. (RFC 8289 §5.4)
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        (times, longest): (&CodelTimes, usize),
        counts: &mut QueueCounts,
    ) -> Option<P> {
        let (mut packet, mut is_late) = self.take(now, times, longest)?;
        if !self.is_dropping {
            if is_late {
                if packet.mark_congestion() {
                    counts.marked += 1;
                } else {
                    counts.dropped_codel += 1;
                    packet = self.take(now, times, longest)?.0;
                }
                self.begin(now, times);
            }
            return Some(packet);
        }
        self.is_dropping = is_late;
        while self.is_dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            if packet.mark_congestion() {
                counts.marked += 1;
                self.drop_next = next_drop(self.drop_next, times, self.count);
                break;
            }
            counts.dropped_codel += 1;
            (packet, is_late) = self.take(now, times, longest)?;
            self.is_dropping = is_late;
            if is_late {
                self.drop_next = next_drop(self.drop_next, times, self.count);
            }
        }
        Some(packet)
    }

    /// Enters the state in which CoDel drops. Soon after the last time it continues at the rate
    /// that was then enough. (RFC 8289 §5.5)
    fn begin(&mut self, now: Instant, times: &CodelTimes) {
        let more = self.count.saturating_sub(self.last_count);
        let is_recent = now.since(self.drop_next) < times.interval * 16;
        self.count = if more > 1 && is_recent { more } else { 1 };
        self.last_count = self.count;
        self.drop_next = next_drop(now, times, self.count);
        self.is_dropping = true;
    }

    /// Takes the packet at the head, and says whether packets have waited too long for an interval.
    /// (RFC 8289 §5.4)
    fn take(&mut self, now: Instant, times: &CodelTimes, longest: usize) -> Option<(P, bool)> {
        let Some((since, packet)) = self.pop_front() else {
            self.above_until = None;
            self.is_dropping = false;
            return None;
        };
        if now.since(since) < times.target || self.bytes <= longest {
            self.above_until = None;
            return Some((packet, false));
        }
        let until = *self.above_until.get_or_insert(now + times.interval);
        Some((packet, now >= until))
    }
}

/// The control law: drops come faster with the square root of their number. (RFC 8289 §5.3)
fn next_drop(from: Instant, times: &CodelTimes, count: u32) -> Instant {
    let root = (u64::from(count.max(1)) << 16).isqrt();
    let wait = u128::from(times.interval.as_nanos()) * 256 / u128::from(root);
    from + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
}

/// Length of a full Ethernet frame of MTU 1500, without FCS.
pub(crate) const FULL_FRAME_BYTES: usize = 1514;
const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain;

    impl Packet for Plain {
        fn bytes(&self) -> usize {
            1000
        }

        fn flow(&self) -> u32 {
            0
        }

        fn mark_congestion(&mut self) -> bool {
            false
        }
    }

    #[test]
    fn target_is_longer_than_a_frame_at_low_rates() {
        let of = |bps| CodelTimes::of_rate(bps);
        assert_eq!(
            (of(1 << 40).target, of(1 << 40).interval),
            (TARGET, INTERVAL)
        );
        assert_eq!(of(1_000_000).target, Duration::from_micros(18_168));
        assert_eq!(of(1_000_000).interval, Duration::from_micros(113_168));
        assert!(of(0).target > Duration::from_secs(18_000));
    }

    #[test]
    fn drops_come_faster_while_packets_wait_too_long() {
        let times = CodelTimes::of_rate(1 << 40);
        let next = |count| next_drop(Instant::ZERO, &times, count).as_millis();
        assert_eq!((next(0), next(1), next(4), next(100)), (100, 100, 50, 10));
    }

    /// A queue that always holds 50 packets, which therefore wait for 50 ms each.
    #[test]
    fn nothing_is_dropped_within_the_first_interval() {
        let times = CodelTimes::of_rate(1 << 40);
        let (mut queue, mut counts) = (CodelQueue::default(), QueueCounts::default());
        let mut dropped = Vec::new();
        for ms in 0..1000 {
            let now = Instant::from_millis(ms);
            queue.push(now, Plain);
            while queue.len() > 50 {
                queue.pop(now, (&times, 1000), &mut counts);
                dropped.resize(counts.dropped_codel as usize, ms);
            }
        }
        // The first packets that wait longer than the target leave at 50 ms.
        assert_eq!(dropped[..2], [150, 250]);
        assert!(dropped.len() > 8, "{dropped:?}");
        let gaps: Vec<u64> = dropped.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            gaps.windows(2).all(|pair| pair[1] <= pair[0] + 2),
            "{gaps:?}"
        );
    }

    #[test]
    fn short_queue_loses_nothing_however_long_it_waits() {
        let times = CodelTimes::of_rate(1 << 40);
        let (mut queue, mut counts) = (CodelQueue::default(), QueueCounts::default());
        for second in 0..100 {
            queue.push(Instant::from_secs(second), Plain);
            if second > 0 {
                assert!(
                    queue
                        .pop(Instant::from_secs(second), (&times, 1000), &mut counts)
                        .is_some()
                );
            }
        }
        assert_eq!(counts, QueueCounts::default());
    }
}
