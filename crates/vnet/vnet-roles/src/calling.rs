//! Calls to other parties: HTTP/1.1 (RFC 9112) over TLS, and links, which keep a connection to a
//! party up.

pub mod address;
pub mod connection;
pub mod link;
