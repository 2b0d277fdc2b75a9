//! Scheduling policies of the RMT: which PDU an N-1 flow sends next.

use alloc::vec::Vec;

use carina_wire::dif::QosId;

/// State of one class that a policy sees: the PDUs of one QoS cube that wait for one N-1 flow. PDUs
/// of a class never overtake each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// QoS-id of the class's QoS cube.
    pub qos: QosId,
    /// Priority of the QoS cube: 0 is the most urgent.
    pub priority: u8,
    /// Weight of the QoS cube: 1 or more.
    pub weight: u16,
    /// The cube's PDUs may be marked (ECN) instead of being dropped.
    pub ecn: bool,
    /// Number of PDUs that wait in the class.
    pub pdus: u32,
    /// Total bytes of the PDUs that wait in the class.
    pub bytes: u64,
    /// Length of the first waiting PDU in bytes; 0 when none waits.
    pub head_len: u32,
    /// Arrival number of the first waiting PDU. The N-1 flow numbers PDUs as they arrive.
    pub head_arrival: u64,
}

/// A scheduling policy. Each N-1 flow has its own instance.
pub trait Scheduler {
    /// Chooses the class whose first PDU is sent now: an index into `classes`. Bit `i` of `waiting`
    /// is set when class `i` has PDUs; at least one bit is set. The PDU then leaves the queue. If
    /// the chosen class is empty, the first class that has PDUs is served instead.
    fn choose(&mut self, classes: &[Class], waiting: u64) -> usize;
}

/// Policy `fifo`: serves PDUs in the order of their arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fifo;

impl Scheduler for Fifo {
    fn choose(&mut self, classes: &[Class], waiting: u64) -> usize {
        least(classes, waiting, |class| class.head_arrival)
    }
}

/// Policy `strict-priority`: serves the most urgent class first; classes of equal priority in order
/// of arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StrictPriority;

impl Scheduler for StrictPriority {
    fn choose(&mut self, classes: &[Class], waiting: u64) -> usize {
        least(classes, waiting, |class| {
            (class.priority, class.head_arrival)
        })
    }
}

/// Policy `weighted-fair`: deficit round robin over the classes (Shreedhar and Varghese, 1995). In
/// each round a class that has PDUs may send `quantum · weight` bytes. What a class does not use
/// while PDUs still wait is added to its next round.
#[derive(Clone, Debug)]
pub(crate) struct WeightedFair {
    quantum: u32,
    deficits: Vec<u64>,
    current: usize,
    /// The current class has already received its quantum of this round.
    is_granted: bool,
}

impl WeightedFair {
    /// `quantum` is the share of weight 1 in bytes per round. With at least the longest PDU, a
    /// class with PDUs can send in every round.
    #[must_use]
    pub(crate) fn new(quantum: u32) -> WeightedFair {
        WeightedFair {
            quantum: quantum.max(1),
            deficits: Vec::new(),
            current: 0,
            is_granted: false,
        }
    }
}

impl Scheduler for WeightedFair {
    fn choose(&mut self, classes: &[Class], waiting: u64) -> usize {
        self.deficits.resize(classes.len(), 0);
        if waiting == 0 {
            return 0;
        }
        loop {
            if self.current >= classes.len() {
                self.current = 0;
            }
            let class = &classes[self.current];
            let deficit = &mut self.deficits[self.current];
            if waiting & (1 << self.current) == 0 {
                *deficit = 0;
            } else {
                if !self.is_granted {
                    *deficit += u64::from(self.quantum) * u64::from(class.weight.max(1));
                    self.is_granted = true;
                }
                if *deficit >= u64::from(class.head_len) {
                    *deficit -= u64::from(class.head_len);
                    return self.current;
                }
            }
            self.current += 1;
            self.is_granted = false;
        }
    }
}

/// The non-empty class with the smallest key.
fn least<K: Ord>(classes: &[Class], waiting: u64, key: impl Fn(&Class) -> K) -> usize {
    let first = waiting.trailing_zeros() as usize;
    let rest = waiting & waiting.wrapping_sub(1);
    if rest == 0 {
        return first;
    }
    let is_waiting = |index: &usize| waiting & (1 << index) != 0;
    (first..classes.len())
        .filter(is_waiting)
        .min_by_key(|index| key(&classes[*index]))
        .unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(heads: &[(u8, u16, u32, u64)]) -> Vec<Class> {
        heads
            .iter()
            .map(|&(priority, weight, head_len, head_arrival)| Class {
                priority,
                weight,
                head_len,
                head_arrival,
                ..Class::default()
            })
            .collect()
    }

    #[test]
    fn fifo_follows_arrival() {
        let classes = classes(&[(2, 1, 10, 9), (0, 1, 10, 7), (1, 1, 10, 8)]);
        assert_eq!(Fifo.choose(&classes, 0b111), 1);
        assert_eq!(Fifo.choose(&classes, 0b101), 2);
        assert_eq!(Fifo.choose(&classes, 0b001), 0);
    }

    #[test]
    fn urgent_first_then_arrival() {
        let classes = classes(&[(2, 1, 10, 1), (1, 1, 10, 9), (1, 1, 10, 8)]);
        assert_eq!(StrictPriority.choose(&classes, 0b111), 2);
        assert_eq!(StrictPriority.choose(&classes, 0b011), 1);
        assert_eq!(StrictPriority.choose(&classes, 0b001), 0);
    }

    #[test]
    fn bytes_are_shared_by_weight_whatever_the_lengths() {
        let classes = classes(&[(0, 1, 100, 0), (0, 2, 1400, 0), (0, 1, 700, 0)]);
        let mut policy = WeightedFair::new(1400);
        let mut bytes = [0u64; 3];
        for _ in 0..4000 {
            let class = policy.choose(&classes, 0b111);
            bytes[class] += u64::from(classes[class].head_len);
        }
        // A round is 14 + 2 + 2 PDUs: 222 rounds and four PDUs of the first class.
        assert_eq!(bytes, [222 * 1400 + 400, 222 * 2800, 222 * 1400]);
    }

    #[test]
    fn a_class_that_was_empty_saves_nothing() {
        let classes = classes(&[(0, 1, 1000, 0), (0, 1, 1000, 0)]);
        let mut policy = WeightedFair::new(1500);
        for _ in 0..10 {
            assert_eq!(policy.choose(&classes, 0b01), 0);
        }
        let mut sent = [0i32; 2];
        for _ in 0..100 {
            sent[policy.choose(&classes, 0b11)] += 1;
            assert!((sent[0] - sent[1]).abs() <= 2, "{sent:?}");
        }
    }
}
