//! Tests of whole IPCPs of native DIFs, wired to one another on a virtual clock.

mod documented;
mod layer_management;
