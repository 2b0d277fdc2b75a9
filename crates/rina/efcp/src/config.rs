//! The configuration of a connection.

use alloc::boxed::Box;

use carina_time::Duration;

use crate::congestion::{self, CongestionControl};
use crate::error::ConfigError;
use crate::profile::EfcpProfile;
use crate::rtt::{self, RttEstimator};

/// Features and limits of an EFCP connection. Both ends must agree on all fields except the queue
/// limits, the acknowledgement policy, and the policies for congestion control and round-trip time.
#[derive(Debug)]
pub struct ConnectionConfig {
    /// Whether the receiver delivers UDFs in the order of their sequence numbers.
    pub in_order: bool,
    /// Whether lost PDUs are retransmitted. This implies flow control by window:
    /// [`WindowControl::default`] if [`ConnectionConfig::window`] is `None`.
    pub retransmission: bool,
    /// Parameters of flow control by window; `None` for no flow control by window.
    pub window: Option<WindowControl>,
    /// Parameters of flow control by rate; `None` for no flow control by rate.
    pub rate: Option<RateControl>,
    /// How the receiver treats gaps (missing UDFs) in the sequence.
    ///
    /// Without retransmission control: the receiver waits for missing UDFs for at most A. It does
    /// not wait for a gap of more than this many UDFs. With `None` there is no such limit.
    ///
    /// With retransmission control: the receiver gives up a gap of at most this many consecutive
    /// UDFs after A. With `None` or 0 it never gives up.
    pub max_sdu_gap: Option<u64>,
    /// A of delta-t: longest time for which the receiver delays an acknowledgement, or a delivery
    /// that waits for a gap to fill.
    pub a: Duration,
    /// R of delta-t: longest time for which a PDU is retransmitted before the connection fails.
    /// Treated as 0 without retransmission control.
    pub r: Duration,
    /// MPL of delta-t: longest time for which a PDU can exist in the DIF.
    pub mpl: Duration,
    /// Width of the sequence numbers of data PDUs on the wire, in bits: 8 to 64.
    pub seq_bits: u8,
    /// Width of the sequence numbers of control PDUs in bits: 8 to 64.
    pub ctrl_seq_bits: u8,
    /// Whether relays may set congestion marks. The receiver then echoes marks, and the sender
    /// reports them to congestion control.
    pub ecn: bool,
    /// The sequence number at which the sender emits
    /// [`ConnEvent::Rollover`](crate::ConnEvent::Rollover); `None` for three quarters of the number
    /// space.
    pub rollover: Option<u64>,
    /// Protocol details in which implementations of EFCP differ.
    pub profile: EfcpProfile,
    /// When the receiver acknowledges PDUs.
    pub ack: AckPolicy,
    /// Limits of the sender's queues: unsent UDFs and bytes, and unacknowledged bytes.
    pub queue: QueueLimits,
    /// Largest number of UDFs that the receiver holds, for the reader or because an earlier one is
    /// missing, on a connection without flow control by window.
    pub reorder_max: usize,
    /// Policy of congestion control; used only with retransmission control.
    pub congestion: Box<dyn CongestionControl>,
    /// Policy by which the sender estimates the round-trip time.
    pub rtt: Box<dyn RttEstimator>,
}

/// Parameters of flow control by window, in PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowControl {
    /// Largest window that the receiver grants, in PDUs.
    pub credit_max: u32,
    /// Window in PDUs that a sender assumes at the start of a run, before it has received a control
    /// PDU.
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

/// Parameters of flow control by rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateControl {
    /// Number of PDUs that may be sent in each time frame; 1 or more.
    pub pdus: u32,
    /// Length of the time frame in milliseconds; 1 or more.
    pub frame_ms: u32,
}

/// When a receiver sends acknowledgements. Whatever the policy, it acknowledges the first PDU of a
/// run and a PDU out of order at once, and every PDU after A at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Number of unacknowledged PDUs at which the receiver acknowledges without waiting for the
    /// time A.
    pub every: u32,
    /// Acknowledge at the end of a burst when this many PDUs are unacknowledged.
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

/// Limits of a sender's queues: UDFs that are written but not sent, and PDUs that are sent but not
/// acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Largest number of UDFs in the queue of unsent UDFs; 1 or more.
    pub pdus: usize,
    /// Largest number of bytes in the queue of unsent UDFs. The sender accepts a last UDF that
    /// exceeds the limit.
    pub bytes: usize,
    /// With retransmission control: most unacknowledged bytes, in addition to the window, since a
    /// window counts PDUs of any length. The sender sends a last UDF that exceeds the limit.
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
    /// Checks that every field is in its range.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let widths = 8..=64;
        if !widths.contains(&self.seq_bits) || !widths.contains(&self.ctrl_seq_bits) {
            return Err(ConfigError::SequenceBits);
        }
        if let Some(window) = self.window {
            let window_max = self.space() / 8;
            if window.credit_max == 0 || window.initial_credit == 0 {
                return Err(ConfigError::WindowZero);
            }
            if u64::from(window.credit_max.max(window.initial_credit)) > window_max {
                return Err(ConfigError::WindowSize {
                    window_max,
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

    /// The number of sequence numbers; with 64 bits, the highest sequence number.
    pub(crate) fn space(&self) -> u64 {
        crate::seq::space(self.seq_bits)
    }

    /// Δt = MPL + R + A.
    pub(crate) fn delta_t(&self) -> Duration {
        let r = if self.retransmission {
            self.r
        } else {
            Duration::ZERO
        };
        self.mpl + r + self.a
    }

    /// The window parameters in use: the default when retransmission control needs a window and
    /// none is configured.
    pub(crate) fn window_in_force(&self) -> Option<WindowControl> {
        match self.window {
            None if self.retransmission => Some(WindowControl {
                credit_max: WindowControl::default().credit_max.min(self.window_max()),
                initial_credit: WindowControl::default()
                    .initial_credit
                    .min(self.window_max()),
            }),
            window => window,
        }
    }

    fn window_max(&self) -> u32 {
        u32::try_from(self.space() / 8).unwrap_or(u32::MAX)
    }
}
