//! Tests of shaped queues in simulated time.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Debug)]
struct Item {
    bytes: usize,
    flow: u32,
    number: u64,
    sent_at: Instant,
    is_capable: bool,
    is_marked: bool,
}

impl Packet for Item {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn flow(&self) -> u32 {
        // The upper bits choose the queue.
        self.flow << 22
    }

    fn mark_congestion(&mut self) -> bool {
        self.is_marked |= self.is_capable;
        self.is_capable
    }
}

fn item(flow: u32, number: u64, sent_at: Instant) -> Item {
    Item {
        bytes: FULL_FRAME_BYTES,
        flow,
        number,
        sent_at,
        is_capable: false,
        is_marked: false,
    }
}

fn queue(bits_per_second: u64) -> ShapedQueue<Item> {
    ShapedQueue::new(Shape::of_rate(bits_per_second))
}

const UNBOUNDED: usize = usize::MAX;
const RATES: [u64; 5] = [
    1_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
];

/// A TCP stream with slow start and AIMD, at one end of a link of 0.2 ms. It sends packets of flow
/// 0 into a queue; another flow has a packet every 50 ms.
struct Stream {
    queue: ShapedQueue<Item>,
    now: Instant,
    sent: u64,
    window: f64,
    threshold: f64,
    in_flight: u64,
    /// Losses are known up to here, and no further loss counts before packet `recovered` arrives.
    dropped: u64,
    recovered: u64,
    acks: VecDeque<(Instant, u64)>,
    arrived_bytes: usize,
    stream_delays: Vec<Duration>,
    sparse_delays: Vec<Duration>,
}

