//! Simulations: many seeds, each a network of IPCPs.

mod churn;
mod depth;
mod dialects;
mod namesakes;
mod scale;
mod seeds;
