//! Feature bits of virtio and of vhost-user.

/// Feature bit: the device uses buffers in the order in which they became available. (VIRTIO 1.2
/// §6)
pub const IN_ORDER: u64 = 1 << 35;
/// Feature bit: a descriptor may refer to an indirect table of descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Feature bit: each end requests notifications by an index in the ring.
pub const EVENT_IDX: u64 = 1 << 29;
/// Feature bit: the device complies with VIRTIO 1.0 or later.
pub const VERSION_1: u64 = 1 << 32;
/// Feature bit: rings have the packed layout.
pub const RING_PACKED: u64 = 1 << 34;
/// Feature bit: a header may share a descriptor with data.
pub const ANY_LAYOUT: u64 = 1 << 27;

/// Feature bit: the back end marks the pages that it writes in a log. (vhost-user)
pub const LOG_ALL: u64 = 1 << 26;
/// Feature bit: the two ends negotiate protocol features. (vhost-user)
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Feature bits of a network device. (VIRTIO 1.2 §5.1.3)
pub mod net {
    /// Feature bit: the device fills in missing checksums of frames from the driver.
    pub const CSUM: u64 = 1;
    /// Feature bit: the driver accepts frames with a missing checksum.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// Feature bit: the device tells the driver the MTU of the network.
    pub const MTU: u64 = 1 << 3;
    /// Feature bit: the driver accepts unsegmented TCP over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// Feature bit: the driver accepts unsegmented TCP over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// Feature bit: the device segments TCP over IPv4 for the driver.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// Feature bit: the device segments TCP over IPv6 for the driver.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// Feature bit: a frame for the driver may occupy several chains (mergeable buffers).
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// Feature bit: the driver announces itself to the network after a migration.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// Feature bit: the device has several pairs of rings.
    pub const MQ: u64 = 1 << 22;
}
