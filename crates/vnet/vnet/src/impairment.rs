//! Requests to impair links on purpose, each direction by itself.

use std::collections::BTreeMap;

pub use crate::document::{Impairment, ImpairmentError, LinkImpairment};

/// The impairments of a network, by link number.
pub type Impairments = BTreeMap<u32, LinkImpairment>;
