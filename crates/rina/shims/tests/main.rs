//! Tests of the data plane and the shims.

mod bare_peer;
mod crossing;
mod flows;
mod hostile;
mod pair;
mod streams;
mod udp_peer;
