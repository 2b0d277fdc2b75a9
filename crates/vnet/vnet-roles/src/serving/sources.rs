//! Where connections come from that are not admitted yet: one source cannot take the places of
//! the others.

use std::net::SocketAddr;
use std::sync::Arc;

use carina_vnet::origin::network_of;
use tokio::sync::Semaphore;

use crate::shares::{Share, Shares};

/// The sources that there are now, by address, or by application where flows are asked for.
#[derive(Debug, Default)]
pub(super) struct Sources(Arc<Shares<String, Turns>>);

/// A connection of a source. It is over when this is dropped.
pub(super) type Pending = Share<String, Turns>;

/// Handshakes of a source at a time.
#[derive(Debug)]
pub(super) struct Turns(pub(super) Semaphore);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Semaphore::new(TURNS))
    }
}

impl Sources {
    /// Notes a connection; none if its source has too many.
    pub(super) fn take(&self, from: &str) -> Option<Pending> {
        self.0.take(&source_of(from), PENDING_MAX).ok()
    }
}

/// An address without its port, or an application.
fn source_of(from: &str) -> String {
    match from.parse::<SocketAddr>() {
        Ok(address) => network_of(address.ip()).to_string(),
        Err(_) => from.to_owned(),
    }
}

/// Handshakes of one source at a time.
const TURNS: usize = 16;
/// Connections of one source that are not admitted yet, at a time.
const PENDING_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_begins_too_much_keeps_no_other_out() {
        let sources = Sources::default();
        let mut pending: Vec<Pending> = (0..PENDING_MAX)
            .map(|port| sources.take(&format!("192.0.2.1:{}", 1000 + port)).unwrap())
            .collect();
        assert!(sources.take("192.0.2.1:99").is_none());
        assert!(sources.take("192.0.2.2:99").is_some());
        assert!(sources.take("vnp.net|1").is_some());
        // One host has as many addresses of IPv6 as it likes.
        assert_eq!(
            source_of("[2001:db8::1]:9"),
            source_of("[2001:db8::ff:2]:10")
        );
        assert_ne!(
            source_of("[2001:db8::1]:9"),
            source_of("[2001:db8:0:1::1]:9")
        );
        assert_eq!(source_of("[::ffff:192.0.2.1]:9"), source_of("192.0.2.1:1"));
        pending.pop();
        assert!(sources.take("192.0.2.1:99").is_some());
        drop(pending);
        assert!(sources.0.is_empty());
    }
}
