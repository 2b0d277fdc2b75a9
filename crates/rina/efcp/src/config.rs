//! The configuration of a connection.

use alloc::boxed::Box;

use carina_time::Duration;

use crate::congestion::{self, CongestionControl};
use crate::error::ConfigError;
use crate::profile::EfcpProfile;
use crate::rtt::{self, RttEstimator};

/// The features of a connection: both ends must agree on all but the queue limits, the
/// acknowledgement policy and the policies.
#[derive(Debug)]
pub struct ConnectionConfig {
    /// UDFs are delivered in order.
    pub in_order: bool,
    /// Lost PDUs are sent again. Implies flow control by window: [`WindowControl::default`] when
    /// [`ConnectionConfig::window`] is `None`.
    pub retransmission: bool,
    /// Flow control by window.
    pub window: Option<WindowControl>,
    /// Flow control by rate.
    pub rate: Option<RateControl>,
    /// Gaps in UDFs. Without retransmission control: a gap of more than this many UDFs is not
    /// waited for, a smaller one for at most A; with `None` every gap is waited for at most A.
    /// With retransmission control: up to this many consecutive UDFs are given up after A; with
    /// `None` or 0 nothing ever is.
    pub max_sdu_gap: Option<u64>,
    /// A of delta-t: how long an acknowledgement, and delivery over a gap, may wait, in ns.
    pub a: Duration,
    /// R of delta-t: how long a PDU is sent again before the connection fails, in ns. Counts as 0
    /// without retransmission control.
    pub r: Duration,
    /// MPL of delta-t: the longest life of a PDU in ns.
    pub mpl: Duration,
    /// Width of sequence numbers in bits: 8 to 64.
    pub seq_bits: u8,
    /// Width of the sequence numbers of control PDUs in bits: 8 to 64.
    pub ctrl_seq_bits: u8,
    /// Relays may mark: marks are echoed, and congestion control hears of them.
    pub ecn: bool,
    /// The sequence number at which [`ConnEvent::Rollover`](crate::ConnEvent::Rollover) is due;
    /// `None` for three quarters of the space.
    pub rollover: Option<u64>,
    /// What both ends are used to.
    pub profile: EfcpProfile,
    /// When the receiver acknowledges.
    pub ack: AckPolicy,
    /// Bounds of the queues of the sender.
    pub queue: QueueLimits,
    /// Most UDFs that wait for the reader, or for a missing one, on a connection without flow
    /// control by window.
    pub reorder_max: usize,
    /// Policy of congestion control; asked only with retransmission control.
    pub congestion: Box<dyn CongestionControl>,
    /// Policy of round-trip time estimation.
    pub rtt: Box<dyn RttEstimator>,
}

/// Flow control by window, in PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowControl {
    /// PDUs that a receiver allows at most.
    pub credit_max: u32,
    /// PDUs that a sender assumes at the start of a run, before it has heard from the receiver.
    pub initial_credit: u32,
}

impl Default for WindowControl {
    fn default() -> WindowControl {
        WindowControl {
            credit_max: 4096,
            initial_credit: 64,
        }
    }
}

/// Flow control by rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateControl {
    /// PDUs per frame; 1 or more.
    pub pdus: u32,
    /// The frame in milliseconds; 1 or more.
    pub frame_ms: u32,
}

/// When a receiver acknowledges. A PDU out of order and the first of a run are acknowledged at
/// once, and everything at the latest after A, whatever the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// At once when so many PDUs are not acknowledged.
    pub every: u32,
    /// At the end of a burst when so many PDUs are not acknowledged.
    pub burst: u32,
}

impl Default for AckPolicy {
    fn default() -> AckPolicy {
        AckPolicy {
            every: 64,
            burst: 2,
        }
    }
}

/// Bounds of the queues of a sender: what was written and not yet sent, and what was sent and not
/// yet acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// In PDUs; 1 or more.
    pub pdus: usize,
    /// In bytes; one UDF is taken even when it is longer.
    pub bytes: usize,
    /// With retransmission control: bytes that may be outstanding, whatever the window says, since
    /// a window counts PDUs of any length; one UDF is sent even when it is longer.
    pub flight_bytes: usize,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            pdus: 256,
            bytes: 1 << 20,
            flight_bytes: 8 << 20,
        }
    }
}

impl Default for ConnectionConfig {
    fn default() -> ConnectionConfig {
        ConnectionConfig {
            in_order: true,
            retransmission: true,
            window: Some(WindowControl::default()),
            rate: None,
            max_sdu_gap: None,
            a: Duration::from_millis(20),
            r: Duration::from_secs(30),
            mpl: Duration::from_secs(2),
            seq_bits: 32,
            ctrl_seq_bits: 32,
            ecn: false,
            rollover: None,
            profile: EfcpProfile::default(),
            ack: AckPolicy::default(),
            queue: QueueLimits::default(),
            reorder_max: 1024,
            congestion: Box::new(congestion::Unlimited),
            rtt: Box::new(rtt::Smoothed::default()),
        }
    }
}

impl ConnectionConfig {
    /// Checks ranges.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let widths = 8..=64;
        if !widths.contains(&self.seq_bits) || !widths.contains(&self.ctrl_seq_bits) {
            return Err(ConfigError::SequenceBits);
        }
        if let Some(window) = self.window {
            let most = self.space() / 8;
            if window.credit_max == 0 || window.initial_credit == 0 {
                return Err(ConfigError::WindowZero);
            }
            if u64::from(window.credit_max.max(window.initial_credit)) > most {
                return Err(ConfigError::WindowSize {
                    most,
                    seq_bits: self.seq_bits,
                });
            }
        }
        if let Some(rate) = self.rate
            && (rate.pdus == 0 || rate.frame_ms == 0)
        {
            return Err(ConfigError::RateZero);
        }
        if self.profile.control_first > 1 {
            return Err(ConfigError::ControlFirst);
        }
        if self.queue.pdus == 0 || self.reorder_max == 0 {
            return Err(ConfigError::QueueZero);
        }
        Ok(())
    }

    /// Number of sequence numbers, or the highest of them when there are 2^64.
    pub(crate) fn space(&self) -> u64 {
        crate::seq::space(self.seq_bits)
    }

    /// Δt = MPL + R + A, in ns.
    pub(crate) fn delta_t(&self) -> Duration {
        let r = if self.retransmission {
            self.r
        } else {
            Duration::ZERO
        };
        self.mpl + r + self.a
    }

    /// The window in force: retransmission control needs one.
    pub(crate) fn window_in_force(&self) -> Option<WindowControl> {
        match self.window {
            None if self.retransmission => Some(WindowControl {
                credit_max: WindowControl::default().credit_max.min(self.window_most()),
                initial_credit: WindowControl::default()
                    .initial_credit
                    .min(self.window_most()),
            }),
            window => window,
        }
    }

    fn window_most(&self) -> u32 {
        u32::try_from(self.space() / 8).unwrap_or(u32::MAX)
    }
}
