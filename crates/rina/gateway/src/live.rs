//! Counts the open connections of a service, of which this process has no descriptor any more.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carina_sys::SocketWatch;

/// The connections that a service has attached to flows, with their largest number.
#[derive(Debug)]
pub(crate) struct Live {
    watch: SocketWatch,
    last_token: u64,
    /// Upper bound of the number of open connections; it includes connections that have ended since
    /// the last check.
    count: usize,
    max: usize,
    looked_at: Option<Instant>,
}

impl Live {
    pub(crate) fn new(max: usize) -> io::Result<Live> {
        Ok(Live {
            watch: SocketWatch::new()?,
            last_token: 0,
            count: 0,
            max,
            looked_at: None,
        })
    }

    /// Adds a connection. Call it while this process still has a descriptor of the connection.
    pub(crate) fn add(&mut self, socket: impl AsFd) -> io::Result<()> {
        self.last_token += 1;
        self.watch.add(socket, self.last_token)?;
        self.count += 1;
        Ok(())
    }

    /// Whether one more connection is allowed, in addition to `pending` connections that are not
    /// attached yet.
    pub(crate) fn has_room(&mut self, pending: usize, now: Instant) -> bool {
        if self.count + pending < self.max {
            return true;
        }
        // The cost of a check is proportional to the number of connections.
        if self.looked_at.is_none_or(|at| now >= at + LOOK_AGAIN)
            && let Ok(open) = self.watch.open()
        {
            self.looked_at = Some(now);
            self.count = open.len();
        }
        self.count + pending < self.max
    }
}

/// Shortest time between two checks for connections that have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_end_make_room() {
        let mut live = Live::new(2).unwrap();
        let (a, b) = carina_sys::socketpair_stream().unwrap();
        let start = Instant::now();
        assert!(live.has_room(1, start));
        assert!(!live.has_room(2, start));
        live.add(&a).unwrap();
        live.add(&b).unwrap();
        let later = start + LOOK_AGAIN;
        assert!(!live.has_room(0, later));
        drop(a);
        assert!(!live.has_room(0, later), "it has just looked");
        assert!(live.has_room(0, later + LOOK_AGAIN));
    }
}
