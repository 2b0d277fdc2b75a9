//! SDU protection and authentication.

#![forbid(unsafe_code)]
