//! Entry points for fuzzing a member of a native DIF: the whole IPC process, and what reads the
//! values that other members write.

pub mod member;
pub mod values;
