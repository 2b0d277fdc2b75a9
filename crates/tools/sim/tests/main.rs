//! Simulation tests: many seeds, each with a network of IPCPs.

mod asked;
mod bottleneck;
mod churn;
mod depth;
mod dialects;
mod name_conflict;
mod once_enrolled;
mod scale;
mod seeds;
mod shared_name;
mod vnets;
