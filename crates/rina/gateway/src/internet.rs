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

/// Settings of an HTTP proxy that is registered as an application in a DIF, and through which the
/// members of the DIF reach servers in the network of this host.
#[derive(Debug, Clone)]
pub struct Internet {
    /// Application name to register; flows to it are clients of the proxy.
    pub name: AppName,
    /// The DIF in which to register the name; `None` for all DIFs.
    pub dif: Option<DifName>,
    /// The hosts and ports that clients may reach; requests for other hosts and ports are refused.
    pub rules: Vec<Destinations>,
    /// Largest number of connections to servers at a time.
    pub connections_max: usize,
    /// Counts the connections that were made, and the requests that were refused, by reason.
    pub counters: Arc<InternetCounters>,
}

/// Counters of the proxy of an [`Internet`], since it was created.
#[derive(Debug, Default)]
pub struct InternetCounters {
    /// Connections to servers that were made.
    pub connected: AtomicU64,
    /// Requests that were refused because the rules do not allow their destination.
    pub outside_rules: AtomicU64,
    /// Requests that were refused because they are not valid requests to an HTTP proxy.
    pub malformed: AtomicU64,
    /// Requests that were refused because there were too many connections, or because the system
    /// gives this process no more sockets.
    pub over_limit: AtomicU64,
    /// Requests whose server is unknown, refuses or does not answer.
    pub unreachable: AtomicU64,
}

impl Internet {
    /// Makes the settings, with counters of 0 and the default limit of connections. A rule is
    /// `HOST[:PORTS]`, such as `www.example.com:80`, or `*`.
    ///
    /// # Errors
    /// One of the texts is not a rule.
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

/// Default of the largest number of connections to servers at a time.
const INTERNET_CONNECTIONS_MAX: usize = 512;
