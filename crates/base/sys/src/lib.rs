//! Safe interfaces to the operating system: memfd, mmap, eventfd, doorbells, epoll, fd passing,
//! membarrier, network namespaces, grants and event channels of Xen.
//!
//! This crate has all system calls that the workspace needs beyond `std`, so that the crates above
//! can forbid `unsafe`. It does not interpret memory or messages, and trusts no other process: it
//! checks sizes against the kernel's answer, seals memory from a peer before it is mapped, and
//! treats a truncated datagram as an error.

mod clock;
mod doorbell;
mod epoll;
mod eventfd;
mod fdpass;
mod huge_pages;
mod lost_pages;
mod mapping;
mod membarrier;
mod memory;
mod network_namespace;
mod numa;
mod process;
mod processor;
mod socket;
mod socket_watch;
mod stop;
mod succession;
mod xen;

pub use crate::clock::{CpuClock, cpu_time_ns, monotonic_ns};
pub use crate::doorbell::{Doorbell, doorbells_ring_again};
pub use crate::epoll::{Epoll, Interest, Ready};
pub use crate::eventfd::EventFd;
pub use crate::fdpass::{Datagram, FDS_MAX, recv_with_fds, send_with_fds};
pub use crate::huge_pages::{
    huge_page_file, huge_page_file_exists, huge_page_file_remove, physical_addresses,
};
pub use crate::lost_pages::lost_pages;
pub use crate::mapping::{HUGE_PAGE_BYTES, Mapping, PAGE_BYTES, Pages};
pub use crate::membarrier::{membarrier_global, membarrier_register};
pub use crate::memory::Memory;
pub use crate::network_namespace::NetworkNamespace;
pub use crate::numa::{bind_to_cpu, prefer_memory_of_cpu};
pub use crate::process::{
    SchedulePeriod, allow_cpus, allowed_cpus, ask_for_short_slices, cpus_allowed, cpus_online,
    cpus_possible, end_with_parent, hold_processor, memory_bytes, pin_to_cpu, precede_others,
    raise_nofile_limit, wait_for_turns, yield_now,
};
pub use crate::processor::is_emulated;
pub use crate::socket::{
    Credentials, accept_seqpacket, connect_seqpacket, connect_stream, listen_seqpacket,
    peer_credentials, peer_has_unread, socketpair_seqpacket, socketpair_stream, unread_bytes,
};
pub use crate::socket_watch::SocketWatch;
pub use crate::stop::{ReloadSignal, StopSignal, unblock_stop_signals};
pub use crate::succession::{SUCCESSION, listen_tcp, lock_file};
pub use crate::xen::{
    XenDomain, XenEventChannels, XenForeignPages, XenGrant, XenGrantedPages, XenUnmapNotice,
    open_xenbus, xen_devices_exist,
};
