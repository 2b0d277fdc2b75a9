//! The IPC Manager.
