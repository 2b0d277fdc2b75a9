//! An AFTR's claim to the frames of one interface and VLAN. A second AFTR on the same frames would
//! forward each packet a second time.
//!
//! A claim is the name of an abstract Unix socket. Such names belong to a network namespace, as
//! interfaces do, and the kernel frees a name when its process ends, in whatever way. Several AFTRs
//! can share an interface by using different VLANs.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use carina_sys::{Credentials, NetworkNamespace, peer_credentials};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// The frames that an AFTR claims on an interface: all frames of one VLAN, or all untagged frames.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Name of the interface from which the AFTR claims frames.
    pub interface: String,
    /// File of the network namespace of the interface; `None` for the namespace of the calling
    /// thread.
    pub netns: Option<PathBuf>,
    /// VLAN of the frames; `None` for untagged frames.
    pub vlan: Option<u16>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vlan {
            Some(vlan) => write!(f, "{}, VLAN {vlan}", self.interface),
            None => write!(f, "{}, frames without VLAN tag", self.interface),
        }
    }
}

/// Why a process cannot claim frames of an interface for its AFTR.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Another AFTR takes these frames.
    #[error(
        "{place}: {} already runs an AFTR on these frames; stop it, or give this AFTR another \
         interface or vlan-tag", process(*pid)
    )]
    Held {
        /// The interface and VLAN whose frames the AFTR tried to claim.
        place: Place,
        /// Pid of the other process; 0 if this PID namespace does not show it.
        pid: i32,
    },
    /// The claim's name is held by a process of another user, which may not run an AFTR.
    #[error("{place}: {} of user {uid} holds the lock that only an AFTR may hold; end that \
         process", process(*pid))]
    Squatted {
        /// The interface and VLAN whose frames the AFTR tried to claim.
        place: Place,
        /// Pid of the process that holds the lock; 0 if this PID namespace does not show it.
        pid: i32,
        /// The user of that process.
        uid: u32,
    },
    /// A system call failed.
    #[error("claiming {place}: {source}")]
    System {
        /// The interface and VLAN whose frames the AFTR tried to claim.
        place: Place,
        /// The error of the system call.
        source: io::Error,
    },
}

fn process(pid: i32) -> String {
    match pid {
        0 => "another process".to_owned(),
        pid => format!("process {pid}"),
    }
}

/// The right of this process to be the only AFTR that forwards the frames of a [`Place`]. Dropping
/// this value releases the claim.
#[derive(Debug)]
pub struct Claim {
    _socket: OwnedFd,
}

/// How many times to try a claim whose holder seems to be ending.
const ATTEMPTS: usize = 3;

impl Claim {
    /// Claims the frames of a place, and returns at once.
    ///
    /// # Errors
    /// Another process holds the claim, or the network namespace cannot be entered.
    pub fn take(place: &Place) -> Result<Claim, ClaimError> {
        let Some(path) = &place.netns else {
            return Claim::take_here(place);
        };
        let namespace = NetworkNamespace::open(path);
        let taken = namespace.and_then(|namespace| namespace.within(|| Claim::take_here(place)));
        taken.map_err(|source| ClaimError::System {
            place: place.clone(),
            source,
        })?
    }

    /// Claims a place in the network namespace of the calling thread.
    fn take_here(place: &Place) -> Result<Claim, ClaimError> {
        let system = |source: io::Error| ClaimError::System {
            place: place.clone(),
            source,
        };
        let name = format!(
            "carina-lwaftr/{}/{}",
            place.interface,
            place.vlan.unwrap_or(0)
        );
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes());
        let address = address.map_err(|error| system(error.into()))?;
        for _ in 0..ATTEMPTS {
            let own = socket().map_err(system)?;
            match bind(&own, &address) {
                Ok(()) => {
                    // A listening socket lets other processes ask the kernel who holds the claim.
                    // It never accepts a connection.
                    listen(&own, BACKLOG).map_err(|error| system(error.into()))?;
                    return Ok(Claim { _socket: own });
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(system(error.into())),
            }
            let probe = socket().map_err(system)?;
            match connect(&probe, &address) {
                Ok(()) => {
                    let holder = peer_credentials(&probe).map_err(system)?;
                    return Err(held(place, holder));
                }
                // The queue of connections is full, so the kernel no longer names the holder.
                Err(Errno::AGAIN) => return Err(held(place, UNKNOWN)),
                // The holder has just released the claim, or has not begun to listen yet.
                Err(Errno::CONNREFUSED) => {}
                Err(error) => return Err(system(error.into())),
            }
        }
        Err(held(place, UNKNOWN))
    }
}

