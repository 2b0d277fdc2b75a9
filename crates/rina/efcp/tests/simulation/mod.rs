//! Two connections over a channel that loses, repeats, reorders and delays, on a virtual clock.

mod channel;
mod control;
mod crash;
mod delivery;
mod impaired;
mod profiles;
mod throughput;
