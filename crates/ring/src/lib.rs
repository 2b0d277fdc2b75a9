//! The channel: a single-producer single-consumer message ring for an untrusted peer.
