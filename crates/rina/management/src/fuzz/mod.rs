//! Fuzz entry points for a member of a native DIF: the whole IPCP, and the decoders of values that
//! other members write.

pub mod member;
pub mod values;
