//! Ranges of sequence numbers received beyond the left edge, for selective acknowledgement.

use carina_wire::dif::Sack;

/// The ranges that changed most recently, the latest change first. When there are too many, the
/// oldest is dropped; the sender has received several reports of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ranges: [(u64, u64); KEPT],
    count: usize,
}

const KEPT: usize = 16;

impl Ranges {
    /// Adds `seq`. Returns false if it only extends the end of a range: the sender may learn of
    /// that later.
    pub(crate) fn add(&mut self, seq: u64) -> bool {
        let (mut start, mut end) = (seq, seq + 1);
        let (mut kept, before) = (0, self.count);
        for index in 0..self.count {
            let range = self.ranges[index];
            if range.0 <= end && start <= range.1 {
                start = start.min(range.0);
                end = end.max(range.1);
            } else {
                self.ranges[kept] = range;
                kept += 1;
            }
        }
        let shown = kept.min(KEPT - 1);
        self.ranges.copy_within(..shown, 1);
        self.ranges[0] = (start, end);
        self.count = shown + 1;
        kept == before || end != seq + 1 || before - kept > 1
    }

    /// Removes everything below `left`, which the left edge now covers.
    pub(crate) fn pass(&mut self, left: u64) {
        if self.count == 0 {
            return;
        }
        let mut kept = 0;
        for index in 0..self.count {
            let (start, end) = self.ranges[index];
            if end > left {
                self.ranges[kept] = (start.max(left), end);
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// Writes as many ranges above `left` to `sack` as fit.
    pub(crate) fn report(&self, left: u64, sack: &mut Sack) {
        for &(start, end) in &self.ranges[..self.count] {
            if start >= left && !sack.push(start, end) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_the_last_changed_comes_first() {
        let mut ranges = Ranges::default();
        let news = [5, 9, 7, 6].map(|seq| ranges.add(seq));
        assert_eq!(news, [true; 4]);
        assert!(!ranges.add(10));
        let mut sack = Sack::default();
        ranges.report(0, &mut sack);
        assert_eq!(sack.as_slice(), [(9, 11), (5, 8)]);
        assert!(ranges.add(8));
        ranges.pass(6);
        let mut sack = Sack::default();
        ranges.report(6, &mut sack);
        assert_eq!(sack.as_slice(), [(6, 11)]);
    }

    #[test]
    fn the_oldest_range_is_forgotten() {
        let mut ranges = Ranges::default();
        for seq in 0..100 {
            ranges.add(2 * seq);
        }
        assert_eq!(ranges.count, KEPT);
        assert_eq!(ranges.ranges[0], (198, 199));
    }
}
