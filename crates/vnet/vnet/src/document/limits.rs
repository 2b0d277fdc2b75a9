//! Upper limits of a document.

use super::Span;

/// Largest length of a document's text, in bytes.
pub const TEXT_MAX: usize = 4 << 20;
/// Deepest nesting of elements, tables and lists in a document.
pub const DEPTH_MAX: usize = 16;
/// Largest number of nodes in a document.
pub const NODES_MAX: usize = 2000;
/// Largest number of links in a document.
pub const LINKS_MAX: usize = 8000;
/// Largest number of access points in a document, and largest number of tests.
pub const OTHERS_MAX: usize = 1000;
/// Largest number of bridges and ends of links in one segment.
pub const SEGMENT_MAX: usize = 2046;
/// Longest name of a network, node or access point, in characters.
pub const NAME_MAX: usize = 32;
/// Longest name of an interface, in characters, as Linux limits it (`IFNAMSIZ`).
pub const INTERFACE_MAX: usize = 15;
/// Longest name of an image, location, label or user, in characters.
pub const TEXT_VALUE_MAX: usize = 256;
/// Largest number of entries in a list of locations, labels or users, or in `apart_from`.
pub const LIST_MAX: usize = 256;
/// Largest number of commands that a node runs at its start.
pub const COMMANDS_MAX: usize = 64;
/// Longest command, and longest value of an environment variable, in bytes.
pub const COMMAND_BYTES_MAX: usize = 8192;
/// Largest number of environment variables of a node.
pub const VARIABLES_MAX: usize = 64;
/// Largest number of files that a node gets.
pub const FILES_MAX: usize = 64;
/// Largest file that a node gets, in bytes.
pub const FILE_BYTES_MAX: usize = 256 << 10;
/// Largest sum of the files that a node gets, in bytes.
pub const FILES_BYTES_MAX: usize = 1 << 20;
/// Longest path of a file, in bytes.
pub const PATH_BYTES_MAX: usize = 512;
/// Longest deadline of a command at a node's start.
pub const DEADLINE_MAX: Span = Span::HOUR;
/// Largest number of times at which a link goes down by its timetable.
pub const DOWN_TIMES_MAX: usize = 64;
/// Longest delay of a link, so that probes pass it in time.
pub const DELAY_MAX: Span = Span::SECONDS_10;
/// Range of a link's MTU. Every IPv4 link carries packets of 68 bytes (RFC 791, section 3.2); the
/// upper bound is what frames of the engine hold.
pub const MTU: std::ops::RangeInclusive<u16> = 68..=9000;
/// Least MTU of a link with IPv6. (RFC 8200, section 5)
pub const MTU6_MIN: u16 = 1280;
/// Largest number of processors of a node.
pub const CPUS_MAX: u32 = 256;
/// Range of a node's memory, MiB. A kernel does not boot with less; the upper bound is 1 TiB.
pub const MEMORY_MIB: std::ops::RangeInclusive<u64> = 32..=1 << 20;
/// Largest number of physical network interfaces of a node.
pub const NICS_MAX: u32 = 16;
