//! A name behind which a proxy leads to the network of this host, under rules.
//!
//! ```text
//!  program in a VM -- http_proxy --> node ==== flow ==== node -- [internet] == TCP == server
//!                                                                 rules, look-up
//! ```
//!
//! Programs in a VM without a network card reach what the host may reach, and no more than the
//! rules allow. A flow is a client of a [`proxy`](crate::proxy), which speaks HTTP or SOCKS5: its
//! first byte tells. Host names are looked up on this host, after the rules have allowed them.

pub(crate) mod rules;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carina_api::{AppName, DifName};
use carina_wrap::rule::{Destinations, RuleError};

use crate::error::GatewayError;

/// A door from a DIF to the network of this host.
#[derive(Debug, Clone)]
pub struct Internet {
    /// The name to register.
    pub name: AppName,
    /// The DIF to register in; `None` for all.
    pub dif: Option<DifName>,
    /// What may be reached.
    pub rules: Vec<Destinations>,
    /// Connections at a time.
    pub connections_max: usize,
    /// What has passed and what was refused.
    pub counters: Arc<InternetCounters>,
}

/// Counters of an [`Internet`].
#[derive(Debug, Default)]
pub struct InternetCounters {
    /// Connections to servers that were made.
    pub connected: AtomicU64,
    /// Requests for a destination outside the rules.
    pub outside_rules: AtomicU64,
    /// Requests that are no valid request to a proxy.
    pub malformed: AtomicU64,
    /// Requests beyond the limit of connections, or of what the system gives a process.
    pub over_limit: AtomicU64,
    /// Requests whose server is unknown, refuses or does not answer.
    pub unreachable: AtomicU64,
}

impl Internet {
    /// A door with new counters. A rule is `HOST[:PORTS]`, as `www.example.com:80`, or `*`.
    ///
    /// # Errors
    /// A text is no rule.
    pub fn new(
        name: AppName,
        dif: Option<DifName>,
        rules: &[String],
    ) -> Result<Internet, GatewayError> {
        let rules = rules.iter().map(|rule| rule.parse());
        Ok(Internet {
            name,
            dif,
            rules: rules.collect::<Result<_, RuleError>>()?,
            connections_max: INTERNET_CONNECTIONS_MAX,
            counters: Arc::default(),
        })
    }
}

impl PartialEq for Internet {
    fn eq(&self, other: &Internet) -> bool {
        self.name == other.name
            && self.dif == other.dif
            && self.rules == other.rules
            && self.connections_max == other.connections_max
            && Arc::ptr_eq(&self.counters, &other.counters)
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Connections of a door at a time.
const INTERNET_CONNECTIONS_MAX: usize = 512;
