//! Credit of one channel: how much ring space at the receiver a sender may use.
//!
//! Sender and receiver add up [`record_cost`] of every piece since the start of the flow. The
//! sender keeps `used <= limit`. The receiver raises `limit` to `consumed + window` each time its
//! reader has consumed another quarter of the window. A channel's receiver therefore always has
//! room in its flow ring for what arrives, and a reader that stops blocks only its own channel.

/// Returns the bytes of ring space that a record with `len` payload bytes takes: record header,
/// payload and padding.
pub const fn record_cost(len: usize) -> u64 {
    8 + (len as u64).next_multiple_of(8)
}

/// The sender's credit of one channel.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TxCredit {
    window: u32,
    limit: u64,
    used: u64,
}

impl TxCredit {
    pub(super) fn new(window: u32) -> TxCredit {
        TxCredit {
            window,
            limit: u64::from(window),
            used: 0,
        }
    }

    pub(super) fn available(&self) -> u64 {
        self.limit - self.used
    }

    /// Longest payload of a piece, in bytes. A piece costs at most a quarter of the window, because
    /// the receiver may withhold the credit for up to a quarter that is already consumed.
    pub(super) fn piece_bytes_max(&self) -> usize {
        (self.window as usize / 4 - 8) & !7
    }

    /// Adds `cost` bytes of ring space to the sender's count of used space.
    pub(super) fn spend(&mut self, cost: u64) {
        debug_assert!(cost <= self.available(), "sent beyond the credit limit");
        // A caller may spend more than the limit: the count stays right, and the peer refuses the
        // piece.
        self.used += cost;
        self.limit = self.limit.max(self.used);
    }

    /// Raises the sender's limit to `limit`, a cumulative count of bytes. Returns false when no
    /// correct receiver sends this limit.
    pub(super) fn raise(&mut self, limit: u64) -> bool {
        let is_right = limit >= self.limit
            && limit
                .checked_sub(u64::from(self.window))
                .is_some_and(|consumed| consumed <= self.used);
        if is_right {
            self.limit = limit;
        }
        is_right
    }
}

/// The receiver's credit of one channel.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RxCredit {
    window: u32,
    granted: u64,
    received: u64,
    consumed: u64,
}

impl RxCredit {
    pub(super) fn new(window: u32) -> RxCredit {
        RxCredit {
            window,
            granted: u64::from(window),
            received: 0,
            consumed: 0,
        }
    }

    /// Adds `cost` bytes of ring space to what has arrived. Returns the number of bytes beyond the
    /// limit that was granted: 0 when the sender kept to it.
    pub(super) fn receive(&mut self, cost: u64) -> u64 {
        self.received = self.received.saturating_add(cost);
        self.received.saturating_sub(self.granted)
    }

    /// Records how many bytes the reader has consumed since the start of the flow. Returns whether
    /// the receiver should now send a CREDIT message.
    pub(super) fn consume(&mut self, cumulative: u64) -> bool {
        // `cumulative` may come from memory that an application can write. It is clamped: it never
        // decreases and never exceeds what arrived. A false value then hurts only the application.
        self.consumed = cumulative.min(self.received).max(self.consumed);
        self.consumed + u64::from(self.window) - self.granted >= u64::from(self.window / 4)
    }

    /// Raises the limit to `consumed + window` and returns it, for a CREDIT message.
    pub(super) fn grant(&mut self) -> u64 {
        self.granted = self.consumed + u64::from(self.window);
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_counts_header_and_padding() {
        assert_eq!([0, 1, 8, 9].map(record_cost), [8, 16, 16, 24]);
    }

    #[test]
    fn credit_is_due_after_a_quarter_of_the_window() {
        let mut rx = RxCredit::new(1024);
        assert_eq!(rx.receive(record_cost(248)), 0);
        assert!(!rx.consume(248));
        assert!(rx.consume(256));
        assert_eq!(rx.grant(), 1024 + 256);
        assert!(!rx.consume(256));
    }

    #[test]
    fn consumed_never_exceeds_received() {
        let mut rx = RxCredit::new(1024);
        rx.receive(record_cost(0));
        assert!(!rx.consume(u64::MAX));
        assert_eq!(rx.grant(), 1024 + 8);
    }

    #[test]
    fn sender_refuses_limits_that_lie() {
        let mut tx = TxCredit::new(1024);
        assert!(!tx.raise(1023));
        assert!(!tx.raise(1025));
        assert!(!tx.raise(u64::MAX));
        tx.spend(record_cost(8));
        assert!(tx.raise(1024 + 16));
        assert_eq!(tx.available(), 1024);
    }
}
