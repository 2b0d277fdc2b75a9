//! Networks on this machine, and what is left of them.

mod machines;
mod namespaces;
mod socket;
mod waiting;