/// Length of the queue of connections: this many other processes can learn who holds a claim.
const BACKLOG: i32 = 128;

/// Stands for a holder that the kernel does not name.
const UNKNOWN: Credentials = Credentials {
    pid: 0,
    uid: 0,
    gid: 0,
};

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

fn held(place: &Place, holder: Credentials) -> ClaimError {
    let place = place.clone();
    let own = rustix::process::geteuid().as_raw();
    if holder.uid == 0 || holder.uid == own {
        ClaimError::Held {
            place,
            pid: holder.pid,
        }
    } else {
        ClaimError::Squatted {
            place,
            pid: holder.pid,
            uid: holder.uid,
        }
    }
}

/// The claims of one AFTR, by place.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<Place, Option<Claim>>);

impl Claims {
    /// Claims, by means of `take`, those of `places` that this value does not hold yet. The caller
    /// adds the new claims by [`Claims::replace`]; if it drops them instead, nothing has changed.
    ///
    /// # Errors
    /// A place cannot be claimed; the new claims are released.
    pub fn more(
        &self,
        places: &[Place],
        mut take: impl FnMut(&Place) -> Result<Option<Claim>, ClaimError>,
    ) -> Result<Claims, ClaimError> {
        let mut fresh = BTreeMap::new();
        for place in places {
            if !self.0.contains_key(place) && !fresh.contains_key(place) {
                fresh.insert(place.clone(), take(place)?);
            }
        }
        Ok(Claims(fresh))
    }

    /// Adds the claims of `fresh`, then releases every claim that `places` does not need.
    pub fn replace(&mut self, places: &[Place], fresh: Claims) {
        self.0.extend(fresh.0);
        self.0.retain(|place, _| places.contains(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(interface: &str, vlan: Option<u16>) -> Place {
        Place {
            interface: format!("{interface}-{}", std::process::id()),
            netns: None,
            vlan,
        }
    }

    #[test]
    fn place_has_one_holder_until_it_is_dropped() {
        let eth1 = place("eth1", None);
        let claim = Claim::take(&eth1).unwrap();
        let refusal = Claim::take(&eth1).unwrap_err().to_string();
        let (name, pid) = (&eth1.interface, std::process::id());
        assert_eq!(
            refusal,
            format!(
                "{name}, frames without VLAN tag: process {pid} already runs an AFTR on these frames; stop \
                 it, or give this AFTR another interface or vlan-tag"
            )
        );
        let others = [place("eth1", Some(7)), place("eth2", None)];
        let others = others.map(|place| Claim::take(&place).unwrap());
        drop(claim);
        Claim::take(&eth1).unwrap();
        drop(others);
    }

    #[test]
    fn holder_that_is_asked_often_is_still_the_holder() {
        let eth3 = place("eth3", Some(5));
        let claim = Claim::take(&eth3).unwrap();
        for _ in 0..2 * BACKLOG {
            assert!(matches!(Claim::take(&eth3), Err(ClaimError::Held { .. })));
        }
        drop(claim);
    }

    #[test]
    fn claims_follow_a_configuration_or_stay_as_they_are() {
        let [a, b, c] = ["a", "b", "c"].map(|name| place(name, None));
        let take = |place: &Place| Claim::take(place).map(Some);
        let mut claims = Claims::default();
        let both = [a.clone(), b.clone()];
        claims.replace(&both, claims.more(&both, take).unwrap());
        let other = Claim::take(&c).unwrap();
        let wanted = [b.clone(), c.clone()];
        assert!(claims.more(&wanted, take).is_err());
        assert!(Claim::take(&a).is_err(), "nothing has changed");
        drop(other);
        let fresh = claims.more(&wanted, take).unwrap();
        claims.replace(&wanted, fresh);
        assert!(Claim::take(&a).is_ok() && Claim::take(&c).is_err());
    }
}
