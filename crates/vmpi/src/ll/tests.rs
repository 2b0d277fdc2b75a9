//! The attach handshake over memfd.
