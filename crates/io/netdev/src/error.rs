//! Errors of network devices and of fault plans.

use std::io;

use thiserror::Error;

/// Why a network device could not be opened or changed. The text names the fault and what would be
/// right.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetdevError {
    /// This network namespace has no interface of that name.
    #[error("there is no network interface {name:?}; this system has: {have}")]
    NoInterface {
        /// The name that was requested.
        name: String,
        /// The names of the interfaces that exist.
        have: String,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "{name} is no Ethernet interface (hardware type {kind}); frames need one of type 1, such as \
         a network card, veth, tap or bridge"
    )]
    NotEthernet {
        /// Name of the interface that is not an Ethernet interface.
        name: String,
        /// Hardware type of the interface, as in `/usr/include/linux/if_arp.h`.
        kind: u16,
    },
    /// The text is not a valid interface name.
    #[error(
        "{0:?}: the name of an interface has 1 to 15 bytes, without '/', ':', '%' and white space"
    )]
    Name(String),
    /// The process lacks a capability that the operation needs.
    #[error("{what} needs {capability}; run as root, or give the program that capability")]
    NotPermitted {
        /// The operation that the process attempted, as text.
        what: String,
        /// The capability that is missing.
        capability: &'static str,
    },
    /// The kernel refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation that the kernel refused, as text.
        what: String,
        /// Why the kernel refused the operation.
        source: io::Error,
    },
}

/// Why a fault plan is invalid: which value is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FaultPlanError {
    /// A share is not between 0 and 1.
    #[error("{name} is {share}; it must be a share from 0 to 1")]
    Share {
        /// Name of the value in the plan, such as `loss`.
        name: &'static str,
        /// The invalid share, as it was given.
        share: f64,
    },
    /// A share of packets is to be reordered, but the plan has no delay, so they cannot overtake
    /// others.
    #[error("reorder needs a delay: reordered frames are those that are sent without the delay")]
    ReorderWithoutDelay,
    /// The jitter exceeds the delay.
    #[error("jitter is {jitter_ns} ns; it must be at most the delay, {delay_ns} ns")]
    JitterAboveDelay {
        /// The jitter in ns.
        jitter_ns: u64,
        /// The delay in ns.
        delay_ns: u64,
    },
}

impl NetdevError {
    /// The last error of the kernel for the operation `what`, which needs `capability`.
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

    /// The error of an operation on a device that needs `CAP_NET_ADMIN`.
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
