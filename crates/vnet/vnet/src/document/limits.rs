//! Upper limits of a document.

/// Bytes of a document's text.
pub const TEXT_MAX: usize = 4 << 20;
/// Depth of nested elements, tables and lists.
pub const DEPTH_MAX: usize = 16;
/// Nodes of a document.
pub const NODES_MAX: usize = 2000;
/// Links of a document.
pub const LINKS_MAX: usize = 8000;
/// Access points of a document, and tests of a document.
pub const OTHERS_MAX: usize = 1000;
/// Letters of the name of a network, node or access point.
pub const NAME_MAX: usize = 32;
/// Letters of the name of an interface, as Linux bounds it (`IFNAMSIZ`).
pub const INTERFACE_MAX: usize = 15;
/// Letters of the name of an image, location, label or user.
pub const TEXT_VALUE_MAX: usize = 256;
/// Entries of a list of locations, labels or users, or of `apart_from`.
pub const LIST_MAX: usize = 256;
/// Processors of a node.
pub const CPUS_MAX: u32 = 256;
/// Range of a node's memory, MiB. A kernel does not boot with less; the upper bound is 1 TiB.
pub const MEMORY_MIB: std::ops::RangeInclusive<u64> = 32..=1 << 20;
/// Physical interfaces of a node.
pub const NICS_MAX: u32 = 16;
