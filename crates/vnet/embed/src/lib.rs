//! Places virtual networks on a substrate: each node on a host, each link on a path.
//!
//! A [`Substrate`] consists of the hosts and links of one or several providers. A [`Request`] is a
//! virtual network: nodes that need processors, memory, network cards and a location, and links
//! that need a rate and have a largest delay. An [`Embedder`] looks at the free resources, the
//! [`Residual`], and returns an [`Embedding`], which the residual then [takes](Residual::take), or
//! a [`Refusal`]. For a refused request [`explain`](explanation::explain) finds the binding
//! constraint and the smallest relaxation that would fit.
//!
//! - [`joint::Joint`] is Carina's embedder: it places nodes and links together.
//! - [`ranked::Ranked`] places nodes by rank and routes links afterwards, as the published
//!   baselines do.
//! - [`cases`] draws the substrates and requests of published evaluations from a seed;
//!   [`online::Online`] simulates requests that arrive and end.
//!
//! IDs are integers; names belong to the caller. The crate does no I/O, reads no clock and starts
//! no thread. `docs/explanation/embedding.md` describes the algorithms and their sources.
#![forbid(unsafe_code)]

mod attempt;
pub mod cases;
pub mod embedder;
pub mod embedding;
pub mod explanation;
pub mod id;
pub mod joint;
pub mod online;
pub mod ranked;
pub mod request;
pub mod residual;
mod search;
pub mod substrate;

pub use self::embedder::{Embedder, Refusal};
pub use self::embedding::Embedding;
pub use self::id::{HostId, Label, LinkId, Location, NodeId, ProviderId, VirtualLinkId};
pub use self::request::Request;
pub use self::residual::Residual;
pub use self::substrate::Substrate;
