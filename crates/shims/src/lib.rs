//! Shim IPC processes: hypervisor and loopback.