impl Stream {
    fn over(bits_per_second: u64) -> Stream {
        Stream {
            queue: queue(bits_per_second),
            now: Instant::ZERO,
            sent: 0,
            window: 10.0,
            threshold: f64::MAX,
            in_flight: 0,
            dropped: 0,
            recovered: 0,
            acks: VecDeque::new(),
            arrived_bytes: 0,
            stream_delays: Vec::new(),
            sparse_delays: Vec::new(),
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut probe_at = self.now;
        while self.now < end {
            if self.now >= probe_at {
                let probe = Item {
                    bytes: 98,
                    ..item(1, 0, self.now)
                };
                self.queue.push(self.now, probe, UNBOUNDED);
                probe_at += Duration::from_millis(50);
            }
            self.acknowledge();
            while self.in_flight < self.window as u64 {
                let item = item(0, self.sent, self.now);
                self.queue.push(self.now, item, UNBOUNDED);
                (self.sent, self.in_flight) = (self.sent + 1, self.in_flight + 1);
            }
            while let Some(item) = self.queue.pop(self.now) {
                let waited = self.now - item.sent_at;
                if item.flow == 1 {
                    self.sparse_delays.push(waited);
                    continue;
                }
                self.arrived_bytes += item.bytes;
                self.stream_delays.push(waited);
                let ack_at = self.now + Duration::from_micros(200);
                self.acks.push_back((ack_at, item.number));
            }
            let next = [self.queue.due(self.now), self.acks.front().map(|ack| ack.0)];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            self.now = next.min(probe_at).min(end);
        }
    }

    fn acknowledge(&mut self) {
        while let Some((_, number)) = self.acks.front().copied().filter(|ack| ack.0 <= self.now) {
            self.acks.pop_front();
            self.in_flight -= 1;
            self.window += if self.window < self.threshold {
                1.0
            } else {
                1.0 / self.window
            };
            let counts = self.queue.counts();
            let lost = counts.dropped_full + counts.dropped_codel - self.dropped;
            self.dropped += lost;
            self.in_flight -= lost;
            if lost > 0 && number >= self.recovered {
                self.threshold = (self.window / 2.0).max(2.0);
                self.window = self.threshold;
                self.recovered = self.sent;
            }
        }
    }
}

#[test]
fn one_stream_gets_nine_tenths_of_any_rate() {
    for rate in RATES {
        let mut stream = Stream::over(rate);
        stream.run(Duration::from_secs(10));
        let possible = rate / 8 * 10;
        let share = stream.arrived_bytes as f64 / possible as f64;
        assert!(share > 0.96 && share < 1.001, "{rate}: {share}");
        assert!(stream.queue.counts().dropped_codel > 0);
    }
}

#[test]
fn sparse_flow_does_not_wait_behind_a_full_one() {
    for rate in RATES {
        let mut stream = Stream::over(rate);
        stream.run(Duration::from_secs(10));
        let longest = stream.sparse_delays.iter().max().copied().unwrap();
        // A frame that is being sent may be before it.
        let frame = Duration::from_nanos(12_112 * 1_000_000_000 / rate);
        assert!(longest <= frame * 2, "{rate}: {longest:?}");
        assert_eq!(stream.sparse_delays.len(), 200, "{rate}");
    }
}

#[test]
fn stream_that_adapts_waits_a_few_targets_at_most() {
    for rate in RATES {
        let mut stream = Stream::over(rate);
        stream.run(Duration::from_secs(10));
        let late = stream
            .stream_delays
            .split_off(stream.stream_delays.len() / 2);
        let sum: Duration = late.iter().copied().sum();
        let mean = sum / late.len() as u64;
        let target = CodelTimes::of_rate(rate).target;
        assert!(mean < target * 3, "{rate}: {mean:?}");
    }
}

#[test]
fn rate_is_kept_to_the_frame() {
    for rate in RATES {
        let mut queue = queue(rate);
        let (mut now, mut sent, mut number) = (Instant::ZERO, 0, 0);
        let end = Instant::from_secs(5);
        while now < end {
            while queue.len() < 8 {
                queue.push(now, item(number as u32 % 4, number, now), UNBOUNDED);
                number += 1;
            }
            while let Some(item) = queue.pop(now) {
                sent += item.bytes;
                queue.push(now, item, UNBOUNDED);
            }
            now = queue.due(now).unwrap();
        }
        let (allowed, burst) = ((rate / 8 * 5) as usize, queue.shape.burst_bytes);
        let expected = allowed + burst - 2 * FULL_FRAME_BYTES..=allowed + burst;
        assert!(expected.contains(&sent), "{rate}: {sent} of {expected:?}");
    }
}

#[test]
fn flood_waits_no_longer_than_the_queue_is() {
    let mut queue = queue(10_000_000);
    let (mut passed, mut longest) = (0, Duration::ZERO);
    for tick in 0..50_000 {
        // Twice the rate, for 30 s.
        let now = Instant::from_micros(tick * 600);
        queue.push(now, item(0, tick, now), UNBOUNDED);
        while let Some(item) = queue.pop(now) {
            passed += 1;
            longest = longest.max(now - item.sent_at);
        }
    }
    let counts = queue.counts();
    let dropped = counts.dropped_full + counts.dropped_codel;
    assert_eq!(passed + dropped + queue.len() as u64, 50_000);
    assert!(longest <= Duration::from_millis(105), "{longest:?}");
    assert!(counts.dropped_codel > 0 && passed > 24_700, "{counts:?}");
}

#[test]
fn capable_flows_are_marked_and_lose_nothing() {
    let mut queue = queue(10_000_000);
    let mut marked = 0;
    for tick in 0..20_000_u64 {
        let now = Instant::from_micros(tick * 1212);
        let packet = Item {
            is_capable: true,
            ..item(0, tick, now)
        };
        queue.push(now, packet, UNBOUNDED);
        if tick > 20 {
            marked += queue.pop(now).map_or(0, |item| u64::from(item.is_marked));
        }
    }
    let expected = QueueCounts {
        marked,
        ..QueueCounts::default()
    };
    assert_eq!(queue.counts(), expected);
    assert!(marked > 100, "{marked}");
}

#[test]
fn late_caller_loses_no_tokens_while_packets_wait() {
    let mut queue = queue(100_000_000);
    let mut sent = 0;
    for ms in (0..1000).step_by(20) {
        let now = Instant::from_millis(ms);
        while queue.len() < 400 {
            queue.push(now, item(0, 0, now), UNBOUNDED);
        }
        while let Some(item) = queue.pop(now) {
            sent += item.bytes;
        }
    }
    // CoDel may have replaced some, but all tokens of 980 ms were used.
    assert!((12_250_000..12_500_000).contains(&sent), "{sent}");
    // Tokens of a pause are not kept.
    let mut at = Instant::from_secs(2);
    while let Some(due) = queue.due(at) {
        at = due;
        queue.pop(at);
    }
    let mut after = 0;
    while queue.pass(Instant::from_secs(9), 1000) {
        after += 1000;
    }
    assert_eq!(after, 62_000);
}

#[test]
fn full_queue_drops_from_the_largest_flow() {
    let mut queue = queue(1_000_000);
    let now = Instant::ZERO;
    for number in 0..100 {
        queue.push(now, item(0, number, now), UNBOUNDED);
        queue.push(
            now,
            Item {
                bytes: 100,
                ..item(1 + number as u32 % 3, number, now)
            },
            20,
        );
    }
    assert_eq!(queue.len(), 20);
    let mut left = BTreeMap::<u32, u64>::new();
    let mut at = now;
    while let Some(due) = queue.due(at) {
        at = due;
        while let Some(item) = queue.pop(at) {
            *left.entry(item.flow).or_default() += 1;
        }
    }
    assert!(left.get(&0).is_none_or(|count| *count < 3), "{left:?}");
    assert!((1..=3).all(|flow| left[&flow] > 5), "{left:?}");
}

#[test]
fn changed_shape_keeps_packets_and_holds_at_once() {
    let mut queue = queue(1_000);
    let now = Instant::ZERO;
    for number in 0..10 {
        queue.push(now, item(0, number, now), UNBOUNDED);
    }
    assert!(queue.pop(now).is_some() && queue.pop(now).is_none());
    assert!(queue.due(now) > Some(Instant::from_secs(11)));
    queue.set_shape(Shape::of_rate(1_000_000_000));
    assert_eq!(queue.len(), 9);
    assert_eq!(queue.due(now), Some(Instant::from_nanos(12_112)));
}

#[test]
fn any_rate_has_a_shape() {
    let of = |bps| Shape::of_rate(bps);
    assert_eq!(
        (of(0).bits_per_second, of(8).burst_bytes),
        (1, FULL_FRAME_BYTES)
    );
    assert_eq!(of(1_000_000_000).burst_bytes, 625_000);
    assert_eq!(of(1_000_000_000).queue_bytes, 12_500_000);
    assert_eq!(of(u64::MAX).bits_per_second, Shape::RATE_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn order_is_kept_and_every_packet_is_counted(
        rate in 10_000_u64..2_000_000_000,
        packets in prop::collection::vec((0_u64..3_000_000, 0_u32..6, 60_usize..2000), 1..400),
        packets_max in 1_usize..100,
    ) {
        let mut queue = queue(rate);
        let (mut now, mut last, mut passed, mut bytes) = (Instant::ZERO, BTreeMap::new(), 0, 0);
        let count = packets.len() as u64;
        let mut see = |item: Item| {
            let before = last.insert(item.flow, item.number);
            prop_assert!(before.is_none_or(|before| before < item.number));
            (passed, bytes) = (passed + 1, bytes + item.bytes);
            Ok(())
        };
        for (number, (wait, flow, bytes)) in packets.into_iter().enumerate() {
            now += Duration::from_nanos(wait);
            queue.push(now, Item { bytes, ..item(flow, number as u64, now) }, packets_max);
            prop_assert!(queue.len() <= packets_max);
            while let Some(item) = queue.pop(now) {
                see(item)?;
            }
        }
        while let Some(due) = queue.due(now) {
            prop_assert!(due > now);
            now = due;
            let item = queue.pop(now);
            prop_assert!(item.is_some());
            item.map(&mut see).transpose()?;
            // If CoDel lets a shorter packet pass, the other tokens may suffice for the next one.
            while let Some(item) = queue.pop(now) {
                see(item)?;
            }
        }
        let counts = queue.counts();
        prop_assert!(queue.is_empty());
        prop_assert_eq!(passed + counts.dropped_full + counts.dropped_codel, count);
        let tokens = u128::from(rate) * u128::from(now.as_nanos()) / 8_000_000_000;
        // A burst at the start, and what CoDel lets pass in place of a shorter packet.
        prop_assert!(bytes as u128 <= tokens + queue.shape.burst_bytes as u128 + 2000);
    }
}
