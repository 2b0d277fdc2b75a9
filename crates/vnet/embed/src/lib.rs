//! Virtual networks placed on a substrate: each node on a host, each link on a path.
//!
//! A [`Substrate`] is hosts and links of one or several providers. A [`Request`] is a virtual
//! network: nodes that want processors, memory, network cards and a location, and links that want a
//! rate and a largest delay. An [`Embedder`] looks at what is free, the [`Residual`], and answers
//! with an [`Embedding`], which the residual then [takes](Residual::take), or with a [`Refusal`],
//! for which [`explain`](explanation::explain) finds the constraint that binds and the smallest
//! relaxation that would fit.
//!
//! - [`joint::Joint`] is Carina's embedder: nodes and links are placed together.
//! - [`ranked::Ranked`] places nodes by rank and routes afterwards: the published baselines.
//! - [`cases`] draws the substrates and requests of published evaluations, by seed;
//!   [`online::Online`] lets requests come and go.
//!
//! Ids are integers, names are the caller's. Nothing here does I/O, reads a clock or starts a
//! thread. `docs/explanation/embedding.md` describes the algorithms and where they come from.
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
