//! Why a device cannot be opened.

use std::io;

use thiserror::Error;

/// What went wrong with a device, and what would be right.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetdevError {
    /// There is no such interface in this network namespace.
    #[error("there is no network interface {name:?}; this system has: {have}")]
    NoInterface {
        /// What was asked for.
        name: String,
        /// What there is.
        have: String,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "{name} is no Ethernet interface (hardware type {kind}); frames need one of type 1, such as \
         a network card, veth, tap or bridge"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// Its hardware type, as in `/usr/include/linux/if_arp.h`.
        kind: u16,
    },
    /// No interface can have this name.
    #[error(
        "{0:?}: the name of an interface has 1 to 15 bytes, without '/', ':', '%' and white space"
    )]
    Name(String),
    /// The process may not do this.
    #[error("{what} needs {capability}; run as root, or give the program that capability")]
    NotPermitted {
        /// What was attempted.
        what: String,
        /// The capability that is missing.
        capability: &'static str,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A value of a fault plan that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FaultPlanError {
    /// A share is not between 0 and 1.
    #[error("{name} is {share}; a share from 0 to 1 is possible")]
    Share {
        /// Which share.
        name: &'static str,
        /// Its value.
        share: f64,
    },
    /// Packets are to be reordered without a delay to overtake.
    #[error("reorder needs a delay, which the reordered do not have")]
    ReorderWithoutDelay,
    /// The jitter exceeds the delay.
    #[error("jitter is {jitter_ns} ns; at most the delay, {delay_ns} ns, is possible")]
    JitterAboveDelay {
        /// The jitter.
        jitter_ns: u64,
        /// The delay.
        delay_ns: u64,
    },
}

impl NetdevError {
    /// The last error of the kernel, in words.
    pub(crate) fn last(what: impl Into<String>, capability: &'static str) -> NetdevError {
        NetdevError::from_io(what, capability, io::Error::last_os_error())
    }

    pub(crate) fn from_io(
        what: impl Into<String>,
        capability: &'static str,
        source: io::Error,
    ) -> NetdevError {
        if source.kind() == io::ErrorKind::PermissionDenied {
            let what = "a socket for whole frames (AF_PACKET)".to_owned();
            return NetdevError::NotPermitted { what, capability };
        }
        NetdevError::System {
            what: what.into(),
            source,
        }
    }

    /// The refusal of a device that needs `CAP_NET_ADMIN`.
    pub(crate) fn of_device(what: String, source: io::Error) -> NetdevError {
        match source.kind() {
            io::ErrorKind::PermissionDenied => NetdevError::NotPermitted {
                what,
                capability: "CAP_NET_ADMIN",
            },
            _ => NetdevError::System { what, source },
        }
    }
}
