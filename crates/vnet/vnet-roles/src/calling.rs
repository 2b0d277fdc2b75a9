//! Calls to another party: HTTP/1.1 (RFC 9112) over TLS, and a link, which keeps a conversation up.

pub mod address;
pub mod connection;
pub mod link;
