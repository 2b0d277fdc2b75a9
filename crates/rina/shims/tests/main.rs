//! Tests of the data plane and the shims.

mod bare_peer;
mod crossing;
mod flows;
mod pair;
mod udp_peer;
