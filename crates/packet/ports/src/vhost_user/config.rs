//! The configuration of the app, and the features that it offers a guest.

use std::path::PathBuf;

use carina_vhost_user::features::{self, net};
use serde::{Deserialize, Serialize};

/// The configuration of the app `vhost_user`, which connects a graph to the network card of a
/// guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VhostUserConfig {
    /// Path of the vhost-user socket at which QEMU and the app meet.
    pub socket: PathBuf,
    /// Whether the guest's process (QEMU) creates the socket and the app connects to it; if false,
    /// the app creates the socket.
    #[serde(default)]
    pub client: bool,
    /// Number of ring pairs that the card offers, 1 to 8.
    #[serde(default = "one")]
    pub queues: usize,
    /// Whether to offer the guest's driver packed rings (VIRTIO 1.2 §2.8); if not, or if the driver
    /// refuses them, rings are split.
    #[serde(default = "yes")]
    pub packed: bool,
    /// Whether to offer mergeable buffers: a frame may occupy several of them.
    #[serde(default = "yes")]
    pub mergeable: bool,
    /// Whether to offer indirect descriptors: tables of descriptors outside the ring.
    #[serde(default = "yes")]
    pub indirect: bool,
    /// Whether to offer the event index: each side publishes the ring index at which it wants the
    /// next notification.
    #[serde(default = "yes")]
    pub event_index: bool,
    /// Whether frames from the guest keep missing checksums and pending segmentation as metadata.
    /// If not, the app completes and segments them.
    #[serde(default)]
    pub offload: bool,
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

impl VhostUserConfig {
    /// Checks numbers and lengths.
    pub(super) fn check_limits(&self) -> Result<(), VhostUserError> {
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return Err(VhostUserError::Queues(self.queues));
        }
        let bytes = self.socket.as_os_str().len();
        if !(1..=SOCKET_PATH_BYTES_MAX).contains(&bytes) {
            let socket = self.socket.clone();
            return Err(VhostUserError::Socket { socket, bytes });
        }
        Ok(())
    }

    /// A configuration for a socket that the app creates at this path, with the default of each
    /// other key.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> VhostUserConfig {
        VhostUserConfig {
            socket: socket.into(),
            client: false,
            queues: 1,
            packed: true,
            mergeable: true,
            indirect: true,
            event_index: true,
            offload: false,
        }
    }

    /// The features that the card offers to the guest's driver, as bits of virtio.
    pub(super) fn features(&self) -> u64 {
        let chosen = [
            (self.packed, features::RING_PACKED),
            (self.mergeable, net::MRG_RXBUF),
            (self.indirect, features::INDIRECT_DESC),
            (self.event_index, features::EVENT_IDX),
            (self.queues > 1, net::MQ),
        ];
        let chosen = chosen.into_iter().filter(|(is_offered, _)| *is_offered);
        let chosen: u64 = chosen.map(|(_, bit)| bit).sum();
        chosen
            | features::VERSION_1
            | features::IN_ORDER
            | features::ANY_LAYOUT
            | net::CSUM
            | net::GUEST_CSUM
            | net::HOST_TSO4
            | net::HOST_TSO6
            | net::GUEST_TSO4
            | net::GUEST_TSO6
            | net::GUEST_ANNOUNCE
            | net::MTU
    }
}

/// Why a configuration of the app `vhost_user` is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum VhostUserError {
    #[error("queues = {0}: must be 1 to {QUEUES_MAX}")]
    Queues(usize),
    #[error(
        "socket = {socket:?}: the path has {bytes} bytes: must be 1 to {SOCKET_PATH_BYTES_MAX}, as \
         for every Unix socket"
    )]
    Socket { socket: PathBuf, bytes: usize },
}

/// Largest number of ring pairs.
const QUEUES_MAX: usize = 8;

/// Length of the longest path of a Unix socket, without the terminating zero. (unix(7))
const SOCKET_PATH_BYTES_MAX: usize = 107;
