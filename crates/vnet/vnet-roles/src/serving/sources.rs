//! Limits connections with incomplete handshakes, so that one source cannot use up the places of
//! others.

use std::net::SocketAddr;
use std::sync::Arc;

use carina_vnet::origin::network_of;
use tokio::sync::Semaphore;

use crate::shares::{Share, Shares};

/// The current sources: IP addresses, or applications that allocate flows.
#[derive(Debug, Default)]
pub(super) struct Sources(Arc<Shares<String, Turns>>);

/// A connection of a source whose handshake is not complete. It counts until this is dropped.
pub(super) type Pending = Share<String, Turns>;

/// Limits the concurrent handshakes of a source.
#[derive(Debug)]
pub(super) struct Turns(pub(super) Semaphore);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Semaphore::new(TURNS))
    }
}

impl Sources {
    /// Counts a connection; `None` if its source has too many.
    pub(super) fn take(&self, from: &str) -> Option<Pending> {
        self.0.take(&source_of(from), PENDING_MAX).ok()
    }
}

/// The source of a connection: its address without the port, or the application.
fn source_of(from: &str) -> String {
    match from.parse::<SocketAddr>() {
        Ok(address) => network_of(address.ip()).to_string(),
        Err(_) => from.to_owned(),
    }
}

/// Largest number of concurrent handshakes of one source.
const TURNS: usize = 16;
/// Largest number of connections of one source with incomplete handshakes.
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
        // One host may use any number of IPv6 addresses in its /64 network.
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
