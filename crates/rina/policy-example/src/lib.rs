//! Two policies that are not a part of Carina, as an example of how to write one.
//!
//! Policies determine the behaviour of a DIF. Each component of an IPC process has several to
//! choose from. A program that embeds [`Ipcp`](carina_ipcp::Ipcp) can add its own without changing
//! the crates of Carina:
//!
//! 1. Implement the trait of the component; here [`Scheduler`] and [`CongestionControl`]. A policy
//!    has no clock and does no I/O. It decides from its arguments and its own state only, so that a
//!    simulation with the same seed gives the same result. RMT policies are created once for each
//!    N-1 flow, congestion control once for each connection.
//! 2. Describe the policy: its name, its parameters with defaults and help, and whether it may be
//!    replaced while the DIF runs. `carina` shows the description, and errors quote it.
//! 3. Register the policy in a [`Catalogue`] and pass that to
//!    [`Ipcp::new`](carina_ipcp::Ipcp::new).
//! 4. Name the policy in the DIF's configuration. All members of a DIF need the policies that it
//!    names.
//!
//! ```
//! use carina_ipcp::{Catalogue, DifConfig, PolicySpec};
//!
//! let mut catalogue = Catalogue::standard();
//! carina_policy_example::register(&mut catalogue);
//!
//! let mut config = DifConfig::default();
//! let spec = PolicySpec {
//!     name: "longest-queue".into(),
//!     params: [("oldest-every".into(), "8".into())].into(),
//! };
//! config.policies.insert("rmt-scheduling".into(), spec);
//! assert_eq!(catalogue.check(&config), Ok(()));
//! ```
//!
//! `docs/reference/policies.md` lists all components and their traits.

#![forbid(unsafe_code)]

use carina_efcp::CongestionControl;
use carina_efcp::congestion::Acked;
use carina_ipcp::Catalogue;
use carina_ipcp::policy::{Class, Descriptor, Param, Params, Scheduler, component};
use carina_time::Instant;

/// Adds the two policies of this crate to a catalogue.
pub fn register(catalogue: &mut Catalogue) {
    let longest = Descriptor {
        component: component::RMT_SCHEDULING,
        name: "longest-queue",
        help: "Serves the class with the most bytes waiting, and at intervals the oldest PDU.",
        params: vec![Param {
            name: "oldest-every",
            default: "16",
            help: "Once in this many PDUs, serve the PDU that has waited longest; 2 to 1000.",
        }],
        is_live: true,
    };
    catalogue.register::<Box<dyn Scheduler>>(longest, |params: &Params| {
        let every = params.uint("oldest-every", 2, 1000)?;
        Ok(Box::new(LongestQueue::new(every)))
    });

    let constant = Descriptor {
        component: component::CONGESTION_CONTROL,
        name: "constant",
        help: "A fixed window, for paths whose capacity is known.",
        params: vec![Param {
            name: "window",
            default: "32",
            help: "PDUs in flight, 1 to 100000.",
        }],
        is_live: true,
    };
    catalogue.register::<Box<dyn CongestionControl>>(constant, |params: &Params| {
        let window = params.uint("window", 1, 100_000)?;
        Ok(Box::new(Constant { window }))
    });
}

/// RMT scheduling policy `longest-queue`. It serves the longest queue, so that few PDUs are lost
/// when buffers are small. Every `oldest-every`-th choice serves the oldest PDU, so that no class
/// starves.
#[derive(Clone, Copy, Debug)]
pub struct LongestQueue {
    every: u64,
    count: u64,
}

impl LongestQueue {
    /// Creates a policy that serves the oldest PDU once in `every` choices.
    #[must_use]
    pub fn new(every: u64) -> LongestQueue {
        LongestQueue { every, count: 0 }
    }
}

impl Scheduler for LongestQueue {
    fn choose(&mut self, classes: &[Class], waiting: u64) -> usize {
        self.count += 1;
        let all = || (0..classes.len()).filter(|index| waiting & (1 << index) != 0);
        let choice = if self.count.is_multiple_of(self.every) {
            all().min_by_key(|index| classes[*index].head_arrival)
        } else {
            // Among equal queues, choose the first; `max_by_key` alone would choose the last.
            all().rev().max_by_key(|index| classes[*index].bytes)
        };
        choice.unwrap_or(0)
    }
}

/// Congestion control policy `constant`: the window always has the same number of PDUs.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    window: u64,
}

impl CongestionControl for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn on_ack(&mut self, _ack: &Acked) {}

    fn on_loss(&mut self, _now: Instant, _in_flight: u64) {}

    fn on_timeout(&mut self, _now: Instant, _in_flight: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_queue_is_served_and_now_and_then_the_oldest_pdu() {
        let class = |bytes, head_arrival| Class {
            bytes,
            head_arrival,
            ..Class::default()
        };
        let classes = [class(100, 9), class(300, 8), class(200, 1)];
        let mut policy = LongestQueue::new(4);
        let chosen: Vec<_> = (0..8).map(|_| policy.choose(&classes, 0b111)).collect();
        assert_eq!(chosen, [1, 1, 1, 2, 1, 1, 1, 2]);
        assert_eq!(policy.choose(&classes, 0b101), 2);
    }
}
