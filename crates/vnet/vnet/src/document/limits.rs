//! How much a document may ask for.

/// Bytes of its text.
pub const TEXT_MAX: usize = 4 << 20;
/// Depth of nested elements, tables and lists in it.
pub const DEPTH_MAX: usize = 16;
/// Nodes.
pub const NODES_MAX: usize = 2000;
/// Links.
pub const LINKS_MAX: usize = 8000;
/// Access points, and tests.
pub const OTHERS_MAX: usize = 1000;
/// Letters of a name of a network, a node or an access point.
pub const NAME_MAX: usize = 32;
/// Letters of the name of an interface, as Linux bounds it (`IFNAMSIZ`).
pub const INTERFACE_MAX: usize = 15;
/// Letters of an image, a location, a label, a user.
pub const TEXT_VALUE_MAX: usize = 256;
/// Locations, labels, users, nodes to be apart from.
pub const LIST_MAX: usize = 256;
/// Processors of a node.
pub const CPUS_MAX: u32 = 256;
/// Memory of a node, MiB: at least that with which a kernel boots, at most 1 TiB.
pub const MEMORY_MIB: std::ops::RangeInclusive<u64> = 32..=1 << 20;
/// Physical interfaces of a node.
pub const NICS_MAX: u32 = 16;
