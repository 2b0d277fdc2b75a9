//! Bits of virtio and of vhost-user that are negotiated.

/// The driver notices that buffers are used in order. (VIRTIO 1.2 §6)
pub const IN_ORDER: u64 = 1 << 35;
/// Descriptors may lead to tables of descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Each end says at which index it wants to be notified.
pub const EVENT_IDX: u64 = 1 << 29;
/// The device is one of VIRTIO 1.0 or later.
pub const VERSION_1: u64 = 1 << 32;
/// Rings have the packed layout.
pub const RING_PACKED: u64 = 1 << 34;
/// Headers need no descriptor of their own.
pub const ANY_LAYOUT: u64 = 1 << 27;

/// The back end marks the pages that it writes. (vhost-user)
pub const LOG_ALL: u64 = 1 << 26;
/// Protocol features are negotiated. (vhost-user)
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Of a network device. (VIRTIO 1.2 §5.1.3)
pub mod net {
    /// The device fills in checksums of what it gets.
    pub const CSUM: u64 = 1;
    /// The driver takes frames whose checksum is not filled in.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The driver learns the MTU of the network.
    pub const MTU: u64 = 1 << 3;
    /// The driver takes TCP over IPv4 that is to be cut.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver takes TCP over IPv6 that is to be cut.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The device cuts TCP over IPv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device cuts TCP over IPv6.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// A frame may take several chains of the driver.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// The driver announces itself after a migration.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// There are several pairs of rings.
    pub const MQ: u64 = 1 << 22;
}
