//! Sleeps until a doorbell rings, without draining the doorbell each time.
//!
//! Draining a doorbell takes a system call between waking up and receiving. An edge-triggered epoll
//! set reports each new ring even if earlier rings were not drained. Therefore the doorbell is
//! drained rarely, long before its counter could be full.

use std::os::fd::AsFd;
use std::time::Duration;

use carina_sys::{Doorbell, Epoll, Interest, Ready, doorbells_ring_again};

use crate::error::Error;
use crate::link::{Link, Woken};

/// How the receiving half of a flow sleeps.
#[derive(Debug, Default)]
pub(crate) struct DoorbellWait {
    /// Epoll set of the data doorbell and the flow's control socket, created by the first sleep.
    set: Option<Epoll>,
    ready: Vec<Ready>,
    /// Sleeps since the doorbell was last drained. Each sleep causes at most one ring.
    sleeps: u32,
}

impl DoorbellWait {
    /// Sleeps until `doorbell` rings, the flow ends, or `limit` has passed (`None`: no limit). It
    /// may also return because of an old ring that was never drained.
    ///
    /// # Errors
    ///
    /// The error of the system call that waits.
    pub(crate) fn sleep(
        &mut self,
        doorbell: &Doorbell,
        link: &Link,
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        if self.set.is_none() && doorbells_ring_again() {
            // When no descriptor for the epoll set is free, `Link::sleep` polls instead.
            self.set = watch(doorbell, link).ok();
        }
        let Some(set) = &self.set else {
            if link.sleep(doorbell.as_fd(), limit)? == Woken::Doorbell {
                doorbell.drain();
            }
            return Ok(());
        };
        let limit_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        set.wait(&mut self.ready, limit_ns)
            .map_err(Error::system("cannot wait for the flow's doorbell"))?;
        self.sleeps += 1;
        if self.sleeps >= SLEEPS_MAX {
            self.sleeps = 0;
            // Drained after the wait, because the caller armed its ring before: draining earlier
            // could lose a ring that came after the arming. The caller looks at its ring next.
            doorbell.drain();
        }
        if self.ready.iter().any(|ready| ready.token == CONTROL) {
            link.check_end();
        }
        Ok(())
    }
}

fn watch(doorbell: &Doorbell, link: &Link) -> std::io::Result<Epoll> {
    let set = Epoll::new()?;
    set.add(doorbell.as_fd(), DOORBELL, Interest::ReadEdge)?;
    set.add(link.as_fd(), CONTROL, Interest::Read)?;
    Ok(set)
}

const DOORBELL: u64 = 0;
const CONTROL: u64 = 1;
/// Sleeps between two drains. A doorbell holds 65,536 rings. Tests drain it often.
const SLEEPS_MAX: u32 = if cfg!(test) { 3 } else { 4096 };
