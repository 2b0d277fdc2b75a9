//! Sleeping until a doorbell rings, without silencing it each time.
//!
//! Silencing a doorbell is a system call between being woken and receiving. An edge-triggered epoll
//! set tells of every ring whether or not the doorbell still rings from before, so it is silenced
//! only now and then, long before it could be full.

use std::os::fd::AsFd;
use std::time::Duration;

use carina_sys::{Doorbell, Epoll, Interest, Ready, doorbells_ring_again};

use crate::error::Error;
use crate::link::{Link, Woken};

/// How the receiving half of a flow sleeps.
#[derive(Debug, Default)]
pub(crate) struct DoorbellWait {
    /// The doorbell and the flow's control socket; made by the first sleep.
    set: Option<Epoll>,
    ready: Vec<Ready>,
    /// Sleeps since the doorbell was silenced; each asks for one ring at most.
    sleeps: u32,
}

impl DoorbellWait {
    /// Sleeps until `doorbell` rings or the flow ends, for at most `limit` (`None`: for ever). May
    /// wake once more for a ring of long ago.
    ///
    /// # Errors
    ///
    /// The kernel's refusal to wait.
    pub(crate) fn sleep(
        &mut self,
        doorbell: &Doorbell,
        link: &Link,
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        if self.set.is_none() && doorbells_ring_again() {
            // Without a descriptor to spare it goes the other way.
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
            // After the wait: the caller armed before it, and silencing a ring that came since then
            // would lose the wake-up. The caller looks at its ring next.
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
/// A doorbell takes 65,536 rings before it is full. Tests silence it often.
const SLEEPS_MAX: u32 = if cfg!(test) { 3 } else { 4096 };
